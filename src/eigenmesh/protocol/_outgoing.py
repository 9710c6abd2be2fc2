"""First layer of a site's machine: what it says, writes down and puts on record."""

import logging
from collections import deque
from random import Random
from typing import Any

from eigenmesh.errors import ParkedError
from eigenmesh.masking import MaskContext
from eigenmesh.protocol import _events as ev
from eigenmesh.protocol import _wire as wire
from eigenmesh.protocol._link import WINDOW_BYTES, Link, Message
from eigenmesh.protocol._membership import Membership
from eigenmesh.protocol._records import JournalRecord, Mark, read_epoch, record
from eigenmesh.protocol._setup import Past, Setup
from eigenmesh.protocol._statements import INSTANCE, VIEW, Statement, make_statement, read_statement
from eigenmesh.protocol._wire import Body, Kind

NO_TEXT = wire.text_body("")
# Once such a record is there, no site may begin anew: its numbers, or masks with its key, have been used.
USED = (Mark.FRAME, Mark.MASKED)


class Outgoing:
    """The state that all layers share, rebuilt from the journal, and the ways in which something leaves the site.

    Attributes
    ----------
    membership : all signed statements that are known here, of any epoch.
    lost : the lost links of the present epoch; ``epoch`` is their number.
    links : one per neighbour that is a member of the epoch.
    round : the next one that the solver will ask for.
    finished_at : an earlier process said farewell before this round, so that the neighbours may be gone.
    masked : what earlier processes have masked in this epoch, by number; ``next_masked`` is the least that may come.
    masked_record : the last record of what is masked; nothing leaves before it is on the disk.
    failure : what has ended the run at this site.
    view_since : when the set of lost links was last seen to grow; the members agree on it within a bounded time.
    """

    masked: dict[int, JournalRecord]
    next_masked: int
    masked_record: int

    def __init__(self, setup: Setup, past: Past, random: Random, now: float) -> None:
        self.setup, self.past, self.random, self.now = setup, past, random, now
        self.failure: Exception | None = None
        self.view_since = now
        self._effects: list[ev.Effect] = []
        self._audit_failed = self._journal_failed = False
        # Numbers of records, and what may be said once they are on the disk.
        self._records = len(past.entries)
        self._unsafe: deque[tuple[int, str, int, int]] = deque()
        self._unsaid: deque[tuple[int, Statement]] = deque()
        self._farewells: deque[tuple[int, int, str]] = deque()
        self.start = b""
        lost: tuple[tuple[str, str], ...] = ()
        for entry in past.entries:
            if entry.mark is Mark.EPOCH:
                lost, self.start = read_epoch(past.read(entry))
        self.membership = Membership(setup.name, setup.sites, setup.edges, lost)
        for entry in past.entries:
            if entry.mark is Mark.STATEMENT:
                # It was checked before it was written, and its certificate may have expired since.
                self.membership.add(read_statement(past.read(entry).decode(), None, setup.run.run_id))
        self.membership.fresh = not any(entry.mark in USED for entry in past.entries)
        self.enter(lost)
        self._replay()
        self.membership.add(self.make(INSTANCE, self.own_instance))

    def enter(self, lost: tuple[tuple[str, str], ...]) -> None:
        """Begin an epoch: its links, rounds from 0."""
        self.lost, self.epoch, self.round, self.finished_at = lost, len(lost), 0, 0
        self.masked, self.next_masked, self.masked_record = {}, 0, -1
        self.run_id = self.setup.run.id_of(lost)
        window = max(WINDOW_BYTES, 4 * self.setup.run.max_message_bytes)
        left = Membership(self.setup.name, self.setup.sites, self.setup.edges, lost)
        self.members = left.members
        self.links = {
            name: Link(name, self.setup.window_frames, window, self.now)
            for name in self.setup.neighbours
            if any(name in link and self.setup.name in link for link in left.links)
        }

    @property
    def own_instance(self) -> list[object]:
        """What this process says about itself: its journal, its start, and its key of the first epoch."""
        return [*self.past.instance, self.public_key(())]

    def public_key(self, lost: tuple[tuple[str, str], ...]) -> str:
        """The key that this site shows for masks in an epoch, in hexadecimal; none without masks."""
        return self.past.site_key(lost).public.hex() if self.setup.masked else ""

    @property
    def mask_context(self) -> MaskContext:
        """What masks of the present epoch are for."""
        return MaskContext(self.run_id.hex(), self.epoch, bytes.fromhex(self.setup.run.digest), self.members)

    def _replay(self) -> None:
        """Prepare the records of this epoch to be used again."""
        for entry in self.past.entries:
            sender = self.setup.sites[entry.sender]
            link = self.links.get(sender)
            if entry.mark is Mark.DONE and sender == self.setup.name and entry.epoch == self.epoch:
                self.finished_at = entry.round
            if entry.mark is Mark.MASKED and entry.epoch == self.epoch:
                self.masked[entry.round] = entry
            if link is None or entry.epoch != self.epoch:
                continue
            if entry.mark is Mark.DONE:
                link.finish()
            elif entry.mark is Mark.FRAME:
                link.replay.append(entry)
                link.next_in = link.safe_here = link.told = entry.round + 1

    def message(
        self, kind: Kind, body: Body = NO_TEXT, round_: int | None = None, tag: int = 0, acknowledged: int = 0
    ) -> Message:
        round_ = self.round if round_ is None else round_
        frame = wire.encode(kind, self.run_id, self.epoch, round_, acknowledged, body, tag)
        return Message(kind, round_, tag, *body[1:], frame)

    def write(self, link: Link, message: Message, stream: int | None = None) -> None:
        """Put a message on record and send it; once that fails, only the reason of the end may leave."""
        stream = link.stream if stream is None else stream
        if stream is None:
            return
        if self._audit_failed and message.kind not in (Kind.ABORT, Kind.PARK):
            return
        data = wire.acknowledging(message.frame, link.safe_here)
        again = message.kind is Kind.DATA and message.round < link.written
        if not self._audit_failed:
            what = message.shapes, message.dtypes, message.payload_bytes, len(data), message.sha256.hex()
            kind = wire.KIND_NAMES[message.kind]
            self._effects.append(ev.Audit(ev.Sent(link.name, kind, self.epoch, message.round, *what, again)))
        self._effects.append(ev.Write(stream, data))
        link.told, link.untold_bytes = link.safe_here, 0
        link.bytes_out += len(data)
        if message.kind is Kind.DATA:
            link.written = max(link.written, message.round + 1)

    def append(self, mark: Mark, content: bytes = b"", neighbour: str = "", round_: int = 0) -> int:
        """Write a record to the journal; its number. A journal that has failed once gets nothing more."""
        sender = self.setup.sites.index(neighbour or self.setup.name)
        if not self._journal_failed:
            written = record(mark, content, sender, self.epoch, round_)
            self._effects.append(ev.Append(written, urgent=mark is Mark.MASKED))
        self._records += 1
        if mark in USED:
            self.membership.fresh = False
        return self._records - 1

    def make(self, kind: str, content: Any) -> Statement:
        return make_statement(self.setup.keyring, self.setup.run.run_id, kind, self.setup.name, content)

    def state(self, kind: str, content: Any) -> None:
        """Sign a statement, and say it to all once it is on the disk: what was signed must not be forgotten."""
        statement = self.make(kind, content)
        if self.membership.add(statement):
            self._unsaid.append((self.append(Mark.STATEMENT, statement.text.encode()), statement))

    def sign_view(self) -> None:
        """Sign the set of lost links as it is known now, which has grown."""
        self.view_since = self.now
        self.state(VIEW, [*self.membership.view, self.public_key(self.membership.lost)])

    def spread(self, statement: Statement, source: str = "") -> None:
        """Say a statement to all neighbours but the one that it came from."""
        message = self.message(Kind.STATEMENT, wire.text_body(statement.text))
        for link in self.links.values():
            if link.name != source:
                self.write(link, message)

    def tell_statements(self, link: Link, stream: int | None = None) -> None:
        """Say all that is known and on the disk to one neighbour."""
        waiting = {statement.text for _, statement in self._unsaid}
        for statement in self.membership.statements:
            if statement.text not in waiting:
                self.write(link, self.message(Kind.STATEMENT, wire.text_body(statement.text)), stream)

    def durable(self, records: int) -> None:
        """Say what may be said now that these records are on the disk."""
        told: dict[str, None] = {}
        while self._unsafe and self._unsafe[0][0] < records:
            _, name, round_, epoch = self._unsafe.popleft()
            if epoch == self.epoch and (link := self.links.get(name)) is not None:
                link.safe_here = max(link.safe_here, round_)
                if link.owes_word or link.finished:
                    told[name] = None
        for name in told:
            self.write(self.links[name], self.message(Kind.ACK))
        while self._unsaid and self._unsaid[0][0] < records:
            self.spread(self._unsaid.popleft()[1])
        while self._farewells and self._farewells[0][0] < records:
            _, epoch, name = self._farewells.popleft()
            if epoch == self.epoch and name in self.links:
                self.write(self.links[name], self.message(Kind.ACK, tag=1))

    def fail(self, error: Exception, warning: str = "", origin: tuple[int, int] | None = None) -> None:
        """Note the first failure, tell the solver, and pass the reason on to all neighbours.

        ``origin`` is the place of the site that puts the run off, and which start of it that is.
        """
        if self.failure is not None:
            return
        self.failure = error
        place, start = origin or (self.setup.sites.index(self.setup.name), self.past.instance.start)
        kind = Kind.PARK if isinstance(error, ParkedError) else Kind.ABORT
        self.warning = self.message(kind, wire.text_body(warning[:2000]), place, start)
        self._met_before = {name: self.membership.instance(name) for name in self.links}
        self._effects.append(ev.Fail(error))
        self.warn_all()

    def warn_all(self) -> None:
        """Tell all neighbours why the run has ended; nothing if that concerns this site alone."""
        for link in self.links.values():
            self.warn(link)

    def warn(self, link: Link) -> None:
        """Tell a neighbour why the run has ended; one that has been started again since need not be put off again."""
        if link.stream is None or not self.warning.payload_bytes:
            return
        if self.warning.kind is Kind.ABORT or self.membership.instance(link.name) == self._met_before.get(link.name):
            self.write(link, self.warning)
        link.warned = True

    def log(self, text: str, level: int = logging.WARNING) -> None:
        self._effects.append(ev.Log(level, text))
