"""Every solver with every kind of average on one problem: the same work for all nodes at once and for one node."""

from __future__ import annotations

from functools import cache

import numpy as np

from eigenmesh import run
from eigenmesh.averaging import AllReduce, Tree
from eigenmesh.data import Shards, build_covariance, geometric_spectrum, pooled_moments
from eigenmesh.networks import Network, Peers, Stacked
from eigenmesh.solvers import DSA, SDOT, BlockKrylov, DeEPCA, FastPCA, TrackedSubspace
from eigenmesh.transports import Transport
from problems import make_problem

K = 3
SOLVERS = {
    solver.name: solver
    for solver in (FastPCA(), DeEPCA(mixes=8), DSA(), SDOT(mixes=20), BlockKrylov(), TrackedSubspace())
}
AVERAGINGS = {"tree": Tree(), "allreduce": AllReduce()}


@cache
def problem(n_nodes: int):
    """An Erdos-Renyi graph and its shards."""
    made = make_problem(geometric_spectrum(12, K, 0.6), n_nodes, "erdos_renyi", seed=1)
    return Shards.from_list(made.parts), made.network.weights


def run_on(network: Network, shards: Shards, solver: str) -> dict[str, np.ndarray]:
    """What a run gives at the nodes held here."""
    covariance = build_covariance(shards, pooled_moments(shards, network))
    result = run(SOLVERS[solver], covariance, network, K, tol=1e-6, max_rounds=600, seed=5)
    return {
        "components": result.components,
        "node_components": result.node_components,
        "values": result.certificate.values,
        "error_bounds": result.certificate.error_bounds,
        "counts": np.array([result.iterations, *vars(result.traffic).values()]),
        "stop_reason": np.array(result.stop_reason.label),
    }


def stacked(n_nodes: int, solver: str, averaging: str) -> dict[str, np.ndarray]:
    """The simulator's answer."""
    shards, weights = problem(n_nodes)
    return run_on(Stacked(weights, AVERAGINGS[averaging]), shards, solver)


def at_one_node(solver: str, averaging: str):
    """The same run at one node of an engine."""

    def work(transport: Transport) -> dict[str, np.ndarray]:
        shards, weights = problem(transport.size)
        return run_on(Peers(weights, transport, AVERAGINGS[averaging]), shards.take([transport.rank]), solver)

    return work


SCENARIOS = {f"{solver}-{averaging}": at_one_node(solver, averaging) for solver in SOLVERS for averaging in AVERAGINGS}
