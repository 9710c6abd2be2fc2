"""Which solver with which averaging: decided here, for a fit and for a plan alike."""

from typing import NamedTuple

from eigenmesh.averaging import OVER_LINKS, AllReduce, Averaging
from eigenmesh.fitting._costs import Costs
from eigenmesh.fitting._network_calls import NetworkCall, Prices
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
    has_all_reduce : bool
        True if the engine can sum over all nodes.
    """

    weights: Weights
    n_features: int
    n_components: int
    item_bytes: int = 8
    has_all_reduce: bool = False

    def averagings(self) -> list[Averaging]:
        """Ways to average that the network and its engine offer; of two that cost the same, the first is better."""
        over_links = [make() for make in reversed(OVER_LINKS.values())]
        return [AllReduce(), *over_links] if self.has_all_reduce else over_links


def choose_method(
    workload: Workload, costs: Costs, solver: Solver | None = None, averaging: Averaging | None = None
) -> tuple[Solver, Averaging]:
    """The solver and the averaging that are asked for; where one is left open, the quickest for the other.

    Block Krylov is the quickest solver that does not send covariances. Its basis is made as narrow as the memory asks.
    """
    d, item = workload.n_features, workload.item_bytes
    if solver is None:
        solver = BlockKrylov()
        if item * solver.kept_numbers(workload.n_components, d) > costs.memory_bytes:
            solver = BlockKrylov(max_width=max(1, int(costs.memory_bytes / (2 * d * item))))
    if averaging is None:
        numbers = d * solver.columns(workload.n_components, d)
        averaging = quickest_averaging(workload, costs, numbers)
    return solver, averaging


def quickest_averaging(workload: Workload, costs: Costs, numbers: int) -> Averaging:
    """The averaging that takes the least time for one average of so many numbers; of equals, the fewest messages."""
    call = NetworkCall(averaged=numbers * workload.item_bytes)

    def cost(averaging: Averaging) -> tuple[float, float]:
        price = Prices(workload.weights, averaging.prepare(workload.weights), costs).of([call])
        return price.seconds, price.messages

    return min(workload.averagings(), key=cost)
