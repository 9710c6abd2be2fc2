"""From data to fitted estimator against scikit-learn, on many shapes: time, true angle and memory.

Run it with ``make bench-shapes``, or with the names of some shapes. HapMap3 and MNIST need EIGENMESH_DATA. Times are
medians of turns in one run. On a machine with other work, ``OMP_NUM_THREADS=1 python benchmarks/shapes.py --cpu``
compares processor time. Data with fewer samples than features have a third contestant: the Gram matrix and its
eigenvectors.
"""

from __future__ import annotations

import ctypes
import subprocess
import sys
import time
import warnings
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from statistics import median
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np
import pandas as pd
from rich.console import Console
from rich.table import Table
from scipy import sparse
from sklearn.datasets import load_iris
from sklearn.decomposition import PCA, IncrementalPCA
from timing import Clock, seconds, side_by_side

from eigenmesh import DecentralizedPCA, StreamingPCA
from eigenmesh.data import ContiguousSplit, load, read_table
from eigenmesh.errors import UnreadableFileError
from eigenmesh.metrics import largest_angle

COVARIANCE, ARPACK = "covariance_eigh", "arpack"
# Turns, or fewer where a fit takes long, but at least three.
TURNS, SECONDS_IN_TURNS = 9, 60.0


def decaying(n: int, d: int, power: float = 0.5) -> np.ndarray:
    """Samples whose k-th standard deviation is k^-power, about means of the same size: (n, d)."""
    rng = np.random.default_rng(0)
    X = rng.standard_normal((n, d))
    X += rng.standard_normal(d)
    X /= np.arange(1.0, d + 1) ** power
    return X


def topics() -> sparse.csr_array:
    """20,000 x 20,000 with .5 % of the entries; samples of one topic share features, so there are components."""
    rng, n = np.random.default_rng(0), 20_000
    noise = sparse.random(n, n, density=0.004, random_state=rng, format="csr")
    shared = sparse.random(25, n, density=0.001, random_state=rng, format="csr")
    own = rng.integers(0, 25, n)
    weights = sparse.csr_array((np.linspace(6, 2, 25)[own], (np.arange(n), own)), (n, 25))
    return sparse.csr_array(noise + weights @ shared)


def images(dtype: str = "float64") -> np.ndarray:
    """MNIST, (60000, 784); whole numbers for an integer dtype."""
    X = load("mnist").X
    return np.array(X * 255 if np.issubdtype(dtype, np.integer) else X, dtype=dtype)


def genotypes() -> np.ndarray:
    """HapMap3, (957, 14079)."""
    return np.array(load("hapmap3").X, dtype=float)


@dataclass(frozen=True)
class Shape:
    """Data, and what a fit of them is compared with.

    make : the data.
    k : number of components.
    solvers : the exact solvers of scikit-learn that may be the fastest.
    time, memory : largest ratios that are asked for, None if nothing is; the memory is that of a fit over the data's.
    n_nodes, split : of the simulation.
    """

    make: Callable[[], Any]
    k: int = 10
    solvers: tuple[str, ...] = (COVARIANCE,)
    time: float | None = None
    memory: float | None = 1.4
    n_nodes: int = 20
    split: Any = None

    def ours(self, X: Any) -> DecentralizedPCA:
        """The fit of a simulation."""
        return DecentralizedPCA(self.k, n_nodes=self.n_nodes, split=self.split or "random").fit(X)

    def theirs(self, X: Any, solver: str) -> PCA:
        """The same by scikit-learn."""
        return PCA(self.k, svd_solver=solver).fit(X)

    def truth(self, X: Any) -> np.ndarray:
        """True components (d, k), from the smaller of covariance and Gram matrix; of sparse samples by ARPACK."""
        if sparse.issparse(X):
            return PCA(self.k, svd_solver=ARPACK, tol=0).fit(X).components_.T
        dense = np.asarray(X, dtype=float)
        centred = dense - dense.mean(axis=0)
        if centred.shape[0] >= centred.shape[1]:
            return np.linalg.eigh(centred.T @ centred)[1][:, : -self.k - 1 : -1]
        return gram(centred, self.k)


