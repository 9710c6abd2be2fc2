"""All sites of a run in one process and in virtual time."""

from __future__ import annotations

import hashlib
import math
from collections import Counter
from collections.abc import Callable, Generator, Iterator, Mapping, Sequence
from random import Random
from typing import Any, NamedTuple, Protocol

from eigenmesh import protocol as ep
from eigenmesh.errors import CannotResumeError, ParkedError
from eigenmesh.events import VirtualTime
from eigenmesh.protocol import Instance, Past, Run, Setup
from eigenmesh.protocol import effects as ev
from eigenmesh.protocol.effects import Bytes, Closed, Opened, Unreachable
from eigenmesh.protocol.wire import Mark, record, scan
from eigenmesh.rehearsal.conditions import Edges, Fault, LinkQuality

# A simulated disk: a crash loses data that was not synced.


HEAD_BYTES = 64


class Disk:
    """The journal of a site, and what would survive a crash at this moment.

    Attributes
    ----------
    fingerprint : identifies the data with which the run began.
    synced : bytes that are on the disk. The header of the journal, which is on the disk too, holds this number.
    """

    def __init__(self, site: str, identity: str, fingerprint: str) -> None:
        self.site, self.identity, self.fingerprint = site, identity, fingerprint
        self.content = bytearray(HEAD_BYTES)
        self.synced = self._syncing = HEAD_BYTES
        self._n_records = 0

    def open(self, fingerprint: str, random: Random) -> Past:
        """Start a process: returns the content of the journal, and puts this start on the disk."""
        if fingerprint != self.fingerprint:
            raise CannotResumeError(f"the data of {self.site} have changed since the run began.")
        entries, end = scan(self.read, HEAD_BYTES, len(self.content))
        if end < self.synced:
            raise CannotResumeError(f"the journal of {self.site} is damaged.")
        del self.content[end:]
        starts = 1 + sum(entry.mark is Mark.START for entry in entries)
        self.content += b"".join(record(Mark.START))
        entries, self.synced = scan(self.read, HEAD_BYTES, len(self.content))
        self._syncing = self.synced
        self._n_records = len(entries)
        nonce = f"{random.getrandbits(64):016x}"
        begun = Instance(self.identity, starts, nonce)
        return Past(begun, tuple(entries), lambda e: self.read(e.offset, e.length), f"secret of {self.identity}")

    def read(self, offset: int, length: int) -> bytes:
        return bytes(self.content[offset : offset + length])

    def append(self, data: bytes) -> None:
        """Add one record to the journal."""
        self.content += data
        self._n_records += 1

    def begin_sync(self) -> tuple[int, int]:
        """Bytes and records that will be on the disk when a sync that begins now ends."""
        self._syncing = len(self.content)
        return self._syncing, self._n_records

    def end_sync(self, size: int) -> None:
        """A sync of so many bytes has ended."""
        self.synced = max(self.synced, size)

    def crash(self, random: Random) -> None:
        """Lose data that was not synced: all of it, or a part; the part kept may end within a record or with zeros.

        A sync in progress may have finished, although the process did not get the report.
        """
        self.synced = random.choice((self.synced, self._syncing))
        kept = random.choice((self.synced, random.randint(self.synced, len(self.content)), len(self.content)))
        del self.content[kept:]
        if kept > self.synced and random.random() < 0.5:
            hole = random.randrange(self.synced, kept)
            self.content[hole:kept] = bytes(kept - hole)


# Streams between processes: messages stay in order; streams may be slow, broken, or blocked one way.


Link = tuple[str, str]


class VirtualStream:
    """One stream. ``ends`` are its processes; an end is None once it has closed, or if it never had a process."""

    __slots__ = ("addresses", "ends", "free_at", "names", "number")

    def __init__(self, number: int, caller: Process | None, listener: Process, caller_name: str) -> None:
        self.number = number
        self.ends: list[Process | None] = [caller, listener]
        self.names = (caller_name, listener.site)
        # Faults of links are kept by address. A second process of a site has its own address.
        self.addresses = (caller.address if caller else caller_name, listener.address)
        # By sender: the arrival time of the last message.
        self.free_at = [0.0, 0.0]


