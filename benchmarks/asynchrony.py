"""Nodes that do not wait for each other: ``python benchmarks/asynchrony.py [virtual] [outages] [threads]``.

Everything but ``threads`` runs in virtual time, so the seed determines the result. Exit status 1 if a line misses its
target.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import replace
from statistics import median
from typing import Any

import numpy as np
from parts import run_parts
from rich.console import Console
from rich.table import Table

from eigenmesh import graphs
from eigenmesh.data import Covariance, Shards
from eigenmesh.data.datasets import paper_spectrum, unlike_nodes
from eigenmesh.fitting import NodeData, Request, fit, prepare
from eigenmesh.graphs import Weights
from eigenmesh.iteration import Result
from eigenmesh.metrics import largest_angle
from eigenmesh.rehearsal.conditions import Conditions, Fault, Host, LinkQuality
from eigenmesh.rehearsal.simulation import Simulated, simulate
from eigenmesh.solvers import Asynchronous, BlockKrylov, Deadlines, Solver, TrackedSubspace
from eigenmesh.transports import Transport, run_threads

console = Console(width=130)
M, D, K, SEEDS, TOL, SLOW = 20, 20, 5, 10, 1e-5, 3
# Columns of a block, with the extra ones.
COLUMNS = 10
NAMES = tuple(str(node) for node in range(M))
# Real threads: their number, the seconds that the slow one sleeps per round or tick and per product, and the repeats.
THREADS, SLEEPS = 8, {(0.02, 0.5): 3, (0.1, 0.1): 3}
# 10 to 100 ms, and 5 % of the packets lost.
LINK = LinkQuality(latency_ms=10, jitter_ms=90, bandwidth_mbit=1000, loss=0.05, overhead_ms=0)


def shards_of(n_nodes: int, seed: int, d: int = D) -> tuple[Shards, np.ndarray]:
    """Samples of unlike nodes, and the true components (d, K)."""
    parts = unlike_nodes(paper_spectrum(d, K, 0.8), [1000] * n_nodes, seed)
    return Shards.from_list(parts), np.linalg.eigh(np.cov(np.vstack(parts), rowvar=False))[1][:, : -K - 1 : -1]


def conditions(weights: Weights, product_ms: float, faults: tuple[Fault, ...] = ()) -> Conditions:
    """Log-normal speeds, and one node ten times slower."""
    edges = tuple((NAMES[min(link)], NAMES[max(link)]) for link in weights.graph.edges)
    hosts = {name: Host(product_ms=product_ms * (10 if name == NAMES[SLOW] else 1), spread=0.5) for name in NAMES}
    return Conditions(dict.fromkeys(edges, LINK), hosts, faults)


def play(solver: Solver, seed: int, product_ms: float, faults: tuple[Fault, ...] = ()) -> Simulated:
    shards, truth = shards_of(M, seed)
    weights = graphs.metropolis(graphs.topologies.erdos_renyi(M, seed=seed))
    request = Request(K, solver=solver, tol=TOL, max_rounds=20_000, seed=seed)
    return simulate(request, NodeData(shards, weights), conditions(weights, product_ms, faults), NAMES, truth, seed)


def is_sound(run: Simulated, seed: int) -> bool:
    """Whether the bound of the certificate holds at every node."""
    if run.result is None:
        return False
    _, truth = shards_of(M, seed)
    angle = largest_angle(np.swapaxes(run.result.node_components, -1, -2), truth)
    return angle <= run.result.certificate.error_bound


def virtual() -> bool:
    """Ten seeds: virtual seconds to a mean sin^2 of 1e-6 and 1e-10, and to the certificate."""
    held = True
    for product_ms in (5, 500):
        table = Table(title=f"Products of {product_ms} ms, one node 10 x slower: virtual s, median of {SEEDS} seeds")
        for heading in ("solver", "to 1e-6", "to 1e-10", "certified", "largest", "1e-10 reached"):
            table.add_column(heading, justify="right")
        for solver in (BlockKrylov(), TrackedSubspace(), Deadlines(tol=TOL), Asynchronous(tol=TOL)):
            runs = [play(solver, seed, product_ms) for seed in range(SEEDS)]
            to = [[run.seconds_to(goal) for run in runs] for goal in (1e-6, 1e-10)]
            reached = sum(run.result is not None and run.result.converged for run in runs)
            seconds = [run.seconds for run in runs]
            sound = all(is_sound(run, seed) for seed, run in enumerate(runs))
            held = held and sound and reached == SEEDS and bool(np.isfinite(to).all())
            cells = (*map(median, to), median(seconds), max(seconds))
            table.add_row(solver.name, *(f"{each:.1f}" for each in cells), f"{reached} of {SEEDS}")
        console.print(table)
    return held


def outages() -> bool:
    """A third of the nodes unreachable for 2 s, and for 20 s."""
    table = Table(title="30 % of the nodes unreachable from second 2 on: virtual s to the certificate, or the end")
    for heading in ("solver", "for s", "seed", "s to 1e-10", "end"):
        table.add_column(heading, justify="right")
    held = True
    for solver in (Deadlines(tol=TOL), Asynchronous(tol=TOL)):
        for for_s in (2.0, 20.0):
            for seed in range(3):
                graph = graphs.topologies.erdos_renyi(M, seed=seed)
                cut = set(np.random.default_rng(seed).permutation(M)[: 3 * M // 10].tolist())
                links = [link for link in graph.edges if cut & set(link)]
                faults = tuple(Fault("stall", 2.0, NAMES[min(link)], NAMES[max(link)], for_s) for link in links)
                run = play(solver, seed, 5, faults)
                end = run.why or (run.result.stop_reason.label if run.result else "")
                table.add_row(solver.name, f"{for_s:g}", str(seed), f"{run.seconds_to(1e-10):.1f}", end[:70])
                held = held and (
                    (end == "converged" and is_sound(run, seed))
                    if for_s == 2.0
                    else "has heard nothing from node" in end
                )
    console.print(table)
    return held


class Slow:
    """A covariance whose products take longer by ``column_s`` per column."""

    def __init__(self, covariance: Covariance, column_s: float) -> None:
        self._covariance, self._sleep_s = covariance, column_s

    def apply(self, X: np.ndarray) -> np.ndarray:
        time.sleep(self._sleep_s * X.shape[-1])
        return self._covariance.apply(X)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._covariance, name)


def slowed(send: Callable[..., Any], sleep_s: float) -> Callable[..., Any]:
    def late(*arguments: Any) -> Any:
        time.sleep(sleep_s)
        return send(*arguments)

    return late


def on_threads(solver: Solver, send_s: float, product_s: float) -> tuple[float, float, bool]:
    """Seconds, true sine and whether certified, with one of the nodes slowed by sleeps."""
    shards, truth = shards_of(THREADS, 0)
    weights = graphs.metropolis(graphs.topologies.erdos_renyi(THREADS, seed=0))
    request = Request(K, solver=solver, tol=1e-6, max_rounds=100_000, seed=0)
    data = NodeData(shards, weights)

    def node(transport: Transport) -> Result:
        prepared = prepare(request, data.at_node(transport))
        if transport.rank == SLOW:
            # The messages of one round, or of one tick, take this long.
            transport.exchange = slowed(transport.exchange, send_s)
            transport.post = slowed(transport.post, send_s / weights.graph.degree[SLOW])
            # A column takes as long with every solver.
            prepared = replace(prepared, covariance=Slow(prepared.covariance, product_s / COLUMNS))
        return fit(prepared).result

    began = time.perf_counter()
    results = run_threads(THREADS, node)
    taken = time.perf_counter() - began
    found = np.concatenate([result.node_components for result in results])
    return taken, largest_angle(np.swapaxes(found, -1, -2), truth), all(result.converged for result in results)


def threads() -> bool:
    """Barriers, deadlines and asynchrony in turns, compared with the tree, with two kinds of slow node."""
    held = [waits(send_s, product_s, turns) for (send_s, product_s), turns in SLEEPS.items()]
    return all(held)


def waits(send_s: float, product_s: float, turns: int) -> bool:
    slow = f"one sleeps {1e3 * send_s:g} ms before it sends and {1e3 * product_s:g} ms in a product"
    table = Table(title=f"{THREADS} threads, {slow}: wall s to the certificate of 1e-6, median of {turns} in turns")
    for heading in ("solver", "s", "barriers / it", "largest true sin", "certified"):
        table.add_column(heading, justify="right")
    solvers = TrackedSubspace(), Deadlines(tick_s=0.01), Asynchronous(tick_s=0.01), BlockKrylov()
    runs = [[on_threads(solver, send_s, product_s) for solver in solvers] for _ in range(turns)]
    barriers, held = median(turn[0][0] for turn in runs), True
    for place, solver in enumerate(solvers):
        taken, angles, certified = zip(*(turn[place] for turn in runs), strict=True)
        row = f"{median(taken):.2f}", f"{barriers / median(taken):.2f}", f"{max(angles):.1e}", str(all(certified))
        table.add_row(solver.name, *row)
        held = held and all(certified) and max(angles) <= 1e-6 and (place == 0 or median(taken) < barriers)
    console.print(table)
    return held


def main() -> None:
    run_parts({"virtual": virtual, "outages": outages, "threads": threads})


if __name__ == "__main__":
    main()
