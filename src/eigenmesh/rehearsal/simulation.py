"""A fit of all nodes in this process, in virtual time, with links and computers as the conditions describe them."""

from __future__ import annotations

import math
import time
from collections import defaultdict
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any, cast

import numpy as np

from eigenmesh.arrays import Array
from eigenmesh.averaging import Averaging, LinearRound
from eigenmesh.data import Choice, Covariance, Moments, OneByOne, Partition, Place, Scatter, build_covariance
from eigenmesh.errors import DeadlineError, TransportError
from eigenmesh.events import Ended, Entry, EventLog, Listener, Record, on_record
from eigenmesh.fitting import NodeData, Request, fit, prepare
from eigenmesh.graphs import Weights
from eigenmesh.iteration import Result
from eigenmesh.metrics import mean_error
from eigenmesh.networks import Message, Meter, Network, Pace, Paced, Stacked, Traffic
from eigenmesh.rehearsal.conditions import Conditions, drawn_factor
from eigenmesh.rehearsal.virtual_time import LinkTimes, TimedCovariance, VirtualTime, Work, product_s, work_on
from eigenmesh.solvers import Asynchronous, Solver


@dataclass(frozen=True)
class Simulated:
    """A fit in virtual seconds.

    Attributes
    ----------
    result : Result or None
        None if the fit ended without one.
    why : str
        Why it ended without a result.
    seconds : float
        From the start to the end of the last node.
    curve : array of shape (n, 2)
        Seconds, and the mean of sin^2 over nodes and components at that time.
    messages, bytes : int
        What was sent.
    """

    result: Result | None
    why: str
    seconds: float
    curve: np.ndarray
    messages: int
    bytes: int

    def seconds_to(self, error: float) -> float:
        """When the mean error was this small for the first time; inf for never."""
        reached = self.curve[self.curve[:, 1] <= error, 0]
        return float(reached[0]) if len(reached) else math.inf


class ConditionLaws:
    """Links, computers, outages and kills from a file of conditions, for nodes by number.

    All times are in virtual seconds; ``inf`` means never.
    """

    def __init__(self, conditions: Conditions, names: Sequence[str], clock: VirtualTime) -> None:
        self._names, self._hosts, self.time = names, conditions.hosts, clock
        self._links = LinkTimes(clock, conditions.links)
        self._outages: dict[frozenset[str], list[tuple[float, float]]] = defaultdict(list)
        self._downtimes: dict[str, list[tuple[float, float]]] = defaultdict(list)
        for kind, at_s, site, other, for_s in conditions.faults:
            if kind == "stall":
                self._outages[frozenset((site, other))].append((at_s, at_s + for_s))
            else:
                self._downtimes[site].append((at_s, at_s + for_s if kind == "crash" else math.inf))
        # Seconds per column of a product, by node; set once the covariances are built.
        self.column_s = dict.fromkeys(range(len(names)), 0.0)

    def arrives(self, link: tuple[int, int], n_bytes: int, at: float, again: bool) -> float:
        """Arrival time of a message over a link (sender, receiver); ``again``: it is resent until it arrives."""
        way = self._names[link[0]], self._names[link[1]]
        over_at = _over(self._outages[frozenset(way)], at)
        if over_at > at and not again:
            return math.inf
        return self._links.arrival_s(way, n_bytes, over_at, again)

    def works(self, node: int, columns: int, at: float) -> float:
        """Time at which a node that starts ``at`` has multiplied its covariance with this many columns."""
        taken = columns * self.column_s[node] * drawn_factor(self._hosts[self._names[node]], self.time.random)
        begins = self.awake(node, at)
        ends = begins + taken
        for start, end in sorted(self._downtimes[self._names[node]]):
            if begins < start < ends:
                # A node that is down stops, and continues its work when it is back.
                ends += end - start
        return ends

    def awake(self, node: int, at: float) -> float:
        """Earliest time from ``at`` on at which a node can act: later than ``at`` if it is down."""
        return _over(self._downtimes[self._names[node]], at)


def _over(times: Sequence[tuple[float, float]], at: float) -> float:
    """The end of the intervals that cover the time ``at``; ``at`` itself if none does."""
    for start, end in sorted(times):
        if start <= at < end:
            at = end
    return at


class TimedMeter(Meter):
    """A meter that tells of each round over links, with the bytes of its messages, when it is counted."""

    def __init__(self, pass_round: Callable[[LinearRound, int], None]) -> None:
        super().__init__()
        self._pass_round = pass_round

    def count_rounds(self, exchange: LinearRound, arrays: tuple[Array, ...], rounds: int = 1, extra: int = 0) -> int:
        size = super().count_rounds(exchange, arrays, rounds, extra)
        for _ in range(rounds):
            self._pass_round(exchange, size)
        return size