class VirtualNetwork:
    """All streams, and the faults of the links.

    Attributes
    ----------
    delay_s : by link, for one or both directions, the shortest travel time of a message.
    travel_s : travel time of a message, from its sender and receiver and its size, without faults.
    held_until : by sender and receiver, nothing arrives before this time.
    refuses_until : by sender and receiver, calls fail before this time.
    """

    def __init__(
        self,
        time: VirtualTime,
        listener_of: Callable[[str], Process | None],
        delay_s: Mapping[Link, float],
        travel_s: Callable[[Link, int], float],
    ) -> None:
        self.time, self._listener_of, self.delay_s, self.travel_s = time, listener_of, delay_s, travel_s
        self.held_until: dict[Link, float] = {}
        self.refuses_until: dict[Link, float] = {}
        self.connections: dict[int, VirtualStream] = {}
        self._count = 0

    def dial(self, caller: Process, target: str) -> None:
        if not caller.alive:
            return
        listener = self._listener_of(target)
        there = target if listener is None else listener.address
        link, back = (caller.address, there), (there, caller.address)
        now, trip = self.time.now, 3 * self._delay((caller.site, target))
        held = max(self.held_until.get(link, 0.0), self.held_until.get(back, 0.0))
        if held > now:
            self.time.after(min(held - now, 2.0) + trip, caller.feed, Unreachable(target, "no answer"))
        elif listener is None or self.refuses_until.get(link, 0.0) > now:
            self.time.after(trip, caller.feed, Unreachable(target, "connection refused"))
        else:
            self.time.after(trip, self._open, caller, listener)

    def _open(self, caller: Process, listener: Process) -> None:
        if not caller.alive:
            return
        if not listener.alive:
            caller.feed(Unreachable(listener.site, "connection reset"))
            return
        connection = self._connect(caller, listener, caller.site)
        caller.feed(Opened(connection.number, (listener.site,), listener.site))

    def _connect(self, caller: Process | None, listener: Process, name: str) -> VirtualStream:
        self._count += 1
        connection = VirtualStream(self._count, caller, listener, name)
        self.connections[self._count] = connection
        listener.feed(Opened(connection.number, (name,)))
        return connection

    def send(self, sender: Process, number: int, data: bytes) -> None:
        connection = self.connections.get(number)
        if connection is not None and sender in connection.ends:
            self._carry(connection, connection.ends.index(sender), data)

    def _carry(self, connection: VirtualStream, side: int, data: bytes) -> None:
        self.time.at(self._arrival(connection, side, len(data)), self._arrive, connection, 1 - side, data)

    def _arrive(self, connection: VirtualStream, side: int, data: bytes) -> None:
        end = connection.ends[side]
        if end is not None and connection.number in self.connections:
            end.feed(Bytes(connection.number, data))

    def _arrival(self, connection: VirtualStream, side: int, n_bytes: int) -> float:
        link = connection.names[side], connection.names[1 - side]
        arrival = self.time.now + self.travel_s(link, n_bytes)
        way = connection.addresses[side], connection.addresses[1 - side]
        arrival = max(arrival, connection.free_at[side], self.held_until.get(way, 0.0))
        connection.free_at[side] = arrival
        return arrival

    def _delay(self, link: Link) -> float:
        return self.delay_s.get(link) or self.delay_s.get((link[1], link[0]), 0.01)

    def cut(self, process: Process, number: int) -> None:
        connection = self.connections.get(number)
        if connection is not None and process in connection.ends:
            self.close(connection, connection.ends.index(process), "")
        else:
            # The stream is broken, but this end had not noticed yet.
            self.time.after(0.0, process.feed, Closed(number, ""))

    def close(self, connection: VirtualStream, side: int, reason: str) -> None:
        """Close one end, after everything that it has written."""
        end, connection.ends[side] = connection.ends[side], None
        if end is not None:
            self.time.after(0.0, end.feed, Closed(connection.number, reason))
        self.time.at(self._arrival(connection, side, 0), self._hang_up, connection, 1 - side, reason)

    def _hang_up(self, connection: VirtualStream, side: int, reason: str) -> None:
        end, connection.ends[side] = connection.ends[side], None
        if end is not None:
            end.feed(Closed(connection.number, reason))
        self.connections.pop(connection.number, None)

    def break_off(self, connection: VirtualStream, notice_s: tuple[float, float]) -> None:
        """Break a stream: messages on their way are lost, and each end notices after its time."""
        self.connections.pop(connection.number, None)
        for side, late in enumerate(notice_s):
            self.time.after(late, self._hang_up, connection, side, "connection reset")

    def of(self, process: Process) -> Iterator[tuple[VirtualStream, int]]:
        """The streams of a process, each with the index of its end."""
        for connection in list(self.connections.values()):
            for side, end in enumerate(connection.ends):
                if end is process:
                    yield connection, side


