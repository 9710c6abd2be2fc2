"""Everything that is decided before a run: the number of samples, K, the method, the covariance."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import NamedTuple

from eigenmesh.arrays import ITEM_BYTES
from eigenmesh.averaging import AllReduce, Averaging, Integers, PushSum, Tree, name_of
from eigenmesh.data import Choice, Covariance, Moments
from eigenmesh.errors import DataError, InputError, TransportError, warn_user
from eigenmesh.fitting.networks import add_masks, in_integers, require_enough_nodes
from eigenmesh.fitting.node_data import BatchSums, Data, DataFacts, Size, draw_seed
from eigenmesh.fitting.pooled import summed_covariance
from eigenmesh.graphs import NetworkSequence, Weights, metropolis
from eigenmesh.graphs.topologies import complete
from eigenmesh.iteration import FIRST_BLOCK
from eigenmesh.networks import Network, Stacked, Traffic
from eigenmesh.settings import Costs, Request
from eigenmesh.solvers import LARGEST_FEATURES, SOLVERS, BlockKrylov, Known, OneSum, Solver, WarmKrylov

# Estimate of K for a requested share of the variance, where a number is needed in advance.
USUAL_COMPONENTS = 10
# The fewest products that block Krylov was seen to take.
FEWEST_PRODUCTS = 3


class Workload(NamedTuple):
    """The numbers that decide the choice of a method; all nodes know them.

    ``n_features``: numbers in a vector; ``has_all_reduce``: the engine can sum over all nodes; ``masked``: nobody may
    see what a single node adds to an average; ``sums_up``: the data can sum up their covariance; ``n_first``: K of the
    first block of block Krylov, smaller if K is a share of the variance.
    """

    weights: Weights | NetworkSequence
    n_features: int
    n_components: int
    has_all_reduce: bool = False
    masked: bool = False
    sums_up: bool = False
    n_first: int = 0

    @property
    def one_sum_is_cheaper(self) -> bool:
        """Whether one sum of the covariance costs less than block Krylov and, between organisations, reveals no more.

        In an all-reduce, on one cluster, nobody is a stranger. In open runs between organisations, neighbours would see
        covariances of single nodes.
        """
        if not self.sums_up or self.n_features > LARGEST_FEATURES:
            return False
        if self.masked:
            return one_sum_reveals_no_more(self.n_features, self.n_first)
        columns = BlockKrylov().columns(self.n_components, self.n_features)
        return self.has_all_reduce and self.n_features + 1 <= 2 * BlockKrylov.traits.expected_products * columns

    def averagings(self) -> list[Averaging]:
        """Averagings that are used unless another one is requested. The first is the fastest.

        They give all nodes the same bits. The others leave nodes with different last digits, and from these the bases
        of block Krylov may drift apart, on data of low rank for example. So they are used only on request.
        """
        if self.masked:
            return [Integers(AllReduce()), Integers()] if self.has_all_reduce else [Integers()]
        if isinstance(self.weights, NetworkSequence):
            return [PushSum()]
        # No sum over links takes fewer rounds or messages than an all-reduce.
        return [AllReduce(), Tree()] if self.has_all_reduce else [Tree()]


@dataclass(frozen=True, eq=False)
class Prepared:
    """A fit that is ready to run.

    Attributes
    ----------
    n_components : int or float
        K, or the share of the variance to explain.
    choice : Choice
        How the covariances are stored, and why.
    seed : int
        Seed of the start: as requested, or drawn by all nodes together.
    set_up : Traffic
        Traffic so far.
    checked : BatchSums or None
        Sums of the monitor of a stream.
    alone : Network or None
        A network of this node alone, if it knows the pooled covariance: it needs no further message.
    """

    request: Request
    facts: DataFacts
    n_components: int | float
    solver: Solver
    averaging: Averaging
    network: Network
    moments: Moments
    covariance: Covariance
    choice: Choice
    seed: int
    set_up: Traffic
    weights: Weights | NetworkSequence
    checked: BatchSums | None = None
    alone: Network | None = None

    @property
    def largest_k(self) -> int:
        """Largest possible K: min(N - 1, d)."""
        return min(int(self.moments.n_samples) - 1, self.moments.n_features)


class Decision(NamedTuple):
    """The method of a fit, decided by numbers that all nodes know.

    Attributes
    ----------
    size : Size
        N and d over all nodes. It is None if K does not depend on it, or if it needs a pass over the data.
    n_components : int or float
        K, or the share of the variance to explain.
    counting : Network or None
        The network that counted the samples, with its traffic.
    """

    size: Size
    n_components: int | float
    workload: Workload
    solver: Solver
    averaging: Averaging
    counting: Network | None


def decide(request: Request, data: Data) -> Decision:
    """Choose K, solver and averaging, for a fit or a plan; count the samples if K depends on them.

    With a transport all nodes must call it together. Nothing in it depends on what only one node knows.
    """
    facts = data.facts
    # First the checks that need no message and no pass over the data.
    request.components(*facts.size)
    data.check(request)
    if isinstance(data.weights, NetworkSequence):
        require_on_changing(request)
    asked = request.averaging
    if request.masked:
        require_enough_nodes(facts.n_nodes)
        asked = None if asked is None else in_integers(asked)
        require_goes_with(request.solver or BlockKrylov(), asked or Integers())
    size, counting = facts.size, None
    wanted, workload, solver, averaging = _chosen(request, data, size, asked)
    depends = request.n_components is None or request.at_most
    # One sum counts the samples, too: K follows from it.
    if request.min_samples > 0 or (depends and not (data.sums_up and solver.traits.sums_covariances)):
        size, counting = data.count(request.masked)
        n_samples = size.n_samples
        if n_samples is not None and n_samples < request.min_samples:
            raise DataError(
                f"all nodes have {n_samples} samples together; min_samples = {request.min_samples} asks for more."
            )
        wanted, workload, solver, averaging = _chosen(request, data, size, asked)
    if request.masked and request.solver is not None and solver.traits.sums_covariances:
        _warn_of_sum(workload)
    return Decision(size, wanted, workload, solver, averaging, counting)


def _chosen(
    request: Request, data: Data, size: Size, averaging: Averaging | None
) -> tuple[int | float, Workload, Solver, Averaging]:
    """K, and the method for it, as far as N and d are known."""
    facts, wanted = data.facts, request.components(*size)
    k, first = (wanted, wanted) if isinstance(wanted, int) else (min(USUAL_COMPONENTS, facts.length), FIRST_BLOCK)
    workload = Workload(data.weights, facts.length, k, facts.has_all_reduce, request.masked, data.sums_up, first)
    return wanted, workload, *choose_method(workload, request.costs, request.solver, averaging)


def telling_products(n_features: int, n_components: int) -> int:
    """Products of block Krylov that reveal the pooled covariance C whole, for d and K.

    They show C on their c columns. What is left of C is symmetric and orthogonal to these, so it has
    ``(d - c)(d - c + 1) / 2`` numbers, which the d variances determine from about ``c = d - sqrt(2 d)`` on.
    """
    d = n_features
    return math.ceil((d - math.sqrt(2 * d)) / BlockKrylov().columns(n_components, d))


def one_sum_reveals_no_more(n_features: int, n_components: int) -> bool:
    """Whether block Krylov would reveal all of the pooled covariance, too, however few products it takes.

    Parameters
    ----------
    n_features, n_components : int
        d and K.
    """
    return telling_products(n_features, n_components) <= FEWEST_PRODUCTS


def _warn_of_sum(workload: Workload) -> None:
    """Say what one sum reveals where block Krylov would reveal less."""
    if not workload.one_sum_is_cheaper:
        d, products = workload.n_features, telling_products(workload.n_features, workload.n_first)
        warn_user(
            f"one-sum shows all nodes N, the mean and the pooled covariance on all {d:,} dimensions; block-krylov "
            f"shows all of that only where it takes {products} products or more. Neither shows "
            f"numbers of a single node."
        )


def prepare(request: Request, data: Data) -> Prepared:
    """Choose the method and how to store the covariance, and compute the pooled moments.

    With a transport all nodes must call it together. Which calls are made does not depend on what only one node knows.
    """
    data.compare(request)
    decision = decide(request, data)
    solver, averaging = decision.solver, decision.averaging
    network = data.network(averaging, request.max_rounds)
    choice = data.choose_covariance(request, solver, decision.workload.n_components, network)
    if decision.counting is not None:
        network.meter.traffic += decision.counting.traffic
        network.meter.exchanges += decision.counting.meter.exchanges
        network.masking = decision.counting.masking
    if request.masked and network.masking is None:
        add_masks(network)
    sums_up = data.sums_up and solver.traits.sums_covariances and network.alike and network.n_nodes > 1
    measured = data.sum_up(network, request) if sums_up else None
    is_known = measured is not None
    if measured is None:
        # All nodes must centre about the same point: where means are large, even the last digits of a mean matter.
        with network.over_tree():
            measured = data.measure(network, choice, request)
    moments, covariance, known, checked = measured
    if decision.counting is not None:
        _require_counted(decision.size, moments)
    network.learn_scales(moments.diagonal, moments.total_variance)
    if sums_up and not is_known:
        covariance = summed_covariance(network, covariance, moments)
    wanted = request.components(int(moments.n_samples), moments.n_features)
    solver = warm(solver, wanted, known)
    # Who knows the covariance needs no further message, and no random start.
    alone = Stacked(metropolis(complete(1)), Tree()) if sums_up else None
    is_drawn = request.seed is None and not solver.traits.sums_covariances
    seed = draw_seed(network, covariance) if is_drawn else request.seed or 0
    chosen = (wanted, solver, averaging, network, moments, covariance, choice, seed)
    return Prepared(request, data.facts, *chosen, network.traffic.copy(), data.weights, checked, alone)


def _require_counted(counted: Size, moments: Moments) -> None:
    """Raise if the sums have another N or d than the count, which has decided whether and how to fit."""
    for what, first, later in (
        ("samples", counted.n_samples, int(moments.n_samples)),
        ("columns", counted.n_features, moments.n_features),
    ):
        if first is not None and first != later:
            raise TransportError(
                f"all nodes together counted {first:,} {what} at first, but their sums are over {later:,}: a node has "
                f"changed its number, or has sent a wrong one. There is no result; start again with the same data."
            )


def warm(solver: Solver, n_components: int | float, known: Known | None) -> Solver:
    """The solver, started from a space with a known image if possible."""
    if known is None or type(solver) is not BlockKrylov or not isinstance(n_components, int):
        return solver
    # A space that is too narrow shows nothing about the eigenvalue after the components.
    if known.basis.shape[1] < solver.columns(n_components, len(known.basis)):
        return solver
    return WarmKrylov(solver.oversample, known=known)


def choose_method(
    workload: Workload, costs: Costs, solver: Solver | None = None, averaging: Averaging | None = None
) -> tuple[Solver, Averaging]:
    """The requested solver and averaging; if one of them is open, the fastest one for the other.

    Block Krylov is the fastest solver that does not sum covariances. Its basis is made narrow enough for the memory.
    """
    d = workload.n_features
    if solver is None and workload.one_sum_is_cheaper:
        solver = OneSum()
    elif solver is None:
        solver = BlockKrylov()
        if ITEM_BYTES * solver.kept_numbers(workload.n_components, d) > costs.memory_bytes:
            solver = BlockKrylov(max_width=max(1, int(costs.memory_bytes / (d * ITEM_BYTES))))
    if averaging is None:
        averaging = workload.averagings()[0]
    require_goes_with(solver, averaging)
    return solver, averaging


def require_goes_with(solver: Solver, averaging: Averaging) -> None:
    """Raise if the solver cannot use this averaging."""
    if not goes_with(solver, averaging):
        able = ", ".join(name for name, kind in SOLVERS.items() if kind.traits.integers)
        why = "it mixes, or its products have no public scale"
        raise InputError(f"solver {solver.name!r} does not average in integers, masked or not: {why}. Use {able}.")


def goes_with(solver: Solver, averaging: Averaging) -> bool:
    """Whether the solver can use this averaging: integers have scales only for the products of some solvers."""
    return solver.traits.integers or not isinstance(averaging, Integers)


def require_on_changing(request: Request) -> None:
    """Raise if the request needs a network that does not change."""
    if request.masked:
        raise InputError("masks need a tree or an all-reduce, and a network that changes has none; leave them out.")
    if not isinstance(request.averaging, PushSum | None):
        name = name_of(request.averaging)
        raise InputError(f"{name} averaging needs a network that stays the same; leave it out, or use PushSum().")
