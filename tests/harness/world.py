"""A run of a few sites that compute a sum, with every fault that a seed has drawn, and a watch on what they do."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import replace
from typing import Any, NamedTuple

from eigenmesh.protocol import Run, Setup
from eigenmesh.protocol.effects import Sign
from eigenmesh.rehearsal.conditions import Conditions, Edges
from eigenmesh.rehearsal.virtual_time import VirtualTime, WorkClock
from eigenmesh.rehearsal.world import Disk, Process, World
from harness.adversary import Adversary
from harness.disk import FaultyDisk
from harness.faults import Faults
from harness.masked_sums import MaskedSumProblem
from harness.network import FaultyNetwork
from harness.process import FaultyProcess
from harness.scenario import ON_ALL, Fault, Scenario
from harness.sums import SumProblem
from harness.watch import BrokenError, RunWatch

# Errors after which a restart of the site does not help.
FINAL = ("CannotResumeError", "DisagreementError", "InputError")
WAITS = {"patience_s": 4.0, "join_s": 8.0, "round_s": 60.0}


class SeedOutcome(NamedTuple):
    """How a seed ended: "exact", "continued", "refused", "wrong" or "hung", and why."""

    kind: str
    why: str = ""
    virtual_s: float = 0.0


class FaultWorld(World):
    """The world of a scenario.

    Its problem also has ``compute_s``, the longest time of a step, ``max_journal_bytes``, several times what a run
    needs, and ``fault_of``, which says what is wrong with a result.

    Attributes
    ----------
    values : the number that stands for the data of each site at the start.
    data_of : the same for the current content of its file, which a fault may change.
    longest_s : virtual time after which a run counts as hung; many times longer than any wait of the sites.
    """

    longest_s = 600.0

    def __init__(self, scenario: Scenario, trace: Callable[[str], None] | None = None, problem: Any = None) -> None:
        self.scenario, self._trace = scenario, trace
        sums = MaskedSumProblem if scenario.masked else SumProblem
        time = VirtualTime(scenario.seed)
        random, sites, edges = time.random, scenario.sites, scenario.edges
        self.values = {site: random.randrange(1 << 20) for site in sites}
        self.data_of = dict(self.values)
        delay_s = {link: random.choice((0.001, 0.01, 0.05)) for link in edges}
        super().__init__(
            FaultyNetwork(time, delay_s),
            problem or sums(sites, edges, scenario.n_mixing),
            sites,
            edges,
            # This world draws all times itself.
            Conditions({}, {}),
            WorkClock({}, {}),
            **WAITS,
            on_loss=scenario.on_loss,
            window_frames=scenario.window_frames,
            masked=scenario.masked,
        )
        self.max_starts = 12
        self.watch, self._faults = RunWatch(self), Faults(self)
        self.triggers: dict[str, Callable[[bytes], None]] = {}
        self.adversaries: dict[str, Adversary] = {}
        # What a site is set up for, if not for the run of the others.
        self.runs: dict[str, Run] = {}
        self.slowness = dict.fromkeys(sites, 1.0)
        self.disk_s = {site: random.choice((0.002, 0.02, 0.1)) for site in sites}

    def listener(self, site: str) -> Process | None:
        found = [one for one in self.processes if one.site == site and one.alive]
        return self.time.random.choice(found) if found else None

    def new_disk(self, site: str) -> FaultyDisk:
        return FaultyDisk(site, self.new_identity(), self.fingerprint(site))

    def new_process(self, site: str, disk: Disk) -> FaultyProcess:
        return FaultyProcess(self, site, disk)

    def fingerprint(self, site: str) -> str:
        return str(self.data_of[site])

    def setup_of(self, site: str) -> Setup:
        return replace(super().setup_of(site), run=self.runs.get(site, self.run))

    def position(self, process: Process) -> tuple[Edges, bytes]:
        found = super().position(process)
        self.watch.begins(process.site, *found)
        return found

    def asks(self, process: Process, question: Any) -> None:
        if isinstance(question, Sign):
            self.watch.signs(process.site, process.machine.epoch.lost, question.digest)

    def answered(self, process: Process, event: Any) -> None:
        """Nothing: nobody asks how long sites wait, and a stream may be gone when its message is read."""

    def found(self, process: Process, result: Any) -> None:
        self.watch.found(process, result)
        super().found(process, result)

    def compute_s(self, site: str) -> float:
        return self.slowness[site] * self.time.random.uniform(0.0, self.problem.compute_s)

    def sync_s(self, site: str) -> float:
        return self.disk_s[site] * self.time.random.uniform(0.5, 1.5)

    def first_start_s(self) -> float:
        return self.time.random.uniform(0.0, 0.3)

    def restart_s(self, disk: FaultyDisk) -> float:
        return 4.0 if disk.full or disk.audit_full else self.time.random.uniform(0.3, 1.5)

    def log(self, text: str) -> None:
        if self._trace is not None:
            self._trace(f"{self.time.now:8.3f} {text}")

    def start(self, process: Process) -> None:
        if process.site in self.adversaries:
            self.adversaries[process.site].take(process)
        self.watch.starts(process)
        super().start(process)
        if self.starts[process.site] > 1 and not process.disk.is_finished:
            self._start_finished()

    def _start_finished(self) -> None:
        """Operators start all sites again when one is: also those that have finished."""
        for site, disk in self.disks.items():
            if disk.is_finished and self.running(site) is None and self.starts[site] < self.max_starts:
                self.time.after(self.restart_s(disk), self._start_again, site)

    def _start_again(self, site: str) -> None:
        if self.running(site) is None and self.ends.get(site) != "killed":
            self.start(self.new_process(site, self.disks[site]))

    def ended(self, process: Process) -> None:
        self.watch.ends(process)
        super().ended(process)

    def strike(self, fault: Fault) -> None:
        self.log(f"fault: {fault}")
        self._faults.strike(fault)

    def play(self) -> SeedOutcome:
        """Run to the end of all sites."""
        try:
            self.run_through(self.scenario.faults)
            return self._outcome()
        except BrokenError as error:
            return SeedOutcome("wrong", str(error), self.time.now)

    def _outcome(self) -> SeedOutcome:
        """Whether all sites have a result, or an error that names the site at fault."""
        if not self.is_over():
            waiting = [site for site in self.sites if site not in self.ends]
            return SeedOutcome("hung", f"{', '.join(waiting)} wait without end", self.time.now)
        refused = {site: end for site, end in self.ends.items() if end not in ("result", "killed")}
        why = "; ".join(f"{site}: {end}" for site, end in refused.items())
        for site, end in refused.items():
            if end.startswith(FINAL) and not self.scenario.changes_sites:
                return SeedOutcome("wrong", f"{site} is refused for good, without cause: {end}", self.time.now)
            if not _names(end) & set(self.sites):
                return SeedOutcome("wrong", f"{site} ends with an error that names no site: {end}", self.time.now)
        if any(lost for lost in self.results):
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
