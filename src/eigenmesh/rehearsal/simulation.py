"""A fit of all nodes in this process, in virtual time, with links and computers as the conditions describe them."""

from __future__ import annotations

import hashlib
import math
import queue
import threading
import time
from abc import ABC, abstractmethod
from collections import defaultdict
from collections.abc import Callable, Generator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from statistics import median
from typing import TYPE_CHECKING, Any, ClassVar, NamedTuple, cast

import networkx as nx
import numpy as np

from eigenmesh.arrays import Array
from eigenmesh.averaging import Averaging
from eigenmesh.data import (
    Choice,
    Covariance,
    Moments,
    OneByOne,
    Partition,
    Place,
    Shards,
    build_covariance,
    geometric_spectrum,
    unlike_nodes,
)
from eigenmesh.errors import MembersChangedError, TransportError
from eigenmesh.events import Ended, Entry, EventLog, Listener, Lost, Members, Record, VirtualTime, on_record
from eigenmesh.fitting import NodeData, Prepared, Request, fit, prepare
from eigenmesh.graphs import Weights, metropolis
from eigenmesh.iteration import Result
from eigenmesh.masking import Masks
from eigenmesh.metrics import mean_error
from eigenmesh.networks import InVirtualTime, Network
from eigenmesh.protocol import SET_UP, JournalledMasks, Membership, wire
from eigenmesh.protocol.effects import Begin, Compare, Exchange, Keys, MembersChanged, Sign
from eigenmesh.rehearsal.conditions import Conditions, Edges, Fault, Host, drawn_factor
from eigenmesh.rehearsal.world import LinkTimes
from eigenmesh.sites import NetworkFile, RunSettings
from eigenmesh.solvers import Asynchronous, Solver
from eigenmesh.transports import Arrays, Transport
from eigenmesh.transports import Links as Round

if TYPE_CHECKING:
    from eigenmesh.rehearsal.world import Position, Process

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

    def _covariance(self, shards: Partition, moments: Moments, choice: Choice, place: Place) -> Covariance:
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


# The real fit as a site's solver: it computes in a thread while virtual time stands still, and then waits.


Ask = Callable[[Any], Any]


class AbandonedError(Exception):
    """The process of this solver is gone."""


class SiteFit(NamedTuple):
    """The result of a site: the lost links without which it was found, its digest, and the members' statements."""

    lost: Edges
    result: Result
    digest: str
    statements: Mapping[str, str]


class FitProblem(ABC):
    """Principal components of one table per site."""

    def __init__(self, sites: tuple[str, ...], edges: Edges, request: Request) -> None:
        self._sites, self._edges, self._request = sites, edges, request

    @abstractmethod
    def table(self, process: Process) -> np.ndarray:
        """The samples of a process: (N_i, d)."""

    def prepared(self, process: Process, data: NodeData) -> Prepared:
        """The preparation of the fit of a process."""
        return prepare(self._request, data)

    def log_of(self, process: Process) -> EventLog | None:
        """The event log for the fit of a process, if it has one."""
        return None

    def solver(self, process: Process, position: Callable[[], Position]) -> Generator[Any, Any, SiteFit]:
        def solve(ask: Ask) -> SiteFit:
            while True:
                found, estimate = self._epoch(process, position(), ask)
                if found is not None:
                    return found
                ask(Begin(b"" if estimate is None else estimate.tobytes()))

        return handed_over(solve)

    def _epoch(self, process: Process, position: Position, ask: Ask) -> tuple[SiteFit | None, np.ndarray | None]:
        view = Membership(process.site, self._sites, self._edges, position.lost)
        own = self.table(process)
        start = np.frombuffer(position.start).reshape(own.shape[1], -1) if position.start else None
        latest = start

        def keep(estimate: np.ndarray) -> None:
            nonlocal latest
            latest = np.array(estimate, dtype=float)

        transport = RehearsedTransport(process, view, ask)
        graph = nx.Graph()
        graph.add_nodes_from(range(transport.size))
        inside = [link for link in view.links if link[0] in view.members]
        graph.add_edges_from([(view.members.index(one), view.members.index(other)) for one, other in inside])
        try:
            shards = Shards.from_list([own], ids=[transport.rank], n_nodes=transport.size, node_names=view.members)
            prepared = self.prepared(process, NodeData(shards, metropolis(graph), transport))
            transport.compare(SET_UP)
            average, log = bool(position.lost), self.log_of(process)
            result = fit(prepared, start, average_start=average, events=log, on_estimate=keep, share=True).result
            digest = hashlib.sha256(np.ascontiguousarray(result.components).tobytes()).hexdigest()
            return SiteFit(position.lost, result, digest, transport.sign(digest)), latest
        except MembersChangedError:
            return None, latest


