"""Attack the certificate: ``python benchmarks/attack.py --problems 20000``.

Random problems of many classes, most of them made to mislead: eigenvalues repeated across component K, directions
hidden from a known start, nodes that cancel each other, means far larger than deviations, tiny and huge numbers, every
solver, averaging, graph and form of the covariance, weights that hardly mix, links that go one way, change and lose
messages, networks of two and three nodes, streams whose mean moves, nodes that do not wait for each other. The truth is
computed in extended precision. A problem fails if a component is farther from the truth than its bound, if a run says
that it converged and is not within ``tol``, or if it takes more than a minute of the processor: what else the machine
does meanwhile does not count, unless a fit that only waits takes ten minutes. Fits that are refused with one of
eigenmesh's own errors are counted; any other error is a failure.
"""

from __future__ import annotations

import argparse
import signal
import sys
import time
import warnings
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator
from concurrent.futures import ProcessPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from itertools import pairwise
from typing import Any

import networkx as nx
import numpy as np
from scipy import sparse

from eigenmesh import Certificate, Costs, DecentralizedPCA, StreamingPCA, graphs
from eigenmesh.averaging import AVERAGINGS, Chebyshev, Gossip
from eigenmesh.data import Shards
from eigenmesh.errors import EigenmeshError, TransportError
from eigenmesh.fitting import NodeData, Request
from eigenmesh.iteration import DEFAULT_TOL, Result
from eigenmesh.rehearsal.conditions import Conditions, Host, LinkQuality
from eigenmesh.rehearsal.simulation import simulate
from eigenmesh.solvers import AT_OWN_PACE, BlockKrylov, FastPCA

Rng = np.random.Generator
EXACT = ("auto", "auto", "auto", "block-krylov", "tracked-subspace", "oi", "one-sum")
SLOW = ("fast-pca", "deepca", "s-dot", "dsa", "seq-pm")
# Eigenvalues this close, with a trace of 1, are separated by rotations.
CLOSE = 1e-9
# A problem that computes for longer has failed, and so has one that takes longer by the clock.
MOST_SECONDS, MOST_CLOCK_SECONDS = 60, 600
SHAPES = ("erdos_renyi", "cycle", "path", "star", "complete")


@dataclass
class Problem:
    """Samples of each node, and what is asked for; with conditions, in virtual time."""

    parts: list[Any]
    n_components: int
    settings: dict[str, Any] = field(default_factory=dict)
    conditions: Conditions | None = None
    batches: int = 0  # the samples come in so many
    first_batch: int = 0  # samples of a node in one more batch before them


# --- classes of problems ------------------------------------------------------------------------------------------


def rotation(rng: Rng, d: int) -> np.ndarray:
    return np.linalg.qr(rng.standard_normal((d, d)))[0]


