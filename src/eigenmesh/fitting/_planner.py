"""Forecast the cost of a fit: every solver with every averaging, under a stated cost model."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import replace
from typing import Any

from eigenmesh.arrays import ITEM_BYTES
from eigenmesh.averaging import Average, Averaging, Tree, name_of
from eigenmesh.averaging._push_sum import PushSumAverage
from eigenmesh.errors import EigenmeshError
from eigenmesh.events import Planned
from eigenmesh.fitting._column_data import ColumnData
from eigenmesh.fitting._data import NodeData
from eigenmesh.fitting._network_calls import Price, Prices, prepared_average
from eigenmesh.fitting._plan import Forecast, Plan
from eigenmesh.fitting._prepare import Decision, Workload, decide, goes_with
from eigenmesh.fitting._privacy import key_exchange
from eigenmesh.fitting._rehearsal import ReducedProblem, Rehearsal, Rehearsed, rehearse
from eigenmesh.graphs import Weights
from eigenmesh.graphs._resends import tree_rounds
from eigenmesh.networks import Traffic
from eigenmesh.settings import Request
from eigenmesh.solvers import BlockKrylov, FastPCA, Solver, TrackedSubspace, TreeCovariance
from eigenmesh.solvers._tree_covariance import LARGEST_FEATURES

# A quick forecast uses all samples if they have at most FEW_NUMBERS numbers, else at most MOST_SHARE of them.
FEW_NUMBERS, MOST_SHARE = 2**20, 0.5


def plan(request: Request, data: NodeData, report: Callable[[str], Any] | None = None) -> Plan:
    """Forecast rounds, bytes, memory and time of every solver with every averaging, and which one a fit uses.

    It first solves a few thousand samples, without messages. With a transport all nodes must call it together: they
    count their samples, and each forecasts from its own; all choose the same method. ``report`` is called with a few
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
        _reason(best, request) + forecaster.about_a_tree(best),
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
    rehearsal = rehearse(replace(request, n_components=decision.n_components), data, first, averaging, most_rows)
    counted = Traffic() if decision.counting is None else decision.counting.traffic
    runs = [rehearsal.rehearsed]
    if others:
        reduced = ReducedProblem(rehearsal, data.weights)
        for other in others:
            report(f"rehearsing {other.name}")
            runs.append(reduced.rehearse(other, averaging if goes_with(other, averaging) else Tree()))
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
        usual.append(TreeCovariance())
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
        keys = [key_exchange(workload.weights.n_nodes)] if workload.masked and counted == Traffic() else []
        self.set_up = [*keys, *rehearsal.set_up]
        # Nodes work in parallel, so the largest one determines the time.
        self.rows = max(block.n_rows for block in data.shards.blocks)

    def forecast(self, run: Rehearsed, name: str, averaging: Averaging) -> Forecast:
        """One line: the network calls of the rehearsal, priced for this averaging."""
        solver, price = run.solver, self._price(run, prepared_average(averaging, self.workload.weights))
        seconds = self._seconds(run, price)
        memory, shows = self._memory(solver), solver.traits.sends_covariances
        return Forecast(solver.name, name, price.rounds, price.messages, price.bytes, memory, seconds, shows)

    def _price(self, run: Rehearsed, average: Average) -> Price:
        costs = self.request.costs
        prices = Prices(self.workload.weights, average, costs)
        budgeted = len(run.calls) - run.closing
        run_price = prices.of(run.calls[:budgeted])
        if not run.result.converged or run_price.rounds > self.request.max_rounds:
            return Price(math.inf, math.inf, math.inf, math.inf)
        rounds, counted = self.counted.rounds, self.counted
        counting = Price(rounds, counted.messages, counted.bytes, rounds * costs.latency_s)
        return counting + prices.over_tree().of(self.set_up) + run_price + prices.of(run.calls[budgeted:])

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


def _reason(best: Forecast, request: Request) -> str:
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
    if request.solver is None:
        words += " Solvers that send covariance matrices are not considered."
    if best.memory_bytes > costs.memory_bytes:
        words += f" It needs {best.memory_bytes:.2g} bytes of memory, more than the {costs.memory_bytes:.2g} allowed."
    return words


def _rehearsed_on(rehearsal: Rehearsal, data: NodeData) -> str:
    rows = rehearsal.prepared.moments.n_samples
    if rehearsal.made_up:
        return f"{rows:,} made-up samples, because this node has too few"
    return f"{rows:,} samples of {'all nodes' if data.transport is None else 'this node only'}"