# The driver of one machine in virtual time: a process of a site, with its disk, clock and solver.


TICK_S = 1.0


class Process:
    """One process of a site, from its start to a crash or to its end.

    Attributes
    ----------
    address : its address in the network.
    alive : it has neither crashed nor ended.
    result, error : the solver's result, or the reason why there is none.
    """

    def __init__(self, world: World, site: str, disk: Disk) -> None:
        self.world, self.site, self.disk, self.address = world, site, disk, site
        self.time, self.alive = world.time, True
        self._offset = self.time.random.uniform(0.0, 1000.0)
        self.result: Any = None
        self.error: Exception | None = None
        self.owed: tuple[str, ...] = ()
        self._syncing = False
        self._asked = False
        self._program: Generator[Any, Any, Any] | None = None

    def start(self) -> None:
        """Open the journal and begin; ends at once if the journal is refused."""
        try:
            past = self.disk.open(self.world.fingerprint(self.site), self.time.random)
        except (CannotResumeError, ParkedError) as error:
            self.error = error
            self._end()
            return
        self.machine = ep.SiteMachine(self.world.setup_of(self.site), past, self.time.random, self.now)
        self._program = self.world.solver(self)
        self.feed(ev.SiteStarted())
        self.time.after(TICK_S * self.time.random.random(), self._tick)
        self._answered(None)

    @property
    def now(self) -> float:
        """The time on the clock of this computer."""
        return self.time.now + self._offset

    def feed(self, event: ev.Opened | Any) -> None:
        """Pass an event to the machine, and carry out its effects."""
        if not self.alive:
            return
        for effect in self.machine.step(self.now, event):
            self._execute(effect, event)
            if not self.alive:
                return

    def _execute(self, effect: Any, event: Any) -> None:
        kind = type(effect)
        if kind is ev.Write:
            self._write(effect)
        elif kind is ev.Append:
            self._append(b"".join(effect.record))
            if not self._syncing:
                self._syncing = True
                self.time.after(0.0, self._sync)
        elif kind is ev.Deliver:
            self._asked = False
            self.world.answered(self, event)
            self._answered(effect.answer)
        elif kind is ev.Dial:
            self.time.after(effect.after_s, self.world.network.dial, self, effect.neighbour)
        elif kind is ev.Cut:
            self.world.network.cut(self, effect.stream)
        elif kind is ev.Fail:
            self._failed(effect.error)
        elif kind is ev.Log:
            self.world.log(f"{self.site}: {effect.text}")

    def _write(self, effect: ev.Write) -> None:
        self.world.network.send(self, effect.stream, effect.data)

    def _append(self, record: bytes) -> None:
        self.disk.append(record)

    def _sync(self) -> None:
        target = self.disk.begin_sync()
        self.time.after(self.world.sync_s(self.site), self._synced, *target)

    def _synced(self, size: int, records: int) -> None:
        if not self.alive:
            return
        self.disk.end_sync(size)
        self._syncing = self.disk.begin_sync()[1] > records
        if self._syncing:
            self.time.after(0.0, self._sync)
        self.feed(ev.Durable(records))

    def _tick(self) -> None:
        if self.alive:
            self.feed(ev.Tick())
            self.time.after(TICK_S, self._tick)

    def _answered(self, answer: Any) -> None:
        """Continue the solver, after its computing time."""
        if isinstance(answer, ev.Parted):
            self.owed = answer.owed
            self._end()
        else:
            self.time.after(self.world.compute_s(self.site), self._compute, answer)

    def _compute(self, answer: Any) -> None:
        if not self.alive or self._program is None:
            return
        try:
            question = self._program.send(answer)
        except StopIteration as stop:
            self.result = stop.value
            self._program = None
            self.world.found(self, stop.value)
            question = ev.Finish()
        late_s = self.world.work_s(self)
        if late_s:
            self.time.after(late_s, self._ask, question)
        else:
            self._ask(question)

    def _ask(self, question: Any) -> None:
        if not self.alive:
            return
        self._asked = True
        self.world.asks(self, question)
        self.feed(question)

    def _failed(self, error: Exception) -> None:
        """Stop the solver if it waits for an answer; otherwise it gets the error with its next request."""
        if self._program is None:
            # It has its result, and is saying farewell already.
            self.error = self.error or error
        elif self._asked:
            self.error = error
            self._stop_solver()
            self._asked = False
            self.time.after(0.0, self.feed, ev.Finish())

    def crash(self) -> None:
        """Lose everything except the disk."""
        self.alive = False
        self._stop_solver()
        self.disk.crash(self.time.random)

    def _stop_solver(self) -> None:
        program, self._program = self._program, None
        if program is not None:
            program.close()

    def _end(self) -> None:
        self.alive = False
        self.world.ended(self)


