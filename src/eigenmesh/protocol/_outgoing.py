"""First layer of a site's machine: everything that it sends, writes to the journal and records in the audit."""

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
# After such a record no site may start over: its numbers, or masks made with its key, have been used.
USED = (Mark.FRAME, Mark.MASKED)


class Outgoing:
    """The state that all layers share, rebuilt from the journal, and the methods that send something.

    Attributes
    ----------
    membership : all signed statements that are known here, of any epoch.
    lost : the lost links of the current epoch; ``epoch`` is their number.
    links : one per neighbour that is a member of the epoch.
    round : the next round that the solver will ask for.
    finished_at : an earlier process said farewell before this round, so the neighbours may be gone.
    masked : records of what earlier processes masked in this epoch, by the number of the average; ``next_masked`` is
        the smallest number that may come next.
    masked_record : the last record of masked words; no numbers are sent before it is on the disk.
    heard : running hashes of what the solver has heard in this epoch, see ``masking.Transcript``.
    ending_at : how much another site had heard when it asked, before it ends the run, what the others have heard.
    doubt : an error that will end the run, once the sites have compared what they have heard, and its warning;
        ``doubt_since`` is when this site has signed what it has heard.
    failure : the error that has ended the run at this site.
    view_since : when the set of lost links last grew; the members must agree on it within a bounded time.
    """

    masked: dict[int, JournalRecord]
    next_masked: int
    masked_record: int
    heard: list[bytes]
    ending_at: int | None

    def __init__(self, setup: Setup, past: Past, random: Random, now: float) -> None:
        self.setup, self.past, self.random, self.now = setup, past, random, now
        self.failure: Exception | None = None
        self.doubt: tuple[Exception, str] | None = None
        self.doubt_since: float | None = None
        self.view_since = now
        self._effects: list[ev.Effect] = []
        self._audit_failed = self._journal_failed = False
        # The next number of a record, and three queues of what may be sent once a record is on the disk:
        # acknowledgements, statements and answers to farewells.
        self._records = len(past.entries)
        self._not_durable: deque[tuple[int, str, int, int]] = deque()
        self._unsent: deque[tuple[int, Statement]] = deque()
        self._farewells: deque[tuple[int, int, str]] = deque()
        self.start = b""
        lost: tuple[tuple[str, str], ...] = ()
        for entry in past.entries:
            if entry.mark is Mark.EPOCH:
                lost, self.start = read_epoch(past.read(entry))
        self.membership = Membership(setup.name, setup.sites, setup.edges, lost)
        for entry in past.entries:
            if entry.mark is Mark.STATEMENT:
                # Not checked again: it was checked before it was written, and its certificate may have expired since.
                self.membership.add(read_statement(past.read(entry).decode(), None, setup.run.run_id))
        self.membership.fresh = not any(entry.mark in USED for entry in past.entries)
        self.enter(lost)
        self._replay()
        self.membership.add(self.make(INSTANCE, self.own_instance))

    def enter(self, lost: tuple[tuple[str, str], ...]) -> None:
        """Begin an epoch, with its own links, and rounds from 0."""
        self.lost, self.epoch, self.round, self.finished_at = lost, len(lost), 0, 0
        self.masked, self.next_masked, self.masked_record = {}, 0, -1
        self.heard, self.ending_at = [], None
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
        """The statement of this process about itself: its journal, its start, and its key of the first epoch."""
        return [*self.past.instance, self.public_key(())]

    def public_key(self, lost: tuple[tuple[str, str], ...]) -> str:
        """This site's public key for masks in an epoch, in hexadecimal; empty without masks."""
        return self.past.site_key(lost).public.hex() if self.setup.masked else ""

    @property
    def mask_context(self) -> MaskContext:
        """The context that binds masks to the current epoch."""
        return MaskContext(self.run_id.hex(), self.epoch, bytes.fromhex(self.setup.run.digest), self.members)

    def _replay(self) -> None:
        """Prepare the journal's records of this epoch to be used again."""
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
                link.next_in = link.safe_here = link.safe_reported = entry.round + 1

    def message(
        self, kind: Kind, body: Body = NO_TEXT, round_: int | None = None, tag: int = 0, acknowledged: int = 0
    ) -> Message:
        round_ = self.round if round_ is None else round_
        frame = wire.encode(kind, self.run_id, self.epoch, round_, acknowledged, body, tag)
        return Message(kind, round_, tag, *body[1:], frame)

    def write(self, link: Link, message: Message, stream: int | None = None) -> None:
        """Record a message in the audit and send it; once the audit fails, only the reason of the end is sent."""
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
        link.safe_reported, link.unreported_bytes = link.safe_here, 0
        link.bytes_out += len(data)
        if message.kind is Kind.DATA:
            link.written = max(link.written, message.round + 1)

    def append(self, mark: Mark, content: bytes = b"", neighbour: str = "", round_: int = 0) -> int:
        """Write a record to the journal, and return its number. A journal that has failed once gets nothing more."""
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
        """Sign a statement, and send it to all once it is on the disk: a site must not forget what it has signed."""
        statement = self.make(kind, content)
        if self.membership.add(statement):
            self._unsent.append((self.append(Mark.STATEMENT, statement.text.encode()), statement))

    def sign_view(self) -> None:
        """Sign the current set of lost links, after it has grown."""
        self.view_since = self.now
        self.state(VIEW, [*self.membership.view, self.public_key(self.membership.lost)])

    def spread(self, statement: Statement, source: str = "") -> None:
        """Send a statement to all neighbours except the one that it came from."""
        message = self.message(Kind.STATEMENT, wire.text_body(statement.text))
        for link in self.links.values():
            if link.name != source:
                self.write(link, message)

    def send_statements(self, link: Link, stream: int | None = None) -> None:
        """Send all statements that are on the disk to one neighbour."""
        waiting = {statement.text for _, statement in self._unsent}
        for statement in self.membership.statements:
            if statement.text not in waiting:
                self.write(link, self.message(Kind.STATEMENT, wire.text_body(statement.text)), stream)

    def durable(self, records: int) -> None:
        """Send everything that was waiting for these records to be on the disk."""
        due: dict[str, None] = {}
        while self._not_durable and self._not_durable[0][0] < records:
            _, name, round_, epoch = self._not_durable.popleft()
            if epoch == self.epoch and (link := self.links.get(name)) is not None:
                link.safe_here = max(link.safe_here, round_)
                if link.owes_acknowledgement or link.finished:
                    due[name] = None
        for name in due:
            self.write(self.links[name], self.message(Kind.ACK))
        while self._unsent and self._unsent[0][0] < records:
            self.spread(self._unsent.popleft()[1])
        while self._farewells and self._farewells[0][0] < records:
            _, epoch, name = self._farewells.popleft()
            if epoch == self.epoch and name in self.links:
                self.write(self.links[name], self.message(Kind.ACK, tag=1))

    def fail(self, error: Exception, warning: str = "", origin: tuple[int, int] | None = None) -> None:
        """Keep the first failure, report it to the solver, and pass the reason on to all neighbours.

        ``origin`` is the index of the site that parks the run, and the number of that site's start.
        """
        if self.failure is not None:
            return
        self.failure = error
        place, start = origin or (self.setup.sites.index(self.setup.name), self.past.instance.start)
        kind = Kind.PARK if isinstance(error, ParkedError) else Kind.ABORT
        self.warning = self.message(kind, wire.text_body(warning[:2000]), place, start)
        self._instances_at_failure = {name: self.membership.instance(name) for name in self.links}
        self._effects.append(ev.Fail(error))
        self.warn_all()

    def warn_all(self) -> None:
        """Tell all neighbours why the run has ended, unless the failure concerns only this site."""
        for link in self.links.values():
            self.warn(link)

    def warn(self, link: Link) -> None:
        """Tell a neighbour why the run has ended. One that was started again since then is not parked again."""
        if link.stream is None or not self.warning.payload_bytes:
            return
        is_same = self.membership.instance(link.name) == self._instances_at_failure.get(link.name)
        if self.warning.kind is Kind.ABORT or is_same:
            self.write(link, self.warning)
        link.warned = True

    def log(self, text: str, level: int = logging.WARNING) -> None:
        self._effects.append(ev.Log(level, text))
