"""All sites of a run in one process and in virtual time."""

from __future__ import annotations

import re
from collections.abc import Callable, Generator, Mapping
from typing import Any, NamedTuple, Protocol

from eigenmesh.errors import ParkedError
from eigenmesh.events import VirtualTime
from eigenmesh.protocol import Run, Setup
from eigenmesh.rehearsal._adversary import Adversary
from eigenmesh.rehearsal._disk import Disk
from eigenmesh.rehearsal._faults import Faults
from eigenmesh.rehearsal._keys import SecretKeyring
from eigenmesh.rehearsal._masked_sums import MaskedSumProblem
from eigenmesh.rehearsal._network import VirtualNetwork
from eigenmesh.rehearsal._process import Process
from eigenmesh.rehearsal._scenario import ON_ALL, Scenario
from eigenmesh.rehearsal._sums import Position, SumProblem
from eigenmesh.rehearsal._watch import BrokenError, RunWatch

# Errors after which a restart of the site does not help.
FINAL = ("CannotResumeError", "DisagreementError", "InputError")


class SeedOutcome(NamedTuple):
    """How a seed ended: "exact", "continued", "refused", "wrong" or "hung", and why."""

    kind: str
    why: str = ""
    virtual_s: float = 0.0


class SitesProblem(Protocol):
    """What the sites compute: a solver that makes requests to its machine, and a check of its result."""

    compute_s: float
    max_message_bytes: int
    # Several times what a run needs.
    max_journal_bytes: float

    def solver(self, process: Process, position: Callable[[], Position]) -> Generator[Any, Any, Any]:
        """The requests of one process; its result has ``lost``, ``digest`` and ``statements``."""

    def fault_of(
        self, result: Any, members: tuple[str, ...], values: Mapping[str, int], starts: Mapping[str, bytes]
    ) -> str:
        """What is wrong with a result of these members; empty if it is correct."""


