"""Cost of the exact solvers: rounds, bytes, wall-clock time and memory, against their targets.

Run it with ``make bench-exact``; the parts on MNIST, CIFAR-10 and HapMap3 need EIGENMESH_DATA. dask-ml is compared if
it is installed.
"""

from __future__ import annotations

import resource
import subprocess
import sys
import warnings
from collections.abc import Callable

import numpy as np
from rich.console import Console
from rich.table import Table
from sklearn.decomposition import PCA
from timing import side_by_side
from truth import leading

from eigenmesh import DecentralizedPCA, graphs, run
from eigenmesh.averaging import AVERAGINGS, Polynomial, Tree
from eigenmesh.data import LabelSplit, RandomSplit, Shards, build_covariance, load, pooled_moments
from eigenmesh.data.datasets import gaussian, nearly_equal, paper_spectrum, unlike_nodes
from eigenmesh.errors import UnreadableFileError
from eigenmesh.fitting import NodeData, Request, fit, plan, prepare
from eigenmesh.metrics import largest_angle
from eigenmesh.networks import Stacked
from eigenmesh.solvers import BlockKrylov, FastPCA, TrackedSubspace

console = Console(width=150)


def rounds_to(history, error: float) -> int | None:
    return next((record.rounds for record in history if record.error <= error), None)


def synthetic(seeds: int = 10) -> None:
    table = Table(title=f"Block Krylov + polynomial averaging, d = 20, K = 5: most rounds to 1e-10 over {seeds} seeds")
    for heading in ("eigenvalues", "gap", "Erdos-Renyi", "cycle"):
        table.add_column(heading, justify="right")
    for name in ("distinct", "nearly equal", "unlike nodes"):
        for gap in (0.8, 0.97):
            cells = []
            for topology in ("erdos_renyi", "cycle"):
                taken = []
                for seed in range(seeds):
                    spectrum = paper_spectrum(20, 5, gap)
                    spectrum = nearly_equal(spectrum, 5) if name == "nearly equal" else spectrum
                    if name == "unlike nodes":
                        parts = unlike_nodes(spectrum, [5000] * 20, seed)
                    else:
                        parts = np.split(gaussian(spectrum, 100_000, seed), 20)
                    network = Stacked(graphs.metropolis(graphs.topology(topology, 20, seed=seed)), Polynomial())
                    shards = Shards.from_list(parts)
                    covariance = build_covariance(shards, pooled_moments(shards, network))
                    true = leading(np.vstack(parts), 5)
                    result = run(BlockKrylov(), covariance, network, 5, seed=seed, reference=true)
                    taken.append(rounds_to(result.history, 1e-10) or np.inf)
                cells.append(f"{max(taken):.0f}")
            table.add_row(name, f"{gap}", *cells)
    console.print(table)


def real_data() -> None:
    table = Table(title="Default settings on real data, M = 20 (HapMap3: 11 sites)")
    headings = (
        "data",
        "split",
        "graph",
        "solver",
        "to 1e-10",
        "all rounds",
        "planned",
        "bytes",
        "sin bound",
        "true sin",
    )
    for heading in headings:
        table.add_column(heading, justify="right")
    cases = [("mnist", 10, (RandomSplit(0), LabelSplit()), ("erdos_renyi", "cycle"))]
    cases.append(("cifar10", 5, (RandomSplit(0), LabelSplit()), ("erdos_renyi", "cycle")))
    cases.append(("hapmap3", 5, (None,), ("path", "star", "cycle", "erdos_renyi")))
    for name, k, splits, topologies in cases:
        try:
            data = load(name)
        except UnreadableFileError:
            console.print(f"{name} was not found (set EIGENMESH_DATA): left out.")
            continue
        true = leading(data.X, k)
        for split in splits:
            if split is None:
                shards, words = Shards.from_labels(data.X, data.labels), "by site"
            else:
                shards = Shards.from_array(data.X, 20, split, data.labels)
                words = "random" if isinstance(split, RandomSplit) else "by label"
            for topology in topologies:
                weights = graphs.metropolis(graphs.topology(topology, shards.n_nodes, seed=0))
                node_data = NodeData(shards, weights)
                forecasts = plan(Request(k), node_data).forecasts
                solvers = [BlockKrylov(), TrackedSubspace()] if name == "mnist" else [BlockKrylov()]
                for solver in solvers:
                    table.add_row(name, words, topology, *one_run(solver, node_data, k, true, forecasts))
    console.print(table)