def gram(X: np.ndarray, k: int) -> np.ndarray:
    """Components of few samples from the eigenvectors of their Gram matrix: (d, k)."""
    centred = X - X.mean(axis=0)
    return np.linalg.qr(centred.T @ np.linalg.eigh(centred @ centred.T)[1][:, : -k - 1 : -1])[0]


SHAPES: dict[str, Shape] = {
    "mnist": Shape(images, time=1.5),
    "mnist contiguous": Shape(images, time=1.2, split=ContiguousSplit()),
    "mnist float32": Shape(partial(images, "float32"), time=2.0),
    "mnist uint8": Shape(partial(images, "uint8"), memory=None),
    "mnist K 1": Shape(images, k=1),
    "mnist K 300": Shape(images, k=300, time=1.8),
    "mnist 1 node": Shape(images, n_nodes=1),
    "mnist 200 nodes": Shape(images, n_nodes=200),
    "tall": Shape(partial(decaying, 1_000_000, 100), time=1.2),
    "taller": Shape(partial(decaying, 5_000_000, 10), k=3, time=1.8),
    "wide": Shape(partial(decaying, 20_000, 3_000), k=20, solvers=(COVARIANCE, ARPACK), time=1.0),
    "slow decay": Shape(
        partial(decaying, 2_000, 2_000, 0.1), k=100, solvers=(COVARIANCE, ARPACK), time=2.0, memory=None
    ),
    "hapmap3": Shape(genotypes, solvers=(ARPACK,), time=1.4),
    "short and fat": Shape(partial(decaying, 300, 200_000), solvers=(ARPACK,), memory=None),
    "sparse": Shape(topics, k=20, solvers=(ARPACK,), time=1.6, memory=1.8),
    "frame": Shape(lambda: pd.DataFrame(decaying(200_000, 100)).rename(columns=str), time=1.6, memory=None),
    "iris": Shape(lambda: load_iris().data, k=2, time=6.0, memory=None),
}


def n_bytes(X: Any) -> int:
    if isinstance(X, pd.DataFrame):
        return int(X.to_numpy().nbytes)
    return int(X.data.nbytes + X.indices.nbytes + X.indptr.nbytes if sparse.issparse(X) else X.nbytes)


def compare(name: str, clock: Clock) -> tuple[str, ...]:
    """A row of the table."""
    shape = SHAPES[name]
    X = shape.make()
    contestants: dict[str, Callable[[], Any]] = {"eigenmesh": partial(shape.ours, X)}
    for solver in shape.solvers:
        contestants[solver] = partial(shape.theirs, X, solver)
    if not sparse.issparse(X) and len(X) < X.shape[1]:
        contestants["gram"] = partial(gram, X, shape.k)
    longest = max(seconds(contestant, 1) for contestant in contestants.values())
    turns = max(3, min(TURNS, int(SECONDS_IN_TURNS / (longest * len(contestants)))))
    middle = side_by_side(contestants, max(1, int(0.05 / longest)), turns, clock, median)
    fastest = min(shape.solvers, key=lambda solver: middle[solver])
    pca = shape.ours(X)
    angle = largest_angle(pca.components_.T[np.newaxis], shape.truth(X))
    times = (f"{middle['eigenmesh']:.3g} s", f"{middle[fastest]:.3g} s ({fastest})")
    beside = f"{middle['eigenmesh'] / middle['gram']:.2f}" if "gram" in middle else ""
    ratios = (asked(middle["eigenmesh"] / middle[fastest], shape.time), beside)
    peaks = ("", "")
    if n_bytes(X) > 2**25:
        del X
        ours, theirs = (peak_memory(name, who) for who in ("eigenmesh", fastest))
        peaks = (asked(ours, shape.memory), f"{theirs:.2f}")
    return name, str(shape.k), *times, *ratios, f"{pca.certificate_.error_bound:.0e}", f"{angle:.0e}", *peaks