def split(rng: Rng, rows: np.ndarray, n_nodes: int) -> list[np.ndarray]:
    """Unequal nodes of at least one row each."""
    return split_over(rng, rows, max(1, min(n_nodes, len(rows) // 2)))


def exact_rows(rng: Rng, values: np.ndarray, turn: bool = True) -> np.ndarray:
    """Rows whose pooled covariance has these eigenvalues, up to rounding: plus and minus each axis."""
    d = len(values)
    axes = np.diag(np.sqrt(values * (2 * d - 1) / 2))
    rows = np.vstack([axes, -axes])
    return (rows @ rotation(rng, d).T if turn else rows)[rng.permutation(2 * d)]


def usual(rng: Rng, slow: bool = False) -> dict[str, Any]:
    solver = rng.choice(SLOW if slow else EXACT)
    return {
        "solver": str(solver),
        "topology": str(rng.choice(SHAPES)),
        "tol": float(10 ** rng.uniform(-9, -2)),
        "max_rounds": int(rng.choice([60, 400])),
    }


def gaussian_rows(rng: Rng, n: int, d: int) -> np.ndarray:
    return rng.standard_normal((n, d)) * np.exp(rng.uniform(-2, 1, d)) @ rotation(rng, d)


def random_problem(rng: Rng) -> Problem:
    d = int(rng.integers(2, 25))
    rows = gaussian_rows(rng, int(rng.integers(d + 5, 150)), d) + rng.normal(scale=3, size=d)
    return Problem(split(rng, rows, int(rng.integers(2, 9))), int(rng.integers(1, d + 1)), usual(rng))


def slow_solvers(rng: Rng) -> Problem:
    problem = random_problem(rng)
    return Problem(problem.parts, min(problem.n_components, 4), usual(rng, slow=True))


def repeated_beyond(rng: Rng) -> Problem:
    """Directions beyond component K share its eigenvalue."""
    d, k = int(rng.integers(4, 16)), int(rng.integers(1, 4))
    times = int(rng.integers(1, max(2, min(4, d - k))))
    values = np.sort(rng.uniform(0.1, 1, d))[::-1]
    values[k - 1 : k + times] = values[k - 1]
    values[k + times :] = np.minimum(values[k + times :], values[k - 1] * rng.choice([0.99, 0.9, 0.5]))
    settings = usual(rng, slow=bool(rng.random() < 0.3))
    rows = exact_rows(rng, values, turn=bool(rng.random() < 0.7))
    if rng.random() < 0.3:
        rows = rows.astype(np.float32)
    return Problem(split(rng, rows, 5), k, settings)


def repeated_within(rng: Rng) -> Problem:
    d, k = int(rng.integers(5, 16)), int(rng.integers(2, 5))
    values = np.sort(rng.uniform(0.1, 1, d))[::-1]
    values[: k - 1] = values[0]
    return Problem(split(rng, exact_rows(rng, values), 5), k, usual(rng))


def close(rng: Rng) -> Problem:
    """Eigenvalues that differ by less and less."""
    d, k = int(rng.integers(4, 16)), int(rng.integers(1, 4))
    values = np.sort(rng.uniform(0.1, 1, d))[::-1]
    values[k] = values[k - 1] * (1 - 10 ** rng.uniform(-15, -2))
    return Problem(split(rng, exact_rows(rng, values), 5), k, usual(rng))


def narrow(rng: Rng, dtype: str) -> Problem:
    """Samples of a narrow dtype, over its range, with every averaging, on graphs that mix slowly."""
    n_nodes, d = int(rng.integers(2, 33)), int(rng.integers(2, 20))
    graph = (
        graphs.topologies.path(n_nodes),
        graphs.topologies.binary_tree(n_nodes),
        nx.lollipop_graph(max(2, n_nodes // 2), max(1, n_nodes // 2)),
        graphs.topologies.star(n_nodes),
    )[int(rng.integers(4))]
    rows = gaussian_rows(rng, int(rng.integers(3, 10)) * len(graph) + d, d) + rng.normal(scale=3, size=d)
    kind = np.dtype(dtype)
    largest = 10 ** rng.uniform(-3, 3)
    if kind.kind in "iu":
        rows, largest = rows - (rows.min() if kind.kind == "u" else 0), min(np.iinfo(kind).max, 2**52)
    rows = (rows / np.abs(rows).max() * largest).astype(kind)
    averaging = str(rng.choice(list(AVERAGINGS)))
    settings = {**usual(rng, slow=bool(rng.random() < 0.1)), "topology": graph, "averaging": averaging}
    if averaging == "integers":
        settings["solver"] = str(rng.choice(["auto", "one-sum"]))
    if settings["solver"] in EXACT:
        # An average by gossip takes thousands of rounds on these graphs.
        settings["max_rounds"] = 300_000
    if averaging == "factored":
        # The search for factors takes long on large graphs.
        settings["topology"] = graph = graphs.topologies.path(min(len(graph), 8))
    if rng.random() < 0.5:
        del settings["tol"]
    return Problem(split_over(rng, rows, len(graph)), int(rng.integers(1, min(d, 5) + 1)), settings)


def split_over(rng: Rng, rows: np.ndarray, n_nodes: int) -> list[np.ndarray]:
    """Unequal nodes, exactly so many."""
    cuts = np.sort(rng.choice(np.arange(1, len(rows)), n_nodes - 1, replace=False))
    return np.split(rows, cuts)


def float32_samples(rng: Rng) -> Problem:
    return narrow(rng, "float32")


def float16_samples(rng: Rng) -> Problem:
    return narrow(rng, "float16")


def integer_samples(rng: Rng) -> Problem:
    return narrow(rng, str(rng.choice(["int8", "uint8", "int16", "uint16", "int32", "int64"])))


def diverging(rng: Rng) -> Problem:
    """FAST-PCA with a step far too large."""
    rows = np.array([[2.0, 0], [-2, 0], [0, 1], [0, -1]]) if rng.random() < 0.3 else gaussian_rows(rng, 40, 4)
    solver = FastPCA(step_size=float(10 ** rng.uniform(0, 9)))
    return Problem(split(rng, rows, 2), 1, {"solver": solver, "topology": "complete", "max_rounds": 200})


def hidden(rng: Rng) -> Problem:
    """The first direction is orthogonal to the start that a fixed seed would give."""
    d = int(rng.choice([12, 20, 30, 60]))
    k = int(rng.integers(1, 4))
    start = np.random.default_rng(0).standard_normal((d, k + 5))
    known = np.linalg.qr(np.hstack([start, np.random.default_rng(k).standard_normal((d, k + 5))]))[0]
    q = rng.standard_normal(d)
    q -= known @ (known.T @ q)
    q /= np.linalg.norm(q)
    values = np.sort(rng.uniform(0.01, 0.5, d))[::-1]
    basis = np.linalg.qr(np.column_stack([q, rng.standard_normal((d, d - 1))]))[0]
    values[0] = 1.0
    axes = np.sqrt(values * (2 * d - 1) / 2)[:, np.newaxis] * basis.T
    settings = {**usual(rng, slow=bool(rng.random() < 0.2)), "tol": 1e-2}
    return Problem(split(rng, np.vstack([axes, -axes]), 5), k, settings)


def opposed(rng: Rng) -> Problem:
    """Nodes whose covariances are M times the pooled one, on graphs where averages are hard."""
    d, m = int(rng.integers(4, 12)), 12
    graph = nx.complete_graph(m - 1)
    graph.add_edge(0, m - 1)
    parts = [1e-3 * rng.standard_normal((3, d)) for _ in range(m)]
    parts[m - 1] = rng.standard_normal((6, d)) * np.exp(rng.uniform(-1, 2, d))
    parts[1] = rng.standard_normal((6, d)) * np.exp(rng.uniform(-1, 2, d))
    averaging = rng.choice([Gossip(1e-8), Chebyshev(1e-8), Gossip(1e-9), Chebyshev(1e-10)])
    solver = str(rng.choice(["auto", "block-krylov", "oi"]))
    tol = float(10 ** rng.uniform(-8, -4))
    return Problem(
        parts, int(rng.integers(1, 4)), {"topology": graph, "averaging": averaging, "solver": solver, "tol": tol}
    )


def large_means(rng: Rng) -> Problem:
    d = int(rng.integers(3, 12))
    if rng.random() < 0.5:
        rows = rng.integers(-20, 20, (80, d)) * rng.integers(1, 4, d) + 2.0 ** rng.integers(30, 48)
    else:
        rows = gaussian_rows(rng, 80, d) + 10 ** rng.uniform(5, 14) * rng.standard_normal(d)
    return Problem(split(rng, rows, 5), int(rng.integers(1, 3)), usual(rng))


def many_rows(rng: Rng) -> Problem:
    """Long sums of numbers of one sign, with means a few times as large as the deviations."""
    d, count = int(rng.integers(3, 10)), int(10 ** rng.uniform(3.5, 5))
    rows = gaussian_rows(rng, count, d) + rng.uniform(1, 8, d)
    return Problem([rows], int(rng.integers(1, 3)), {**usual(rng), "tol": 1e-11, "n_nodes": 5})


def scaled(rng: Rng) -> Problem:
    """Correlation PCA with deviations that are tiny compared with the means, or with tiny numbers throughout."""
    d = int(rng.integers(3, 12))
    rows = gaussian_rows(rng, 80, d) * 10 ** rng.uniform(-8, 0, d) + rng.normal(scale=10 ** rng.uniform(-3, 3), size=d)
    if rng.random() < 0.3:
        rows = rows * 10 ** rng.uniform(-170, -100)
    return Problem(split(rng, rows, 5), int(rng.integers(1, 3)), {**usual(rng), "scale": True})


def magnitudes(rng: Rng) -> Problem:
    problem = random_problem(rng)
    factor = 10 ** rng.uniform(-45, 45)
    return Problem([part * factor for part in problem.parts], problem.n_components, problem.settings)


def sparse_rows(rng: Rng) -> Problem:
    d = int(rng.integers(5, 25))
    rows = sparse.random_array((120, d), density=0.3, rng=rng, format="csr")
    rows.data = rng.standard_normal(len(rows.data)) + (10 ** rng.uniform(0, 7) if rng.random() < 0.6 else 0.0)
    cuts = [0, 20, 50, 70, 120]
    parts = [rows[i:j] for i, j in pairwise(cuts)]
    settings = {
        **usual(rng),
        "covariance": str(rng.choice(["auto", "sparse", "formed"])),
        "scale": bool(rng.random() < 0.3),
    }
    return Problem(parts, int(rng.integers(1, 4)), settings)


def rank_deficient(rng: Rng) -> Problem:
    d, rank = int(rng.integers(6, 30)), int(rng.integers(1, 5))
    rows = rng.standard_normal((60, rank)) * np.exp(rng.uniform(-1, 1, rank)) @ rng.standard_normal((rank, d))
    return Problem(split(rng, rows, 5), int(rng.integers(1, min(d, rank + 3))), usual(rng))


def short_fat(rng: Rng) -> Problem:
    n, d = int(rng.integers(6, 14)), int(rng.integers(30, 60))
    rows = gaussian_rows(rng, n, d)
    return Problem(split(rng, rows, 3), int(rng.integers(1, n)), usual(rng))


def all_components(rng: Rng) -> Problem:
    d = int(rng.integers(2, 10))
    return Problem(split(rng, gaussian_rows(rng, 60, d), 5), d, usual(rng))


def unlike(rng: Rng) -> Problem:
    """Every node has its own few directions."""
    d = int(rng.integers(6, 20))
    parts = [
        rng.standard_normal((int(rng.integers(2, 20)), 2)) @ rng.standard_normal((2, d)) * 10 ** rng.uniform(-1, 1)
        for _ in range(6)
    ]
    return Problem(parts, int(rng.integers(1, 4)), usual(rng))


def ways_to_hold(rng: Rng) -> Problem:
    problem = random_problem(rng)
    kind = str(rng.choice(["formed", "matrix-free", "chunked"]))
    return Problem(problem.parts, problem.n_components, {**problem.settings, "covariance": kind})


def heavy_tails(rng: Rng) -> Problem:
    rows = rng.standard_t(1.5, (100, 8)) * np.exp(rng.uniform(-2, 2, 8))
    return Problem(split(rng, rows, 6), int(rng.integers(1, 5)), usual(rng))


def power_law(rng: Rng) -> Problem:
    d = int(rng.integers(8, 30))
    values = np.arange(1, d + 1.0) ** -rng.uniform(0.2, 6)
    return Problem(split(rng, exact_rows(rng, values), 6), int(rng.integers(1, 6)), usual(rng))


def stopped_early(rng: Rng) -> Problem:
    """A bound must hold even if nothing converged."""
    problem = random_problem(rng)
    solver = str(rng.choice([*SLOW, "tracked-subspace", "block-krylov"]))
    settings = {**problem.settings, "solver": solver, "max_rounds": int(rng.integers(1, 40))}
    return Problem(problem.parts, min(3, problem.n_components), settings)


def missing_entries(rng: Rng) -> Problem:
    problem = random_problem(rng)
    for part in problem.parts:
        part[rng.random(part.shape) < 0.05] = np.nan
    return Problem(problem.parts, problem.n_components, {**problem.settings, "missing": "mean"})


def one_way(rng: Rng) -> Problem:
    """Links that go one way, with weights that average or only keep sums."""
    problem = any_problem(rng)
    n_nodes, seed = len(problem.parts), int(rng.integers(10**6))
    graph = rng.choice([graphs.topologies.random_out, graphs.topologies.directed_chords])(n_nodes, seed=seed)
    settings = {**problem.settings, "topology": graph, "weights": str(rng.choice(["auto", "push"]))}
    return Problem(problem.parts, problem.n_components, settings)


def changing(rng: Rng) -> Problem:
    """Links that come and go, messages that get lost, late or doubled."""
    problem = any_problem(rng)
    n_nodes, seed = len(problem.parts), int(rng.integers(10**6))
    graph, up = graphs.topologies.erdos_renyi(n_nodes, p=0.7, seed=seed), float(rng.uniform(0.3, 1))
    network = (
        graphs.changing.fresh_graphs(n_nodes, up, seed),
        graphs.changing.fresh_graphs(n_nodes, up, seed, one_way=True),
        graphs.changing.links_up(graph, up, seed),
        graphs.changing.dealt_out(graph, 5, seed),
        graphs.changing.matchings(graph, seed),
        graphs.changing.over_time(graph),
    )[int(rng.integers(6))]
    if rng.random() < 0.5:
        loss, twice = rng.uniform([0, 0], [0.4, 0.3]).tolist()
        network = graphs.changing.lossy(network, loss, int(rng.integers(3)), twice, seed)
    settings = {**problem.settings, "topology": network, "max_rounds": int(rng.choice([200, 3000]))}
    return Problem(problem.parts, problem.n_components, settings)


def blocks_averaged(rng: Rng) -> Problem:
    """Tracked subspace iteration, which ends with Rayleigh-Ritz in the average of all blocks, on any network."""
    problem = (any_problem, one_way, changing)[int(rng.integers(3))](rng)
    return Problem(problem.parts, problem.n_components, {**problem.settings, "solver": "tracked-subspace"})


def at_own_pace(rng: Rng) -> Problem:
    """Nodes of any speed that do not wait for each other, over links that are slow and lose messages."""
    problem = any_problem(rng)
    n_nodes, tol = len(problem.parts), problem.settings["tol"]
    graph = graphs.topologies.erdos_renyi(n_nodes, p=0.7, seed=int(rng.integers(10**6)))
    kind = AT_OWN_PACE[str(rng.choice(list(AT_OWN_PACE)))]
    # Sometimes the nodes meet far too early or too late.
    settings = {
        "solver": kind(tick_s=0.1, tol=tol * float(10 ** rng.uniform(-1, 2))),
        "tol": tol,
        "max_rounds": int(rng.choice([60, 400, 4000])),
        "topology": graph,
    }
    latency, loss, spread = rng.uniform([1, 0, 0], [100, 0.3, 1]).tolist()
    edges = tuple((str(min(link)), str(max(link))) for link in graph.edges)
    hosts = {str(node): Host(product_ms=float(10 ** rng.uniform(0, 3)), spread=spread) for node in range(n_nodes)}
    conditions = Conditions(dict.fromkeys(edges, LinkQuality(latency, latency, 1000, loss, 0)), hosts, ())
    return Problem(problem.parts, problem.n_components, settings, conditions)


def crowded(rng: Rng) -> Problem:
    """Many close eigenvalues across component K, and block Krylov with few columns beyond K that has to restart."""
    d, k, oversample = int(rng.integers(30, 60)), int(rng.integers(2, 11)), int(rng.choice([1, 1, 2, 5]))
    values = np.linspace(float(10 ** rng.uniform(-2, -0.5)), 0, d)
    values[: k + 1] = 1 + 10 ** rng.uniform(-12, -2) * np.arange(k, -1, -1)
    if rng.random() < 0.5:
        values[k] = values[k - 1] - 10 ** rng.uniform(-11, -7)
    settings = {
        "solver": BlockKrylov(oversample=oversample, max_width=int(rng.integers(3, 7)) * (k + oversample)),
        "topology": "complete",
        "tol": float(10 ** rng.uniform(-9, -1)),
        "max_rounds": 200,
    }
    return Problem(split(rng, exact_rows(rng, values), 3), k, settings)


def halfway(rng: Rng) -> Problem:
    """Slow solvers that stop between two eigenvectors, on float32 samples."""
    values = np.array([1, 1 - 10 ** rng.uniform(-6, -3), 0.5, 0.3, 0.2, 0.1])
    solver = str(rng.choice(["oi", "fast-pca", "deepca", "s-dot"]))
    rows = exact_rows(rng, values).astype(np.float32)
    return Problem(split(rng, rows, 5), 2, {**usual(rng), "solver": solver, "tol": 1e-2, "max_rounds": 400})


def stream(rng: Rng) -> Problem:
    """Samples that come in batches, with means much larger than the deviations."""
    d, n_nodes = int(rng.integers(3, 10)), int(rng.integers(2, 6))
    rows = gaussian_rows(rng, int(rng.integers(60, 150)), d) + 10 ** rng.uniform(-1, 6) * rng.standard_normal(d)
    settings = {**usual(rng), "solver": "auto", "n_nodes": n_nodes}
    return Problem(split(rng, rows, n_nodes), int(rng.integers(1, 3)), settings, batches=int(rng.integers(1, 5)))


def separate_processes(rng: Rng) -> Problem:
    """Nodes whose averages differ in the last digits, as threads, with large means and other samples at each."""
    d = int(rng.integers(3, 8))
    rows = gaussian_rows(rng, 60, d) + 10 ** rng.uniform(0, 6) * rng.standard_normal(d)
    rows[:15] += 2
    averaging = rng.choice(["polynomial", "tree", Chebyshev(1e-8), Chebyshev(1e-12), Gossip(1e-9)])
    settings = {"transport": "threads", "averaging": averaging, "topology": "cycle", "solver": "block-krylov"}
    return Problem(split(rng, rows, 4), int(rng.integers(1, 3)), {**settings, "tol": float(10 ** rng.uniform(-10, -6))})


def slow_weights(rng: Rng) -> Problem:
    """Weights that hardly mix, W = I - e L over two-way or one-way links, with every averaging."""
    problem = any_problem(rng)
    n_nodes, seed = len(problem.parts), int(rng.integers(10**6))
    graph = (
        graphs.topologies.erdos_renyi(n_nodes, p=0.7, seed=seed),
        graphs.topologies.path(n_nodes),
        graphs.topologies.star(n_nodes),
        graphs.topologies.complete(n_nodes),
        graphs.topologies.random_out(n_nodes, seed=seed),
    )[int(rng.integers(5))]
    fast, share = (graphs.balanced if graph.is_directed() else graphs.metropolis)(graph), 10 ** rng.uniform(-10, -1)
    W = (1 - share) * np.eye(n_nodes) + share * fast.matrix
    # Rows and columns sum to one as exactly as they can.
    W[np.diag_indices(n_nodes)] += 1 - W.sum(axis=0)
    averaging = rng.choice(["auto", *AVERAGINGS, Chebyshev(1e-8), Gossip(1e-8)])
    solver = str(rng.choice([*EXACT, *SLOW]))
    if averaging == "integers":
        solver = "block-krylov"
    settings = {**problem.settings, "topology": graphs.from_matrix(W, graph), "averaging": averaging, "solver": solver}
    return Problem(problem.parts, min(problem.n_components, 4), settings)


def few_nodes(rng: Rng) -> Problem:
    """Two or three nodes, over links of every kind: fixed, one way, there now and then, lossy, late, doubled."""
    n_nodes, seed = int(rng.integers(2, 4)), int(rng.integers(10**6))
    up, d = float(rng.uniform(0.2, 1)), int(rng.integers(2, 10))
    graph = graphs.topologies.path(n_nodes) if rng.random() < 0.5 else graphs.topologies.complete(n_nodes)
    ring = graphs.topologies.directed_cycle(n_nodes)
    network = (
        graph,
        ring,
        graphs.changing.over_time(graph),
        graphs.changing.links_up(graph, up, seed),
        graphs.changing.links_up(ring, up, seed),
        graphs.changing.fresh_graphs(n_nodes, up, seed),
        graphs.changing.fresh_graphs(n_nodes, up, seed, one_way=True),
        graphs.changing.dealt_out(graph, 3, seed),
        graphs.changing.matchings(graph, seed),
    )[int(rng.integers(9))]
    settings = {**usual(rng), "topology": network, "max_rounds": int(rng.choice([60, 400, 5000]))}
    settings["solver"] = str(rng.choice([*EXACT, *SLOW, "fast-pca", "tracked-subspace", "tracked-subspace"]))
    if isinstance(network, graphs.NetworkSequence):
        if rng.random() < 0.5:
            loss, twice = rng.uniform([0, 0], [0.5, 0.3]).tolist()
            settings["topology"] = graphs.changing.lossy(network, loss, int(rng.integers(3)), twice, seed)
    elif network is ring:
        settings["weights"] = str(rng.choice(["auto", "push", "pull"]))
    else:
        settings["averaging"] = str(rng.choice(["auto", *AVERAGINGS]))
    rows = gaussian_rows(rng, int(rng.integers(d + 6, 60)), d)
    return Problem(split(rng, rows, n_nodes), int(rng.integers(1, min(d, 4) + 1)), settings)


def moving_mean(rng: Rng) -> Problem:
    """Streams of few rows a batch whose mean is so large, or moves so slowly, that single rows hardly change it."""
    d, n_nodes, batches = int(rng.integers(2, 6)), int(rng.integers(1, 4)), int(rng.integers(20, 150))
    rows = gaussian_rows(rng, n_nodes * (batches + 4), d)
    rows += np.linspace(0, 1, len(rows))[:, np.newaxis] * rng.standard_normal(d) * 10 ** rng.uniform(-3, 3)
    rows += 2.0 ** rng.integers(0, 44) * rng.standard_normal(d)
    settings = {
        **usual(rng),
        "solver": "auto",
        "n_nodes": n_nodes,
        "averaging": str(rng.choice(["auto", "polynomial"])),
    }
    parts = [rows[node::n_nodes] for node in range(n_nodes)]
    return Problem(parts, int(rng.integers(1, min(d, 3) + 1)), settings, batches=batches, first_batch=4)


def any_problem(rng: Rng) -> Problem:
    """A problem of some class that is not about the network."""
    kinds = (random_problem, repeated_beyond, repeated_within, close, opposed, rank_deficient, unlike, stopped_early)
    return kinds[int(rng.integers(len(kinds)))](rng)


def summed_once(rng: Rng) -> Problem:
    """One sum: means up to a million deviations, at all nodes or at some, ranges of any width, one sum or two."""
    kinds = (any_problem, short_fat, large_means, magnitudes, scaled, heavy_tails, missing_entries, power_law)
    problem = kinds[int(rng.integers(len(kinds)))](rng)
    parts, d = problem.parts, problem.parts[0].shape[1]
    if rng.random() < 0.5:
        shift = 10 ** rng.uniform(0, 6) * float(np.nanstd(np.vstack(parts))) * rng.standard_normal(d)
        moved = 1 if rng.random() < 0.3 else len(parts)
        parts = [part + shift if node < moved else part for node, part in enumerate(parts)]
    kept = ("tol", "max_rounds", "scale", "missing", "topology")
    settings = {name: value for name, value in problem.settings.items() if name in kept}
    if len(parts) > 2 and rng.random() < 0.3:
        settings["privacy"] = "masked"
    else:
        settings["averaging"] = str(rng.choice(["integers", "integers", "tree"]))
    if rng.random() < 0.3:
        settings["costs"] = Costs(bandwidth_bytes_s=1e3)
    return Problem(parts, problem.n_components, {**settings, "solver": "one-sum"})


def lean(rng: Rng) -> Problem:
    """Block Krylov that locks components and sends few bits: unlike splits, close and equal eigenvalues, restarts."""
    d, kind = int(rng.integers(8, 90)), int(rng.integers(7))
    k = int(rng.choice([1, 1, 2, 3, 5, 8, d - 1, d])) if kind == 0 else int(rng.integers(1, min(8, d - 2)))
    values = np.sort(rng.uniform(0.01, 1, d))[::-1] ** rng.uniform(0.5, 6)
    if kind == 1:
        times = int(rng.integers(1, max(2, min(5, d - k))))
        values[k - 1 : k + times] = values[k - 1]
        values[k + times :] = np.minimum(values[k + times :], values[k - 1] * rng.choice([0.99, 0.9, 0.5]))
    elif kind == 2:
        values[:k] = values[0]
        values[k:] *= rng.choice([1, 0.99, 0.5])
    elif kind == 3:
        values[: k + 1] = values[0] * (1 - np.sort(10 ** rng.uniform(-12, -1, k + 1)))
        values[k + 1 :] *= rng.uniform(0.1, 0.9)
    elif kind == 4:
        values[int(rng.integers(1, d)) :] *= 10 ** rng.uniform(-14, -2)
    elif kind == 5:
        values = np.arange(1, d + 1.0) ** -rng.uniform(0.2, 4)
    values = np.sort(values)[::-1]
    rows = exact_rows(rng, values, turn=bool(rng.random() < 0.8))
    n_nodes = int(rng.integers(1, 9))
    if kind == 6:
        # Each node has its own few directions, far longer at some nodes.
        parts = [
            rng.standard_normal((int(rng.integers(2, 30)), 3)) @ rng.standard_normal((3, d)) * 10 ** rng.uniform(-2, 2)
            for _ in range(max(2, n_nodes))
        ]
    else:
        order = np.argsort(rows[:, 0]) if rng.random() < 0.5 else np.arange(len(rows))
        parts = split(rng, rows[order], n_nodes)
    shift = 10 ** rng.uniform(-2, 5) * rng.standard_normal(d) if rng.random() < 0.3 else 0.0
    parts = [part + shift for part in parts]
    if rng.random() < 0.3:
        parts = [part.astype(np.float32) for part in parts]
    elif rng.random() < 0.2:
        factor = 10 ** rng.uniform(-40, 40)
        parts = [part * factor for part in parts]
    oversample = int(rng.choice([1, 2, 5, 5, 5]))
    narrow_basis = int(rng.integers(3, 8)) * (k + oversample) if rng.random() < 0.4 else None
    settings = {
        "solver": BlockKrylov(oversample, max_width=narrow_basis, lean=True),
        "averaging": "tree",
        "topology": str(rng.choice(SHAPES)),
        "tol": float(10 ** rng.uniform(-11, -1)),
        "max_rounds": int(rng.choice([10, 60, 400, 3000])),
    }
    return Problem(parts, min(k, d), settings)


CLASSES: dict[str, Callable[[Rng], Problem]] = {
    made.__name__: made
    for made in (
        random_problem,
        summed_once,
        lean,
        slow_solvers,
        repeated_beyond,
        repeated_within,
        close,
        float32_samples,
        float16_samples,
        integer_samples,
        diverging,
        hidden,
        opposed,
        large_means,
        many_rows,
        scaled,
        magnitudes,
        sparse_rows,
        rank_deficient,
        short_fat,
        all_components,
        unlike,
        ways_to_hold,
        heavy_tails,
        power_law,
        stopped_early,
        missing_entries,
        one_way,
        changing,
        blocks_averaged,
        at_own_pace,
        crowded,
        halfway,
        stream,
        separate_processes,
        slow_weights,
        few_nodes,
        moving_mean,
    )
}


# --- the truth ------------------------------------------------------------------------------------------


def true_eigenpairs(problem: Problem) -> tuple[np.ndarray, np.ndarray]:
    """Eigenpairs of the pooled covariance in extended precision, largest first."""
    dense = [part.toarray() if sparse.issparse(part) else np.asarray(part) for part in problem.parts]
    rows = np.vstack(dense).astype(np.longdouble)
    known = np.isfinite(rows)
    # Subtracting a row first keeps large means exact.
    rows = np.where(known, rows - np.where(known, rows, 0)[0], 0)
    centred = np.where(known, rows - rows.sum(axis=0) / known.sum(axis=0), 0)
    # A second time, to remove the rounding error of the first mean.
    centred = np.where(known, centred - centred.sum(axis=0) / known.sum(axis=0), 0)
    if problem.settings.get("scale"):
        centred = centred / np.sqrt((centred**2).sum(axis=0) / len(centred))
    C = centred.T @ centred / (len(centred) - 1)
    C = C / np.trace(C)
    values, vectors = np.linalg.eigh(C.astype(np.float64))
    X = vectors.astype(np.longdouble)
    for _ in range(5):
        X, values = refined(C, X)
    X = turned(C, X, values)
    values = np.einsum("ij,ik,kj->j", X, C, X)
    order = np.argsort(-values)
    return values[order], X[:, order]


def turned(C: np.ndarray, X: np.ndarray, values: np.ndarray) -> np.ndarray:
    """Jacobi rotations inside groups of close eigenvalues, which the refinement leaves as they are."""
    pairs = [(i, j) for i in range(len(values)) for j in range(i) if abs(values[i] - values[j]) <= CLOSE]
    for _ in range(6):
        for i, j in pairs:
            x, y = X[:, i].copy(), X[:, j].copy()
            a, b, c = x @ C @ x, x @ C @ y, y @ C @ y
            angle = np.arctan2(2 * b, a - c) / 2
            X[:, i], X[:, j] = np.cos(angle) * x + np.sin(angle) * y, np.cos(angle) * y - np.sin(angle) * x
    return X


def refined(C: np.ndarray, X: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """One step of the refinement of Ogita and Aishima (2018), which doubles the digits."""
    R = np.eye(len(C), dtype=C.dtype) - X.T @ X
    S = X.T @ C @ X
    values = np.diag(S) / (1 - np.diag(R))
    delta = 2 * (np.linalg.norm((S - np.diag(values)).astype(float), 2) + np.linalg.norm(R.astype(float), 2))
    gap = values[np.newaxis, :] - values[:, np.newaxis]
    # Inside a group of close eigenvalues the refinement would turn the basis far, and lose its orthogonality.
    apart = np.abs(gap) > max(delta, CLOSE)
    E = np.where(apart, (S + values[np.newaxis, :] * R) / np.where(apart, gap, 1), R / 2)
    return X + X @ E, values


def true_sines(
    certificate: Certificate, node_components: np.ndarray, problem: Problem, values: np.ndarray, vectors: np.ndarray
) -> np.ndarray:
    """Largest sin(angle) over the nodes of each component to its eigenvector, or to the eigenspace of its cluster."""
    nodes = node_components.astype(np.longdouble)
    k = nodes.shape[1]
    # A push sum is as accurate as 1e-12; it cannot separate eigenvalues closer than some hundred times that.
    exact = not isinstance(problem.settings.get("topology"), graphs.NetworkSequence)
    # Averages that were asked for 1e-8, or that rounding keeps at 1e-10, separate no more than a certificate has to.
    averaging, weights = problem.settings.get("averaging"), problem.settings.get("topology")
    loose = isinstance(averaging, Chebyshev | Gossip) or isinstance(weights, graphs.Weights)
    same = (2e-6 if loose else 1e-10 if exact else 1e-9) * values[0]
    spaces = {j: [j] for j in range(k)}
    for cluster in certificate.clusters:
        members = list(cluster)
        if certificate.open_cluster and cluster is certificate.clusters[-1]:
            beyond = range(cluster[-1] + 1, len(values))
            members += [j for j in beyond if abs(values[j] - values[cluster[-1]]) <= same]
        spaces.update(dict.fromkeys(cluster, members))
    sines = np.zeros(k)
    for j in range(k):
        x = nodes[:, j] / np.sqrt((nodes[:, j] ** 2).sum(axis=1, keepdims=True))
        E = vectors[:, spaces[j]]
        sines[j] = float(np.sqrt(((x - (x @ E) @ E.T) ** 2).sum(axis=1)).max())
    return sines


# --- the attack ------------------------------------------------------------------------------------------


@dataclass
class Outcome:
    """The outcome of one problem."""

    name: str
    seed: int
    end: str
    worst: float = 0.0
    words: str = ""
    seconds: float = 0.0  # of the processor


@contextmanager
def time_limit() -> Iterator[None]:
    """Raise TimeoutError after a minute of computing, or after ten minutes of waiting."""

    def late(number: int, _: Any) -> None:
        computed = number == signal.SIGPROF
        raise TimeoutError(
            f"more than {MOST_SECONDS} seconds of computing" if computed else f"more than {MOST_CLOCK_SECONDS} seconds"
        )

    limits = (
        (signal.ITIMER_PROF, signal.SIGPROF, MOST_SECONDS),
        (signal.ITIMER_REAL, signal.SIGALRM, MOST_CLOCK_SECONDS),
    )
    for timer, number, seconds in limits:
        signal.signal(number, late)
        signal.setitimer(timer, seconds)
    try:
        yield
    finally:
        for timer, _, _ in limits:
            signal.setitimer(timer, 0)


def fitted(problem: Problem, seed: int) -> Result:
    parts, k, settings = problem.parts, problem.n_components, problem.settings
    if problem.batches:
        return fitted_in_batches(problem)
    if problem.conditions is None:
        # A single array is split by the fit itself, which uses it without a copy.
        return DecentralizedPCA(k, **settings).fit(parts[0] if "n_nodes" in settings else parts).result_
    wanted = {name: value for name, value in settings.items() if name != "topology"}
    data = NodeData(Shards.from_list(parts), graphs.metropolis(settings["topology"]))
    unknown, names = np.eye(parts[0].shape[1])[:, :k], tuple(str(node) for node in range(len(parts)))
    found = simulate(Request(k, **wanted), data, problem.conditions, names, unknown, seed)
    if found.result is None:
        raise TransportError(found.why)
    return found.result


def fitted_in_batches(problem: Problem) -> Result:
    pca = StreamingPCA(problem.n_components, **problem.settings)
    first = problem.first_batch
    pieces = [[part[:first], *np.array_split(part[first:], problem.batches)] for part in problem.parts]
    for batch in list(zip(*pieces, strict=True))[first == 0 :]:
        nodes = np.repeat(np.arange(len(batch)), [len(piece) for piece in batch])
        pca.partial_fit(np.vstack(batch), nodes=nodes)
    return pca.result_


def false_cluster(result: Result, values: np.ndarray) -> str:
    """The first cluster whose true eigenvalues are farther apart than any resolution of a certificate, in words."""
    for cluster in result.certificate.clusters:
        spread = float(values[cluster[0]] - values[cluster[-1]]) / float(values[0])
        if spread > 2e-6 * len(cluster):
            return f"cluster {cluster} with true eigenvalues {spread:.2g} apart"
    return ""


def attack(name: str, seed: int) -> Outcome:
    rng = np.random.default_rng([seed, sum(name.encode())])
    problem = CLASSES[name](rng)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            with time_limit():
                result = fitted(problem, seed)
        except EigenmeshError as error:
            return Outcome(name, seed, "refused", words=str(error))
        except Exception as error:
            return Outcome(name, seed, "failed", words=f"{type(error).__name__}: {error}")
    values, vectors = true_eigenpairs(problem)
    if words := false_cluster(result, values):
        return Outcome(name, seed, "failed", words=words)
    sines = true_sines(result.certificate, result.node_components, problem, values, vectors)
    bounds, tol = result.certificate.error_bounds, problem.settings.get("tol", DEFAULT_TOL)
    ratios = sines / np.maximum(bounds, 1e-18)
    worst, k = float(ratios.max()), int(ratios.argmax())
    if worst > 1:
        return Outcome(name, seed, "failed", worst, f"component {k + 1}: true {sines[k]:.9g}, bound {bounds[k]:.9g}")
    if result.converged and sines.max() > tol:
        return Outcome(name, seed, "failed", worst, f"converged to {tol:.1g}, true {sines.max():.2g}")
    return Outcome(name, seed, "certified" if result.converged else "not certified", worst)


def one(job: tuple[str, int]) -> Outcome:
    began = time.process_time()
    outcome = attack(*job)
    return replace(outcome, seconds=time.process_time() - began)


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--problems", type=int, default=2200)
    parser.add_argument("--seed", type=int, default=0, help="of the first problem")
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument("--only", choices=sorted(CLASSES), action="append")
    options = parser.parse_args(arguments)
    names = options.only or list(CLASSES)
    jobs = [(names[i % len(names)], options.seed + i // len(names)) for i in range(options.problems)]
    outcomes: dict[str, list[Outcome]] = defaultdict(list)
    with ProcessPoolExecutor(options.workers) as pool:
        for outcome in pool.map(one, jobs, chunksize=16):
            outcomes[outcome.name].append(outcome)
            if outcome.end == "failed":
                print(f"FAILED {outcome.name} seed {outcome.seed}: {outcome.words}", flush=True)
    counts = f"{'certified':>9} {'not':>6} {'refused':>7} {'failed':>6}"
    print(f"{'class':18} {'problems':>8} {counts}  largest true/bound, seconds of the processor")
    for name in names:
        ends = Counter(outcome.end for outcome in outcomes[name])
        worst = max(outcome.worst for outcome in outcomes[name])
        seconds = max(outcome.seconds for outcome in outcomes[name])
        counts = f"{ends['certified']:9} {ends['not certified']:6} {ends['refused']:7} {ends['failed']:6}"
        print(f"{name:18} {len(outcomes[name]):8} {counts}  {worst:18.2g} {seconds:8.1f}")
    failed = sum(outcome.end == "failed" for each in outcomes.values() for outcome in each)
    print(f"{len(jobs)} problems, {failed} failed")
    return int(failed > 0)


if __name__ == "__main__":
    sys.exit(main())