def mnist_seeds(seeds: int = 10) -> None:
    """Most rounds to 1e-10 over seeds of split, graph and start; the averaging with the fewest rounds."""
    try:
        data = load("mnist")
    except UnreadableFileError:
        return
    true = leading(data.X, 10)
    most: dict[tuple[str, str, str], float] = {}
    for seed in range(seeds):
        for words, split in (("random", RandomSplit(seed)), ("by digit", LabelSplit())):
            shards = Shards.from_array(data.X, 20, split, data.labels)
            alone = Stacked(graphs.metropolis(graphs.topologies.complete(20)))
            covariance = build_covariance(shards, pooled_moments(shards, alone), products=1000)
            for topology, averaging in (("erdos_renyi", Tree()), ("cycle", Polynomial())):
                weights = graphs.metropolis(graphs.topology(topology, 20, seed=seed))
                for solver in (BlockKrylov(), TrackedSubspace()):
                    network = Stacked(weights, averaging)
                    result = run(solver, covariance, network, 10, seed=seed, reference=true, tol=1e-5)
                    taken = rounds_to(result.history, 1e-10) or np.inf
                    key = (words, topology, solver.name)
                    most[key] = max(most.get(key, 0), taken)
    table = Table(title=f"MNIST, K = 10: most rounds to 1e-10 over {seeds} seeds")
    for heading in ("split", "graph", "solver", "rounds"):
        table.add_column(heading, justify="right")
    for key, rounds in most.items():
        table.add_row(*key, f"{rounds:.0f}")
    console.print(table)


def one_run(solver, data, k, true, forecasts) -> list[str]:
    """The cells of one line of ``real_data``: the averaging that the planner finds cheapest for the solver."""
    line = next(line for line in forecasts if line.solver == solver.name)
    request = Request(k, solver=solver, averaging=AVERAGINGS[line.averaging]())
    result = fit(prepare(request, data), reference=true).result
    sent, set_up = result.traffic, result.traffic_by_phase["set-up"]
    return [
        f"{solver.name} + {line.averaging}",
        f"{rounds_to(result.history, 1e-10)}",
        f"{sent.rounds} ({set_up.rounds} set-up)",
        f"{line.rounds:.0f}",
        f"{sent.bytes / 1e6:,.1f} MB",
        f"{result.certificate.error_bound:.1e}",
        f"{largest_angle(np.swapaxes(result.node_components, -1, -2), true):.1e}",
    ]


def bytes_of_a_tree() -> None:
    try:
        data = load("mnist")
    except UnreadableFileError:
        return
    shards, true = Shards.from_array(data.X, 20, RandomSplit(0)), leading(data.X, 10)
    weights = graphs.metropolis(graphs.topologies.erdos_renyi(20, seed=0))
    sent = {}
    for solver in (BlockKrylov(), FastPCA(step_size=0.13)):
        network = Stacked(weights, Tree())
        covariance = build_covariance(shards, pooled_moments(shards, network), products=1000)
        result = run(solver, covariance, network, 10, reference=true, max_rounds=2000)
        sent[solver.name] = next((r.bytes for r in result.history if r.error <= 1e-10), np.inf)
    ratio = sent["fast-pca"] / sent["block-krylov"]
    console.print(
        f"MNIST, random split, Erdos-Renyi: bytes to 1e-10 are {sent['block-krylov'] / 1e6:.1f} MB for block Krylov on "
        f"a tree and {sent['fast-pca'] / 1e6:,.0f} MB for FAST-PCA at its best step: 1/{ratio:.0f}."
    )


