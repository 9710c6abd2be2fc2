"""Forecast the cost of a fit: every solver with every averaging, under a stated cost model."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import Any, NamedTuple, cast

import numpy as np

from eigenmesh.arrays import ITEM_BYTES, Array
from eigenmesh.averaging import AllReduce, Averaging, Integers, LinearRound, Tree, name_of
from eigenmesh.data import HOST, Formed, Moments, Shards
from eigenmesh.errors import DataError, EigenmeshError
from eigenmesh.events import Planned
from eigenmesh.fitting.fit import SHARED_ROWS, fit
from eigenmesh.fitting.networks import network_over, words_for
from eigenmesh.fitting.node_data import ColumnData, NodeData
from eigenmesh.fitting.pooled import takes_one_sum, words_of_sum
from eigenmesh.fitting.prepare import Prepared, Workload, decide, goes_with, prepare
from eigenmesh.graphs import NetworkSequence, Weights, metropolis
from eigenmesh.graphs.changing import tree_rounds
from eigenmesh.graphs.topologies import star
from eigenmesh.iteration import Result, StopReason
from eigenmesh.masking import KEY_BYTES
from eigenmesh.networks import Meter, Network, Traffic
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


# A fit of a small copy of the problem, on the network itself, which counts what is sent.


# Rows of the copy: USUAL_ROWS; more if they are short, up to USUAL_NUMBERS numbers; at most MOST_NUMBERS numbers.
USUAL_ROWS, USUAL_NUMBERS, MOST_NUMBERS = 2000, 2**23, 2**26
# Random rows if there are too few to copy.
FEWEST_ROWS = 500
# Directions of a reduced problem: the larger of a fixed number and a multiple of the columns of a block.
FEWEST_DIRECTIONS, DIRECTIONS_PER_COLUMN, SPARE_COLUMNS = 64, 3, 5
# Products that turn random directions towards the leading ones.
PRODUCTS = 4


class StandInMeter(Meter):
    """Counts arrays that stand for larger ones: ``stands_for`` maps rows r here to rows d in the real problem."""

    def __init__(self, stands_for: dict[int, int]) -> None:
        super().__init__()
        self._stands_for = stands_for

    def size(self, array: Array) -> tuple[int, int]:
        """Matrices and bytes of the real problem."""
        matrices, size = super().size(array)
        rows = array.shape[1]
        return matrices, size if rows not in self._stands_for else size // rows * self._stands_for[rows]


class SentTraffic(NamedTuple):
    """What a network has sent: its traffic, and the bytes of the busiest node in each round, summed over rounds."""

    traffic: Traffic
    busiest_bytes: float

    def __add__(self, other: SentTraffic) -> SentTraffic:  # type: ignore[override]
        return SentTraffic(self.traffic + other.traffic, self.busiest_bytes + other.busiest_bytes)

    @classmethod
    def over(cls, network: Network, exchanges: Counter[tuple[LinearRound, int]]) -> SentTraffic:
        """So far, with its ``exchanges`` over links. What else was sent had the rounds of averages."""
        over_links = sum(times * exchange.messages * size for (exchange, size), times in exchanges.items())
        busiest = sum(times * exchange.in_turn * size for (exchange, size), times in exchanges.items())
        share = network.average.in_turn / max(1, network.average.messages)
        return cls(network.traffic.copy(), busiest + share * (network.traffic.bytes - over_links))


@dataclass(frozen=True, eq=False)
class Rehearsed:
    """A fit of a copy with one solver and one averaging.

    Attributes
    ----------
    sent : SentTraffic
        By the whole fit, from the moments to the certificate.
    """

    prepared: Prepared
    result: Result
    sent: SentTraffic


@dataclass(frozen=True, eq=False)
class Copy:
    """Some samples for every node; ``made_up`` if they are random numbers, because this process has too few."""

    data: NodeData
    made_up: bool = False

    def fit(self, request: Request, solver: Solver, averaging: Averaging) -> Rehearsed:
        """Fit the copy, on the network itself."""
        shards = self.data.shards
        n_samples = sum(block.n_rows for block in shards.blocks)
        # A fixed seed, so that the same data always have the same plan; what masks and counting take is added later.
        alone = replace(
            request,
            n_components=request.components(n_samples, shards.n_features),
            at_most=False,
            solver=solver,
            averaging=averaging,
            device=None,
            covariance=None,
            seed=0,
            privacy="open",
            min_samples=0,
        )
        return _rehearsed(prepare(alone, self.data))

    def centred(self, moments: Moments) -> Iterator[tuple[int, np.ndarray]]:
        """Pairs of a node and some of its rows, prepared so that their products add up to ``C_i``."""
        blocks = self.data.shards.blocks
        centring = moments.centring(len(blocks))
        for node, block in enumerate(blocks):
            yield from ((node, ready) for _, ready in centring.chunks(block))


def rehearse(
    request: Request, data: NodeData, solver: Solver, averaging: Averaging, most_rows: int | None = None
) -> tuple[Copy, Rehearsed]:
    """A copy with a few thousand rows of all nodes, fitted. ``most_rows`` limits the rows further."""
    shards, wanted = data.shards, request.n_components
    k = wanted if isinstance(wanted, int) else 1
    d, rows = shards.n_features, _rows_to_copy(shards.n_features, k)
    if most_rows is not None:
        rows = min(rows, max(4 * k, most_rows))
    own = [block.read(slice(None)) for block in shards.thinned(rows).moved(HOST).blocks]
    if data.transport is None:
        copy = Copy(NodeData(Shards.from_list(own), data.weights))
        try:
            return copy, copy.fit(request, solver, averaging)
        except DataError:
            # Columns of the copy may be constant or empty although those of the whole are not.
            copy = Copy(NodeData(shards, data.weights))
            return copy, copy.fit(request, solver, averaging)
    # The other nodes are assumed to be like this one.
    n_nodes = data.weights.n_nodes
    if own[0].shape[0] > max(k, n_nodes):
        with suppress(DataError):
            copy = Copy(NodeData(Shards.from_array(own[0], n_nodes), data.weights))
            return copy, copy.fit(request, solver, averaging)
    random = np.random.default_rng(0).standard_normal((max(2 * k, 2 * n_nodes, FEWEST_ROWS), d))
    copy = Copy(NodeData(Shards.from_array(random / np.sqrt(np.arange(1.0, d + 1)), n_nodes), data.weights), True)
    return copy, copy.fit(request, solver, averaging)


def _rows_to_copy(n_features: int, k: int) -> int:
    """Number of rows of a copy, if there are that many."""
    return min(max(USUAL_ROWS, 4 * k, USUAL_NUMBERS // n_features), max(4 * k, MOST_NUMBERS // n_features))


def _rehearsed(prepared: Prepared) -> Rehearsed:
    """Run a prepared fit, and keep what it has sent."""
    # The fit leaves the exchanges of its set-up in the meter, and has counted all of them here.
    exchanges = prepared.network.meter.exchanges
    result = fit(prepared).result
    return Rehearsed(prepared, result, SentTraffic.over(prepared.network, exchanges))


def reduced(copy: Copy, first: Rehearsed, alike: bool) -> Formed:
    """The covariances of all nodes in their leading directions: (M, r, r) matrices.

    With orthonormal Q of shape (d, r) that holds the leading directions of the copy, node i has ``Q^T C_i Q``. A solver
    takes about as many rounds on these as on the C_i, and far less time. If the nodes are ``alike``, all have the mean.
    """
    moments = first.prepared.moments
    Q = _leading_directions(copy, moments, first.result.components)
    matrices = np.zeros((copy.data.weights.n_nodes, Q.shape[1], Q.shape[1]))
    for node, ready in copy.centred(moments):
        matrices[node] += (ready @ Q).T @ (ready @ Q)
    return Formed(np.array(np.broadcast_to(matrices.mean(axis=0), matrices.shape)) if alike else matrices)


def rehearse_reduced(first: Rehearsed, covariance: Formed, solver: Solver, averaging: Averaging) -> Rehearsed:
    """Run the solver itself on reduced covariances, with the set-up of the first fit over the same averaging."""
    facts, r = first.prepared.facts, covariance.n_features
    d = facts.n_features
    stands_for = {r: d, r * (r + 1) // 2: d * (d + 1) // 2, r + SHARED_ROWS: d + SHARED_ROWS}
    network = _continued(first, averaging, stands_for)
    network.learn_scales(np.diagonal(covariance.matrices.mean(axis=0)))
    prepared = replace(
        first.prepared,
        facts=facts._replace(n_features=r),
        solver=solver,
        averaging=averaging,
        network=network,
        covariance=covariance,
    )
    return _rehearsed(prepared)


def _continued(first: Rehearsed, averaging: Averaging, stands_for: dict[int, int]) -> Network:
    """A network that has sent what the set-up of the first fit has, and counts arrays as what they stand for."""
    network = network_over(first.prepared.weights, None, averaging)
    network.meter = StandInMeter(stands_for)
    network.meter.traffic = first.prepared.set_up.copy()
    network.meter.exchanges = first.prepared.network.meter.exchanges.copy()
    return network


def of_one_sum(first: Rehearsed, solver: Solver, averaging: Averaging, at_once: bool) -> Rehearsed:
    """What one sum sends, which follows from d and K, so that no covariance is formed.

    ``at_once``: moments and covariance are one sum, and there is no other set-up.
    """
    facts, known = first.prepared.facts, first.result
    d, k, M = facts.n_features, len(known.components), facts.n_nodes
    network = _continued(first, averaging, {1: d * (d + 1) // 2, 2: k * (d + SHARED_ROWS)})
    if at_once:
        network.meter = StandInMeter({1: words_of_sum(d), 2: k * (d + SHARED_ROWS)})
    if network.integers:
        network.total(np.zeros((M, 1), np.uint64))
        network.broadcast(np.zeros((M, 2)))
    else:
        network.mean(np.zeros((M, 1)))
    result = replace(known, solver=solver.name, iterations=1, stop_reason=StopReason.CONVERGED)
    return Rehearsed(
        replace(first.prepared, solver=solver, averaging=averaging),
        result,
        SentTraffic.over(network, network.meter.exchanges),
    )


def key_exchange(weights: Weights | NetworkSequence, averaging: Averaging) -> SentTraffic:
    """What nodes send to agree on masks, if the transport provides none."""
    network, M = network_over(weights, None, averaging), weights.n_nodes
    network.meter = StandInMeter({1: M * words_for(KEY_BYTES)})
    network.maximum(np.zeros((M, 1)))
    return SentTraffic.over(network, network.meter.exchanges)


def _leading_directions(copy: Copy, moments: Moments, components: np.ndarray) -> np.ndarray:
    """Orthonormal basis (d, r) of the leading eigenvectors, by a few products from a random start."""
    k, d = components.shape
    r = min(d, max(FEWEST_DIRECTIONS, DIRECTIONS_PER_COLUMN * (k + SPARE_COLUMNS)))
    if r == d:
        return np.eye(d)
    block = np.random.default_rng(0).standard_normal((d, r))
    for _ in range(PRODUCTS):
        basis, block = np.linalg.qr(block)[0], np.zeros((d, r))
        for _, ready in copy.centred(moments):
            block += ready.T @ (ready @ basis)
    return np.asarray(np.linalg.qr(np.hstack([components.T, block[:, k:]]))[0])


# A quick forecast uses all samples if they have at most FEW_NUMBERS numbers, else at most MOST_SHARE of them.
FEW_NUMBERS, MOST_SHARE = 2**20, 0.5


def plan(request: Request, data: NodeData, report: Callable[[str], Any] | None = None) -> Plan:
    """Forecast rounds, bytes, memory and time of every solver with every averaging, and which one a fit uses.

    It first fits a few thousand samples on the simulated network. With a transport all nodes must call it together:
    they count their samples, and each forecasts from its own. All choose the same method. ``report`` is called with a
    few words on each step.
    """
    forecaster = _Forecaster(request, data, report or (lambda words: None))
    workload, chosen = forecaster.workload, forecaster.decision.averaging
    averagings = {name_of(each): each for each in (*workload.averagings(), chosen)}
    solvers = _others(forecaster.decision.solver, workload)
    lines = {name: forecaster.lines(solvers, each) for name, each in averagings.items()}
    best = next(line for line in lines[name_of(chosen)] if line.solver == forecaster.decision.solver.name)
    return Plan(
        tuple(sorted((line for each in lines.values() for line in each), key=lambda line: (line.seconds, line.bytes))),
        best,
        _reason(best, request, forecaster.sums_at_once(chosen)) + forecaster.about_a_tree(best),
        forecaster.rehearsed_on,
        request.costs,
        request.max_rounds,
        forecaster.decision.size.n_samples or data.count(request.masked)[0].n_samples or 0,
        forecaster.decision.n_components,
    )


def quick_forecast(request: Request, data: NodeData) -> Forecast:
    """The line of a plan that a fit uses, with all nodes in this process.

    It uses at most half of many samples, so that it costs less than the fit even if a plan would copy all of them.
    """
    n_samples = sum(block.n_rows for block in data.shards.blocks)
    few = n_samples * data.shards.n_features <= FEW_NUMBERS
    most_rows = n_samples if few else math.ceil(MOST_SHARE * n_samples)
    forecaster = _Forecaster(request, data, lambda words: None, most_rows)
    solver, averaging = forecaster.decision.solver, forecaster.decision.averaging
    return forecaster.lines([] if isinstance(solver, BlockKrylov) else [solver], averaging)[-1]


def planned(request: Request, data: NodeData) -> Planned | None:
    """The quick forecast as an event, for the page of a fit; None if there is none, for example with split columns."""
    if isinstance(data, ColumnData):
        return None
    # An error in the forecast must not stop a fit that would succeed.
    with suppress(EigenmeshError):
        line = quick_forecast(request, data)
        return Planned(line.rounds, line.bytes, line.seconds, request.costs.latency_s)
    return None


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
    """Makes all forecasts of one problem.

    Parameters
    ----------
    request, data : Request, NodeData
        The problem.
    report : callable
        Called with a few words on each step.
    most_rows : int or None
        Most rows of a copy, if that is less than usual.
    """

    def __init__(
        self, request: Request, data: NodeData, report: Callable[[str], Any], most_rows: int | None = None
    ) -> None:
        self.request, self.data, self.report, self.most_rows = request, data, report, most_rows
        self.decision = decision = decide(request, data)
        self.workload = decision.workload
        # One sum needs no count: then K may be too large for the samples.
        is_counted = decision.size.n_samples is not None or not (request.at_most or request.n_components is None)
        self.asked = replace(request, n_components=decision.n_components, at_most=not is_counted)
        # Nodes work in parallel, so the largest one determines the time.
        self.rows = max(block.n_rows for block in data.shards.blocks)
        self.rehearsed_on = ""

    @property
    def first(self) -> BlockKrylov:
        """The solver that is rehearsed on the copy itself."""
        solver = self.decision.solver
        return solver if isinstance(solver, BlockKrylov) else BlockKrylov()

    def lines(self, others: Sequence[Solver], averaging: Averaging) -> list[Forecast]:
        """Forecasts with one averaging: of block Krylov on a copy, then of other solvers in its leading directions."""
        self.report(f"rehearsing {self.first.name}")
        copy, first = rehearse(self.asked, self.data, self.first, averaging, self.most_rows)
        self.rehearsed_on = _rehearsed_on(copy, self.data)
        before = self._before(averaging)
        lines, able = [self._forecast(first, before)], [other for other in others if goes_with(other, averaging)]
        if able:
            small = reduced(copy, first, alike=self.data.transport is not None)
        for other in able:
            self.report(f"rehearsing {other.name}")
            if isinstance(other, OneSum) and isinstance(averaging, Tree | AllReduce | Integers):
                run = of_one_sum(first, other, averaging, self.sums_at_once(averaging))
            else:
                run = rehearse_reduced(first, small, other, averaging)
            lines.append(self._forecast(run, before))
        return lines

    def sums_at_once(self, averaging: Averaging) -> bool:
        """Whether one sum of integers has both moments and covariance."""
        if not isinstance(averaging, Integers) or self.request.missing == "mean":
            return False
        average = averaging.prepare(cast(Weights, self.workload.weights))
        return takes_one_sum(average, self.workload.n_features, self.request.costs)

    def _before(self, averaging: Averaging) -> SentTraffic:
        """What is sent before the fit: the count of samples, if K depends on it, or keys for masks."""
        counting = self.decision.counting
        if counting is not None:
            return SentTraffic(counting.traffic, 0.0)
        return key_exchange(self.workload.weights, averaging) if self.workload.masked else SentTraffic(Traffic(), 0.0)

    def _forecast(self, run: Rehearsed, before: SentTraffic) -> Forecast:
        """One line: what a rehearsal has sent, and the arithmetic of the whole problem."""
        solver, costs, (traffic, busiest_bytes) = run.prepared.solver, self.request.costs, before + run.sent
        seconds = traffic.rounds * costs.latency_s + busiest_bytes / costs.bandwidth_bytes_s
        seconds += self._flops(solver, run.result.iterations) / costs.flops_s
        sent: tuple[float, float, float] = traffic.rounds, traffic.messages, traffic.bytes
        if not run.result.converged:
            sent, seconds = (math.inf, math.inf, math.inf), math.inf
        averaging, shows = name_of(run.prepared.averaging), solver.traits.sums_covariances
        return Forecast(solver.name, averaging, *sent, self._memory(solver), seconds, shows)

    def about_a_tree(self, best: Forecast) -> str:
        """Whether a network without a tree would be faster with one, in words."""
        sequence, costs = self.workload.weights, self.request.costs
        if isinstance(sequence, Weights):
            return ""
        up_and_down = tree_rounds(sequence)
        if not math.isfinite(up_and_down):
            return " The links that keep coming back do not form a tree."
        # Over a star an average takes two rounds, in which M messages follow each other. Here it is one a round.
        M, waits = sequence.n_nodes, math.ceil(up_and_down)
        _, run = rehearse(self.asked, replace(self.data, weights=metropolis(star(M))), self.first, Tree())
        rounds, in_turn = run.sent.traffic.rounds / 2 * waits, run.sent.busiest_bytes / M * waits
        seconds = rounds * costs.latency_s + in_turn / costs.bandwidth_bytes_s
        seconds += self._flops(self.first, run.result.iterations) / costs.flops_s
        wins = "less: set up such links if you can" if seconds < best.seconds else "not less"
        over = "a tree whose messages are sent again until they arrive"
        return (
            f" Over {over} {self.first.name} would take about {rounds:.0f} rounds and {seconds:.2g} s, which is {wins}."
        )

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


def _reason(best: Forecast, request: Request, at_once: bool) -> str:
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
        by = "one sum for all" if at_once else "two sums, of the moments and of covariances about the mean"
        words += f" It is {by}, and all nodes learn the pooled covariance."
    if best.memory_bytes > costs.memory_bytes:
        words += f" It needs {best.memory_bytes:.2g} bytes of memory, more than the {costs.memory_bytes:.2g} allowed."
    return words


def _rehearsed_on(copy: Copy, data: NodeData) -> str:
    rows = sum(block.n_rows for block in copy.data.shards.blocks)
    if copy.made_up:
        return f"{rows:,} made-up samples, because this node has too few"
    return f"{rows:,} samples of {'all nodes' if data.transport is None else 'this node only'}"