def asked(ratio: float, bar: float | None) -> str:
    """A ratio, and in brackets what is asked for; a star where it is missed."""
    return f"{ratio:.2f}" if bar is None else f"{ratio:.2f} ({bar}){'*' if ratio > bar else ''}"


def stream(clock: Clock) -> tuple[str, ...]:
    """Small batches of a stream, against IncrementalPCA: seconds of one batch."""
    batches = np.split(decaying(4_000, 20), 100)
    taken: dict[str, list[float]] = {"ours": [], "theirs": []}
    for _ in range(3):
        ours, theirs = StreamingPCA(3, n_nodes=4, random_state=0), IncrementalPCA(3)
        ours.partial_fit(batches[0]), theirs.partial_fit(batches[0])
        for batch in batches[1:]:
            taken["ours"].append(seconds(partial(ours.partial_fit, batch), 1, clock))
            taken["theirs"].append(seconds(partial(theirs.partial_fit, batch), 1, clock))
    own, other = median(taken["ours"]), median(taken["theirs"])
    times = (f"{own:.3g} s", f"{other:.3g} s (incremental)")
    return "stream, batch of 40", "3", *times, asked(own / other, 4.0), "", "", "", "", ""


def table_of_text(clock: Clock) -> tuple[str, ...]:
    """A CSV file of 100,000 x 20, read and fitted, against pandas and scikit-learn."""
    with TemporaryDirectory() as folder:
        file = Path(folder) / "table.csv"
        pd.DataFrame(decaying(100_000, 20)).add_prefix("c").to_csv(file, index=False)
        contestants = {
            "eigenmesh": lambda: DecentralizedPCA(3, n_nodes=20).fit(read_table(file).source),
            "pandas": lambda: PCA(3).fit(pd.read_csv(file)),
        }
        middle = side_by_side(contestants, 1, 5, clock, median)
    times = (f"{middle['eigenmesh']:.3g} s", f"{middle['pandas']:.3g} s (pandas)")
    return "csv", "3", *times, f"{middle['eigenmesh'] / middle['pandas']:.2f}", "", "", "", "", ""


# What is not a fit of an array.
OTHERS = {"stream": stream, "csv": table_of_text}


def peak_memory(name: str, who: str) -> float:
    """Peak memory of a fit in its own process, including the data, as a multiple of their size."""
    command = [sys.executable, "-W", "ignore", __file__, "--peak", name, who]
    return float(subprocess.run(command, capture_output=True, text=True, check=True).stdout)


def print_peak(name: str, who: str) -> None:
    """Print the peak memory above the level before the data were made, divided by their size; Linux only."""
    shape = SHAPES[name]
    # A first fit, so that imports and the buffers of BLAS do not count.
    small = np.random.default_rng(0).standard_normal((1000, 1000))
    Shape(images, 2).ours(small), PCA(2, svd_solver="full").fit(small)
    del small
    # Return freed memory to the system; otherwise it would be reused without being counted.
    trim = ctypes.CDLL(None).malloc_trim
    trim(0)
    before = resident("VmRSS")
    X = shape.make()
    trim(0)
    Path("/proc/self/clear_refs").write_text("5")  # the peak counts from here
    shape.ours(X) if who == "eigenmesh" else shape.theirs(X, who)
    print((resident("VmHWM") - before) / n_bytes(X))


def resident(field: str) -> int:
    """Bytes of this process, as the kernel counts them."""
    lines = Path("/proc/self/status").read_text().splitlines()
    return 1024 * int(next(line.split()[1] for line in lines if line.startswith(field)))


def main(names: list[str], clock: Clock) -> None:
    table = Table(title="Simulated nodes against the fastest exact solver of scikit-learn, medians in turns")
    headings = ("data", "K", "eigenmesh", "scikit-learn", "ratio (asked)", "to Gram", "sin bound", "true sin")
    for heading in (*headings, "peak / data", "its peak / data"):
        table.add_column(heading, justify="right")
    for name in names or [*SHAPES, *OTHERS]:
        try:
            table.add_row(*(compare(name, clock) if name in SHAPES else OTHERS[name](clock)))
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