class World:
    """The sites, their disks and their operators.

    Attributes
    ----------
    waits : patience_s, join_s and round_s of all sites.
    max_starts : how often the operator starts a parked site.
    hung_after_s : virtual time after which a run counts as hung; many times longer than any wait of the sites.
    """

    waits = (4.0, 8.0, 60.0)
    max_starts = 12
    hung_after_s = 600.0

    def __init__(
        self, scenario: Scenario, trace: Callable[[str], None] | None = None, problem: SitesProblem | None = None
    ) -> None:
        self.scenario, self.sites, self.edges = scenario, scenario.sites, scenario.edges
        sums = MaskedSumProblem if scenario.masked else SumProblem
        self.problem = problem or sums(self.sites, self.edges, scenario.n_mixing)
        self.time = VirtualTime(scenario.seed)
        self.trace = None if trace is None else lambda text: trace(f"{self.time.now:8.3f} {text}")
        random = self.time.random
        self.values = {site: random.randrange(1 << 20) for site in self.sites}
        # The current content of each site's file; a fault may change it.
        self.data_of = dict(self.values)
        self.run = Run(bytes(16), "a rehearsal", self.problem.max_message_bytes)
        self.network = VirtualNetwork(self.time, self._listener)
        self.network.delay_s = {link: random.choice((0.001, 0.01, 0.05)) for link in self.edges}
        self.watch = RunWatch(self)
        self.triggers: dict[str, Callable[[bytes], None]] = {}
        self.adversaries: dict[str, Adversary] = {}
        self.processes: list[Process] = []
        self.disks = {site: self.new_disk(site) for site in self.sites}
        self.ends: dict[str, str] = {}
        self._have_result: set[str] = set()
        self._starts = dict.fromkeys(self.sites, 0)
        self._due = dict.fromkeys(self.sites, 0)
        self.slowness = dict.fromkeys(self.sites, 1.0)
        self.disk_s = {site: random.choice((0.002, 0.02, 0.1)) for site in self.sites}
        self._setups: dict[str, Setup] = {}
        self._faults = Faults(self)

    def new_disk(self, site: str) -> Disk:
        # A later journal has a higher identity.
        return Disk(site, f"{self.time.now:015.6f} {self.time.random.getrandbits(64):016x}", str(self.data_of[site]))

    def setup_of(self, site: str) -> Setup:
        if site not in self._setups:
            self.set_manifest(site, self.run)
        return self._setups[site]

    def set_manifest(self, site: str, run: Run) -> None:
        """Set up the next start of a site for this run."""
        dials = frozenset(second for first, second in self.edges if first == site)
        waits = *self.waits, self.scenario.on_loss, self.scenario.window_frames, self.scenario.masked
        self._setups[site] = Setup(site, self.sites, self.edges, dials, run, SecretKeyring(site), *waits)

    def solver(self, process: Process) -> Generator[Any, Any, Any]:
        def position() -> Position:
            found = Position(process.machine.lost, process.machine.start)
            self.watch.begins(process.site, *found)
            return found

        return self.problem.solver(process, position)

    def _listener(self, site: str) -> Process | None:
        found = [one for one in self.processes if one.site == site and one.alive]
        return self.time.random.choice(found) if found else None

    def running(self, site: str) -> Process | None:
        """The process of a site; the first one if there are several."""
        return next((one for one in self.processes if one.site == site and one.alive), None)

    def compute_s(self, site: str) -> float:
        return self.slowness[site] * self.time.random.uniform(0.0, self.problem.compute_s)

    def work_s(self, process: Process) -> float:
        """How long the solver has worked since its last answer, in addition to ``compute_s``."""
        return 0.0

    def asks(self, process: Process, question: Any) -> None:
        """Called when the solver of a process makes a request to its machine."""

    def answered(self, process: Process, event: Any) -> None:
        """Called when this event gives the solver of a process its answer."""

    def sync_s(self, site: str) -> float:
        return self.disk_s[site] * self.time.random.uniform(0.5, 1.5)

    def first_start_s(self) -> float:
        return self.time.random.uniform(0.0, 0.3)

    def start_later(self, site: str, pause_s: float) -> None:
        self._due[site] += 1
        self.time.after(pause_s, self._start_due, site)

    def _start_due(self, site: str) -> None:
        self._due[site] -= 1
        if site not in self.ends and self.running(site) is None:
            self.start(site, self.disks[site])

    def start(self, site: str, disk: Disk, address: str = "") -> None:
        """Start a process of a site."""
        self._starts[site] += 1
        process = Process(self, site, disk, address or site)
        self.processes.append(process)
        self._log(f"{site} starts (start {self._starts[site]})")
        if site in self.adversaries:
            self.adversaries[site].take(process)
        process.start()

    def ended(self, process: Process) -> None:
        """A process has ended by itself; its operator starts it again if that helps."""
        for connection, side in self.network.of(process):
            self.network.close(connection, side, "")
        site, error = process.site, process.error
        self._log(f"{site} ends: {process.result or repr(error)}, owed {process.owed}")
        if process.result is not None:
            self._have_result.add(site)
        helps = process.owed if process.result is not None else isinstance(error, ParkedError)
        if helps and process.disk is self.disks[site] and self._starts[site] < self.max_starts:
            self.start_later(site, self.restart_s(process.disk))
        elif self.running(site) is None and not self._due[site]:
            self.ends[site] = "result" if site in self._have_result else f"{type(error).__name__}: {error}"

    def restart_s(self, disk: Disk) -> float:
        """How long the operator takes to start a parked site again."""
        return 4.0 if disk.full or disk.audit_full else self.time.random.uniform(0.3, 1.5)

    def gone(self, site: str) -> None:
        """A site never comes back."""
        self.ends[site] = "killed"

    def crashed(self, site: str) -> Process | None:
        """Crash the process of a site, and return it; None if it has none."""
        process = self.running(site)
        if process is not None:
            process.crash()
            self._log(f"{site} crashes")
        return process

    def _log(self, text: str) -> None:
        if self.trace is not None:
            self.trace(text)

    def play(self) -> SeedOutcome:
        """Run to the end of all sites."""
        for site in self.sites:
            self.start_later(site, self.first_start_s())
        for fault in self.scenario.faults:
            self.time.at(fault.at_s, self._faults.strike, fault)
        try:
            self.time.run(self.hung_after_s, self._is_over)
            return self._outcome()
        except BrokenError as error:
            return SeedOutcome("wrong", str(error), self.time.now)

    def _is_over(self) -> bool:
        return len(self.ends) == len(self.sites)

    def _outcome(self) -> SeedOutcome:
        """Whether all sites have a result, or an error that names the site at fault."""
        if not self._is_over():
            waiting = [site for site in self.sites if site not in self.ends]
            return SeedOutcome("hung", f"{', '.join(waiting)} wait without end", self.time.now)
        refused = {site: end for site, end in self.ends.items() if end not in ("result", "killed")}
        why = "; ".join(f"{site}: {end}" for site, end in refused.items())
        for site, end in refused.items():
            if end.startswith(FINAL) and not self.scenario.changes_sites:
                return SeedOutcome("wrong", f"{site} is refused for good, without cause: {end}", self.time.now)
            if not _names(end) & set(self.sites):
                return SeedOutcome("wrong", f"{site} ends with an error that names no site: {end}", self.time.now)
        if any(lost for lost in self.watch.results):
            return SeedOutcome("continued", why, self.time.now)
        if set(self.ends.values()) <= {"result", "killed"}:
            return SeedOutcome("exact", "", self.time.now)
        if self.scenario.heals:
            return SeedOutcome("wrong", f"all faults are over, but not all sites finish: {why}", self.time.now)
        touched = {name for fault in self.scenario.faults for name in fault[2:4]}
        if refused and not _names(why) & touched and not any(fault.kind in ON_ALL for fault in self.scenario.faults):
            return SeedOutcome("wrong", f"no site names {touched}: {why}", self.time.now)
        return SeedOutcome("refused", why, self.time.now)


def _names(text: str) -> set[str]:
    return set(re.findall(r"\w+", text))