class InVirtualTime(Stacked):
    """All nodes of a network stacked, each with its own clock.

    A node ends a round when all messages of its neighbours have arrived: ``t_i <- max(t_i, max_j arrival_ji)``. Nodes
    at their own pace share one ``VirtualTime`` instead.

    Attributes
    ----------
    clock : array of shape (M,)
        Elapsed seconds at each node.
    """

    def __init__(self, weights: Weights, laws: ConditionLaws, averaging: Averaging | None = None) -> None:
        super().__init__(weights, averaging)
        self.meter = TimedMeter(self._pass_round)
        self.laws, self.time, self.clock = laws, laws.time, np.zeros(weights.n_nodes)
        self.watcher: Callable[[Paced], None] | None = None
        self._joined: dict[int, float] = {}
        self._is_paced = False

    @property
    def elapsed_s(self) -> float:
        """Seconds from the start until the last node is done."""
        return max(self.time.now, float(self.clock.max()))

    def multiply(self, columns: int) -> None:
        """Let every node multiply its covariance with this many columns."""
        self._set_clock([self.laws.works(node, columns, at) for node, at in enumerate(self.clock)])

    def product(self, multiply: Callable[[Array], Array], X: Array) -> Array:
        """Multiply at every node, which takes virtual time."""
        self.multiply(X.shape[-1])
        return multiply(X)

    def _set_clock(self, seconds: Sequence[float]) -> None:
        gone = np.flatnonzero(np.isinf(seconds))
        if len(gone):
            wait = f"all nodes wait for node {gone[0]} forever, from second {self.elapsed_s:.1f} on"
            raise DeadlineError(f"{wait}; give it a restart, or leave it out.")
        self.clock = np.array(seconds)

    def _pass_round(self, exchange: LinearRound, size: int) -> None:
        begins = [self.laws.awake(node, at) for node, at in enumerate(self.clock)]
        self._set_clock(begins)
        ends = list(begins)
        for receiver, sender in zip(*(part.tolist() for part in exchange.sends), strict=True):
            arrival = self.laws.arrives((sender, receiver), size, begins[sender], again=True)
            ends[receiver] = max(ends[receiver], arrival)
        self._set_clock(ends)

    # --- nodes at their own pace -----------------------------------------------------------------------------

    def require_time(self) -> None:
        """Nothing: this network has virtual time."""

    def run_paced(self, nodes: Sequence[Paced], pace: Pace) -> None:
        """Let the nodes act until all are ready to meet; afterwards each clock is the time at which its node was."""
        self._joined = {}
        if not self._is_paced:
            for node, at in zip(nodes, self.clock, strict=True):
                first = math.ceil(at / pace.tick_s) if pace.common else at / pace.tick_s + self.time.random.random()
                self.time.at(first * pace.tick_s, self._tick, node, nodes, pace)
        self._is_paced = True
        self.time.run(math.inf, lambda: len(self._joined) == len(nodes))
        if gone := [str(node.rank) for node in nodes if node.rank not in self._joined]:
            # No events are left, and no running node has noticed their silence.
            raise DeadlineError(f"node {', '.join(gone)} is gone forever; give it a restart, or leave it out.")
        self.clock = np.array([max(self._joined[node.rank], at) for node, at in zip(nodes, self.clock, strict=True)])

    def _tick(self, node: Paced, nodes: Sequence[Paced], pace: Pace) -> None:
        now = self.time.now
        # A node that takes part in a synchronous round sends nothing else.
        awake = self.laws.awake(node.rank, max(now, float(self.clock[node.rank])))
        if awake > now:
            if awake < math.inf:
                self.time.at(awake, self._tick, node, nodes, pace)
            return
        for receiver, message in node.tick():
            self._send(node.rank, nodes[receiver], message)
        node.require_heard()
        if node.rank == 0:
            self.meter.traffic += Traffic(1, 0, 1, 0)
        self._act(node)
        self.time.at(pace.next_tick(now), self._tick, node, nodes, pace)

    def _send(self, sender: int, receiver: Paced, message: Message) -> None:
        size = sum(part.nbytes for part in message)
        self.meter.traffic += Traffic(0, 1, 0, size)
        arrival = self.laws.arrives((sender, receiver.rank), size, self.time.now, again=False)
        if arrival < math.inf and self.laws.awake(receiver.rank, arrival) == arrival:
            self.time.at(arrival, self._receive, receiver, sender, message)

    def _receive(self, node: Paced, sender: int, message: Message) -> None:
        node.receive(sender, message)
        self._act(node)

    def _act(self, node: Paced) -> None:
        """Begin work that is due; a node that is idle and ready to meet has joined."""
        if self.time.now < self.clock[node.rank]:
            # It takes part in a synchronous round.
            return
        work = node.begin()
        if work is not None:
            if self.watcher is not None:
                self.watcher(node)
            done_at = self.laws.works(node.rank, node.work_columns, self.time.now)
            if done_at < math.inf:
                self.time.at(done_at, self._finish, node, work)
        elif node.ready_to_meet and not node.working:
            self._joined.setdefault(node.rank, self.time.now)

    def _finish(self, node: Paced, work: Any) -> None:
        node.end(work())
        self._act(node)


