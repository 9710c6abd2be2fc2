"""The invariants of the protocol, checked whenever a process sends or stores something."""

from __future__ import annotations

import json
import math
import re
from typing import TYPE_CHECKING

from eigenmesh.errors import ParkedError
from eigenmesh.masking import MIN_SITES
from eigenmesh.protocol import wire
from eigenmesh.protocol.effects import Write
from eigenmesh.protocol.membership import Membership, ordered
from eigenmesh.protocol.peering import LAST_WORD_TAKEN
from eigenmesh.protocol.setup import read_statement
from eigenmesh.protocol.wire import RECORD_BYTES, Kind, Mark
from harness.disk import MARK_AT, FaultyDisk
from harness.masked_sums import is_masked_sum, is_total, number_of, without_noise
from harness.sums import PRIME, Links, Sum, plan

if TYPE_CHECKING:
    from harness.process import FaultyProcess
    from harness.world import FaultWorld

# Most seconds from the start of a process, or from the end of the last fault, to its end. A site that waits for nothing
# ends later, by the deadline of a round or of an agreement.
STUCK_S = 36.0
# Kinds of statements that a site must have on its disk before it sends them.
DURABLE_KINDS = ("lost", "view", "heard", "result")


class BrokenError(Exception):
    """An invariant is broken: its name, and what was seen."""

    def __init__(self, invariant: str, what: str) -> None:
        super().__init__(f"{invariant}: {what}")
        self.invariant = invariant