def wall_clock() -> None:
    try:
        X = load("mnist").X
    except UnreadableFileError:
        return
    contestants: dict[str, Callable[[], object]] = {
        "scikit-learn, covariance_eigh": lambda: PCA(10, svd_solver="covariance_eigh").fit(X),
        "scikit-learn, randomized, 20 power iterations": lambda: PCA(
            10, svd_solver="randomized", iterated_power=20, random_state=0
        ).fit(X),
        "eigenmesh, 20 simulated nodes": lambda: DecentralizedPCA(10, n_nodes=20).fit(X),
    }
    try:
        import dask.array as da
        from dask_ml import decomposition as dask_decomposition

        lazy = da.from_array(X, chunks=(3000, X.shape[1]))
        contestants["dask-ml, tsqr"] = lambda: dask_decomposition.PCA(10, svd_solver="tsqr").fit(lazy)
        contestants["dask-ml, randomized, 20 power iterations"] = lambda: dask_decomposition.PCA(
            10, svd_solver="randomized", iterated_power=20, random_state=0
        ).fit(lazy)
    except ImportError:
        console.print("dask-ml is not installed: not compared.")
    true = leading(X, 10)
    least = side_by_side(contestants, repeats=1, passes=5)
    floor = least["scikit-learn, covariance_eigh"]
    table = Table(title="MNIST, K = 10, from array to fitted estimator (least of 5 turns)")
    for heading in ("", "ratio to covariance_eigh", "largest true sin"):
        table.add_column(heading, justify="right")
    for name, solve in contestants.items():
        fitted = solve()
        angle = largest_angle(np.asarray(fitted.components_).T[np.newaxis], true)
        table.add_row(name, f"{least[name] / floor:.2f}", f"{angle:.1e}")
    console.print(table)


MEMORY = """
import tracemalloc
import numpy as np
from eigenmesh import DecentralizedPCA
rng = np.random.default_rng(0)
X = rng.standard_normal((60000, 784)) * np.geomspace(5, 0.1, 784)
DecentralizedPCA(2, n_nodes=20).fit(X[:2000])
tracemalloc.start()
DecentralizedPCA(10, n_nodes=20).fit(X)
print(1 + tracemalloc.get_traced_memory()[1] / X.nbytes)
"""

SPARSE = """
import resource, time, numpy as np
from scipy import sparse
from eigenmesh import DecentralizedPCA
rng = np.random.default_rng(0)
n, d, density = 20_000, 100_000, 0.001
# Topics: samples of one topic share frequent features, so that there are components to find.
X = sparse.random(n, d, density=density, random_state=rng, format="csr")
topics = sparse.random(12, d, density=0.005, random_state=rng, format="csr")
own = rng.integers(0, 12, n)
weight = sparse.csr_array((np.linspace(3, 1, 12)[own], (np.arange(n), own)), (n, 12))
X = sparse.csr_array(X + weight @ topics)
plan = DecentralizedPCA(10, n_nodes=20).plan(X).best
pca = DecentralizedPCA(10, n_nodes=20).fit(X)
peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1e6
print(f"Sparse {n:,} x {d:,}, {X.nnz / n / d:.2%} dense, 20 nodes, K = 10: {pca.stop_reason_.label} after "
      f"{pca.n_iter_} products and {pca.traffic_.rounds} rounds (planned {plan.rounds:.0f}), sin bound "
      f"{pca.certificate_.error_bound:.1e}, peak memory {peak:.2f} GB.")
"""


def in_a_process(code: str) -> str:
    done = subprocess.run([sys.executable, "-W", "ignore", "-c", code], capture_output=True, text=True, check=False)
    return done.stdout.strip() or done.stderr


if __name__ == "__main__":
    warnings.simplefilter("ignore")
    parts = {
        "synthetic": synthetic,
        "real": real_data,
        "seeds": mnist_seeds,
        "bytes": bytes_of_a_tree,
        "wall": wall_clock,
        "memory": lambda: console.print(
            f"Peak memory of a fit of 60,000 x 784 samples: {float(in_a_process(MEMORY)):.3f} times that of the data."
        ),
        "sparse": lambda: console.print(in_a_process(SPARSE)),
    }
    for name in sys.argv[1:] or parts:
        parts[name]()
    console.print(f"Peak memory of this process: {resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1e6:.2f} GB.")
