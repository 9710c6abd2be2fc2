"""PCA on a Dask cluster of two workers: against dask-ml on MNIST, and on files larger than the workers' memory.

``python benchmarks/dask_engine.py mnist`` needs EIGENMESH_DATA and, to compare, ``pip install dask-ml``.
``python benchmarks/dask_engine.py disk --gigabytes 20`` writes that much to a temporary folder (4 by default).
"""

from __future__ import annotations

import argparse
import resource
import tempfile
import time
import warnings
from collections.abc import Callable
from pathlib import Path

import dask.array as da
import numpy as np
from distributed import Client, LocalCluster
from rich.console import Console
from rich.table import Table
from timing import side_by_side
from truth import leading

from eigenmesh import DecentralizedPCA
from eigenmesh.data import load
from eigenmesh.errors import UnreadableFileError
from eigenmesh.metrics import largest_angle

WORKERS, MEMORY_LIMIT = 2, "2GiB"
# Wide enough that the covariance is not formed, so that every product reads the files again.
FEATURES, BLOCK_ROWS, COMPONENTS = 1600, 5000, 10

console = Console(width=150)


def cluster(memory_limit: str) -> LocalCluster:
    return LocalCluster(
        n_workers=WORKERS, threads_per_worker=1, processes=True, dashboard_address=":0", memory_limit=memory_limit
    )


def angle(components: np.ndarray, true: np.ndarray) -> float:
    return float(largest_angle(np.asarray(components).T[np.newaxis], true))


def mnist(passes: int) -> None:
    """Time from a persisted dask array of 20 blocks to components, ours and dask-ml's in turns."""
    try:
        X = load("mnist").X
    except UnreadableFileError:
        console.print("MNIST was not found (set EIGENMESH_DATA): left out.")
        return
    true = leading(X, COMPONENTS)
    with cluster("auto") as workers, Client(workers):
        lazy = da.from_array(X, chunks=(len(X) // 20, X.shape[1])).persist()
        contestants = {
            "eigenmesh": lambda: DecentralizedPCA(COMPONENTS, tol=1e-8).fit(lazy),
            "eigenmesh, products at the blocks": lambda: DecentralizedPCA(
                COMPONENTS, tol=1e-8, covariance="matrix-free"
            ).fit(lazy),
            **dask_ml(lazy),
        }
        errors = {name: angle(fit().components_, true) for name, fit in contestants.items()}
        least = side_by_side(contestants, repeats=1, passes=passes)
    table = Table(
        title=f"MNIST as a dask array of 20 blocks, K = {COMPONENTS}, {WORKERS} workers (least of {passes} turns)"
    )
    for heading in ("", "seconds", "ratio to eigenmesh", "largest true sin"):
        table.add_column(heading, justify="right")
    for name, seconds in least.items():
        table.add_row(name, f"{seconds:.2f}", f"{seconds / least['eigenmesh']:.2f}", f"{errors[name]:.1e}")
    console.print(table)


def dask_ml(lazy: da.Array) -> dict[str, Callable[[], object]]:
    try:
        from dask_ml.decomposition import PCA
    except ImportError:
        console.print("dask-ml is not installed (pip install dask-ml): not compared.")
        return {}
    return {
        "dask-ml, full (tsqr)": lambda: PCA(COMPONENTS, svd_solver="full").fit(lazy),
        "dask-ml, randomized": lambda: PCA(COMPONENTS, svd_solver="randomized", random_state=0).fit(lazy),
        "dask-ml, randomized, 20 power iterations": lambda: PCA(
            COMPONENTS, svd_solver="randomized", iterated_power=20, random_state=0
        ).fit(lazy),
    }


def write_block(path: Path, number: int) -> None:
    """Samples with a mean and a falling spectrum along axes that are not those of the features."""
    rng = np.random.default_rng(number)
    mixing = np.random.default_rng(12345).standard_normal((20, FEATURES))
    scores = rng.standard_normal((BLOCK_ROWS, 20)) * np.geomspace(1, 0.1, 20)
    np.save(path / f"{number}.npy", scores @ mixing + rng.standard_normal((BLOCK_ROWS, FEATURES)) + 3.0)


def disk(gigabytes: float) -> None:
    """Fit files that are larger than the workers' memory, and print time and memory."""
    n_blocks = max(2, round(gigabytes * 1e9 / (8 * BLOCK_ROWS * FEATURES)))
    with tempfile.TemporaryDirectory(prefix="eigenmesh-") as folder:
        path = Path(folder)

        def read(block_info=None):
            return np.load(path / f"{block_info[None]['chunk-location'][0]}.npy")

        began = time.perf_counter()
        for number in range(n_blocks):
            write_block(path, number)
        size = sum(file.stat().st_size for file in path.iterdir())
        console.print(f"{size / 1e9:.1f} GB in {n_blocks} files, written in {time.perf_counter() - began:.0f} s.")
        lazy = da.map_blocks(read, chunks=((BLOCK_ROWS,) * n_blocks, (FEATURES,)), dtype=float)
        with cluster(MEMORY_LIMIT) as workers, Client(workers) as client:
            began = time.perf_counter()
            pca = DecentralizedPCA(COMPONENTS).fit(lazy)
            took = time.perf_counter() - began
            peaks = client.run(lambda: resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**20)
        true = np.linalg.eigh(streamed_covariance(path, n_blocks))[1][:, ::-1][:, :COMPONENTS]
    error = angle(pca.components_, true)
    console.print(
        f"{n_blocks * BLOCK_ROWS:,} x {FEATURES} on disk, {WORKERS} workers of {MEMORY_LIMIT} each: {took:.0f} s, "
        f"{pca.traffic_.rounds} passes, sin bound {pca.certificate_.error_bound:.1e}, true {error:.1e}; peak memory of "
        f"a worker {max(peaks.values()):.2f} GiB. At this rate 20 GB take {took * 20e9 / size:.0f} s."
    )


def streamed_covariance(path: Path, n_blocks: int) -> np.ndarray:
    """Pooled scatter matrix, file by file, centred on the mean of the first file and then shifted."""
    centre = np.load(path / "0.npy").mean(axis=0)
    total, shift = np.zeros((FEATURES, FEATURES)), np.zeros(FEATURES)
    for number in range(n_blocks):
        rows = np.load(path / f"{number}.npy") - centre
        total += rows.T @ rows
        shift += rows.sum(axis=0)
    return total - np.outer(shift, shift) / (n_blocks * BLOCK_ROWS)


if __name__ == "__main__":
    warnings.simplefilter("ignore")
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("parts", nargs="*", help="mnist, disk (default: both)")
    parser.add_argument("--gigabytes", type=float, default=4.0)
    parser.add_argument("--passes", type=int, default=5)
    asked = parser.parse_args()
    for part in asked.parts or ("mnist", "disk"):
        mnist(asked.passes) if part == "mnist" else disk(asked.gigabytes)