class RunWatch:
    """Follows all processes of a run; those of honest sites are checked more strictly."""

    def __init__(self, world: FaultWorld) -> None:
        self._world = world
        self._places = {site: place for place, site in enumerate(world.sites)}
        self._bodies: dict[tuple[str, str, bytes, int, str], str] = {}
        self._starts: dict[tuple[str, Links], bytes] = {}
        self._declared: set[tuple[str, str]] = set()
        self._signed: set[tuple[str, Links, str]] = set()
        self._masked_sums: dict[tuple[str, bytes, int], int] = {}
        self._hidden: dict[tuple[object, ...], int] = {}
        # Totals by epoch and number of the sum, and the first lie of an epoch: its number, its total, who believes it.
        self._totals: dict[tuple[bytes, int], int] = {}
        self._lies: dict[bytes, tuple[int, int, set[str]]] = {}
        # When a site was first heard to be unable to resume, and the processes that are alone from their start.
        self._left_at = math.inf
        self._alone: dict[FaultyProcess, float] = {}
        self._started: dict[FaultyProcess, float] = {}

    def wrote(self, process: FaultyProcess, write: Write) -> None:
        """A message is sent: it must be in the audit, acknowledge only synced rounds, and repeat a round unchanged."""
        data, audited, site = write.data, write.sent, process.site
        if audited is None:
            if process.audit_failed and data[5] in (Kind.ABORT, Kind.PARK):
                return
            raise BrokenError("sent is audited", f"{site} sent {len(data)} bytes that are not on record")
        _, _, kind, _, tag, epoch, run_id, round_, acknowledged, _, check = wire._HEAD.unpack_from(data)
        to = self._places[audited.neighbour]
        if audited.sha256[:16] != check.hex() or audited.frame_bytes != len(data):
            raise BrokenError("sent is audited", f"{site} has a different message on record than it sent")
        # A clone or copy has its own disk and its own rounds, so each process is checked against its own disk.
        safe = process.disk.rounds.get((to, epoch), 0)
        if acknowledged > safe:
            raise BrokenError(
                "acknowledged is durable", f"{site} acknowledged {acknowledged} to {audited.neighbour}, {safe} is safe"
            )
        if kind == Kind.DATA:
            # A process with another journal has other masks, so other bytes; its numbers are checked below.
            journal = process.disk.identity if self._world.scenario.masked else ""
            key = site, audited.neighbour, run_id, round_, journal
            if self._bodies.setdefault(key, audited.sha256) != audited.sha256:
                raise BrokenError("a round is sent once", f"{site} sent round {round_} to {key[1]} in two forms")
            if self._world.scenario.masked and is_masked_sum(tag):
                self._hides(process, run_id, number_of(tag), data)
            elif self._world.scenario.masked and is_total(tag):
                self._passes_on(process, run_id, number_of(tag), data)
        elif kind == Kind.STATEMENT:
            self._said(process, data)
        elif kind == Kind.ACK and tag == 1 and (to, epoch) not in process.disk.farewells:
            raise BrokenError("acknowledged is durable", f"{site} took a farewell that is not on its disk")
        elif kind == Kind.ACK and tag == LAST_WORD_TAKEN and not process.machine.peering.last_word:
            said = '"kind":"left"', f'"site":"{audited.neighbour}"'
            if not any(all(part in text for part in said) for text in process.disk.statements):
                raise BrokenError("acknowledged is durable", f"{site} took a last word that is not on its disk")

    def _hides(self, process: FaultyProcess, run_id: bytes, number: int, data: bytes) -> None:
        """A masked sum is sent. Minus the sums of the children it is this site's own part: one mask, one number."""
        site, machine = process.site, process.machine
        words = int(wire.decode(data, len(data)).arrays[0].view("u8")[0])
        self._masked_sums[site, run_id, number] = words
        tree = plan(site, machine.setup.sites, machine.setup.edges, machine.epoch.lost)
        below = (self._masked_sums[child, run_id, number] for child in tree.members if tree.parent[child] == site)
        own = (words - sum(below)) % (1 << 64)
        keys = tuple(sorted(machine.membership.keys().items()))
        if self._hidden.setdefault((site, run_id, keys, number), own) != own:
            raise BrokenError("a mask hides once", f"{site} used its mask of average {number} for two numbers")
        if number not in process.disk.masked.get(machine.epoch.number, ()):
            raise BrokenError("masked is durable", f"{site} sent average {number}, which is not on its disk")

    def lied(self, process: FaultyProcess, victim: str, frame: wire.Frame, words: int) -> None:
        """A site tells another one, and all below it, these words instead of the total in the frame."""
        tree = plan(process.site, process.machine.setup.sites, process.machine.setup.edges, process.machine.epoch.lost)
        deceived = {victim}
        for site in sorted(tree.members, key=tree.depth.__getitem__):
            deceived |= {site} if tree.parent[site] in deceived else set()
        self._lies.setdefault(frame.run_id, (number_of(frame.tag), words, deceived))

    def _passes_on(self, process: FaultyProcess, run_id: bytes, number: int, data: bytes) -> None:
        """The root sends a total. After a lie it must not be the sum of what honest sites have added."""
        machine, world = process.machine, self._world
        tree = plan(process.site, machine.setup.sites, machine.setup.edges, machine.epoch.lost)
        if tree.parent[process.site]:
            return
        words = int(wire.decode(data, len(data)).arrays[0].view("u8")[0])
        self._totals[run_id, number] = words
        last, lie, deceived = self._lies.get(run_id, (-2, 0, set[str]()))
        if last + 1 != number:
            return
        true, told = (without_noise(one) % PRIME for one in (self._totals[run_id, last], lie))
        added = 0
        for site in tree.members:
            start = int.from_bytes(self._starts.get((site, machine.epoch.lost), b""), "little")
            added += (world.values[site] + start + (told if site in deceived else true)) % PRIME
        if without_noise(words) == added:
            raise BrokenError("a lie shows nothing", f"{process.site} knows what the sites that it deceived have added")

    def _said(self, process: FaultyProcess, data: bytes) -> None:
        if process.twist is not None:
            return
        text = str(memoryview(data)[wire.HEAD_BYTES :], "utf-8")
        if f'"site":"{process.site}"' not in text or text in process.disk.statements:
            return
        if json.loads(text)["kind"] in DURABLE_KINDS:
            raise BrokenError("said is durable", f"{process.site} said what is not on its disk: {text}")

    def kept(self, site: str, disk: FaultyDisk, record: bytes) -> None:
        """A record goes to the journal; it may be the statement of this site that one of its links is lost."""
        if len(disk.content) > self._world.problem.max_journal_bytes:
            raise BrokenError("what is kept is bounded", f"the journal of {site} has {len(disk.content)} bytes")
        if record[MARK_AT] == Mark.STATEMENT and b'"kind":"left"' in record and b'"finished"' not in record:
            self._left_at = min(self._left_at, self._world.time.now)
        if record[MARK_AT] == Mark.STATEMENT and b'"kind":"lost"' in record:
            statement = read_statement(record[RECORD_BYTES:].decode(), None, self._world.run.run_id)
            if statement.site == site:
                self._declared.add(ordered(statement.content))

    def starts(self, process: FaultyProcess) -> None:
        """A process starts; it is alone if no other site has one from then until it ends."""
        self._alone.clear()
        self._started[process] = self._world.time.now
        if process.disk.has_result and not any(one.alive for one in self._world.processes):
            self._alone[process] = self._world.time.now

    def ends(self, process: FaultyProcess) -> None:
        """A process ends by itself: not for a wait that was in vain."""
        now, waits_s = self._world.time.now, self._world.scenario.wait_s
        since, slow = self._alone.pop(process, now), any("slow" in fault.kind for fault in self._world.scenario.faults)
        if now - since > self._world.setup_of(process.site).join_s and not slow:
            raise BrokenError(
                "who is done ends", f"{process.site} has its result, but waited {now - since:.0f} s alone"
            )
        if isinstance(process.error, ParkedError) and now > self._left_at + waits_s and self._world.scenario.tells:
            raise BrokenError("nobody waits for who has left", f"{process.site} is parked: {process.error}")
        self._check_waits(process)

    def _check_waits(self, process: FaultyProcess) -> None:
        """Once all faults are over, a process ends soon, and does not wait in vain for a site that is there."""
        world, now, site = self._world, self._world.time.now, process.site
        over = max((fault.at_s + fault.for_s for fault in world.scenario.faults), default=0.0)
        # Who says farewell and stays holds up the others until a round's deadline, as one that sends nothing.
        held = any(fault.kind == "farewell early" for fault in world.scenario.faults)
        if not held and (stuck_s := now - max(over, self._started[process])) > STUCK_S:
            raise BrokenError("all bounds are met early", f"{site} ended {stuck_s:.0f} s after the last fault")
        waited = re.search(rf"\b{site} has .*waited \S+ s for ([\w, ]+) to join", str(process.error))
        for name in waited.group(1).split(", ") if waited else ():
            there = [since for one, since in self._started.items() if one.site == name and one.alive]
            if there and now - max(over, min(there)) > world.setup_of(site).join_s:
                raise BrokenError("who is there is met", f"{site} was parked, but {name} was there: {process.error}")

    def begins(self, site: str, lost: Links, start: bytes) -> None:
        """An epoch begins at a site, from this estimate."""
        for link in lost:
            if link not in self._declared:
                raise BrokenError("an end speaks for its link", f"{site} continues without {link}")
        if self._starts.setdefault((site, lost), start) != start:
            raise BrokenError("a round is sent once", f"{site} begins epoch {len(lost)} from another estimate")

    def signs(self, site: str, lost: Links, digest: str) -> None:
        """The solver of a site asks for a digest to be signed."""
        self._signed.add((site, lost, digest))

    def found(self, process: FaultyProcess, result: Sum) -> None:
        """A site has a result: it must be correct, and signed by every member itself."""
        world, lost = self._world, result.lost
        members = Membership(process.site, world.sites, world.edges, lost).members
        starts = {site: self._starts.get((site, lost), b"") for site in members}
        fault = world.problem.fault_of(result, members, world.values, starts)
        if fault:
            raise BrokenError("no wrong result", f"{process.site} found {fault}")
        self._check_signatures(process.site, members, result)
        if 2 * len(members) <= len(world.sites):
            raise BrokenError("at most one majority", f"{process.site} has a result of only {members}")
        if world.scenario.masked and len(members) < MIN_SITES:
            raise BrokenError("two have no secret", f"{process.site} has a masked result of only {members}")
        known = world.results.get(lost, {})
        if any(one.digest != result.digest for one in known.values()):
            raise BrokenError("equal epoch, equal bits", f"{process.site} differs from {list(known)}")
        for other in world.results:
            if not (set(other) <= set(lost) or set(lost) <= set(other)):
                raise BrokenError("at most one majority", f"results without {other} and without {lost}")

    def _check_signatures(self, site: str, members: tuple[str, ...], result: Sum) -> None:
        keyring, run_id = self._world.setup_of(site).keyring, self._world.run.run_id
        digest = result.digest
        for member in members:
            text = result.statements.get(member)
            statement = None if text is None else read_statement(text, keyring, run_id)
            wanted = "result", member, [len(result.lost), digest]
            if statement is None or (statement.kind, statement.site, statement.content[:2]) != wanted:
                raise BrokenError("whole is signed by all", f"{site} has no signature of {member}")
            if (member, result.lost, digest) not in self._signed:
                raise BrokenError("whole is signed by all", f"{site} has a signature that {member} never made")
