"""All sites of a run in one process and in virtual time."""

from __future__ import annotations

import hashlib
import math
from collections import defaultdict
from collections.abc import Callable, Generator, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from random import Random
from typing import Any, Protocol

from eigenmesh import protocol as ep
from eigenmesh.errors import CannotResumeError, InputError, ParkedError
from eigenmesh.events import EventLog, Listener, Lost, Members
from eigenmesh.protocol import Run, Setup
from eigenmesh.protocol import effects as ev
from eigenmesh.protocol.effects import Bytes, Closed, Opened, Unreachable
from eigenmesh.protocol.setup import Departure, Instance, Past
from eigenmesh.protocol.wire import Mark, record, scan
from eigenmesh.rehearsal.conditions import Conditions, Edges, Fault
from eigenmesh.rehearsal.virtual_time import VirtualTime, WorkClock

# A simulated disk: a crash loses data that was not synced.


HEAD_BYTES = 64


class Disk:
    """The journal of a site, and what would survive a crash at this moment.

    Attributes
    ----------
    fingerprint : identifies the data with which the run began.
    synced : bytes that are on the disk. The header of the journal, which is on the disk too, holds this number.
    has_result, n_lost : the result is on the disk, after so many links were lost.
    is_finished : the run is over here, and the journal was deleted.
    """

    def __init__(self, site: str, identity: str, fingerprint: str) -> None:
        self.site, self.identity, self.fingerprint = site, identity, fingerprint
        self.content, self.has_result, self.is_finished = bytearray(HEAD_BYTES), False, False
        self.n_lost = 0
        self.synced = self._syncing = HEAD_BYTES
        self._n_records = 0

    def open(self, fingerprint: str, random: Random) -> Past:
        """Start a process: returns the content of the journal, and puts this start on the disk."""
        if fingerprint != self.fingerprint:
            raise InputError(f"the data of {self.site} have changed since the run began.")
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
    listener_of : the process that takes calls to a site; set by the world of the processes.
    delay_s : by link, for one or both directions, the shortest travel time of a message.
    travel_s : travel time of a message, from its sender and receiver and its size, without faults.
    held_until : by sender and receiver, nothing arrives before this time.
    refuses_until : by sender and receiver, calls fail before this time.
    """

    def __init__(
        self, time: VirtualTime, delay_s: Mapping[Link, float], travel_s: Callable[[Link, int], float]
    ) -> None:
        self.time, self.delay_s, self.travel_s = time, delay_s, travel_s
        self.listener_of: Callable[[str], Process | None] = lambda site: None
        self.held_until: dict[Link, float] = {}
        self.refuses_until: dict[Link, float] = {}
        self.connections: dict[int, VirtualStream] = {}
        self._count = 0

    def dial(self, caller: Process, target: str) -> None:
        if not caller.alive:
            return
        listener = self.listener_of(target)
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
            past = self._past()
        except (InputError, ParkedError) as error:
            self.error = error
            self._end()
            return
        setup = replace(self.world.setup_of(self.site), has_result=self.disk.has_result)
        self.machine = ep.SiteMachine(setup, past, self.time.random, self.now)
        self.feed(ev.SiteStarted())
        self.time.after(TICK_S * self.time.random.random(), self._tick)
        if past.left:
            self.feed(ev.Finish())
        else:
            self._program = self.world.problem.solver(self)
            self._answered(None)

    def _past(self) -> Past:
        """The journal. If it is of no use any more, this process only says that the site has left."""
        random, how = self.time.random, Departure.FINISHED
        if not self.disk.is_finished:
            try:
                return self.disk.open(self.world.fingerprint(self.site), random)
            except CannotResumeError as error:
                self.error, how = error, Departure.FINISHED if self.disk.has_result else Departure.DAMAGED
        alone = Instance(self.world.new_identity(), 1, f"{random.getrandbits(64):016x}")
        return Past(alone, left=how, why=str(self.error or ""), n_lost=self.disk.n_lost)

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


# The journal of a real site is flushed to the disk this often.
FLUSH_EVERY_S = 0.1
# Number of starts after which a service manager gives up.
MAX_STARTS = 20
LONGEST_S = 7 * 86400.0
OWN_DISK = "its own disk"
# Seconds until neighbours notice that a process has crashed, or that a host lost power: that closes no streams.
CRASH_S, POWER_LOSS_S = (0.0, 0.2), (5.0, 12.0)


class SitesProblem(Protocol):
    """What the sites compute: a solver that makes requests to its machine."""

    max_message_bytes: int

    def solver(self, process: Process) -> Generator[Any, Any, Any]:
        """The requests of one process; its result has ``lost``, ``digest`` and ``statements``."""


# The events of a rehearsal as one site would emit them, in virtual seconds.


RUN = "a rehearsal"


class RehearsalLog:
    """Passes events to listeners: the fit of one site that is not killed for good, and which sites go and come back."""

    def __init__(
        self, sites: tuple[str, ...], faults: Sequence[Fault], listeners: Sequence[Listener], clock: Callable[[], float]
    ) -> None:
        killed = {fault.site for fault in faults if fault.kind == "kill"}
        self.observer = next((site for site in sites if site not in killed), sites[0])
        self._sites, self.log, self._down = sites, EventLog(*listeners, clock=clock), set[str]()

    def log_of(self, site: str) -> EventLog | None:
        """The event log for the fit of a site; None for all sites but the observer."""
        return self.log if site == self.observer else None

    def members(self) -> None:
        """Emit the present and the missing members."""
        here, gone = ([site for site in self._sites if (site in self._down) == lost] for lost in (False, True))
        self.log.emit(Members(RUN, self.observer, 0, tuple(here), tuple(gone)))

    def down(self, site: str) -> None:
        """A site has no process any more."""
        if site not in self._down:
            self._down.add(site)
            self.log.emit(Lost((site,), f"{site} was killed."))

    def up(self, site: str) -> None:
        """A site has a process again."""
        if site in self._down:
            self._down.remove(site)
            self.members()


# All sites, and what they did with their time.


@dataclass
class Timesheet:
    """What a site did with its time.

    Attributes
    ----------
    rounds : rounds since the last change of members.
    computes_s : time of computing.
    waits_s : time of waiting, by the neighbour whose message ended the wait, or the disk.
    first_sent, last_sent : when it sent numbers for the first and for the last time; inf and 0 for never.
    ended_at, error : when its last process ended, and why.
    """

    rounds: int = 0
    computes_s: float = 0.0
    waits_s: dict[str, float] = field(default_factory=lambda: defaultdict(float))
    asked_at: float = 0.0
    first_sent: float = math.inf
    last_sent: float = 0.0
    ended_at: float = 0.0
    error: Exception | None = None


class World:
    """The sites of a run under given conditions, with their disks and their operators.

    Parameters
    ----------
    network : VirtualNetwork
        The streams between the processes.
    problem : SitesProblem
        What the sites compute.
    sites, edges : tuple
        The names of the sites, and their links.
    conditions : Conditions
        The hosts of the sites, and when a parked site is started again.
    work : WorkClock
        The times of what the solvers compute.
    listeners : sequence of listeners
        They hear what one of the sites would emit, in virtual seconds.
    terms
        Fields of a Setup that all sites have agreed on.

    Attributes
    ----------
    max_starts : how often a site is started.
    longest_s : virtual time after which a run is not followed any further.
    ends : of the sites that have ended: "result", "killed", or the error that a restart does not help against.
    results : by the links that were lost, the result of each site.
    starts : number of starts of each site.
    """

    longest_s = LONGEST_S

    def __init__(
        self,
        network: VirtualNetwork,
        problem: SitesProblem,
        sites: tuple[str, ...],
        edges: Edges,
        conditions: Conditions,
        work: WorkClock,
        listeners: Sequence[Listener] = (),
        **terms: Any,
    ) -> None:
        self.network, self.time = network, network.time
        network.listener_of = self.listener
        self.problem, self.sites, self.edges, self._terms = problem, sites, edges, terms
        self.conditions, self.work = conditions, work
        self.events = RehearsalLog(sites, conditions.faults, listeners, lambda: self.time.now)
        self.run = Run(bytes(16), "a rehearsal", problem.max_message_bytes)
        self.max_starts = 1 if conditions.restart_parked_s is None else MAX_STARTS
        self.processes: list[Process] = []
        self.disks = {site: self.new_disk(site) for site in sites}
        self.ends: dict[str, str] = {}
        self.results: dict[Edges, dict[str, Any]] = {}
        self.starts = dict.fromkeys(sites, 0)
        self.sheets = {site: Timesheet() for site in sites}
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

    def position(self, process: Process) -> tuple[Edges, bytes]:
        """Where the solver of a process begins an epoch: its lost links, and the estimate of this site."""
        return process.machine.epoch.lost, process.machine.start

    def running(self, site: str) -> Process | None:
        """The process of a site; the first one if there are several."""
        return next((one for one in self.processes if one.site == site and one.alive), None)

    def listener(self, site: str) -> Process | None:
        """The process that takes calls to a site."""
        return self.running(site)

    def compute_s(self, site: str) -> float:
        """How long the solver takes to read an answer, before it works on it."""
        return 0.0

    def work_s(self, process: Process) -> float:
        """How long the solver has worked since its last answer."""
        taken = self.work.taken_s(process.site, self.time.random)
        self.sheets[process.site].computes_s += taken
        return taken

    def sync_s(self, site: str) -> float:
        """How long the disk of a site takes to confirm what was written; masked numbers are flushed at once."""
        wait_s = 0.0 if self._terms["masked"] else FLUSH_EVERY_S
        return wait_s + self.conditions.hosts[site].disk_ms / 1e3

    def first_start_s(self) -> float:
        """When a site is started for the first time."""
        return 0.0

    def restart_s(self, disk: Disk) -> float:
        """How long the operator takes to start a parked site again."""
        return self.conditions.restart_parked_s or 0.0

    def log(self, text: str) -> None:
        """Called with a line about what happens."""

    def asks(self, process: Process, question: Any) -> None:
        """Note that the solver of a process makes a request to its machine."""
        sheet, now = self.sheets[process.site], self.time.now
        sheet.asked_at = now
        if isinstance(question, ev.Exchange) and question.send_to:
            sheet.first_sent, sheet.last_sent = min(sheet.first_sent, now), now

    def answered(self, process: Process, event: Any) -> None:
        """Note for what the solver of a process has waited: this event gives it its answer."""
        sheet = self.sheets[process.site]
        sheet.rounds = process.machine.epoch.round
        if isinstance(event, Bytes):
            names = self.network.connections[event.stream].names
            sheet.waits_s[names[1 - names.index(process.site)]] += self.time.now - sheet.asked_at
        elif isinstance(event, ev.Durable):
            sheet.waits_s[OWN_DISK] += self.time.now - sheet.asked_at

    def found(self, process: Process, result: Any) -> None:
        """Called when the solver of a process has its result, which goes to its disk."""
        process.disk.has_result, process.disk.n_lost = True, len(result.lost)
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
        self.events.up(process.site)
        self.starts[process.site] += 1
        self.processes.append(process)
        self.log(f"{process.site} starts (start {self.starts[process.site]})")
        process.start()

    def ended(self, process: Process) -> None:
        """A process has ended by itself; its operator starts it again if that helps."""
        for connection, side in self.network.of(process):
            self.network.close(connection, side, "")
        site, error = process.site, process.error
        self.sheets[site].ended_at, self.sheets[site].error = self.time.now, error
        if process.result is not None and not process.owed:
            process.disk.is_finished = True
        self.log(f"{site} ends: {process.result or repr(error)}, owed {process.owed}")
        if process.result is not None:
            self._have_result.add(site)
        helps = process.owed if process.result is not None else isinstance(error, ParkedError)
        if helps and process.disk is self.disks[site] and self.starts[site] < self.max_starts:
            self.start_later(site, self.restart_s(process.disk))
        elif self.running(site) is None and not self._due[site]:
            has_result = process.disk.has_result and process.disk is self.disks[site]
            self.ends[site] = (
                "result" if has_result or site in self._have_result else f"{type(error).__name__}: {error}"
            )

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
        self.events.down(site)
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
        self.sheets[site].ended_at = self.time.now
        self.ends[site] = "killed"

    def run_through(self, faults: Sequence[Fault]) -> None:
        """Run to the end of all sites, with these faults."""
        self.events.members()
        for latency in self.conditions.latencies:
            self.events.log.emit(latency)
        for site in self.sites:
            self.start_later(site, self.first_start_s())
        for fault in faults:
            self.time.at(fault.at_s, self.strike, fault)
        self.time.run(self.longest_s, self.is_over)

    def is_over(self) -> bool:
        """Whether all sites have ended."""
        return len(self.ends) == len(self.sites)
