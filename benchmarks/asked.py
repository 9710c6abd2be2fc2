"""The same fit on every engine that is asked for sums: seconds, requests, and how far components are from each other.

``python benchmarks/asked.py digits mnist wide``: ``mnist`` needs EIGENMESH_DATA; ``wide`` is 2,000 x 70,000 with one
entry in a hundred. ``--engines`` says where: simulation,mpi,dask,ray,spark,flower. Dask, Ray and Spark get two workers
with one thread of BLAS each. Beside them runs what their users have: X^T X and eigh by hand, with MPI after an
all-reduce, the PCA of pyspark.ml, and tsqr of dask-ml.
"""

from __future__ import annotations

import argparse
import os
import shutil
import subprocess
import sys
import tempfile
import time
import warnings
from collections.abc import Callable
from contextlib import contextmanager, suppress
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

os.environ.update(dict.fromkeys(("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS"), "1"), PYSPARK_PYTHON=sys.executable)
sys.path.insert(0, str(Path(__file__).parents[1] / "tests"))

import numpy as np
import scipy.sparse
from rich.console import Console
from rich.table import Table
from timing import side_by_side
from truth import leading

from eigenmesh import DecentralizedPCA, SavedModel, load_model
from eigenmesh.data import load
from eigenmesh.metrics import largest_angle

PARTS, COMPONENTS, TOL = 8, 10, 1e-8
console = Console(width=150)
Fits = dict[str, Callable[[], Any]]
# Files of what ranks of MPI find.
MODEL, BY_HAND = "model.npz", "components.npy"


def ours(data: Any, **settings: Any) -> Callable[[], DecentralizedPCA]:
    return lambda: DecentralizedPCA(COMPONENTS, tol=TOL, random_state=0, **settings).fit(data)


def by_hand(total: np.ndarray, sums: np.ndarray, n: int) -> np.ndarray:
    """Components from X^T X and the sums of the columns."""
    mean = sums / n
    return np.linalg.eigh((total - n * np.outer(mean, mean)) / (n - 1))[1][:, ::-1][:, :COMPONENTS].T


@contextmanager
def dask(parts: list[Any]) -> Any:
    import dask.array as da
    from dask import delayed
    from distributed import Client, LocalCluster, wait

    with (
        LocalCluster(n_workers=2, threads_per_worker=1, dashboard_address=":0", memory_limit="3GiB") as cluster,
        Client(cluster),
    ):
        if scipy.sparse.issparse(parts[0]):
            meta = scipy.sparse.csr_array((0, 0))
            blocks = [da.from_delayed(delayed(part), part.shape, meta=meta, dtype=float) for part in parts]
            yield {"eigenmesh": ours(da.concatenate(blocks).persist())}
            return
        X = da.from_array(np.concatenate(parts), chunks=(len(parts[0]), -1)).persist()
        wait(X)
        n = X.shape[0]
        fits: Fits = {"eigenmesh": ours(X), "eigenmesh, products": ours(X, covariance="matrix-free")}
        fits["X^T X and eigh"] = lambda: by_hand((X.T @ X).compute(), X.sum(axis=0).compute(), n)
        with suppress(ImportError):
            from dask_ml.decomposition import PCA

            fits["dask-ml, tsqr"] = lambda: PCA(COMPONENTS, svd_solver="full").fit(X)
        yield fits


@contextmanager
def ray(parts: list[Any]) -> Any:
    import ray as engine

    quiet = {"include_dashboard": False, "log_to_driver": False, "logging_level": "error"}
    engine.init(num_cpus=2, object_store_memory=2 * 2**30, **quiet)
    refs = [engine.put(part) for part in parts]
    fits: Fits = {"eigenmesh": ours(refs)}
    if not scipy.sparse.issparse(parts[0]):
        squares = engine.remote(lambda rows: (rows.T @ rows, rows.sum(axis=0)))
        n = sum(map(len, parts))

        def hand() -> np.ndarray:
            found = engine.get([squares.remote(ref) for ref in refs])
            return by_hand(sum(one[0] for one in found), sum(one[1] for one in found), n)

        fits |= {"eigenmesh, products": ours(refs, covariance="matrix-free"), "X^T X and eigh": hand}
    yield fits
    engine.shutdown()