# Fast signatures for rehearsals: a secret per site instead of a certificate.


class SecretKeyring:
    """Signs for one site, and checks the signatures of all sites: the simulation knows all secrets."""

    def __init__(self, site: str) -> None:
        self.certificate, self._secret = site, _secret(site)

    def sign(self, data: bytes) -> str:
        return _mac(self._secret, data)

    def is_revoked(self, certificate: str) -> bool:
        return False

    def is_signed(self, site: str, certificate: str, data: bytes, signature: str) -> bool:
        return certificate == site and signature == _mac(_secret(site), data)


def _secret(site: str) -> bytes:
    return f"secret of {site}".encode()


def _mac(secret: bytes, data: bytes) -> str:
    return hashlib.blake2b(data, digest_size=16, key=secret).hexdigest()


# Seconds until neighbours notice that a process has crashed, or that a host lost power: that closes no streams.
CRASH_S, POWER_LOSS_S = (0.0, 0.2), (5.0, 12.0)


class Position(NamedTuple):
    """The start of an epoch: its lost links, and the estimate of this site."""

    lost: Edges
    start: bytes


class SitesProblem(Protocol):
    """What the sites compute: a solver that makes requests to its machine."""

    max_message_bytes: int

    def solver(self, process: Process, position: Callable[[], Position]) -> Generator[Any, Any, Any]:
        """The requests of one process; its result has ``lost``, ``digest`` and ``statements``."""


