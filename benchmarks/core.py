"""Cost of FAST-PCA: an iteration against its floor, thousands of nodes, short-fat data, MNIST with automatic steps.

Run it with ``make bench``, or ``python benchmarks/core.py nodes`` for some parts; a number is that many nodes. The
parts on real data need EIGENMESH_DATA; without it they use made-up data of the same shape (HapMap3) or are left out
(MNIST), and say so.
"""

from __future__ import annotations

import resource
import subprocess
import sys

import numpy as np
from rich.console import Console
from rich.table import Table
from timing import side_by_side

from eigenmesh import DecentralizedPCA, graphs, run
from eigenmesh.data import Formed, LabelSplit, RandomSplit, Shards, build_covariance, load, pooled_moments
from eigenmesh.errors import UnreadableFileError
from eigenmesh.metrics import mean_error
from eigenmesh.networks import Stacked
from eigenmesh.solvers import FastPCA
from eigenmesh.solvers.base import random_basis

console = Console(width=118)


def iteration_against_floor() -> None:
    table = Table(title="One iteration of FAST-PCA, stacked, against its bare products (least of 15 turns)")
    for heading in (
        "M, d, K",
        "products and mixes",
        "C X and mixes only",
        "iteration",
        "ratio",
        "ratio to C X and mixes",
    ):
        table.add_column(heading, justify="right")
    for n_nodes, d, k, repeats in ((20, 784, 10, 5), (20, 20, 5, 500)):
        rng = np.random.default_rng(0)
        factors = rng.standard_normal((n_nodes, d, d))
        covariance = Formed(factors @ np.swapaxes(factors, -1, -2) / d)
        network = Stacked(graphs.metropolis(graphs.topologies.erdos_renyi(n_nodes, seed=0)))
        solver = FastPCA(step_size=0.01)
        state = solver.init(covariance, network, np.repeat(random_basis(d, k, 0)[np.newaxis], n_nodes, axis=0))
        C, W, X, S = covariance.matrices, network.weights.matrix, state.X, state.S
        small = np.swapaxes(X, -1, -2) @ S

        def mixes(W=W, X=X, S=S, n_nodes=n_nodes):
            return W @ X.reshape(n_nodes, -1), W @ S.reshape(n_nodes, -1)

        def floor(C=C, X=X, S=S, small=small, mixes=mixes):
            return C @ X, X.mT @ S, X @ small, mixes()

        least = side_by_side(
            {
                "floor": floor,
                "strict": lambda C=C, X=X, mixes=mixes: (C @ X, mixes()),
                "iteration": lambda c=covariance, n=network, s=state, solver=solver: solver.step(c, n, s),
            },
            repeats,
        )
        table.add_row(
            f"{n_nodes}, {d}, {k}",
            *(f"{least[name] * 1e6:,.1f} us" for name in ("floor", "strict", "iteration")),
            f"{least['iteration'] / least['floor']:.2f}",
            f"{least['iteration'] / least['strict']:.2f}",
        )
    console.print(table)


def many_nodes() -> None:
    n_nodes, d, k = 2000, 20, 5
    rng = np.random.default_rng(0)
    rows = rng.standard_normal((20 * n_nodes, d)) * np.geomspace(2, 0.2, d)
    shards = Shards.from_array(rows, n_nodes)
    network = Stacked(graphs.metropolis(graphs.topologies.regular(n_nodes, degree=8, seed=0)))
    covariance = build_covariance(shards, pooled_moments(shards, network), n_components=k, products=1000)
    result = run(FastPCA(), covariance, network, k, max_rounds=600)
    true = np.linalg.eigh(np.cov(rows, rowvar=False))[1][:, ::-1][:, :k]
    error = mean_error(np.swapaxes(result.node_components, -1, -2), true)
    console.print(
        f"M = 2000 nodes of degree 8, sparse weights, d = {d}, K = {k}: {result.iterations} iterations, "
        f"{result.stop_reason.label}, mean sin^2 error {error:.1e}, "
        f"sin-angle bound {result.certificate.error_bound:.1e}."
    )


NODES = """
import resource, sys, time
import numpy as np
from eigenmesh import DecentralizedPCA
from eigenmesh.metrics import largest_angle
n_nodes, d, k = int(sys.argv[1]), 20, 5
DecentralizedPCA(k, n_nodes=10).fit(np.random.default_rng(1).standard_normal((40, d)))
rows = np.random.default_rng(0).standard_normal((4 * n_nodes, d)) * np.geomspace(3, 0.5, d)
began = time.perf_counter()
pca = DecentralizedPCA(k, n_nodes=n_nodes, topology="regular").fit(rows)
taken = time.perf_counter() - began
true = np.linalg.eigh(np.cov(rows, rowvar=False))[1][:, ::-1][:, :k]
peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1e6
angle = largest_angle(pca.components_.T[np.newaxis], true)
print(taken, peak, angle, pca.certificate_.error_bound, pca.stop_reason_.label)
"""


