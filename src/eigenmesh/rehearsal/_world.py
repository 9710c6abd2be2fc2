"""All sites of a run in one process and in virtual time."""

from __future__ import annotations

from collections.abc import Callable, Generator, Sequence
from typing import Any, NamedTuple, Protocol

from eigenmesh.errors import ParkedError
from eigenmesh.protocol import Run, Setup
from eigenmesh.rehearsal._conditions import Edges, Fault
from eigenmesh.rehearsal._disk import Disk
from eigenmesh.rehearsal._keys import SecretKeyring
from eigenmesh.rehearsal._network import VirtualNetwork
from eigenmesh.rehearsal._process import Process

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
        return Position(process.machine.lost, process.machine.start)

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
