"""Forecast the cost of a fit: every solver with every averaging, under a stated cost model."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
from scipy import sparse

from eigenmesh import arrays as ea
from eigenmesh.arrays import ITEM_BYTES
from eigenmesh.averaging import AllReduce, Average, Averaging, IntegerAverage, Integers, PushSumAverage, Tree, name_of
from eigenmesh.data import HOST, Covariance, CovarianceKind, Formed, Moments, Partition, Scatter, Shards
from eigenmesh.errors import DataError, EigenmeshError
from eigenmesh.events import EventLog, Planned, Record, on_record
from eigenmesh.fitting import networks as net
from eigenmesh.fitting.fit import SHARED_ROWS, fit
from eigenmesh.fitting.networks import NetworkCall, Price, Prices, RecordingChanging, RecordingNetwork
from eigenmesh.fitting.node_data import ColumnData, NodeData
from eigenmesh.fitting.pooled import takes_one_sum, words_of_sum
from eigenmesh.fitting.prepare import Decision, Prepared, Workload, decide, goes_with, prepare
from eigenmesh.graphs import NetworkSequence, Weights, metropolis
from eigenmesh.graphs.changing import tree_rounds
from eigenmesh.graphs.topologies import complete
from eigenmesh.iteration import Result, StopReason
from eigenmesh.networks import Network, Traffic
from eigenmesh.settings import Costs, Request
from eigenmesh.solvers import LARGEST_FEATURES, BlockKrylov, FastPCA, OneSum, Solver, TrackedSubspace
from eigenmesh.words import html_paragraphs, html_table, readable_bytes

# A plan: the cost of every solver with every averaging, and which one a fit would use.


@dataclass(frozen=True)
class Forecast:
    """One line of a plan: the cost of a solver with an averaging.

    Attributes
    ----------
    rounds, messages, bytes : float
        Over the whole network, set-up and certificate included; infinite if the solver does not reach the tolerance
        within the budget of rounds.
    memory_bytes : float
        At one node, in addition to its data.
    seconds : float
        Communication plus arithmetic. It is infinite if the rounds are.
    shows_covariances : bool
        True if covariance matrices themselves are summed.
    """

    solver: str
    averaging: str
    rounds: float
    messages: float
    bytes: float
    memory_bytes: float
    seconds: float
    shows_covariances: bool = False


@dataclass(frozen=True)
class Plan:
    """All forecasts, cheapest first.

    Attributes
    ----------
    best : Forecast
        The line that a fit with the same request and data uses.
    reason, rehearsed_on : str
        Why it is the best, and which samples the forecasts are based on, in words.
    n_samples : int
        N over all nodes.
    n_components : int or float
        K, or the share of the variance to explain.
    """

    forecasts: tuple[Forecast, ...]
    best: Forecast
    reason: str
    rehearsed_on: str
    costs: Costs
    max_rounds: int
    n_samples: int
    n_components: int | float

    def __repr__(self) -> str:
        best = self.best
        return (
            f"Plan(solver={best.solver!r}, averaging={best.averaging!r}, rounds={best.rounds:.0f}, "
            f"bytes={best.bytes:.3g}, seconds={best.seconds:.2g}, forecasts={len(self.forecasts)})"
        )

    def _repr_html_(self) -> str:
        rows = [
            [one.solver, one.averaging, *(f"{value:.3g}" for value in (one.rounds, one.seconds))]
            + [readable_bytes(value) if math.isfinite(value) else "inf" for value in (one.bytes, one.memory_bytes)]
            for one in self.forecasts
        ]
        table = html_table(["solver", "averaging", "rounds", "seconds", "sent", "memory per node"], rows)
        chosen = f"{self.best.solver} with {self.best.averaging} averaging: {self.reason}"
        return f"<div>{html_paragraphs([chosen])}{table}{html_paragraphs([self.rehearsed_on])}</div>"


# A fit of a small copy of the problem, to record the network calls that the real one will make.


# Rows of the copy: USUAL_ROWS; more if they are short, up to USUAL_NUMBERS numbers; at most MOST_NUMBERS numbers.
USUAL_ROWS, USUAL_NUMBERS, MOST_NUMBERS = 2000, 2**23, 2**26
# Random rows if there are too few to copy.
FEWEST_ROWS = 500
# Directions of a reduced problem: the larger of a fixed number and a multiple of the columns of a block.
FEWEST_DIRECTIONS, DIRECTIONS_PER_COLUMN, SPARE_COLUMNS = 64, 3, 5
# Products that turn random directions towards the leading ones.
PRODUCTS = 4


@dataclass(frozen=True)
class Rehearsed:
    """Network calls of one solver: iterations, checks and certificates.

    ``closing`` is the number of calls after the last check. They do not count towards the budget of rounds. ``set_up``
    are the calls before, if they are not those of the rehearsal.
    """

    solver: Solver
    calls: list[NetworkCall]
    closing: int
    result: Result
    set_up: list[NetworkCall] | None = None


@dataclass(frozen=True, eq=False)
class Rehearsal:
    """A small copy of the problem, solved on a single node.

    Attributes
    ----------
    set_up : list of NetworkCall
        Calls that compute the moments.
    samples : Shards
        The rows of the copy, at their nodes.
    made_up : bool
        True if the copy consists of random numbers, because this process has too few samples.
    """

    prepared: Prepared
    set_up: list[NetworkCall]
    rehearsed: Rehearsed
    samples: Partition
    made_up: bool


@dataclass(frozen=True, eq=False)
class _Recorded(NodeData):
    """Samples on networks that record their calls; ``known`` moments are not computed again."""

    networks: list[RecordingNetwork | RecordingChanging] = field(default_factory=list)
    known: Moments | None = None

    def _network(self, averaging: Averaging) -> Network:
        self.networks.append(net.recording(self.weights, averaging))
        return self.networks[-1]

    def _moments(
        self, shards: Partition, network: Network, request: Request, scatters: Sequence[Scatter | None]
    ) -> Moments:
        return self.known or super()._moments(shards, network, request, scatters)


def rehearse(
    request: Request, data: NodeData, solver: Solver, averaging: Averaging, most_rows: int | None = None
) -> Rehearsal:
    """Solve a copy of the problem with a few thousand rows of all nodes in this process, as a single node.

    ``most_rows`` limits the rows further.
    """
    shards, wanted = data.shards, request.n_components
    k = wanted if isinstance(wanted, int) else 1
    d, rows = shards.n_features, _rows_to_copy(shards.n_features, k)
    if most_rows is not None:
        rows = min(rows, max(4 * k, most_rows))
    # A fixed seed, so that the same data always have the same plan.
    alone = replace(request, averaging=Tree(), solver=solver, device=None, covariance=None, seed=0)
    if isinstance(averaging, Integers):
        # Integers make other calls than a tree. A single node needs no masks.
        alone = replace(alone, averaging=averaging, privacy="open")
    samples = shards.thinned(rows)
    copy = _Recorded(_pooled(samples), metropolis(complete(1)))
    try:
        if data.transport is None or copy.shards.blocks[0].n_rows > k:
            return _rehearse(alone, copy, samples)
    except DataError:
        # Columns of the copy may be constant or empty although those of the whole are not.
        if data.transport is None:
            return _rehearse_with_all_moments(alone, data, copy, samples)
    random = np.random.default_rng(0).standard_normal((min(rows, max(2 * k, FEWEST_ROWS)), d))
    samples = Shards.from_list([random / np.sqrt(np.arange(1.0, d + 1))])
    return _rehearse(alone, replace(copy, shards=samples, networks=[]), samples, made_up=True)


def _rows_to_copy(n_features: int, k: int) -> int:
    """Number of rows of a copy, if there are that many."""
    return min(max(USUAL_ROWS, 4 * k, USUAL_NUMBERS // n_features), max(4 * k, MOST_NUMBERS // n_features))


def _rehearse(request: Request, copy: _Recorded, samples: Partition, made_up: bool = False) -> Rehearsal:
    prepared = prepare(request, copy)
    network = copy.networks[-1]
    set_up = list(network.calls)
    return Rehearsal(prepared, set_up, _rehearsed(prepared, network), samples, made_up)


def _rehearse_with_all_moments(request: Request, data: NodeData, copy: _Recorded, samples: Partition) -> Rehearsal:
    """Compute the moments of all samples, which raises the errors of a fit, and use the copy for the rest."""
    whole = _Recorded(data.shards, data.weights)
    moments = prepare(replace(request, covariance=CovarianceKind.CHUNKED), whole).moments
    known = replace(moments, n_samples=copy.shards.blocks[0].n_rows)
    rehearsal = _rehearse(request, replace(copy, known=known, networks=[]), samples)
    return replace(rehearsal, set_up=whole.networks[-1].calls)


def _pooled(shards: Partition) -> Shards:
    """The rows of all nodes in this process at one node."""
    rows = [block.read(slice(None)) for block in shards.moved(HOST).blocks]
    return Shards.from_list([sparse.csr_array(sparse.vstack(rows)) if shards.is_sparse else np.concatenate(rows)])


def _rehearsed(prepared: Prepared, network: RecordingNetwork | RecordingChanging) -> Rehearsed:
    """Run a prepared fit, and keep its network calls."""
    before, last_check = len(network.calls), 0

    def note(record: Record) -> None:
        nonlocal last_check
        if np.isnan(record.bound):
            last_check = len(network.calls)

    result = fit(prepared, events=EventLog(on_record(note))).result
    return Rehearsed(prepared.solver, network.calls[before:], len(network.calls) - last_check, result)


def reduced(rehearsal: Rehearsal, weights: Weights | NetworkSequence) -> Formed:
    """The covariances of all nodes in their leading directions: (M, r, r) matrices.

    With orthonormal Q of shape (d, r) that holds the leading directions of the copy, node i has ``Q^T C_i Q``. A solver
    takes about as many rounds on these as on the C_i, and far less time.
    """
    Q = _leading_directions(rehearsal.prepared.covariance, rehearsal.rehearsed.result.components)
    matrices = _projected(rehearsal.samples, rehearsal.prepared.moments, Q)
    # If this process has the samples of one node only, the others are assumed to be like it.
    return Formed(np.array(np.broadcast_to(matrices, (weights.n_nodes, *matrices.shape[1:]))))


def rehearse_reduced(
    rehearsal: Rehearsal, weights: Weights | NetworkSequence, covariance: Formed, solver: Solver, averaging: Averaging
) -> Rehearsed:
    """Run the solver itself on reduced covariances and the real network, within the requested budget of rounds."""
    facts, r = rehearsal.prepared.facts, covariance.n_features
    d = facts.n_features
    stands_for = {r: d, r * (r + 1) // 2: d * (d + 1) // 2, r + SHARED_ROWS: d + SHARED_ROWS}
    network = net.recording(weights, averaging, stands_for)
    network.learn_scales(rehearsal.prepared.moments.diagonal)
    prepared = replace(
        rehearsal.prepared,
        facts=facts._replace(n_nodes=weights.n_nodes, n_features=r, node_names=None),
        solver=solver,
        averaging=averaging,
        network=network,
        covariance=covariance,
        set_up=Traffic(),
    )
    return _rehearsed(prepared, network)


def of_one_sum(
    rehearsal: Rehearsal, weights: Weights | NetworkSequence, solver: Solver, averaging: Averaging, costs: Costs
) -> Rehearsed:
    """The network calls of one sum, which follow from d and K."""
    known, d = rehearsal.rehearsed.result, rehearsal.prepared.facts.n_features
    result = replace(known, solver=solver.name, iterations=1, stop_reason=StopReason.CONVERGED)
    covariance = NetworkCall(averaged=ITEM_BYTES * (d * (d + 1) // 2))
    average = net.prepared_average(averaging, weights)
    if not isinstance(average, IntegerAverage):
        return Rehearsed(solver, [covariance], 0, result)
    shared = NetworkCall(spread=ITEM_BYTES * len(known.components) * (d + SHARED_ROWS))
    if rehearsal.prepared.request.missing == "mean" or not takes_one_sum(average, d, costs):
        return Rehearsed(solver, [covariance, shared], 1, result)
    whole = NetworkCall(averaged=ITEM_BYTES * words_of_sum(d))
    return Rehearsed(solver, [whole, shared], 1, result, set_up=[])


def _leading_directions(covariance: Covariance, components: np.ndarray) -> np.ndarray:
    """Orthonormal basis (d, r) of the leading eigenvectors, by a few products from a random start."""
    k, d = components.shape
    r = min(d, max(FEWEST_DIRECTIONS, DIRECTIONS_PER_COLUMN * (k + SPARE_COLUMNS)))
    if r == d:
        return np.eye(d)
    block = np.random.default_rng(0).standard_normal((d, r))
    for _ in range(PRODUCTS):
        basis = covariance.place(np.linalg.qr(block)[0][np.newaxis])
        block = ea.to_numpy(covariance.apply(basis))[0]
    return np.asarray(np.linalg.qr(np.hstack([components.T, block[:, k:]]))[0])


def _projected(samples: Partition, moments: Moments, Q: np.ndarray) -> np.ndarray:
    """``Q^T C_i Q`` of the nodes in this process: (nodes, r, r)."""
    centring = moments.centring(len(samples.blocks))
    matrices = np.zeros((len(samples.blocks), Q.shape[1], Q.shape[1]))
    for matrix, block in zip(matrices, samples.blocks, strict=True):
        for _, ready in centring.chunks(block):
            part = ready @ Q
            matrix += part.T @ part
    return matrices


# A quick forecast uses all samples if they have at most FEW_NUMBERS numbers, else at most MOST_SHARE of them.
FEW_NUMBERS, MOST_SHARE = 2**20, 0.5


def plan(request: Request, data: NodeData, report: Callable[[str], Any] | None = None) -> Plan:
    """Forecast rounds, bytes, memory and time of every solver with every averaging, and which one a fit uses.

    It first solves a few thousand samples, without messages. With a transport all nodes must call it together: they
    count their samples, and each forecasts from its own. All choose the same method. ``report`` is called with a few
    words on each step.
    """
    decision = decide(request, data)
    solver, averaging, workload = decision.solver, decision.averaging, decision.workload
    forecaster, runs = _rehearse_all(request, data, decision, _others(solver, workload), report or (lambda words: None))
    averagings = {name_of(each): each for each in (*workload.averagings(), averaging)}
    pairs = [(run, name, each) for run in runs for name, each in averagings.items() if goes_with(run.solver, each)]
    lines = [forecaster.forecast(*pair) for pair in pairs]
    best = next(line for line in lines if (line.solver, line.averaging) == (solver.name, name_of(averaging)))
    lines.sort(key=lambda line: (line.seconds, line.bytes))
    return Plan(
        tuple(lines),
        best,
        _reason(best, request, next(run for run in runs if run.solver.name == best.solver))
        + forecaster.about_a_tree(best),
        _rehearsed_on(forecaster.rehearsal, data),
        request.costs,
        request.max_rounds,
        decision.size.n_samples or data.count(request.masked)[0].n_samples or 0,
        decision.n_components,
    )


def quick_forecast(request: Request, data: NodeData) -> Forecast:
    """The line of a plan that a fit uses, with all nodes in this process.

    It uses at most half of many samples, so that it costs less than the fit even if a plan would copy all of them.
    """
    n_samples = sum(block.n_rows for block in data.shards.blocks)
    few = n_samples * data.shards.n_features <= FEW_NUMBERS
    decision = decide(request, data)
    solver, averaging = decision.solver, decision.averaging
    others = [] if isinstance(solver, BlockKrylov) else [solver]
    most_rows = n_samples if few else math.ceil(MOST_SHARE * n_samples)
    forecaster, runs = _rehearse_all(request, data, decision, others, lambda words: None, most_rows)
    return forecaster.forecast(runs[-1], name_of(averaging), averaging)


def planned(request: Request, data: NodeData) -> Planned | None:
    """The quick forecast as an event, for the page of a fit; None if there is none, for example with split columns."""
    if isinstance(data, ColumnData):
        return None
    # An error in the forecast must not stop a fit that would succeed.
    with suppress(EigenmeshError):
        line = quick_forecast(request, data)
        return Planned(line.rounds, line.bytes, line.seconds, request.costs.latency_s)
    return None


def _rehearse_all(
    request: Request,
    data: NodeData,
    decision: Decision,
    others: Sequence[Solver],
    report: Callable[[str], Any],
    most_rows: int | None = None,
) -> tuple[_Forecaster, list[Rehearsed]]:
    """Rehearse block Krylov on a copy of some samples, then the other solvers in its leading directions."""
    solver, averaging, workload = decision.solver, decision.averaging, decision.workload
    first = solver if isinstance(solver, BlockKrylov) else BlockKrylov()
    report(f"rehearsing {first.name}")
    # One sum needs no count: then K may be too large for the samples.
    is_counted = decision.size.n_samples is not None or not (request.at_most or request.n_components is None)
    asked = replace(request, n_components=decision.n_components, at_most=not is_counted)
    rehearsal = rehearse(asked, data, first, averaging, most_rows)
    counted = Traffic() if decision.counting is None else decision.counting.traffic
    runs = [rehearsal.rehearsed]
    if others:
        small = reduced(rehearsal, data.weights)
        for other in others:
            report(f"rehearsing {other.name}")
            able = averaging if goes_with(other, averaging) else Tree()
            if isinstance(other, OneSum) and isinstance(able, Tree | AllReduce | Integers):
                runs.append(of_one_sum(rehearsal, data.weights, other, able, request.costs))
            else:
                runs.append(rehearse_reduced(rehearsal, data.weights, small, other, able))
    return _Forecaster(request, data, workload, rehearsal, counted), runs


def _others(chosen: Solver, workload: Workload) -> list[Solver]:
    """Solvers to forecast in addition to block Krylov."""
    weights, usual = workload.weights, list[Solver]()
    # It refuses weights whose columns do not sum to one.
    if not isinstance(weights, Weights) or weights.keeps_mean:
        usual.append(TrackedSubspace())
    if isinstance(weights, Weights) or weights.reliable:
        usual.append(FastPCA())
    if workload.n_features <= LARGEST_FEATURES:
        usual.append(OneSum())
    by_name = {solver.name: solver for solver in (*usual, chosen)}
    by_name.pop(BlockKrylov.name, None)
    return [solver for solver in by_name.values() if solver.traits.integers or not workload.masked]


class _Forecaster:
    """Makes all forecasts of one problem."""

    def __init__(
        self, request: Request, data: NodeData, workload: Workload, rehearsal: Rehearsal, counted: Traffic
    ) -> None:
        self.request, self.data, self.workload, self.rehearsal = request, data, workload, rehearsal
        # Traffic of counting the samples, if K depends on them; keys for masks are exchanged before the first sum.
        self.counted = counted
        keys = [net.key_exchange(workload.weights.n_nodes)] if workload.masked and counted == Traffic() else []
        self.keys = keys
        # Nodes work in parallel, so the largest one determines the time.
        self.rows = max(block.n_rows for block in data.shards.blocks)

    def forecast(self, run: Rehearsed, name: str, averaging: Averaging) -> Forecast:
        """One line: the network calls of the rehearsal, priced for this averaging."""
        solver, price = run.solver, self._price(run, net.prepared_average(averaging, self.workload.weights))
        seconds = self._seconds(run, price)
        memory, shows = self._memory(solver), solver.traits.sums_covariances
        return Forecast(solver.name, name, price.rounds, price.messages, price.bytes, memory, seconds, shows)

    def _price(self, run: Rehearsed, average: Average) -> Price:
        costs = self.request.costs
        prices = Prices(self.workload.weights, average, costs)
        set_up = self.rehearsal.set_up if run.set_up is None else run.set_up
        budgeted = len(run.calls) - run.closing
        run_price = prices.of(run.calls[:budgeted])
        if not run.result.converged or run_price.rounds > self.request.max_rounds:
            return Price(math.inf, math.inf, math.inf, math.inf)
        rounds, counted = self.counted.rounds, self.counted
        counting = Price(rounds, counted.messages, counted.bytes, rounds * costs.latency_s)
        return counting + prices.over_tree().of([*self.keys, *set_up]) + run_price + prices.of(run.calls[budgeted:])

    def about_a_tree(self, best: Forecast) -> str:
        """Whether a network without a tree would be faster with one, in words."""
        sequence = self.workload.weights
        if isinstance(sequence, Weights):
            return ""
        up_and_down = tree_rounds(sequence)
        if not math.isfinite(up_and_down):
            return " The links that keep coming back do not form a tree."
        links = 2 * (sequence.n_nodes - 1)
        tree = PushSumAverage(math.ceil(up_and_down), links, math.ceil(up_and_down), 0.0)
        run = self.rehearsal.rehearsed
        price = self._price(run, tree)
        seconds = self._seconds(run, price)
        wins = "less: set up such links if you can" if seconds < best.seconds else "not less"
        over, takes = "a tree whose messages are sent again until they arrive", f"{price.rounds:.0f} rounds"
        return f" Over {over} {run.solver.name} would take about {takes} and {seconds:.2g} s, which is {wins}."

    def _seconds(self, run: Rehearsed, price: Price) -> float:
        """Communication plus arithmetic."""
        return price.seconds + self._flops(run.solver, run.result.iterations) / self.request.costs.flops_s

    def _memory(self, solver: Solver) -> float:
        """Bytes at one node: its covariance, stored as a fit would, and the state of the solver."""
        d, k = self.workload.n_features, self.workload.n_components
        choice = self.data.choose_covariance(self.request, solver, k)
        return choice.bytes / len(self.data.shards.blocks) + solver.kept_numbers(k, d) * ITEM_BYTES

    def _flops(self, solver: Solver, products: int) -> float:
        """Arithmetic of one node: products with its covariance, formed or not, and the work of the solver on them."""
        d, k = self.workload.n_features, self.workload.n_components
        columns = solver.columns(k, d)
        formed = 2.0 * self.rows * d**2 + products * 2.0 * d**2 * columns
        direct = products * 4.0 * self.rows * d * columns
        return min(formed, direct) + products * 2.0 * solver.kept_numbers(k, d) * columns


def _reason(best: Forecast, request: Request, run: Rehearsed) -> str:
    costs, method = request.costs, f"{best.solver} with {best.averaging} averaging"
    speed = f"at {costs.latency_s * 1e3:g} ms per round and {costs.bandwidth_bytes_s * 8 / 1e6:g} Mbit/s"
    if request.solver is not None and request.averaging is not None:
        words = f"{method} was requested"
    else:
        fixed = "solver" if request.solver is not None else "averaging" if request.averaging is not None else None
        words = f"{method} takes the least time {speed}{f' with the requested {fixed}' if fixed else ''}"
    if math.isfinite(best.rounds):
        words += f": about {best.rounds:.0f} rounds and {best.seconds:.2g} s."
    else:
        words += f", but does not reach the tolerance within {request.max_rounds:,} rounds."
    if request.solver is None and best.shows_covariances:
        words += " One sum costs less than products here, and shows all nodes no more than products would."
    elif request.solver is None:
        words += " One sum of the covariance is not considered: it would show more."
    if request.masked and best.shows_covariances:
        by = "two sums, of the moments and of covariances about the mean" if run.set_up is None else "one sum for all"
        words += f" It is {by}, and all nodes learn the pooled covariance."
    if best.memory_bytes > costs.memory_bytes:
        words += f" It needs {best.memory_bytes:.2g} bytes of memory, more than the {costs.memory_bytes:.2g} allowed."
    return words


def _rehearsed_on(rehearsal: Rehearsal, data: NodeData) -> str:
    rows = rehearsal.prepared.moments.n_samples
    if rehearsal.made_up:
        return f"{rows:,} made-up samples, because this node has too few"
    return f"{rows:,} samples of {'all nodes' if data.transport is None else 'this node only'}"
