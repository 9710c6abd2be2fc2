"""Causes the faults of a scenario, one method per kind."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import TYPE_CHECKING

from eigenmesh.protocol.effects import Stop
from eigenmesh.protocol.wire import Mark
from eigenmesh.rehearsal.world import CRASH_S, POWER_LOSS_S
from harness.adversary import Adversary
from harness.disk import MARK_AT
from harness.process import FaultyProcess
from harness.scenario import BY_NEIGHBOUR, TOLD_APART, Fault

if TYPE_CHECKING:
    from harness.world import FaultWorld


class Faults:
    """Causes faults in a world."""

    def __init__(self, world: FaultWorld) -> None:
        self._world = world
        self._ways: dict[str, Callable[[Fault], object]] = {
            "break": lambda fault: self._break(fault, 0.2),
            "half open": lambda fault: self._break(fault, fault.for_s),
            "stall": lambda fault: self._hold(fault, both_ways=True),
            "one way": lambda fault: self._hold(fault, both_ways=False),
            "refused calls": self._refuse_calls,
            "call twice": self._call_twice,
            "crash": lambda fault: world.crash(fault.site, fault.for_s, CRASH_S),
            "crash at power loss": lambda fault: world.crash(fault.site, fault.for_s, POWER_LOSS_S),
            "kill": lambda fault: world.kill(fault.site),
            "pause": self._pause,
            "slow": lambda fault: self._for_a_while(world.slowness, fault, 20.0),
            "slow disk": lambda fault: self._for_a_while(world.disk_s, fault, 0.5),
            "disk full": lambda fault: self._full(fault, "full"),
            "audit full": lambda fault: self._full(fault, "audit_full"),
            "stop": lambda fault: self._stop(fault, parks=True),
            "leave": lambda fault: self._stop(fault, parks=False),
            "crash at a view": lambda fault: self._crash_at(fault, b'"kind":"view"'),
            "crash at an epoch": lambda fault: self._crash_at(fault, Mark.EPOCH),
            "crash at a signature": lambda fault: self._crash_at(fault, b'"kind":"result"'),
            "crash at a farewell": lambda fault: self._crash_at(fault, Mark.DONE),
            "bit flip": self._flip,
            "journal gone": self._lose_journal,
            "journal rolled back": self._roll_back,
            "data swapped": self._swap_data,
            "clone": lambda fault: self._clone(fault, with_journal=True),
            "clone without journal": lambda fault: self._clone(fault, with_journal=False),
            "clone on either side": lambda fault: self._two_sides(fault, with_journal=True),
            "clone without journal on either side": lambda fault: self._two_sides(fault, with_journal=False),
            "partition": self._partition,
            "crash of all": self._crash_all,
            **dict.fromkeys((*BY_NEIGHBOUR, TOLD_APART), self._turn),
            "another manifest": self._set_up_for_another_run,
        }

    def strike(self, fault: Fault) -> None:
        """Cause one fault."""
        self._ways[fault.kind](fault)

    def _break(self, fault: Fault, late_s: float) -> None:
        network, random = self._world.network, self._world.time.random
        for connection in network.between(fault.site, fault.other):
            network.break_off(connection, (random.uniform(0.0, 0.2), random.uniform(0.0, late_s)))

    def _hold(self, fault: Fault, both_ways: bool) -> None:
        self._world.hold(fault.site, fault.other, fault.for_s)
        if both_ways:
            self._world.hold(fault.other, fault.site, fault.for_s)

    def _refuse_calls(self, fault: Fault) -> None:
        for link in ((fault.site, fault.other), (fault.other, fault.site)):
            self._world.network.refuses_until[link] = self._world.time.now + fault.for_s
        self._break(fault, 0.2)

    def _call_twice(self, fault: Fault) -> None:
        for link in ((fault.site, fault.other), (fault.other, fault.site)):
            self._world.network.twice_until[link] = self._world.time.now + fault.for_s
        self._break(fault, 0.2)

    def _crash_at(self, fault: Fault, what: Mark | bytes) -> None:
        """Crash soon after the journal gets the next record with this mark, or with these bytes in it."""
        world = self._world

        def look(record: bytes) -> None:
            if record[MARK_AT] == what if isinstance(what, Mark) else what in record:
                world.triggers.pop(fault.site, None)
                late = world.time.random.choice((0.0, 0.001, 0.01, 0.1, 0.3))
                self._for_a_while(world.disk_s, fault._replace(for_s=late), late)
                world.time.after(late, world.crash, fault.site, fault.for_s, CRASH_S)

        world.triggers[fault.site] = look

    def _pause(self, fault: Fault) -> None:
        process = self._world.running(fault.site)
        if process is not None:
            process.paused_until = self._world.time.now + fault.for_s

    def _for_a_while(self, table: dict[str, float], fault: Fault, value: float) -> None:
        before, table[fault.site] = table[fault.site], value
        self._world.time.after(fault.for_s, lambda: table.update({fault.site: before}))

    def _full(self, fault: Fault, which: str) -> None:
        disk = self._world.disks[fault.site]
        setattr(disk, which, True)
        self._world.time.after(fault.for_s, setattr, disk, which, False)

    def _stop(self, fault: Fault, parks: bool) -> None:
        process = self._world.running(fault.site)
        if process is not None:
            process.feed(Stop("stopped by its operator", parks))

    def _flip(self, fault: Fault) -> None:
        if self._world.crash(fault.site, fault.for_s, CRASH_S):
            self._world.disks[fault.site].flip(self._world.time.random)

    def _lose_journal(self, fault: Fault) -> None:
        if self._world.crash(fault.site, fault.for_s, CRASH_S):
            self._world.disks[fault.site] = self._world.new_disk(fault.site)

    def _roll_back(self, fault: Fault) -> None:
        world, backup = self._world, self._world.disks[fault.site].copy()

        def restore() -> None:
            if self._world.crash(fault.site, 1.0, CRASH_S):
                world.disks[fault.site] = backup

        world.time.after(min(fault.for_s, 1.0) * world.time.random.random(), restore)

    def _swap_data(self, fault: Fault) -> None:
        world = self._world
        if self._world.crash(fault.site, fault.for_s, CRASH_S):
            world.data_of[fault.site] += 1

    def _clone(self, fault: Fault, with_journal: bool, address: str = "") -> None:
        world = self._world
        disk = world.disks[fault.site].copy() if with_journal else world.new_disk(fault.site)
        if world.running(fault.site) is not None:
            world.start(FaultyProcess(world, fault.site, disk, address))

    def _two_sides(self, fault: Fault, with_journal: bool) -> None:
        """Start a second process of the site in the middle; later a partition leaves each with half of the others."""
        world, middle = self._world, fault.site
        world.slowness.update(dict.fromkeys(world.sites, 20.0))
        self._clone(fault, with_journal, middle + "'")
        half = len(world.sites) // 2 + 1

        def part() -> None:
            first, second = (middle, *world.sites[1:half]), (middle + "'", *world.sites[half:])
            until = world.time.now + 30.0
            pairs = [(one, other) for one in first for other in second]
            world.network.held_until.update(dict.fromkeys([*pairs, *((b, a) for a, b in pairs)], until))

        world.time.after(1.5, part)

    def _partition(self, fault: Fault) -> None:
        world, random = self._world, self._world.time.random
        group = set(random.sample(world.sites, random.randrange(1, len(world.sites))))
        both_ways = random.random() < 0.7
        for first, second in world.edges:
            if (first in group) != (second in group):
                inside, outside = (first, second) if first in group else (second, first)
                self._hold(fault._replace(site=inside, other=outside), both_ways)

    def _crash_all(self, fault: Fault) -> None:
        for site in self._world.sites:
            self._world.crash(site, fault.for_s * self._world.time.random.random(), CRASH_S)

    def _turn(self, fault: Fault) -> None:
        self._world.adversaries[fault.site] = adversary = Adversary(self._world, fault)
        process = self._world.running(fault.site)
        if process is not None:
            adversary.take(process)

    def _set_up_for_another_run(self, fault: Fault) -> None:
        world = self._world
        world.runs[fault.site] = replace(world.run, manifest="another sum")
        self._world.crash(fault.site, fault.for_s, CRASH_S)
