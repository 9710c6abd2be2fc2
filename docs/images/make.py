"""Make the picture of the README: five hospitals find the components of all their patients, and none shows a patient.

``python docs/images/make.py FOLDER`` writes it there. The samples are those of the Wisconsin breast cancer data in
scikit-learn, split so that hospitals differ: the first treats the smallest tumours, the last the largest.
"""

from __future__ import annotations

import sys
from pathlib import Path

import matplotlib.pyplot as plt
import numpy as np
from PIL import Image
from sklearn.datasets import load_breast_cancer
from sklearn.decomposition import PCA

from eigenmesh import DecentralizedPCA

NAME = "hospitals.png"
HOSPITALS = {"Aas": 60, "Bryn": 90, "Dal": 110, "Eik": 139, "Fure": 170}
COLOURS = ("#0072b2", "#e69f00", "#009e73", "#cc79a7", "#56b4e9")
K = 3
ROUNDING = 1e-12


def patients() -> tuple[np.ndarray, np.ndarray]:
    """Standardised measurements of 569 patients, and the hospital of each: (569, 30), (569,)."""
    samples = load_breast_cancer().data
    hospital = np.empty(len(samples), dtype=object)
    hospital[np.argsort(samples[:, 0], kind="stable")] = np.repeat(list(HOSPITALS), list(HOSPITALS.values()))
    return samples, hospital


def main() -> None:
    """Fit, compare with the pooled data, and draw."""
    samples, hospital = patients()
    pca = DecentralizedPCA(K, scale=True, privacy="masked", random_state=0).fit(samples, nodes=hospital)
    standard = (samples - samples.mean(axis=0)) / samples.std(axis=0, ddof=1)
    pooled = PCA(K, svd_solver="covariance_eigh").fit(standard)
    signs = np.sign(np.sum(pca.components_ * pooled.components_, axis=1))
    along = pca.components_ * signs[:, np.newaxis]
    cosines = np.sum(along * pooled.components_, axis=1)[:, np.newaxis]
    true = np.linalg.norm(along - cosines * pooled.components_, axis=1)
    left, middle, right = plt.figure(figsize=(10, 3.5), layout="constrained").subplots(1, 3)

    for name, colour in zip(HOSPITALS, COLOURS, strict=True):
        own = hospital == name
        alone = PCA(2, svd_solver="covariance_eigh").fit(standard[own])
        turn = np.sign(np.sum(alone.components_ * pooled.components_[:2], axis=1))
        left.scatter(*(alone.transform(standard[own]) * turn).T, s=5, color=colour, label=name)
        middle.scatter(*(pca.transform(samples[own]) * signs)[:, :2].T, s=5, color=colour)
    every = pooled.transform(standard)[:, :2]
    middle.scatter(*every.T, s=22, facecolors="none", edgecolors="black", linewidths=0.25, label="pooled PCA")
    left.set_title("Each hospital alone: no common axes", fontsize=10)
    middle.set_title("Together: the scores of pooled PCA", fontsize=10)
    for axes in (left, middle):
        axes.set(xlabel="component 1", ylabel="component 2", xticks=[], yticks=[])
        axes.legend(fontsize=7, loc="upper right", frameon=False, markerscale=1.5)

    numbers = np.arange(1, K + 1)
    right.semilogy(numbers, np.full(K, 1e-6), "--", color="grey", label="tolerance")
    # Smaller ones are rounding, which differs between machines.
    bounds, angles = np.maximum(pca.certificate_.error_bounds, ROUNDING), np.maximum(true, ROUNDING / 100)
    right.semilogy(numbers, bounds, "v", color="#d55e00", label="certified: at most this")
    right.semilogy(numbers, angles, "o", color="black", label="true, from the pooled data: at most this")
    right.set(xlabel="component", xticks=numbers, xlim=(0.5, K + 0.5), ylim=(1e-20, 1e-4))
    right.set_title("Sine of the angle to the true component", fontsize=10)
    right.legend(fontsize=7, loc="lower right", frameon=False)
    path = Path(sys.argv[1]) / NAME
    plt.savefig(path, dpi=110)
    with Image.open(path) as picture:
        small = picture.convert("RGB").quantize(64)
    small.save(path, optimize=True)
    print(pca.n_nodes_, pca.traffic_.rounds, pca.certificate_.error_bounds, true)


if __name__ == "__main__":
    main()