class World:
    """The sites, their disks and their operators; a subclass says how long things take.

    ``terms`` are the fields of a Setup that all sites have agreed on.

    Attributes
    ----------
    max_starts : how often a site is started.
    longest_s : virtual time after which a run is not followed any further.
    ends : of the sites that have ended: "result", "killed", or the error that a restart does not help against.
    results : by the links that were lost, the result of each site.
    """

    max_starts = 1
    longest_s = float("inf")

    def __init__(
        self, network: VirtualNetwork, problem: SitesProblem, sites: tuple[str, ...], edges: Edges, **terms: Any
    ) -> None:
        self.network, self.time = network, network.time
        self.problem, self.sites, self.edges, self._terms = problem, sites, edges, terms
        self.run = Run(bytes(16), "a rehearsal", problem.max_message_bytes)
        self.processes: list[Process] = []
        self.disks = {site: self.new_disk(site) for site in sites}
        self.ends: dict[str, str] = {}
        self.results: dict[Edges, dict[str, Any]] = {}
        self._starts = dict.fromkeys(sites, 0)
        self._due = dict.fromkeys(sites, 0)
        self._have_result: set[str] = set()

    def new_disk(self, site: str) -> Disk:
        return Disk(site, self.new_identity(), self.fingerprint(site))

    def new_identity(self) -> str:
        """The identity of a journal that is made now; a later one has a higher identity."""
        return f"{self.time.now:015.6f} {self.time.random.getrandbits(64):016x}"

    def new_process(self, site: str, disk: Disk) -> Process:
        return Process(self, site, disk)

    def fingerprint(self, site: str) -> str:
        """Identifies the data of a site."""
        return site

    def setup_of(self, site: str) -> Setup:
        dials = frozenset(second for first, second in self.edges if first == site)
        return Setup(site, self.sites, self.edges, dials, self.run, SecretKeyring(site), **self._terms)

    def solver(self, process: Process) -> Generator[Any, Any, Any]:
        return self.problem.solver(process, lambda: self.position(process))

    def position(self, process: Process) -> Position:
        """Where the machine of a process begins an epoch."""
        return Position(process.machine.epoch.lost, process.machine.start)

    def running(self, site: str) -> Process | None:
        """The process of a site; the first one if there are several."""
        return next((one for one in self.processes if one.site == site and one.alive), None)

    def compute_s(self, site: str) -> float:
        """How long the solver takes to read an answer, before it works on it."""
        return 0.0

    def work_s(self, process: Process) -> float:
        """How long the solver has worked since its last answer."""
        return 0.0

    def sync_s(self, site: str) -> float:
        """How long the disk of a site takes to confirm what was written."""
        return 0.0

    def first_start_s(self) -> float:
        """When a site is started for the first time."""
        return 0.0

    def restart_s(self, disk: Disk) -> float:
        """How long the operator takes to start a parked site again."""
        return 0.0

    def log(self, text: str) -> None:
        """Called with a line about what happens."""

    def asks(self, process: Process, question: Any) -> None:
        """Called when the solver of a process makes a request to its machine."""

    def answered(self, process: Process, event: Any) -> None:
        """Called when this event gives the solver of a process its answer."""

    def found(self, process: Process, result: Any) -> None:
        """Called when the solver of a process has its result."""
        self.results.setdefault(result.lost, {})[process.site] = result

    def start_later(self, site: str, pause_s: float) -> None:
        self._due[site] += 1
        self.time.after(pause_s, self._start_due, site)

    def _start_due(self, site: str) -> None:
        self._due[site] -= 1
        if site not in self.ends and self.running(site) is None:
            self.start(self.new_process(site, self.disks[site]))

    def start(self, process: Process) -> None:
        """Start a process of a site."""
        self._starts[process.site] += 1
        self.processes.append(process)
        self.log(f"{process.site} starts (start {self._starts[process.site]})")
        process.start()

    def ended(self, process: Process) -> None:
        """A process has ended by itself; its operator starts it again if that helps."""
        for connection, side in self.network.of(process):
            self.network.close(connection, side, "")
        site, error = process.site, process.error
        self.log(f"{site} ends: {process.result or repr(error)}, owed {process.owed}")
        if process.result is not None:
            self._have_result.add(site)
        helps = process.owed if process.result is not None else isinstance(error, ParkedError)
        if helps and process.disk is self.disks[site] and self._starts[site] < self.max_starts:
            self.start_later(site, self.restart_s(process.disk))
        elif self.running(site) is None and not self._due[site]:
            self.ends[site] = "result" if site in self._have_result else f"{type(error).__name__}: {error}"

    def strike(self, fault: Fault) -> None:
        """Cause a fault of the conditions."""
        if fault.kind == "stall":
            self.hold(fault.site, fault.other, fault.for_s)
            self.hold(fault.other, fault.site, fault.for_s)
        elif fault.kind == "crash":
            self.crash(fault.site, fault.for_s, CRASH_S)
        else:
            self.kill(fault.site)

    def hold(self, sender: str, receiver: str, for_s: float) -> None:
        """Let nothing arrive from a sender for a while."""
        held = self.network.held_until
        held[sender, receiver] = max(held.get((sender, receiver), 0.0), self.time.now + for_s)

    def crash(self, site: str, down_s: float, notice_s: tuple[float, float]) -> bool:
        """Crash the process of a site, which starts again after ``down_s``; False if no process was running."""
        process = self.running(site)
        if process is None:
            return False
        process.crash()
        self.log(f"{site} crashes")
        for connection, _ in self.network.of(process):
            self.network.break_off(connection, (self.time.random.uniform(*notice_s),) * 2)
        self.start_later(site, down_s)
        return True

    def kill(self, site: str) -> None:
        """Crash the process of a site, if it has one; then the site never comes back."""
        if self.crash(site, 0.0, POWER_LOSS_S):
            self.gone(site)

    def gone(self, site: str) -> None:
        """A site never comes back."""
        self.ends[site] = "killed"

    def run_through(self, faults: Sequence[Fault]) -> None:
        """Run to the end of all sites, with these faults."""
        for site in self.sites:
            self.start_later(site, self.first_start_s())
        for fault in faults:
            self.time.at(fault.at_s, self.strike, fault)
        self.time.run(self.longest_s, self.is_over)

    def is_over(self) -> bool:
        """Whether all sites have ended."""
        return len(self.ends) == len(self.sites)