class RehearsedTransport(Transport):
    """The links of one site in an epoch; every exchange is a request to its machine."""

    compares_settings: ClassVar[bool] = True

    def __init__(self, process: Process, view: Membership, ask: Ask) -> None:
        self._process, self._ask, self._members = process, ask, view.members
        self._rank, self._size = view.members.index(process.site), len(view.members)
        self._secret = f"{process.disk.identity} {view.lost}"
        self._drawn = 0
        self._masks: JournalledMasks | None = None

    def private_bytes(self, count: int) -> bytes:
        self._drawn += 1
        return hashlib.shake_256(f"{self._secret} {self._drawn}".encode()).digest(count)

    def masks(self) -> Masks | None:
        machine = self._process.machine
        if machine.setup.masked:
            self._masks = JournalledMasks(machine, self._ask, self._answer(Keys()))
        return self._masks

    def exchange(self, arrays: Arrays, links: Round) -> dict[int, Arrays]:
        own = [np.asarray(array) for array in arrays]
        to, from_ = (tuple(self._members[rank] for rank in ranks) for ranks in (links.send_to, links.receive_from))
        answer = self._answer(Exchange(wire.array_body(own, self._process.world.run.max_message_bytes), 0, to, from_))
        self.sent.add(len(to), sum(array.nbytes for array in own))
        return {rank: answer.frames[self._members[rank]].arrays for rank in links.receive_from}

    def compare(self, stage: str) -> None:
        if self._masks is not None:
            self._answer(Compare(stage, self._masks.news()))

    def sign(self, digest: str) -> Mapping[str, str]:
        heard = () if self._masks is None else self._masks.news()
        statements: Mapping[str, str] = self._answer(Sign(digest, heard)).statements
        return statements

    def _answer(self, question: Any) -> Any:
        answer = self._ask(question)
        if isinstance(answer, MembersChanged):
            raise MembersChangedError("sites were lost.", answer.lost)
        return answer

    def abort(self, reason: str) -> None:
        """The machine ends the run."""

    def close(self) -> None:
        """There is nothing to close."""


def handed_over(solve: Callable[[Ask], Any]) -> Generator[Any, Any, Any]:
    """Run ``solve`` in a thread, and yield its requests one at a time; thread and caller never run at once."""
    questions: queue.SimpleQueue[tuple[str, Any]] = queue.SimpleQueue()
    answers: queue.SimpleQueue[Any] = queue.SimpleQueue()

    def ask(question: Any) -> Any:
        questions.put(("asks", question))
        answer = answers.get()
        if isinstance(answer, AbandonedError):
            raise answer
        return answer

    def work() -> None:
        try:
            questions.put(("ends", solve(ask)))
        except BaseException as error:
            questions.put(("fails", error))

    thread = threading.Thread(target=work, daemon=True)
    thread.start()
    try:
        while True:
            kind, value = questions.get()
            if kind == "ends":
                return value
            if kind == "fails":
                raise value
            answers.put((yield value))
    finally:
        answers.put(AbandonedError())
        thread.join()


# The events of a rehearsal as one site would emit them, in virtual seconds.


RUN = "a rehearsal"


class RehearsalLog:
    """Passes events to listeners: the fit of one site that is not killed for good, and which sites go and come back."""

    def __init__(
        self, sites: tuple[str, ...], faults: Sequence[Fault], listeners: Sequence[Listener], clock: Callable[[], float]
    ) -> None:
        killed = {fault.site for fault in faults if fault.kind == "kill"}
        self.observer = next((site for site in sites if site not in killed), sites[0])
        self._sites, self._log, self._down = sites, EventLog(*listeners, clock=clock), set[str]()

    def log_of(self, site: str) -> EventLog | None:
        """The event log for the fit of a site; None for all sites but the observer."""
        return self._log if site == self.observer else None

    def begin(self, conditions: Conditions) -> None:
        """Emit the members and the latencies of their links."""
        self.members()
        for latency in conditions.latencies:
            self._log.emit(latency)

    def members(self) -> None:
        """Emit the present and the missing members."""
        here, gone = ([site for site in self._sites if (site in self._down) == lost] for lost in (False, True))
        self._log.emit(Members(RUN, self.observer, 0, tuple(here), tuple(gone)))

    def down(self, site: str) -> None:
        """A site has no process any more."""
        if site not in self._down:
            self._down.add(site)
            self._log.emit(Lost((site,), f"{site} was killed."))

    def up(self, site: str) -> None:
        """A site has a process again."""
        if site in self._down:
            self._down.remove(site)
            self.members()

    def over(self, last: Ended) -> None:
        """Emit the end of the run."""
        self._log.emit(last)


# A fit of made-up samples, in the shape of real ones, with the time that its computations would take.


# K, where the settings give a share of the variance instead.
USUAL_COMPONENTS = 5
N_TIMED_FITS = 9


class Work(NamedTuple):
    """Seconds that a site needs: for its moments and covariance, and for one product with the solver's block."""

    set_up_s: float
    product_s: float


