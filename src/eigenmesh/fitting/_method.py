"""Which solver with which averaging: decided here, for a fit and for a plan alike."""

from __future__ import annotations

from typing import NamedTuple

from eigenmesh.averaging import OVER_LINKS, AllReduce, Averaging
from eigenmesh.fitting._costs import Costs
from eigenmesh.graphs import Weights
from eigenmesh.solvers import BlockKrylov, Solver


class Workload(NamedTuple):
    """What a method is chosen by: numbers that all nodes know.

    Attributes
    ----------
    n_features, n_components : int
        d and K.
    item_bytes : int
        Bytes of one number that is sent.
    n_samples : int or None
        N over all nodes; None where it is not known yet.
    has_all_reduce : bool
        True if the engine can sum over all nodes.
    """

    weights: Weights
    n_features: int
    n_components: int
    item_bytes: int = 8
    n_samples: int | None = None
    has_all_reduce: bool = False


def choose_method(
    workload: Workload, costs: Costs, solver: Solver | None = None, averaging: Averaging | None = None
) -> tuple[Solver, Averaging]:
    """The solver and the averaging that are asked for; where one is left open, the quickest for the other."""
    solver = solver or BlockKrylov()
    if averaging is None:
        numbers = workload.n_features * solver.columns(workload.n_components, workload.n_features)
        averaging = quickest_averaging(workload, costs, numbers)
    return solver, averaging


def quickest_averaging(workload: Workload, costs: Costs, numbers: int) -> Averaging:
    """The averaging that takes least time for one average of so many numbers."""
    if workload.has_all_reduce:
        return AllReduce()
    weights = workload.weights
    degree = max((degree for _, degree in weights.graph.degree), default=0)
    kernels = [make() for make in OVER_LINKS.values()]
    message_s = costs.latency_s + degree * workload.item_bytes * numbers / costs.bandwidth_bytes_s

    def cost(kernel: Averaging) -> tuple[float, float]:
        average = kernel.prepare(weights)
        rounds = (*getattr(average, "up", ()), *getattr(average, "down", ()))
        messages = sum(each.messages for each in rounds) if rounds else 2 * weights.edges * average.rounds
        return average.rounds * message_s, messages

    return min(kernels, key=cost)
