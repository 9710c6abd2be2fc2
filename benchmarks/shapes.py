"""From array to fitted estimator against scikit-learn, on five shapes: time, true angle and memory.

Run it with ``make bench-shapes``, or with the names of some shapes. HapMap3 and MNIST need EIGENMESH_DATA. On a machine
with other work, ``OMP_NUM_THREADS=1 python benchmarks/shapes.py --cpu`` compares processor time.
"""

from __future__ import annotations

import ctypes
import subprocess
import sys
import time
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
from rich.console import Console
from rich.table import Table
from scipy import sparse
from sklearn.decomposition import PCA
from timing import Clock, side_by_side

from eigenmesh import DecentralizedPCA
from eigenmesh.data import load
from eigenmesh.errors import UnreadableFileError
from eigenmesh.metrics import largest_angle

NODES, TURNS = 20, 5


def decaying(n: int, d: int) -> np.ndarray:
    """Samples whose k-th standard deviation is 1 / sqrt(k), about means of the same size: (n, d)."""
    rng = np.random.default_rng(0)
    X = rng.standard_normal((n, d))
    X += rng.standard_normal(d)
    X /= np.sqrt(np.arange(1.0, d + 1))
    return X


def topics() -> sparse.csr_array:
    """20,000 x 20,000 with .5 % of the entries; samples of one topic share features, so there are components."""
    rng, n = np.random.default_rng(0), 20_000
    noise = sparse.random(n, n, density=0.004, random_state=rng, format="csr")
    shared = sparse.random(25, n, density=0.001, random_state=rng, format="csr")
    own = rng.integers(0, 25, n)
    weights = sparse.csr_array((np.linspace(6, 2, 25)[own], (np.arange(n), own)), (n, 25))
    return sparse.csr_array(noise + weights @ shared)


# Data, K, the exact solvers of scikit-learn that may be the fastest, and the target of the ratio.
SHAPES: dict[str, tuple[Callable[[], Any], int, tuple[str, ...], float]] = {
    "mnist": (lambda: np.array(load("mnist").X, dtype=float), 10, ("covariance_eigh",), 1.3),
    "tall": (lambda: decaying(1_000_000, 100), 10, ("covariance_eigh",), 1.3),
    "wide": (lambda: decaying(20_000, 3_000), 20, ("covariance_eigh", "arpack"), 1.3),
    "hapmap3": (lambda: np.array(load("hapmap3").X, dtype=float), 10, ("arpack",), 1.6),
    "sparse": (topics, 20, ("arpack",), 1.6),
}


def n_bytes(X: Any) -> int:
    return int(X.data.nbytes + X.indices.nbytes + X.indptr.nbytes if sparse.issparse(X) else X.nbytes)


def truth(X: Any, k: int) -> np.ndarray:
    """True components (d, k), from the smaller of covariance and Gram matrix; sparse: by ARPACK to the last digit."""
    if sparse.issparse(X):
        return PCA(k, svd_solver="arpack", tol=0).fit(X).components_.T
    centred = X - X.mean(axis=0)
    if X.shape[0] >= X.shape[1]:
        return np.linalg.eigh(centred.T @ centred)[1][:, : -k - 1 : -1]
    return np.linalg.qr(centred.T @ np.linalg.eigh(centred @ centred.T)[1][:, : -k - 1 : -1])[0]


def ours(X: Any, k: int) -> DecentralizedPCA:
    return DecentralizedPCA(k, n_nodes=NODES).fit(X)


def compare(name: str, clock: Clock) -> tuple[str, ...]:
    """A row of the table."""
    make, k, solvers, asked = SHAPES[name]
    X = make()
    contestants: dict[str, Callable[[], Any]] = {"eigenmesh": lambda: ours(X, k)}
    for solver in solvers:
        contestants[solver] = lambda solver=solver: PCA(k, svd_solver=solver).fit(X)
    least = side_by_side(contestants, repeats=1, passes=TURNS, clock=clock)
    fastest = min(solvers, key=lambda solver: least[solver])
    pca = ours(X, k)
    angle = largest_angle(pca.components_.T[np.newaxis], truth(X, k))
    shape = f"{X.shape[0]:,} x {X.shape[1]:,}"
    times = (f"{least['eigenmesh']:.2f} s", f"{least[fastest]:.2f} s ({fastest})")
    ratio = f"{least['eigenmesh'] / least[fastest]:.2f} ({asked})"
    peaks = [f"{peak_memory(name, who):.2f}" for who in ("eigenmesh", fastest)]
    return name, shape, str(k), *times, ratio, f"{pca.certificate_.error_bound:.0e}", f"{angle:.0e}", *peaks


def peak_memory(name: str, who: str) -> float:
    """Peak memory of a fit in its own process, including the data, as a multiple of their size."""
    command = [sys.executable, "-W", "ignore", __file__, "--peak", name, who]
    return float(subprocess.run(command, capture_output=True, text=True, check=True).stdout)


def print_peak(name: str, who: str) -> None:
    """Print the peak memory above the level before the data were made, divided by their size; Linux only."""
    make, k, *_ = SHAPES[name]
    # A first fit, so that imports and the buffers of BLAS do not count.
    small = np.random.default_rng(0).standard_normal((1000, 1000))
    ours(small, 2), PCA(2, svd_solver="full").fit(small)
    del small
    # Return freed memory to the system; otherwise it would be reused without being counted.
    trim = ctypes.CDLL(None).malloc_trim
    trim(0)
    before = resident("VmRSS")
    X = make()
    trim(0)
    Path("/proc/self/clear_refs").write_text("5")  # the peak counts from here
    ours(X, k) if who == "eigenmesh" else PCA(k, svd_solver=who).fit(X)
    print((resident("VmHWM") - before) / n_bytes(X))


def resident(field: str) -> int:
    """Bytes of this process, as the kernel counts them."""
    lines = Path("/proc/self/status").read_text().splitlines()
    return 1024 * int(next(line.split()[1] for line in lines if line.startswith(field)))


def main(names: list[str], clock: Clock) -> None:
    table = Table(
        title=f"{NODES} simulated nodes against the fastest exact solver of scikit-learn, least of {TURNS} turns"
    )
    headings = ("data", "shape", "K", "eigenmesh", "scikit-learn", "ratio (asked)", "sin bound", "true sin")
    for heading in (*headings, "peak / data", "its peak / data"):
        table.add_column(heading, justify="right")
    for name in names or SHAPES:
        try:
            table.add_row(*compare(name, clock))
        except UnreadableFileError:
            table.add_row(name, "not found: set EIGENMESH_DATA")
    Console(width=150).print(table)


if __name__ == "__main__":
    warnings.simplefilter("ignore")
    if sys.argv[1:2] == ["--peak"]:
        print_peak(*sys.argv[2:])
    else:
        names = [name for name in sys.argv[1:] if name != "--cpu"]
        main(names, time.process_time if "--cpu" in sys.argv else time.perf_counter)
