"""HapMap3 as .bed files of eleven sites against exact pooled PCA and against PLINK 2, exact and approximate.

Chromosomes and second alleles, which the data lack, are made up; imputed genotypes are set to missing again. The truth
is ``eigh`` of the relationship matrix of the pooled standardised genotypes. Without ``--plink2`` only eigenmesh runs.

    python benchmarks/genotypes.py --plink2 /usr/bin/plink2

With ``--new`` every fourth sample is left out of the fit, and its scores, plain and corrected, are compared with its
scores in a fit of all samples; the slope of a line through them shows how much they shrink.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import numpy as np

from eigenmesh import DecentralizedPCA
from eigenmesh.data import Shards, read_table
from eigenmesh.data.formats.plink import Variant, save_plink
from eigenmesh.model import read_model

sys.path.insert(0, str(Path(__file__).parents[1] / "tests"))
from genotypes import vectors_in, write_bed

K = 10
OTHER = {"A": "C", "C": "A", "G": "A", "T": "C"}


def hapmap3(folder: Path) -> tuple[np.ndarray, list[Path]]:
    """Copies (957, 14079) with NaN, and a .bed file for each population; pooled.bed has all."""
    with np.load(Path(os.environ["EIGENMESH_DATA"]) / "hapmap3.npz") as data:
        copies, imputed, site = data["X"].astype(float), data["imputed"], data["site"]
        names, counted, sites = (data[key].tolist() for key in ("feature_names", "counted_allele", "site_names"))
    copies[imputed[:, 0], imputed[:, 1]] = np.nan
    pairs = zip(names, counted, strict=True)
    variants = [Variant("1", name, str(at + 1), (allele, OTHER[allele])) for at, (name, allele) in enumerate(pairs)]
    samples = np.array([f"s{row}" for row in range(len(copies))])
    write_bed(folder / "pooled", copies, samples.tolist(), variants)
    for number, name in enumerate(sites):
        write_bed(folder / name, copies[site == number], samples[site == number].tolist(), variants)
    return copies, [folder / f"{name}.bed" for name in sites]


def true_vectors(copies: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Eigenvectors (N, K) and eigenvalues of the relationship matrix, as PLINK defines it."""
    p = np.nanmean(copies, axis=0) / 2
    Z = np.nan_to_num((copies - 2 * p) / np.sqrt(2 * p * (1 - p)))
    values, vectors = np.linalg.eigh(Z @ Z.T / Z.shape[1])
    return vectors[:, ::-1][:, :K], values[::-1][:K]


def largest_sine(found: np.ndarray, truth: np.ndarray) -> float:
    """Largest sine of the angle between a vector and the true vector of the same number."""
    found = found / np.linalg.norm(found, axis=0)
    away = found - truth * np.sum(found * truth, axis=0)
    return float(np.linalg.norm(away, axis=0).max())


def line(
    name: str, seconds: float, vectors: np.ndarray, values: np.ndarray, truth: tuple[np.ndarray, np.ndarray]
) -> None:
    off = np.abs(values / truth[1] - 1).max()
    print(f"{name:32} {seconds:6.1f} s   sin(angle) {largest_sine(vectors, truth[0]):.1e}   eigenvalues {off:.1e}")


def ours(folder: Path, files: list[Path], truth: tuple[np.ndarray, np.ndarray]) -> None:
    start = time.perf_counter()
    pca = DecentralizedPCA(K, scale="binomial", tol=1e-7, random_state=0).fit(Shards.from_files(files))
    seconds = time.perf_counter() - start
    pca.save(folder / "model.npz")
    scores = pca.transform(read_table(folder / "pooled.bed").source)
    save_plink(folder / "ours.eigenvec", folder / "pooled.bed", read_model(folder / "model.npz"), scores)
    values = np.loadtxt(folder / "ours.eigenval")
    line("eigenmesh, 11 sites", seconds, vectors_in(folder / "ours.eigenvec"), values, truth)
    print(f"{'':32} certified {pca.certificate_.error_bound:.1e} in {pca.traffic_.rounds} rounds")


def new_samples(copies: np.ndarray) -> None:
    left_out = np.arange(len(copies)) % 4 == 0
    make = {"n_components": K, "scale": "binomial", "n_nodes": 4, "random_state": 0}
    true = DecentralizedPCA(**make).fit(copies).transform(copies[left_out])
    some = DecentralizedPCA(**make).fit(copies[~left_out])
    print(f"{left_out.sum()} samples left out of a fit of {(~left_out).sum()}: slope of each component")
    for name, found in (("transform", some.transform), ("transform_new", some.transform_new)):
        scores = found(copies[left_out])
        slopes = np.abs(np.sum(scores * true, axis=0) / np.sum(true**2, axis=0))
        print(f"{name:14}", *(f"{slope:.3f}" for slope in slopes))


def plink(program: str, folder: Path, name: str, words: list[str]) -> float:
    start = time.perf_counter()
    command = [program, "--bfile", str(folder / "pooled"), *words, "--out", str(folder / name)]
    subprocess.run(command, check=True, stdout=subprocess.DEVNULL)
    return time.perf_counter() - start


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--plink2", help="the program plink2")
    parser.add_argument("--new", action="store_true", help="samples that were not in the fit, and nothing else")
    asked = parser.parse_args()
    program = asked.plink2
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        copies, files = hapmap3(folder)
        if asked.new:
            new_samples(copies)
            return
        truth = true_vectors(copies)
        ours(folder, files, truth)
        if program is None:
            return
        for kind, words in (("exact", ["meanimpute"]), ("approx", ["approx", "meanimpute"])):
            seconds = plink(program, folder, kind, ["--pca", str(K), *words])
            found = vectors_in(folder / f"{kind}.eigenvec"), np.loadtxt(folder / f"{kind}.eigenval")
            line(f"plink2 --pca {' '.join(words)}, pooled", seconds, *found, truth)
        score = ["--read-freq", str(folder / "ours.afreq"), "--score", str(folder / "ours.eigenvec.allele"), "2", "5"]
        plink(
            program,
            folder,
            "score",
            [
                *score,
                "header-read",
                "no-mean-imputation",
                "variance-standardize",
                "cols=scoresums",
                "--score-col-nums",
                f"6-{5 + K}",
            ],
        )
        head, *rows = [line.split("\t") for line in (folder / "score.sscore").read_text().splitlines()]
        scores = np.array(rows)[:, head.index("PC1_SUM") :].astype(float)
        print(f"{'plink2 --score of our weights':32} {'':8}   sin(angle) {largest_sine(scores, truth[0]):.1e}")


if __name__ == "__main__":
    main()