def growth_with_nodes(counts: tuple[int, ...] = (1000, 10_000, 100_000)) -> None:
    """From array to certified result, including the set-up, with each number of nodes in its own process."""
    table = Table(title="Nodes of degree 4, 4 samples of 20 features at each, K = 5, from array to fitted estimator")
    for heading in ("M", "seconds", "growth", "peak memory", "largest true sin", "sin-angle bound", "stop"):
        table.add_column(heading, justify="right")
    before = None
    for n_nodes in counts:
        command = [sys.executable, "-W", "ignore", "-c", NODES, f"{n_nodes}"]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        if done.returncode:
            console.print(f"{n_nodes:,} nodes: {done.stderr.strip() or f'ended by signal {-done.returncode}'}")
            return
        taken, peak, angle, bound = map(float, done.stdout.split()[:4])
        growth = "" if before is None else f"{taken / before:.1f}"
        cells = (f"{n_nodes:,}", f"{taken:.1f}", growth, f"{peak:.2f} GB", f"{angle:.1e}", f"{bound:.1e}")
        table.add_row(*cells, done.stdout.split()[4])
        before = taken
    console.print(table)


SHORT_FAT = """
import resource, sys
import numpy as np
from eigenmesh import DecentralizedPCA
from eigenmesh.data import load
from eigenmesh.errors import UnreadableFileError
try:
    table = load("hapmap3")
    X, sites, name = table.X, table.labels, "HapMap3"
except UnreadableFileError:
    rng = np.random.default_rng(0)
    sites = np.arange(957) % 11
    X = rng.integers(0, 3, (957, 14079)).astype(np.float32) + rng.normal(size=(11, 14079)).astype(np.float32)[sites]
    name = "made-up data of HapMap3's shape"
pca = DecentralizedPCA(5, solver="fast-pca", topology="complete", max_rounds=10_000).fit(X, nodes=sites)
peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1e6
print(f"{name}, {X.shape[0]} x {X.shape[1]} over {pca.n_nodes_} sites, K = 5: {pca.stop_reason_.label} in "
      f"{pca.traffic_.rounds} rounds, sin-angle bound {pca.certificate_.error_bound:.1e}, peak memory {peak:.2f} GB.")
"""


def short_fat() -> None:
    # In its own process, so that the peak memory is that of this fit.
    done = subprocess.run(
        [sys.executable, "-W", "ignore", "-c", SHORT_FAT], capture_output=True, text=True, check=False
    )
    console.print(done.stdout.strip() or done.stderr)


def mnist_automatic_step(max_rounds: int = 1200) -> None:
    try:
        images = load("mnist")
    except UnreadableFileError:
        console.print("MNIST was not found (set EIGENMESH_DATA): the automatic step is not shown on it.")
        return
    table = Table(title=f'FAST-PCA with step_size="auto" on MNIST, M = 20, K = 10, at most {max_rounds} rounds')
    for heading in ("split", "graph", "stop", "rounds", "step", "mean sin^2 error", "sin-angle bound"):
        table.add_column(heading, justify="right")
    true = np.linalg.eigh(np.cov(images.X, rowvar=False))[1][:, ::-1][:, :10]
    for split, name in ((RandomSplit(0), "random"), (LabelSplit(), "by digit")):
        shards = Shards.from_array(images.X, 20, split, images.labels)
        for topology in ("erdos_renyi", "cycle"):
            pca = DecentralizedPCA(10, solver="fast-pca", topology=topology, max_rounds=max_rounds)
            pca.fit(shards)
            error = mean_error(np.swapaxes(pca.node_components_, -1, -2), true)
            table.add_row(
                name,
                topology,
                pca.stop_reason_.label,
                f"{pca.traffic_.rounds}",
                f"{pca.history_[-1].step_size:.2g}",
                f"{error:.1e}",
                f"{pca.certificate_.error_bound:.1e}",
            )
    console.print(table)


if __name__ == "__main__":
    import warnings

    warnings.simplefilter("ignore")
    parts = {
        "iteration": iteration_against_floor,
        "many": many_nodes,
        "nodes": growth_with_nodes,
        "short-fat": short_fat,
        "mnist": mnist_automatic_step,
    }
    for name in sys.argv[1:] or parts:
        if name.isdigit():
            growth_with_nodes((int(name),))
        else:
            parts[name]()
    console.print(f"Peak memory of this process: {resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1e6:.2f} GB.")