@dataclass(frozen=True, eq=False, kw_only=True)
class TimedData(NodeData):
    """Samples of nodes whose network and products take virtual time, as the conditions say.

    A fit makes several networks, one after the other. They share the clock, and the last one of ``networks`` has the
    traffic of the solver.
    """

    conditions: Conditions
    names: tuple[str, ...]
    clock: VirtualTime
    columns: int
    networks: list[InVirtualTime] = field(default_factory=list)

    def _network(self, averaging: Averaging) -> Network:
        laws = ConditionLaws(self.conditions, self.names, self.clock)
        network = InVirtualTime(cast(Weights, self.weights), laws, averaging)
        if self.networks:
            network.clock = self.networks[-1].clock
        self.networks.append(network)
        return network

    def _scatters(self, shards: Partition, choice: Choice, request: Request) -> list[Scatter | None]:
        # Covariances are made one by one, after the moments.
        return []

    def _covariance(
        self, shards: Partition, moments: Moments, choice: Choice, place: Place, scatters: Sequence[Scatter | None]
    ) -> Covariance:
        # One covariance per node, so that each can be timed.
        began, timed = time.perf_counter(), self.networks[-1]
        pairs = zip(shards.ids, choice.each, strict=True)
        parts = tuple(build_covariance(shards.take([node]), moments, kind=kind) for node, kind in pairs)
        built_s = (time.perf_counter() - began) / len(parts)
        for node, part in enumerate(parts):
            measure = partial(self._measured, part, built_s)
            work = work_on(self.conditions.hosts[self.names[node]], measure)
            timed.laws.column_s[node] = work.product_s / self.columns
            timed.clock[node] += work.set_up_s
        return cast(Covariance, TimedCovariance(cast(Covariance, OneByOne(parts)), timed.product))

    def _measured(self, part: Covariance, built_s: float) -> Work:
        return Work(built_s, product_s(part, self.columns))


def simulate(
    request: Request,
    data: NodeData,
    conditions: Conditions,
    names: tuple[str, ...],
    reference: np.ndarray | None = None,
    seed: int = 0,
    listeners: Sequence[Listener] = (),
) -> Simulated:
    """Fit in virtual time; the reference, (d, K), are the true components, used only for the curve.

    Listeners get the events of the fit, in virtual seconds.
    """
    solver = cast(Solver, request.solver)
    n_components = cast(int, request.n_components) if reference is None else reference.shape[1]
    columns = solver.columns(n_components, data.shards.n_features)
    timed = TimedData(
        data.shards, data.weights, conditions=conditions, names=names, clock=VirtualTime(seed), columns=columns
    )
    curve: list[tuple[float, float]] = []
    result, why = None, ""
    try:
        prepared = prepare(request, timed)
        network = cast(InVirtualTime, prepared.network)

        def note(record: Record) -> None:
            if np.isfinite(record.error):
                curve.append((network.clock.max(), record.error))

        if isinstance(solver, Asynchronous) and reference is not None:
            network.watcher = _watcher(network, solver, reference, curve, listeners)
        log = EventLog(on_record(note), *listeners, clock=lambda: network.elapsed_s)
        result = fit(prepared, events=log, reference=reference).result
    except TransportError as error:
        why = str(error)
    network = timed.networks[-1]
    for listener in listeners:
        listener(Entry(network.elapsed_s, Ended("failed", message=why) if result is None else result.ended))
    traffic = network.traffic if result is None else result.traffic
    return Simulated(result, why, network.elapsed_s, np.array(curve).reshape(-1, 2), traffic.messages, traffic.bytes)


def _watcher(
    network: InVirtualTime, solver: Asynchronous, reference: np.ndarray, curve: list[Any], listeners: Sequence[Listener]
) -> Any:
    """Note the error whenever a node has mixed, and tell the listeners of it once per node on average."""
    errors = np.ones(network.n_nodes)

    def watch(node: Any) -> None:
        if not node.is_mixed:
            return
        errors[node.rank] = mean_error(solver.method.readout(node.current), reference)
        curve.append((network.time.now, errors.mean()))
        turn, rest = divmod(len(curve), network.n_nodes)
        if not rest:
            sent = network.traffic
            counts = sent.rounds, sent.messages, sent.matrices, sent.bytes
            for listener in listeners:
                listener(Entry(network.time.now, Record(turn, *counts, error=float(errors.mean()))))

    return watch
