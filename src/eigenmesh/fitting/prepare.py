"""Everything that is decided before a run: the number of samples, K, the method, the covariance."""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

from eigenmesh.arrays import ITEM_BYTES
from eigenmesh.averaging import AllReduce, Averaging, Integers, PushSum, Tree, name_of
from eigenmesh.data import Choice, Covariance, Moments
from eigenmesh.errors import DataError, InputError, TransportError
from eigenmesh.fitting.networks import add_masks, in_integers, require_enough_nodes
from eigenmesh.fitting.node_data import BatchSums, Data, DataFacts, Size, draw_seed
from eigenmesh.graphs import NetworkSequence, Weights
from eigenmesh.networks import Network, Traffic
from eigenmesh.settings import Costs, Request
from eigenmesh.solvers import SOLVERS, BlockKrylov, Known, Solver, WarmKrylov

# Estimate of K for a requested share of the variance, where a number is needed in advance.
USUAL_COMPONENTS = 10


class Workload(NamedTuple):
    """The numbers that decide the choice of a method; all nodes know them.

    ``n_features``: numbers in a vector; ``has_all_reduce``: the engine can sum over all nodes; ``masked``: nobody may
    see what a single node adds to an average.
    """

    weights: Weights | NetworkSequence
    n_features: int
    n_components: int
    has_all_reduce: bool = False
    masked: bool = False

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
    depends = request.n_components is None or request.at_most or request.min_samples > 0
    size, counting = data.count(request.masked) if depends else (facts.size, None)
    n_samples = size.n_samples
    if n_samples is not None and n_samples < request.min_samples:
        raise DataError(
            f"all nodes have {n_samples} samples together; min_samples = {request.min_samples} asks for more."
        )
    wanted = request.components(*size)
    k = wanted if isinstance(wanted, int) else min(USUAL_COMPONENTS, facts.length)
    workload = Workload(data.weights, facts.length, k, facts.has_all_reduce, request.masked)
    solver, averaging = choose_method(workload, request.costs, request.solver, asked)
    return Decision(size, wanted, workload, solver, averaging, counting)


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
    # All nodes must centre about the same point: where means are large, even the last digits of a mean matter.
    with network.over_tree():
        moments, covariance, known, checked = data.measure(network, choice, request)
    if decision.counting is not None:
        _require_counted(decision.size, moments)
    network.learn_scales(moments.diagonal, moments.total_variance)
    wanted = request.components(int(moments.n_samples), moments.n_features)
    solver = warm(solver, wanted, known)
    seed = draw_seed(network, covariance) if request.seed is None else request.seed
    chosen = (wanted, solver, averaging, network, moments, covariance, choice, seed)
    return Prepared(request, data.facts, *chosen, network.traffic.copy(), data.weights, checked)


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

    Block Krylov is the fastest solver that does not send covariances. Its basis is made narrow enough for the memory.
    """
    d = workload.n_features
    if solver is None:
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