# How long messages take over links of known latency, bandwidth and loss.


PACKET_BYTES = 1448
# TCP waits at least this long plus a round trip before it sends the end of a message again; then twice as long.
RESEND_S = 0.2
MAX_RESENDS = 15


class LinkTimes:
    """Travel times of messages, in both directions of every link, with counts of messages and bytes.

    Attributes
    ----------
    messages, bytes, resent : by sender and receiver; ``resent`` counts messages of which a packet was lost.
    """

    def __init__(self, time: VirtualTime, links: Mapping[tuple[str, str], LinkQuality]) -> None:
        self._time = time
        self._links = {way: link for (one, other), link in links.items() for way in ((one, other), (other, one))}
        self._free_at = dict.fromkeys(self._links, 0.0)
        self.messages: Counter[tuple[str, str]] = Counter()
        self.bytes: Counter[tuple[str, str]] = Counter()
        self.resent: Counter[tuple[str, str]] = Counter()

    @property
    def latency_s(self) -> dict[tuple[str, str], float]:
        return {way: link.latency_ms / 1e3 for way, link in self._links.items()}

    def travel_s(self, way: tuple[str, str], n_bytes: int) -> float:
        """Seconds until a message arrives: it waits for earlier messages, is sent, and travels."""
        return self.arrival_s(way, n_bytes, self._time.now) - self._time.now

    def arrival_s(self, way: tuple[str, str], n_bytes: int, leaves_at: float, again: bool = True) -> float:
        """When a message arrives. With ``again`` lost packets are sent again; otherwise a lost message gives inf."""
        link, random = self._links[way], self._time.random
        self.messages[way] += n_bytes > 0
        self.bytes[way] += n_bytes
        gone_at = max(leaves_at, self._free_at[way]) + 8e-6 * n_bytes / link.bandwidth_mbit
        self._free_at[way] = gone_at
        late_s = (link.overhead_ms + link.latency_ms + link.jitter_ms * random.random()) / 1e3
        if not again:
            return gone_at + late_s if random.random() >= _any_lost(link, n_bytes) else math.inf
        return gone_at + late_s + self._resend_s(way, link, n_bytes)

    def _resend_s(self, way: tuple[str, str], link: LinkQuality, n_bytes: int) -> float:
        """The delay by lost packets: at first any packet of the message, then the one that is sent again."""
        any_lost = _any_lost(link, n_bytes)
        wait_s, total_s = RESEND_S + 2e-3 * link.latency_ms, 0.0
        for attempt in range(MAX_RESENDS):
            if self._time.random.random() >= (link.loss if attempt else any_lost):
                break
            self.resent[way] += not attempt
            total_s += wait_s * 2**attempt
        return total_s


def _any_lost(link: LinkQuality, n_bytes: int) -> float:
    """The probability that at least one packet of a message is lost."""
    return 1.0 - (1.0 - link.loss) ** -(-n_bytes // PACKET_BYTES)
