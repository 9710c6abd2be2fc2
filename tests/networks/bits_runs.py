"""Whole fits of every solver with every averaging on five graphs, for all nodes at once and for one node."""

from __future__ import annotations

import numpy as np

from eigenmesh import DecentralizedPCA, graphs
from eigenmesh.averaging import AVERAGINGS
from eigenmesh.data import Shards
from eigenmesh.errors import EigenmeshError
from eigenmesh.solvers import SOLVERS, BlockKrylov
from eigenmesh.transports import Transport

SIZES = (9, 4, 12, 7)
GRAPHS = {
    "path": graphs.topologies.path(4),
    "star": graphs.topologies.star(4),
    "cycle": graphs.topologies.cycle(4),
    "complete but one": graphs.topology("erdos_renyi", 4, seed=2),
    "one-way": graphs.topologies.directed_cycle(4),
}
SETTINGS = {"n_components": 2, "random_state": 3, "tol": 1e-4, "max_rounds": 10}


LEAN = ("lean", "tree")


def samples(lean: bool) -> list[np.ndarray]:
    """Unlike nodes of unequal sizes; with many columns where few bits are worth it."""
    rng = np.random.default_rng(0)
    if lean:
        axes = np.arange(1, 71.0) ** -0.6
        return [rng.standard_normal((4 * n, 70)) * axes * np.exp(rng.uniform(-1, 1, 70)) for n in SIZES]
    return [rng.standard_normal((n, 6)) * rng.uniform(0.2, 3, 6) + rng.standard_normal(6) for n in SIZES]


def fits(solver: str, averaging: str, transport: Transport | str | None = None) -> dict[str, np.ndarray]:
    """The numbers of a fit on each graph, or its error.

    A fit warns if it does not converge. Filters of warnings are those of all threads, so that a node must not change
    them while others run: whoever calls this ignores them.
    """
    lean = (solver, averaging) == LEAN
    shards, found = Shards.from_list(samples(lean)), {}
    settings = {**SETTINGS, "solver": solver}
    if lean:
        settings |= {"solver": BlockKrylov(lean=True), "tol": 1e-6, "max_rounds": 300}
    own = shards.take([transport.rank]) if isinstance(transport, Transport) else shards
    for name, graph in GRAPHS.items():
        pca = DecentralizedPCA(
            **settings, averaging=averaging, topology=graphs.weighting("auto", graph), transport=transport
        )
        try:
            pca.fit(own)
        except EigenmeshError as error:
            found[name] = np.array(type(error).__name__)
            continue
        certificate = pca.certificate_
        numbers = [pca.explained_variance_, pca.mean_, pca.singular_values_]
        numbers += [certificate.error_bounds, certificate.residuals, certificate.gaps, certificate.values]
        numbers += [certificate.disagreement, certificate.next_value, certificate.chance]
        found[name] = np.concatenate([np.ravel(each) for each in numbers])
        found[f"{name}/nodes"] = pca.node_components_
        found[f"{name}/first"] = np.append(pca.components_, pca.noise_variance_)
    return found


PAIRS = [*((solver, averaging) for solver in SOLVERS for averaging in AVERAGINGS), LEAN]
SCENARIOS = {
    f"{solver}-{averaging}": lambda transport, pair=(solver, averaging): fits(*pair, transport)
    for solver, averaging in PAIRS
}
