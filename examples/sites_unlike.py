"""Hospitals with different patients: exact PCA of the pooled samples, compared with two common short cuts.

Six hospitals each treat one kind of tumour (the breast cancer data of scikit-learn, split by diagnosis). The true
components are those of all patients together. The table shows the sine of the angle to them: 0 is the same direction,
1 is a right angle.

- eigenmesh: the hospitals agree on the pooled mean first, then find the components by talking to neighbours.
- own mean: each hospital subtracts its own mean. This removes the differences between hospitals before PCA starts.
- averaged: each hospital computes its own covariance, and these are averaged with equal weights.
"""

from __future__ import annotations

import numpy as np
from sklearn.datasets import load_breast_cancer
from sklearn.decomposition import PCA

from eigenmesh import DecentralizedPCA
from eigenmesh.data import LabelSplit
from eigenmesh.metrics import sin_squared

COMPONENTS, HOSPITALS = 3, 6


def leading(covariance: np.ndarray) -> np.ndarray:
    """Leading eigenvectors, largest first: (d, d) -> (K, d)."""
    return np.linalg.eigh(covariance)[1][:, ::-1][:, :COMPONENTS].T


def sines(components: np.ndarray, truth: np.ndarray) -> np.ndarray:
    """Sine of the angle between each component and the true one: (K, d), (K, d) -> (K,)."""
    return np.sqrt(sin_squared(components.T[np.newaxis], truth.T)[0])


def main() -> None:
    X, diagnosis = load_breast_cancer(return_X_y=True)
    X = X / X.std(axis=0)
    parts = [X[rows] for rows in LabelSplit().rows(len(X), HOSPITALS, diagnosis)]

    pca = DecentralizedPCA(COMPONENTS, topology="cycle", random_state=0).fit(parts)
    answers = {
        "eigenmesh": pca.components_,
        "own mean": leading(np.cov(np.vstack([part - part.mean(axis=0) for part in parts]), rowvar=False)),
        "averaged": leading(np.mean([np.cov(part, rowvar=False) for part in parts], axis=0)),
    }
    truth = PCA(COMPONENTS, svd_solver="full").fit(X).components_

    print(f"{HOSPITALS} hospitals with {', '.join(str(len(part)) for part in parts)} patients, linked in a ring")
    print("sine of the angle to PCA of all patients in one place, for components 1 to 3:")
    for name, components in answers.items():
        print(f"{name:>10}  " + "  ".join(f"{sine:7.1e}" for sine in sines(components, truth)))
    bound = pca.certificate_.error_bound
    print(f"eigenmesh: {pca.stop_reason_.label} in {pca.traffic_.rounds:,} rounds, certified to be within {bound:.1e}")


if __name__ == "__main__":
    main()
