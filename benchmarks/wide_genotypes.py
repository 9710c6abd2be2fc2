"""Made-up genotypes of 20,000 samples and 200,000 variants at five real peers, a .bed file of 200 MB each, K = 10.

Eleven populations with their own frequencies; one genotype in a hundred is missing. It prints seconds, the peak memory
of the largest process, and how well the result solves the eigenproblem, ``|C v - theta v| / theta``, computed with an
independent reader of the files. ``--plink2`` also runs ``plink2 --pca approx`` on the pooled file.

    python benchmarks/wide_genotypes.py [--samples 20000] [--variants 200000] [--plink2 /usr/bin/plink2]
"""

from __future__ import annotations

import argparse
import os
import resource
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

import numpy as np

sys.path.insert(0, str(Path(__file__).parents[1] / "tests"))

from genotypes import vectors_in
from mesh import Mesh, ring

SITES, GROUPS, K, AT_ONCE = 5, 11, 10, 2000
# Bit codes of 0, 1 and 2 copies of the first allele, and of a missing genotype.
CODES = np.array([3, 2, 0, 1], dtype=np.uint8)
COPIES = np.array([2.0, np.nan, 1.0, 0.0])
MAGIC = b"\x6c\x1b\x01"


def write(folder: Path, n_samples: int, n_variants: int) -> None:
    """A file for each site and one of all samples, a few variants at a time."""
    rng = np.random.default_rng(0)
    shares = rng.dirichlet(np.full(GROUPS, 0.7), SITES)
    group = np.concatenate([rng.choice(GROUPS, n_samples // SITES, p=share) for share in shares])
    apart = np.geomspace(0.08, 0.01, GROUPS)  # how far the frequencies of a group are from those of all
    names = [*(f"site{site}" for site in range(SITES)), "pooled"]
    rows = [*np.split(np.arange(n_samples), SITES), np.arange(n_samples)]
    files = [(folder / f"{name}.bed").open("wb") for name in names]
    for file in files:
        file.write(MAGIC)
    for _ in range(n_variants // AT_ONCE):
        base = rng.uniform(0.1, 0.5, AT_ONCE)
        frequency = base + np.sqrt(base * (1 - base) * apart[:, np.newaxis]) * rng.standard_normal((GROUPS, AT_ONCE))
        least = (np.clip(frequency, 0.02, 0.98) * 65536).astype(np.uint16).T[:, group]
        copies = np.zeros(least.shape, dtype=np.uint8)
        for _ in range(2):
            copies += rng.integers(0, 65536, least.shape, dtype=np.uint16) < least
        copies[rng.integers(0, 256, least.shape, dtype=np.uint8) < 2] = 3
        for file, part in zip(files, rows, strict=True):
            four = CODES[copies[:, part]].reshape(AT_ONCE, -1, 4)
            file.write((four << np.array([0, 2, 4, 6], dtype=np.uint8)).sum(axis=2, dtype=np.uint8).tobytes())
    lines = "".join(f"1\tv{at}\t0\t{at + 1}\tA\tG\n" for at in range(n_variants))
    for file, name, part in zip(files, names, rows, strict=True):
        file.close()
        (folder / f"{name}.bim").write_text(lines)
        (folder / f"{name}.fam").write_text("".join(f"s{row}\ts{row}\t0\t0\t0\t-9\n" for row in part))


def standardised(bed: Path, n_samples: int, n_variants: int) -> Iterator[tuple[slice, np.ndarray]]:
    """Pairs (variants, Z (variants, samples)) from an independent reader."""
    packed = np.memmap(bed, np.uint8, "r", len(MAGIC), (n_variants, n_samples // 4))
    for start in range(0, n_variants, 500):
        some = slice(start, start + 500)
        bits = packed[some][:, :, np.newaxis] >> np.array([0, 2, 4, 6], dtype=np.uint8) & 3
        copies = COPIES[bits.reshape(len(bits), -1)]
        p = np.nanmean(copies, axis=1, keepdims=True) / 2
        yield some, np.nan_to_num((copies - 2 * p) / np.sqrt(2 * p * (1 - p)))


def peers(folder: Path) -> dict[str, np.ndarray]:
    """Run real peers and print time and memory; returns the result of the first."""
    names = [f"site{site}" for site in range(SITES)]
    nothing = dict.fromkeys(names, np.zeros((2, 2)))
    settings = {"n_components": K, "tol": 1e-6, "scale": "binomial", "patience_s": 300, "round_s": 3600}
    with Mesh(folder, nothing, ring(names), **settings) as mesh:
        for name in names:
            mesh.edit(name, r'file = ".*?"', f'file = "{folder / name}.bed"')
        start = time.perf_counter()
        mesh.start_anew()
        if {process.wait() for process in mesh.running.values()} != {0}:
            raise SystemExit("a peer failed: " + mesh.said(names[0]))
        seconds = time.perf_counter() - start
        peak = resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss / 1e6
        numbers = mesh.numbers(names[0])
        sent = f"{numbers['rounds']} rounds, {numbers['bytes'] / 1e9:.2f} GB sent"
        print(f"{SITES} peers, masked: {seconds:.0f} s, {sent}")
        print(f"certified {numbers['error_bound']:.1e}; the largest process took {peak:.2f} GB at most", flush=True)
        return mesh.result(names[0])


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--samples", type=int, default=20_000)
    parser.add_argument("--variants", type=int, default=200_000)
    parser.add_argument("--plink2", help="the program plink2")
    asked = parser.parse_args()
    shape = asked.samples, asked.variants
    # Peers share the cores of one machine.
    os.environ["OMP_NUM_THREADS"] = "1"
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        write(folder, *shape)
        print(f"{shape}: {(folder / 'pooled.bed').stat().st_size / 1e9:.2f} GB in all", flush=True)
        found = peers(folder)
        V, values = found["components"], found["explained_variance"]
        scores = sum(Z.T @ V[:, some].T for some, Z in standardised(folder / "pooled.bed", *shape))
        products = np.vstack([Z @ scores for _, Z in standardised(folder / "pooled.bed", *shape)]) / (shape[0] - 1)
        residuals = np.linalg.norm(products - V.T * values, axis=0)
        print("eigenvalues", *(f"{value:.1f}" for value in values), "and residuals over them", end=" ")
        print(f"{(residuals / values).max():.1e} at most")
        if asked.plink2:
            start = time.perf_counter()
            words = ["--bfile", str(folder / "pooled"), "--pca", "approx", str(K), "--out", str(folder / "approx")]
            subprocess.run([asked.plink2, *words], check=True, stdout=subprocess.DEVNULL)
            vectors, ours = vectors_in(folder / "approx.eigenvec"), scores / np.linalg.norm(scores, axis=0)
            vectors /= np.linalg.norm(vectors, axis=0)
            away = np.linalg.norm(vectors - ours * np.sum(ours * vectors, axis=0), axis=0)
            print(f"plink2 --pca approx, pooled: {time.perf_counter() - start:.0f} s, sine to ours {away.max():.1e}")


if __name__ == "__main__":
    main()
