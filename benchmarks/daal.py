"""Correlation PCA on two MPI ranks: eigenmesh (``scale=True``) against daal4py's distributed PCA, with true angles.

``make bench-daal`` puts daal4py and MPICH into an environment of their own and runs this script with it. daal4py
standardises the columns, forms the correlation matrix of all samples at one rank and takes all its eigenvectors there.
Both get the same rows, half at each rank with one thread, and are started in turns; a fit takes as long as its slower
rank. The ratios are those of the medians of wall-clock time and of processor time, which includes waiting for the
other rank.
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
from truth import leading

RANKS, K = 2, 10
# Samples, features, turns, and the largest ratio allowed.
SHAPES = ((100_000, 200, 5, 1.3), (20_000, 2000, 3, 1.3), (4000, 10_000, 1, 1.0))


def samples(n: int, d: int) -> np.ndarray:
    """Rows with 2 K strong directions, in columns of unlike scale and mean: (n, d)."""
    rng = np.random.default_rng(0)
    strengths = np.geomspace(3, 0.5, 2 * K)
    rows = (rng.standard_normal((n, 2 * K)) * strengths) @ rng.standard_normal((2 * K, d))
    rows += 3 * rng.standard_normal((n, d))
    return rows * np.geomspace(0.1, 10, d) + rng.standard_normal(d)


def largest_sine(found: np.ndarray, true: np.ndarray) -> float:
    along = np.sum(found * true, axis=1, keepdims=True)
    return float(np.linalg.norm(found - along * true, axis=1).max())


def fit_ours(rows: np.ndarray) -> np.ndarray:
    from eigenmesh import DecentralizedPCA

    return DecentralizedPCA(K, scale=True, topology="complete", transport="mpi").fit(rows).components_


def fit_daal(rows: np.ndarray) -> np.ndarray:
    import daal4py

    # The step that sums the correlations is made at one rank, and its result is sent to all.
    return daal4py.pca(method="correlationDense", distributed=True).compute(rows).eigenvectors[:K]


def node(name: str, folder: Path) -> None:
    """One rank: a small fit to warm up and to meet the other rank, then the one that is timed."""
    if name == "daal":
        import daal4py

        daal4py.daalinit(nthreads=1)
        rank, fit = daal4py.my_procid(), fit_daal
    else:
        from mpi4py import MPI

        rank, fit = MPI.COMM_WORLD.rank, fit_ours
    whole = np.load(folder / "rows.npy", mmap_mode="r")
    own = np.array(np.array_split(whole, RANKS)[rank])
    fit(np.random.default_rng(rank).standard_normal((200, 20)))
    began, before = time.perf_counter(), time.process_time()
    components = fit(own)
    seconds = [time.perf_counter() - began, time.process_time() - before]
    np.savez(folder / f"{name}{rank}.npz", seconds=seconds, components=components)


def one_turn(name: str, python: str, folder: Path, timeout_s: float) -> tuple[np.ndarray, np.ndarray | None]:
    """Wall-clock and processor seconds of the slower rank, and the components; infinite if above the limit."""
    settings = {"OMP_NUM_THREADS": "1", "OMPI_ALLOW_RUN_AS_ROOT": "1", "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1"}
    mpiexec = str(Path(python).with_name("mpiexec"))
    command = [mpiexec, "-n", str(RANKS), python, __file__, "--node", name, "--folder", str(folder)]
    try:
        done = subprocess.run(
            command, env={**os.environ, **settings}, timeout=timeout_s, check=False, capture_output=True, text=True
        )
    except subprocess.TimeoutExpired:
        return np.full(2, np.inf), None
    if done.returncode:
        raise SystemExit(f"{name} failed: {done.stderr[-2000:]}")
    results = [np.load(folder / f"{name}{rank}.npz") for rank in range(RANKS)]
    return np.max([result["seconds"] for result in results], axis=0), results[0]["components"]


def main() -> None:
    """Print the ratio at each shape; fail if one is above its target."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--daal", help="Python of the environment with daal4py and MPICH")
    parser.add_argument("--timeout-s", type=float, default=1800.0, help="longest fit that is waited for")
    parser.add_argument("--features", type=int, nargs="*", help="only these of the shapes, by their features")
    parser.add_argument("--node", choices=("ours", "daal"), help=argparse.SUPPRESS)
    parser.add_argument("--folder", type=Path, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.node:
        return node(options.node, options.folder)
    failed = False
    columns = f"{'eigenmesh':>10}  {'daal4py':>10}  {'ratio':>6}  target  of processor time"
    print(f"{'samples x features':>19}  {columns}  true sine of both")
    for n, d, turns, target in SHAPES:
        if options.features and d not in options.features:
            continue
        with tempfile.TemporaryDirectory() as name:
            folder, rows = Path(name), samples(n, d)
            np.save(folder / "rows.npy", rows)
            true, taken, found = leading(rows / rows.std(axis=0), K).T, {"ours": [], "daal": []}, {}
            del rows
            for _ in range(turns):
                for who, python in (("ours", sys.executable), ("daal", options.daal)):
                    seconds, found[who] = one_turn(who, python, folder, options.timeout_s)
                    taken[who].append(seconds)
        (ours, our_work), (theirs, their_work) = (np.median(each, axis=0) for each in taken.values())
        sines = [f"{largest_sine(each, true):.0e}" if each is not None else "none" for each in found.values()]
        slower = f"{theirs:8.2f} s" if np.isfinite(theirs) else f"> {options.timeout_s:g} s"
        ratios = f"{ours / theirs:6.2f}  {target:6.1f}  {our_work / their_work:17.2f}"
        print(f"{n:>8,} x {d:>8,}  {ours:8.2f} s  {slower:>10}  {ratios}  {', '.join(sines)}")
        failed |= ours / theirs > target
    raise SystemExit(int(failed))


if __name__ == "__main__":
    main()
