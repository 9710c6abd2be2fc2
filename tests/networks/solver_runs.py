"""Every solver with every kind of average, and whole fits: the same work for all nodes at once and for one node."""

from __future__ import annotations

from functools import cache

import numpy as np

from eigenmesh import DecentralizedPCA, graphs, run
from eigenmesh.averaging import AllReduce, Integers, Tree
from eigenmesh.data import Shards, build_covariance, pooled_moments
from eigenmesh.data.datasets import geometric_spectrum
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
FITS = {
    "fit-tree": {"averaging": "tree"},
    "fit-allreduce": {"averaging": "allreduce"},
    "fit-auto": {"solver": "auto"},
    "fit-one-sum": {"averaging": "tree", "solver": "one-sum"},
    "fit-one-sum-masked": {"averaging": "tree", "solver": "one-sum", "privacy": "masked"},
    "fit-integers": {"averaging": "integers"},
    "fit-integers-allreduce": {"averaging": Integers(AllReduce())},
    "fit-masked": {"averaging": "tree", "privacy": "masked"},
    "fit-share": {"averaging": "tree", "n_components": 0.8, "scale": True},
    "fit-float32": {"averaging": "polynomial"},
    "fit-one-way": {"averaging": "tree", "topology": "directed_cycle"},
    "fit-push-pull": {
        "averaging": "tree",
        "solver": "fast-pca",
        "topology": graphs.push(graphs.topologies.random_out(4, degree=2)),
        "tol": 1e-3,
    },
    "fit-changing": {"topology": graphs.changing.fresh_graphs(4, 0.6, one_way=True)},
    "fit-fast-pca": {"averaging": "chebyshev", "solver": "fast-pca", "tol": 1e-3},
}


@cache
def made(n_nodes: int):
    """Samples of nodes on an Erdos-Renyi graph."""
    return make_problem(geometric_spectrum(12, K, 0.6), n_nodes, "erdos_renyi", seed=1)


def problem(n_nodes: int):
    """Who holds what, and who is linked to whom."""
    return Shards.from_list(made(n_nodes).parts), made(n_nodes).network.weights


def run_on(network: Network, shards: Shards, solver: str) -> dict[str, np.ndarray]:
    """What a run gives at the nodes held here."""
    covariance = build_covariance(shards, pooled_moments(shards, network))
    result = run(SOLVERS[solver], covariance, network, K, tol=1e-6, max_rounds=200, seed=5)
    return {
        "components": result.components,
        "node_components": result.node_components,
        "values": result.certificate.values,
        "error_bounds": result.certificate.error_bounds,
        "counts": np.array([result.iterations, *vars(result.traffic).values()]),
        "stop_reason": np.array(result.stop_reason.label),
        "sent_by_all": counts(network.traffic),
    }


def counts(traffic) -> np.ndarray:
    """Messages and bytes."""
    return np.array([traffic.messages, traffic.bytes])


def stacked(n_nodes: int, solver: str, averaging: str) -> dict[str, np.ndarray]:
    """The simulator's answer."""
    shards, weights = problem(n_nodes)
    return run_on(Stacked(weights, AVERAGINGS[averaging]), shards, solver)


def at_one_node(solver: str, averaging: str):
    """The same run at one node of an engine."""

    def work(transport: Transport) -> dict[str, np.ndarray]:
        shards, weights = problem(transport.size)
        before = counts(transport.sent)
        found = run_on(Peers(weights, transport, AVERAGINGS[averaging]), shards.take([transport.rank]), solver)
        return {**found, "sent": counts(transport.sent) - before}

    return work


def fit_with(name: str, n_nodes: int, transport: Transport | None = None) -> DecentralizedPCA:
    """A whole fit, of all nodes or of the one of the transport."""
    shards, weights = problem(n_nodes)
    if name == "fit-float32":
        shards = Shards.from_list([part.astype(np.float32) for part in made(n_nodes).parts])
    own = shards if transport is None else shards.take([transport.rank])
    # On engines with an all-reduce, one sum would be cheaper here.
    usual = {"n_components": K, "topology": weights, "random_state": 5, "solver": "block-krylov"}
    settings = {**usual, **FITS[name]}
    return DecentralizedPCA(**settings, transport=transport).fit(own)


def fit_at_one_node(name: str):
    """The fit at one node of an engine, with what its transport has counted."""

    def work(transport: Transport) -> dict[str, np.ndarray]:
        before = counts(transport.sent)
        pca = fit_with(name, transport.size, transport)
        return {
            "components": pca.components_,
            "traffic": np.array([*vars(pca.traffic_).values()]),
            "result": np.array([*vars(pca.result_.traffic).values()]),
            "history": np.array(pca.history_[-1][1:5]),
            "sent": counts(transport.sent) - before,
        }

    return work


SCENARIOS = {f"{solver}-{averaging}": at_one_node(solver, averaging) for solver in SOLVERS for averaging in AVERAGINGS}
SCENARIOS |= {name: fit_at_one_node(name) for name in FITS}