def made_up(network: NetworkFile, n_features: int, sizes: tuple[int, ...], gap: float, seed: int) -> list[np.ndarray]:
    """Samples (N_i, d) per site, with common axes; variances drop by ``gap`` after component K, and differ by site."""
    wanted = network.settings.asked.n_components
    k = wanted if isinstance(wanted, int) else min(USUAL_COMPONENTS, n_features - 1)
    spectrum = geometric_spectrum(n_features, k, gap)
    return unlike_nodes(spectrum, sizes, seed, spread=0.1)


def times_here(table: np.ndarray, settings: RunSettings) -> Work:
    """The time of one site's work on this computer: one set-up, and the median over products."""
    data = NodeData(Shards.from_list([table]), metropolis(nx.empty_graph(1)))
    # A single site cannot use masks; they take little time compared with a product.
    request = replace(settings.request(), seed=0, privacy="open", min_samples=0)
    # Once without timing, to fill caches.
    prepare(request, data)
    began = time.perf_counter()
    prepared = prepare(request, data)
    set_up_s = time.perf_counter() - began
    d, k = table.shape[1], prepared.n_components
    columns = prepared.solver.columns(k if isinstance(k, int) else min(USUAL_COMPONENTS, d), d)
    block = prepared.covariance.place(np.random.default_rng(0).standard_normal((1, d, columns)))
    taken = []
    for _ in range(N_TIMED_FITS):
        began = time.perf_counter()
        prepared.covariance.apply(block)
        taken.append(time.perf_counter() - began)
    return Work(set_up_s, median(taken))


def work_of(hosts: Mapping[str, Host], tables: Mapping[str, np.ndarray], settings: RunSettings) -> dict[str, Work]:
    """The work of every site: as stated for its host, or as timed here (once per shape) times its slowdown."""
    here = {
        shape: times_here(next(table for table in tables.values() if table.shape == shape), settings)
        for shape in {tables[site].shape for site, host in hosts.items() if host.product_ms is None}
    }
    found = {}
    for site, host in hosts.items():
        if host.product_ms is None:
            found[site] = Work(*(host.slowdown * each for each in here[tables[site].shape]))
        else:
            found[site] = Work(host.set_up_ms / 1e3, host.product_ms / 1e3)
    return found


class MadeUpProblem(FitProblem):
    """The fit that a network's settings ask for.

    ``owed_s`` is the time of work that is computed already, but not yet counted in virtual time.
    """

    def __init__(
        self,
        network: NetworkFile,
        tables: Mapping[str, np.ndarray],
        work: Mapping[str, Work],
        hosts: Mapping[str, Host],
        log: RehearsalLog,
    ) -> None:
        settings, self._log = network.settings, log
        super().__init__(network.names, network.edges, settings.request())
        self._tables, self._work = tables, work
        self.max_message_bytes = settings.largest_message(next(iter(tables.values())).shape[1])
        self.owed_s = dict.fromkeys(network.names, 0.0)
        # Where times are stated, nothing is measured, so that the outcome depends only on the seed.
        self._slowdown = {site: 0.0 if host.product_ms is not None else host.slowdown for site, host in hosts.items()}
        self._clock: dict[str, float] = {}

    def table(self, process: Process) -> np.ndarray:
        return self._tables[process.site]

    def log_of(self, process: Process) -> EventLog | None:
        return self._log.log_of(process.site)

    def prepared(self, process: Process, data: NodeData) -> Prepared:
        site = process.site
        # Do not measure this: the time of the set-up is added below.
        slowdown, self._slowdown[site] = self._slowdown[site], 0.0
        try:
            done = super().prepared(process, data)
        finally:
            self._slowdown[site] = slowdown
        self._lap(site)
        self.owed_s[site] += self._work[site].set_up_s
        counted = _TimedCovariance(done.covariance, lambda X: self.counted(site, self._work[site].product_s, apply, X))
        apply = done.covariance.apply
        return replace(done, covariance=cast(Covariance, counted))

    def _epoch(self, process: Process, position: Position, ask: Ask) -> tuple[SiteFit | None, np.ndarray | None]:
        """The fit. The time of all other computations in its thread (bases, the certificate) is counted, too."""
        self._lap(process.site)
        return super()._epoch(process, position, lambda question: self.counted(process.site, 0.0, ask, question))

    def counted(self, site: str, seconds: float, work: Callable[[Any], Any], about: Any) -> Any:
        """Do work that takes a given time; the time that the thread has computed before it is counted as measured."""
        self.owed_s[site] += self._slowdown[site] * self._lap(site)
        done = work(about)
        self._lap(site)
        self.owed_s[site] += seconds
        return done

    def _lap(self, site: str) -> float:
        """Seconds that the thread of a site has computed since the last call."""
        before, self._clock[site] = self._clock.get(site, math.inf), time.thread_time()
        return max(0.0, self._clock[site] - before)


class _TimedCovariance:
    """A covariance whose products take a given virtual time."""

    def __init__(self, covariance: Covariance, apply: Callable[[Any], Any]) -> None:
        self._covariance, self.apply = covariance, apply

    def __getattr__(self, name: str) -> Any:
        return getattr(self._covariance, name)