@contextmanager
def spark(parts: list[Any]) -> Any:
    from pyspark.ml.feature import PCA
    from pyspark.ml.linalg import Vectors
    from pyspark.sql import SparkSession

    local = {"spark.driver.bindAddress": "127.0.0.1", "spark.driver.host": "127.0.0.1", "spark.driver.memory": "5g"}
    quiet = {"spark.ui.enabled": "false", "spark.ui.showConsoleProgress": "false"}
    session = SparkSession.builder.master("local[2]").config(map=local | quiet).getOrCreate()
    session.sparkContext.setLogLevel("OFF")

    def vectors(part: Any) -> list[Any]:
        if isinstance(part, np.ndarray):
            return [(Vectors.dense(row),) for row in part]
        d = part.shape[1]
        return [(Vectors.sparse(d, part[[row]].indices, part[[row]].data),) for row in range(part.shape[0])]

    rows = session.sparkContext.parallelize(parts, len(parts)).flatMap(vectors)
    frame = session.createDataFrame(rows, ["features"]).persist()
    frame.count()
    fits: Fits = {"eigenmesh": ours(frame)}
    if not scipy.sparse.issparse(parts[0]):
        fits["eigenmesh, products"] = ours(frame, covariance="matrix-free")
        fits["pyspark.ml PCA"] = lambda: (
            PCA(k=COMPONENTS, inputCol="features", outputCol="scores").fit(frame).pc.toArray().T
        )
    yield fits
    session.stop()


@contextmanager
def mpi(parts: list[Any]) -> Any:
    """Ranks of MPI, one for each part; their seconds are those of rank 0, without the start of processes."""
    mpiexec = shutil.which("mpiexec", path=f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}")
    with tempfile.TemporaryDirectory() as folder:
        for rank, part in enumerate(parts):
            np.save(Path(folder, f"{rank}.npy"), part)
        allowed = {"OMPI_ALLOW_RUN_AS_ROOT": "1", "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1"}
        allowed["PRTE_MCA_rmaps_default_mapping_policy"] = ":oversubscribe"
        command = [mpiexec, "-n", str(len(parts)), sys.executable, __file__, "--rank-of", folder]

        def run(fit: str) -> Elsewhere:
            subprocess.run([*command, "--fit", fit], env=os.environ | allowed, check=True, capture_output=True)
            seconds, file = float(Path(folder, "seconds").read_text()), Path(folder, fit)
            return Elsewhere(load_model(file) if fit == MODEL else np.load(file), seconds)

        yield {"eigenmesh": partial(run, MODEL), "all-reduce and eigh": partial(run, BY_HAND)}


def rank_of(folder: Path, fit: str) -> None:
    """The work of one rank."""
    from mpi4py import MPI

    network = MPI.COMM_WORLD
    rows = np.load(folder / f"{network.rank}.npy")

    def all_reduced() -> np.ndarray:
        own = np.vstack([rows.T @ rows, rows.sum(axis=0), np.full(rows.shape[1], len(rows))])
        total = np.empty_like(own)
        network.Allreduce(own, total)
        return by_hand(total[:-2], total[-2], int(total[-1, 0]))

    network.Barrier()
    began = time.perf_counter()
    found: Any = ours(rows, transport="mpi")() if fit == MODEL else all_reduced()
    seconds = time.perf_counter() - began
    if network.rank == 0:
        found.save(folder / fit) if fit == MODEL else np.save(folder / fit, found)
        (folder / "seconds").write_text(str(seconds))


@contextmanager
def flower(parts: list[Any]) -> Any:
    """A superlink and supernodes; the seconds are those of the whole run, of which its start is a large part."""
    from federation import Federation, programs

    with tempfile.TemporaryDirectory() as folder:
        federation = Federation(Path(folder), programs(), {f"site{at}": part for at, part in enumerate(parts)})
        out, config = Path(folder, "model.npz"), {"sites": len(parts), "components": COMPONENTS, "tol": TOL}

        def run() -> Elsewhere:
            began = time.perf_counter()
            federation.run(out=str(out), **config).wait()
            return Elsewhere(load_model(out), time.perf_counter() - began)

        yield {"eigenmesh": run}
        federation.close()


class Elsewhere(NamedTuple):
    """The model of a fit in other processes, or components alone, and the seconds."""

    model: SavedModel | np.ndarray
    seconds: float

    @property
    def components_(self) -> np.ndarray:
        return self.model.components_ if isinstance(self.model, SavedModel) else self.model


