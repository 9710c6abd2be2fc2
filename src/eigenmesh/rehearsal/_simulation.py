"""A fit of all nodes in this process, in virtual time, with links and computers as the conditions describe them."""

from __future__ import annotations

import math
import time
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass, field
from statistics import median
from typing import Any, cast

import numpy as np

from eigenmesh.arrays import Array
from eigenmesh.averaging import Averaging
from eigenmesh.data import Choice, Covariance, Moments, Shards, build_covariance
from eigenmesh.data._covariance import OneByOne
from eigenmesh.data._place import Place
from eigenmesh.errors import TransportError
from eigenmesh.events import Ended, Entry, EventLog, Listener, Record, VirtualTime, on_record
from eigenmesh.fitting import NodeData, Request, fit, prepare
from eigenmesh.graphs import Weights
from eigenmesh.iteration import Result
from eigenmesh.metrics import mean_error
from eigenmesh.networks import Network
from eigenmesh.networks._virtual_time import InVirtualTime
from eigenmesh.rehearsal._conditions import Conditions, drawn_factor
from eigenmesh.rehearsal._links import LinkTimes
from eigenmesh.solvers import Solver
from eigenmesh.solvers._asynchronous import Asynchronous

N_TIMED = 5


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
    """Links, computers, outages and kills from a file of conditions, for nodes by number."""

    def __init__(self, conditions: Conditions, names: Sequence[str], clock: VirtualTime) -> None:
        self._names, self._hosts, self._random = names, conditions.hosts, clock.random
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
        way = self._names[link[0]], self._names[link[1]]
        over_at = _over(self._outages[frozenset(way)], at)
        if over_at > at and not again:
            return math.inf
        return self._links.arrival_s(way, n_bytes, over_at, again)

    def works(self, node: int, columns: int, at: float) -> float:
        taken = columns * self.column_s[node] * drawn_factor(self._hosts[self._names[node]], self._random)
        begins = self.awake(node, at)
        ends = begins + taken
        for start, end in sorted(self._downtimes[self._names[node]]):
            if begins < start < ends:
                # A node that is down stops, and continues its work when it is back.
                ends += end - start
        return ends

    def awake(self, node: int, at: float) -> float:
        return _over(self._downtimes[self._names[node]], at)


def _over(times: Sequence[tuple[float, float]], at: float) -> float:
    """The end of the intervals that cover the time ``at``; ``at`` itself if none does."""
    for start, end in sorted(times):
        if start <= at < end:
            at = end
    return at


@dataclass(frozen=True, eq=False)
class TimedData(NodeData):
    """Samples of nodes whose network and products take virtual time, as the conditions say."""

    conditions: Conditions | None = None
    names: tuple[str, ...] = ()
    clock: VirtualTime = field(default_factory=lambda: VirtualTime(0))
    columns: int = 1
    networks: list[InVirtualTime] = field(default_factory=list)

    def _network(self, averaging: Averaging) -> Network:
        laws = ConditionLaws(cast(Conditions, self.conditions), self.names, self.clock)
        network = InVirtualTime(cast(Weights, self.weights), laws, averaging, self.clock)
        if self.networks:
            network.clock = self.networks[-1].clock
        self.networks.append(network)
        return network

    def _covariance(self, shards: Shards, moments: Moments, choice: Choice, place: Place) -> Covariance:
        # One covariance per node, so that each can be timed.
        began, timed = time.perf_counter(), self.networks[-1]
        pairs = zip(shards.ids, choice.each, strict=True)
        parts = tuple(build_covariance(shards.take([node]), moments, kind=kind) for node, kind in pairs)
        built_s = (time.perf_counter() - began) / len(parts)
        for node, part in enumerate(parts):
            set_up_s = self._measure_work(cast(ConditionLaws, timed.laws), node, part, built_s)
            timed.clock[node] += set_up_s
        return cast(Covariance, Timed(OneByOne(parts), timed))

    def _measure_work(self, laws: ConditionLaws, node: int, part: Covariance, built_s: float) -> float:
        """Set the time per column of a node, and return the time of its set-up."""
        host = cast(Conditions, self.conditions).hosts[self.names[node]]
        if host.product_ms is not None:
            laws.column_s[node] = host.product_ms / 1e3 / self.columns
            return host.set_up_ms / 1e3
        block = part.place(np.random.default_rng(0).standard_normal((1, part.n_features, self.columns)))
        taken = []
        for _ in range(N_TIMED):
            began = time.perf_counter()
            part.apply(block)
            taken.append(time.perf_counter() - began)
        laws.column_s[node] = host.slowdown * median(taken) / self.columns
        return host.slowdown * built_s


class Timed:
    """A covariance whose products take virtual time at every node."""

    def __init__(self, covariance: OneByOne, network: InVirtualTime) -> None:
        self._covariance, self._network = covariance, network

    def apply(self, X: Array) -> Array:
        self._network.multiply(X.shape[-1])
        return self._covariance.apply(X)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._covariance, name)


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
    timed = TimedData(data.shards, data.weights, None, conditions, names, VirtualTime(seed), columns)
    curve: list[tuple[float, float]] = []
    result, why = None, ""
    try:
        prepared = prepare(request, timed)
        network = cast(InVirtualTime, prepared.network)

        def note(record: Record) -> None:
            if np.isfinite(record.error):
                curve.append((network.clock.max(), record.error))

        if isinstance(solver, Asynchronous) and reference is not None:
            network.watcher = _watcher(network, solver, reference, curve)
        log = EventLog(on_record(note), *listeners, clock=lambda: network.elapsed_s)
        result = fit(prepared, events=log, reference=reference).result
    except TransportError as error:
        why = str(error)
    network = timed.networks[-1]
    for listener in listeners:
        listener(Entry(network.elapsed_s, Ended("failed", message=why) if result is None else result.ended))
    traffic = network.traffic if result is None else result.traffic
    return Simulated(result, why, network.elapsed_s, np.array(curve).reshape(-1, 2), traffic.messages, traffic.bytes)


def _watcher(network: InVirtualTime, solver: Asynchronous, reference: np.ndarray, curve: list[Any]) -> Any:
    errors = np.ones(network.n_nodes)

    def watch(node: Any) -> None:
        if node.is_mixed:
            errors[node.rank] = mean_error(solver.method.readout(node.current), reference)
            curve.append((network.time.now, errors.mean()))

    return watch