@contextmanager
def simulation(parts: list[Any]) -> Any:
    yield {"eigenmesh": ours(parts)}


ENGINES = {"simulation": simulation, "dask": dask, "ray": ray, "spark": spark, "mpi": mpi, "flower": flower}


def compare(title: str, parts: list[Any], true: np.ndarray, engines: list[str], passes: int) -> None:
    """One row for each fit of each engine: the least time of some passes, requests, true error, and what differs."""
    table = Table(title=title)
    for heading in ("engine", "fit", "seconds", "requests", "bound", "true sin", "from the simulation"):
        table.add_column(heading, justify="right")
    known = None
    for name in engines:
        found: dict[str, Any] = {}

        def kept(fit: str, make: Callable[[], Any], found: dict[str, Any] = found) -> Callable[[], None]:
            return lambda: found.__setitem__(fit, make())

        with ENGINES[name](parts) as fits:
            least = side_by_side({fit: kept(fit, make) for fit, make in fits.items()}, repeats=1, passes=passes)
        for fit, seconds in least.items():
            components = np.asarray(getattr(found[fit], "components_", found[fit]))
            known = components if known is None else known
            row = [f"{seconds:.2f}", "", "", f"{largest_angle(components.T[np.newaxis], true):.0e}", ""]
            if isinstance(found[fit], DecentralizedPCA):
                row[1] = "" if name == "simulation" else str(found[fit].traffic_.rounds)
                row[2] = f"{found[fit].certificate_.error_bound:.1e}"
            if isinstance(found[fit], Elsewhere):
                row[0], model = f"{found[fit].seconds:.2f}", found[fit].model
                row[2] = f"{model.model_.error_bound:.1e}" if isinstance(model, SavedModel) else ""
            if fit.startswith("eigenmesh"):
                row[4] = f"{np.abs(components - known).max():.0e}"
            table.add_row(name, fit, *row)
    console.print(table)


def wide() -> tuple[list[Any], np.ndarray]:
    """2,000 x 70,000 sparse rows around a few directions, and their components from the matrix of inner products."""
    rng = np.random.default_rng(0)
    X = scipy.sparse.random_array((2000, 70_000), density=0.01, rng=rng, format="csr")
    # Twenty columns stand out, one less than the other, so that components are apart.
    sizes = np.ones(70_000)
    sizes[:20] = 100 * 0.85 ** np.arange(20)
    X = scipy.sparse.csr_array(X @ scipy.sparse.diags_array(sizes))
    X.sort_indices()
    mean = np.asarray(X.mean(axis=0))
    scores = X @ mean
    gram = (X @ X.T).toarray() - scores[:, None] - scores[None, :] + mean @ mean
    left = np.linalg.eigh(gram)[1][:, ::-1][:, :COMPONENTS]
    true = X.T @ left - np.outer(mean, left.sum(axis=0))
    return [X[start : start + 250] for start in range(0, 2000, 250)], true / np.linalg.norm(true, axis=0)


if __name__ == "__main__":
    warnings.simplefilter("ignore")
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("problems", nargs="*", default=["mnist", "wide"], help="digits, mnist, wide")
    parser.add_argument("--engines", default="simulation,dask,ray,spark")
    parser.add_argument("--passes", type=int, default=3)
    parser.add_argument("--parts", type=int, default=PARTS)
    parser.add_argument("--rank-of", type=Path, help=argparse.SUPPRESS)
    parser.add_argument("--fit", help=argparse.SUPPRESS)
    asked = parser.parse_args()
    chosen = asked.engines.split(",")
    if asked.rank_of is not None:
        rank_of(asked.rank_of, asked.fit)
        sys.exit()
    for name in ("digits", "mnist"):
        if name in asked.problems:
            X = np.asarray(load(name).X, dtype=float)
            title = f"{name}, {len(X):,} x {X.shape[1]} in {asked.parts} parts, K = {COMPONENTS}"
            compare(title, np.array_split(X, asked.parts), leading(X, COMPONENTS), chosen, asked.passes)
    if "wide" in asked.problems:
        parts, true = wide()
        compare("2,000 x 70,000, 1 % stored", parts, true, chosen, asked.passes)
