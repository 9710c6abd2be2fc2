"""What a site sends, writes to its journal and records in its audit, and the order in which it may do so.

Each message is recorded in the audit before it is written to a stream. Three kinds of messages wait until a record of
the journal is on the disk: the acknowledgement of a round, the acknowledgement of a farewell, and a statement of this
site. Otherwise a site that crashes could forget what others rely on. ``Outbox`` holds these queues. It also holds the
current ``Epoch`` with a ``Link`` for each neighbour, because every frame names its epoch and acknowledges a round of
its link.
"""

from __future__ import annotations

import logging
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from eigenmesh.errors import FrameError, InputError, ParkedError
from eigenmesh.protocol import effects as ev
from eigenmesh.protocol import wire
from eigenmesh.protocol.membership import Membership
from eigenmesh.protocol.setup import Clock, Edge, Past, Setup, Statement, Topic, make_statement
from eigenmesh.protocol.wire import Body, Frame, JournalRecord, Kind, Mark

# Most bytes that are kept for a neighbour until they are on its disk. Then the sender waits. More for larger messages.
WINDOW_BYTES = 64 << 20
AUDIT, JOURNAL = "audit", "journal"
NO_TEXT = wire.text_body("")
# After such a record no site may start over: its numbers, or masks made with its key, have been used.
USED = (Mark.FRAME, Mark.MASKED)


class Message(NamedTuple):
    """An outgoing frame, shared by its receivers. The acknowledged round in it is updated for each of them."""

    kind: Kind
    round: int
    tag: int
    shapes: tuple[tuple[int, ...], ...]
    dtypes: tuple[str, ...]
    payload_bytes: int
    sha256: bytes
    frame: bytes


class Arrived(NamedTuple):
    """A frame that has arrived, and its bytes as they were sent."""

    frame: Frame
    data: bytes


@dataclass
class Link:
    """The state of one link.

    Attributes
    ----------
    stream : number of the stream whose greeting was accepted, or None while there is none.
    retained : DATA messages that the neighbour has not acknowledged yet, oldest first.
    safe_there, safe_here : every round below this one is on the neighbour's disk; on our disk.
    used : frames that are not on our disk yet: the record of the journal that each is in, and its round.
    owes_farewell : the neighbour's farewell is here, but not on our disk yet, so it was not acknowledged.
    has_there : the neighbour has every round below this one, perhaps only in memory.
    written : every round below this one has been written to the neighbour at least once.
    inbox : frames that have arrived and were not used yet, by round.
    next_in : the neighbour may send rounds from this one on.
    safe_reported : the last ``safe_here`` sent to the neighbour; ``unreported_bytes`` of frames were used since.
    replay : records of the journal that were not used yet.
    met : the process whose greeting was accepted last, or None before the first one.
    joined : the neighbour has shown a sign of life, even if only a refusal, or others have met it.
    finished : the neighbour has said farewell; ``complete``: to this process, after all that it had to send.
    farewell_said, farewell_taken : our farewell was sent, and it was acknowledged.
    warned : the neighbour was sent our reason for the end of the run.
    left : it has said that it cannot resume, so it is lost for good.
    refusal : why there is no stream, if known.
    their_round : its round at its last sign of life.
    bytes_out, bytes_in : of whole frames, control messages included.
    """

    name: str
    window_frames: int
    window_bytes: int
    heard: float
    stream: int | None = None
    retained: deque[Message] = field(default_factory=deque)
    retained_bytes: int = 0
    safe_there: int = 0
    has_there: int = 0
    written: int = 0
    inbox: dict[int, Arrived] = field(default_factory=dict)
    inbox_bytes: int = 0
    next_in: int = 0
    safe_here: int = 0
    used: deque[tuple[int, int]] = field(default_factory=deque)
    owes_farewell: bool = False
    safe_reported: int = 0
    unreported_bytes: int = 0
    replay: deque[JournalRecord] = field(default_factory=deque)
    met: tuple[str, int, str] | None = None
    joined: bool = False
    lost: bool = False
    finished: bool = False
    complete: bool = False
    farewell_said: bool = False
    farewell_taken: bool = False
    warned: bool = False
    left: bool = False
    strikes: int = 0
    attempts: int = 0
    refusal: str = ""
    their_round: int = 0
    bytes_out: int = 0
    bytes_in: int = 0

    @property
    def full(self) -> bool:
        return len(self.retained) >= self.window_frames or self.retained_bytes >= self.window_bytes

    def retain(self, message: Message) -> bool:
        """Keep a DATA message until it is acknowledged. Returns whether it must be written to the stream."""
        if message.round < self.safe_there or self.finished:
            return False
        self.retained.append(message)
        self.retained_bytes += len(message.frame)
        return message.round >= self.has_there

    def acknowledge(self, round_: int) -> None:
        """Drop the kept messages of every round below this one."""
        self.safe_there = max(self.safe_there, round_)
        while self.retained and self.retained[0].round < round_:
            self.retained_bytes -= len(self.retained.popleft().frame)

    def meet(self, stream: int, needs: int, safe: int, now: float) -> list[Message]:
        """Use a new stream. Returns the messages that the neighbour still needs, from the round that it asks for."""
        self.stream, self.has_there = stream, needs
        self.acknowledge(safe)
        self.joined, self.heard = True, now
        self.lost = self.farewell_said = self.warned = False
        self.refusal, self.attempts = "", 0
        return [message for message in self.retained if message.round >= needs]

    def join(self, now: float) -> None:
        """Note that the neighbour has started. From then on ``patience_s`` applies instead of ``join_s``."""
        if not self.joined:
            self.joined, self.heard = True, now

    def finish(self) -> None:
        self.finished = True
        self.retained.clear()
        self.retained_bytes = 0

    def put(self, arrived: Arrived) -> None:
        """Store a frame unless its round is here already. Raises FrameError if it is beyond the window."""
        round_, size = arrived.frame.round, len(arrived.data)
        self.their_round = round_
        if round_ < self.next_in:
            return
        if len(self.inbox) >= 2 * self.window_frames or self.inbox_bytes + size > 2 * self.window_bytes:
            raise FrameError(f"round {round_} comes too early: {len(self.inbox)} frames are waiting to be used.")
        self.inbox[round_] = arrived
        self.inbox_bytes += size
        self.next_in = round_ + 1

    def take(self, round_: int) -> Arrived | None:
        arrived = self.inbox.pop(round_, None)
        if arrived is not None:
            self.inbox_bytes -= len(arrived.data)
        return arrived

    def forget(self, round_: int) -> None:
        """Drop this round and all later ones, so that they are sent again."""
        for later in [known for known in self.inbox if known >= round_]:
            self.take(later)
        self.next_in = min(self.next_in, round_)
        self.strikes += 1

    def start_over(self) -> None:
        """The neighbour has a new journal, perhaps for other data: drop all of its frames that were not used yet."""
        self.inbox.clear()
        self.inbox_bytes = self.next_in = 0

    @property
    def owes_acknowledgement(self) -> bool:
        """Whether so much is on our disk that the neighbour should get an acknowledgement now."""
        behind, many_bytes = self.safe_here - self.safe_reported, self.unreported_bytes >= self.window_bytes // 4
        return behind >= max(1, self.window_frames // 4) or (behind > 0 and many_bytes)


@dataclass
class Epoch:
    """The part of a run between two losses: who takes part in it, and which round comes next.

    Attributes
    ----------
    lost : the links that were lost before it.
    run_id : the id that its frames carry, so that those of another epoch are refused.
    members : the sites that take part, in the order of the network.
    links : one for each neighbour that takes part.
    round : the next round that the solver will ask for.
    """

    lost: tuple[Edge, ...]
    run_id: bytes
    members: tuple[str, ...]
    links: dict[str, Link]
    round: int = 0

    @classmethod
    def after(cls, setup: Setup, lost: tuple[Edge, ...], now: float) -> Epoch:
        """The epoch after these links were lost, at its first round."""
        left = Membership(setup.name, setup.sites, setup.edges, lost)
        window = max(WINDOW_BYTES, 4 * setup.run.max_message_bytes)
        links = {
            name: Link(name, setup.window_frames, window, now)
            for name in setup.neighbours
            if any(name in link and setup.name in link for link in left.links)
        }
        return cls(lost, setup.run.id_of(lost), left.members, links)

    @property
    def number(self) -> int:
        return len(self.lost)

    def recall(self, setup: Setup, past: Past) -> None:
        """Prepare the journal's frames of this epoch to be used again."""
        for entry in past.entries:
            link = self.links.get(setup.sites[entry.sender])
            if link is None or entry.epoch != self.number:
                continue
            if entry.mark is Mark.DONE:
                link.finish()
            elif entry.mark is Mark.FRAME:
                link.replay.append(entry)
                link.next_in = link.safe_here = link.safe_reported = entry.round + 1


class Outbox:
    """Collects the effects of a step: messages, records of the journal, the failure of the run, lines of the log.

    Parameters
    ----------
    setup, past : the site, and its journal when the process started. The parts that use the outbox read them there.
    membership : the statements that are known here. Those that this site signs are added to it.
    lost : the lost links of the epoch in which the process starts.
    clock : the time of the current step.

    Attributes
    ----------
    epoch : the current epoch.
    failure : the error that has ended the run at this site.
    doubt : an error that will end the run once the sites have compared what they have heard.
    """

    def __init__(self, setup: Setup, past: Past, membership: Membership, lost: tuple[Edge, ...], clock: Clock) -> None:
        self.setup, self.past, self.membership, self.clock = setup, past, membership, clock
        self.failure: Exception | None = None
        self.doubt: Exception | None = None
        self._effects: list[ev.Effect] = []
        # Which of journal and audit cannot be written any more.
        self._failed: set[str] = set()
        # Records below the first number are on the disk. The second number is that of the next record.
        self._durable = self._records = len(past.entries)
        # Statements of this site that are not on the disk yet, and so may not be sent.
        self._unsent: deque[Statement] = deque()
        # What is done once so many records are on the disk.
        self._waiting: deque[tuple[int, Callable[[], None]]] = deque()
        self.epoch = Epoch.after(setup, lost, clock.now)
        self.epoch.recall(setup, past)

    def enter(self, lost: tuple[Edge, ...]) -> None:
        """Begin the epoch after these links were lost."""
        self.epoch = Epoch.after(self.setup, lost, self.clock.now)

    def emit(self, effect: ev.Effect) -> None:
        """Add an effect to those of the current step."""
        self._effects.append(effect)

    def take_effects(self) -> list[ev.Effect]:
        """The effects of the step, which is over."""
        effects, self._effects = self._effects, []
        return effects

    def log(self, text: str, level: int = logging.WARNING) -> None:
        self.emit(ev.Log(level, text))

    # Messages.

    def message(
        self, kind: Kind, body: Body = NO_TEXT, round_: int | None = None, tag: int = 0, acknowledged: int = 0
    ) -> Message:
        round_ = self.epoch.round if round_ is None else round_
        frame = wire.encode(kind, self.epoch.run_id, self.epoch.number, round_, acknowledged, body, tag)
        return Message(kind, round_, tag, *body[1:], frame)

    def write(self, link: Link, message: Message, stream: int | None = None) -> None:
        """Record a message in the audit and send it; once the audit fails, only the reason of the end is sent."""
        stream = link.stream if stream is None else stream
        if stream is None:
            return
        audited = AUDIT not in self._failed
        if not audited and message.kind not in (Kind.ABORT, Kind.PARK):
            return
        data = wire.acknowledging(message.frame, link.safe_here)
        again = message.kind is Kind.DATA and message.round < link.written
        sent = None
        if audited:
            what = message.shapes, message.dtypes, message.payload_bytes, len(data), message.sha256.hex()
            kind = wire.KIND_NAMES[message.kind]
            sent = ev.Sent(link.name, kind, self.epoch.number, message.round, *what, again)
        self._effects.append(ev.Write(stream, data, sent))
        link.safe_reported, link.unreported_bytes = link.safe_here, 0
        link.bytes_out += len(data)
        if message.kind is Kind.DATA:
            link.written = max(link.written, message.round + 1)

    def write_text(
        self, link: Link, kind: Kind, text: str, round_: int | None = None, tag: int = 0, stream: int | None = None
    ) -> None:
        """Send a control message over the link's stream, or over one whose greeting is not accepted yet."""
        self.write(link, self.message(kind, wire.text_body(text), round_, tag), stream)

    def write_all(self, message: Message, source: str = "") -> None:
        """Send a message to all neighbours except the one that it came from."""
        for link in self.epoch.links.values():
            if link.name != source:
                self.write(link, message)

    # The journal, and what waits for it.

    def append(self, mark: Mark, content: bytes = b"", neighbour: str = "", round_: int = 0) -> int:
        """Write a record to the journal, and return its number. A journal that has failed once gets nothing more."""
        sender = self.setup.sites.index(neighbour or self.setup.name)
        if JOURNAL not in self._failed:
            written = wire.record(mark, content, sender, self.epoch.number, round_)
            self._effects.append(ev.Append(written, urgent=mark is Mark.MASKED))
        self._records += 1
        if mark in USED:
            self.membership.fresh = False
        return self._records - 1

    def is_durable(self, number: int) -> bool:
        """Whether the record with this number is on the disk."""
        return number < self._durable

    def keep_frame(self, link: Link, data: bytes, round_: int) -> None:
        """Write the frame of a round to the journal. It is acknowledged once it is on the disk."""
        link.used.append((self.append(Mark.FRAME, data, link.name, round_), round_))

    def keep_farewell(self, link: Link) -> None:
        """Write a neighbour's farewell to the journal. It is acknowledged once it is on the disk."""
        link.owes_farewell = True
        self.append(Mark.DONE, b"", link.name)
        self.once_durable(lambda: self.acknowledge_farewell(link))

    def durable(self, records: int) -> None:
        """Send everything that was waiting for these records to be on the disk."""
        self._durable = max(self._durable, records)
        for link in self.epoch.links.values():
            before = link.safe_here
            while link.used and link.used[0][0] < records:
                link.safe_here = link.used.popleft()[1] + 1
            if link.safe_here > before and (link.owes_acknowledgement or link.finished):
                self.write(link, self.message(Kind.ACK))
        while self._waiting and self._waiting[0][0] <= self._durable:
            self._waiting.popleft()[1]()

    def once_durable(self, action: Callable[[], None]) -> None:
        """Do this when all records so far are on the disk, after everything that waits already."""
        if self._durable < self._records:
            self._waiting.append((self._records, action))
        else:
            action()

    def acknowledge_farewell(self, link: Link) -> None:
        link.owes_farewell = False
        self.write(link, self.message(Kind.ACK, tag=1))

    def disk_failed(self, what: str) -> None:
        """Note that the audit or the journal cannot be written."""
        self._failed.add(what)

    # Statements.

    def public_key(self, lost: tuple[Edge, ...]) -> str:
        """This site's public key for masks in an epoch, in hexadecimal; empty without masks."""
        return self.past.site_key(lost).public.hex() if self.setup.masked else ""

    def make(self, kind: str, content: Any) -> Statement:
        return make_statement(self.setup.keyring, self.setup.run.run_id, kind, self.setup.name, content)

    def make_instance(self) -> Statement:
        """The statement of this process about itself: its journal, its start, and its key of the first epoch."""
        return self.make(Topic.INSTANCE, [*self.past.instance, self.public_key(())])

    def state(self, kind: str, content: Any) -> None:
        """Sign a statement, and send it to all once it is on the disk: a site must not forget what it has signed."""
        statement = self.make(kind, content)
        if self.membership.add(statement):
            self.append(Mark.STATEMENT, statement.text.encode())
            self._unsent.append(statement)
            # The oldest is this one by then.
            self.once_durable(lambda: self.spread(self._unsent.popleft()))

    @property
    def has_unsent(self) -> bool:
        """Whether a statement of this site waits for the disk."""
        return bool(self._unsent)

    def spread(self, statement: Statement, source: str = "") -> None:
        """Send a statement to all neighbours except the one that it came from."""
        self.write_all(self.message(Kind.STATEMENT, wire.text_body(statement.text)), source)

    def send_statements(self, link: Link, stream: int | None = None) -> None:
        """Send all statements that are on the disk to one neighbour."""
        for statement in self.membership.statements:
            if statement not in self._unsent:
                self.write_text(link, Kind.STATEMENT, statement.text, stream=stream)

    # The end of the run because of an error.

    def end(self, error: Exception) -> None:
        """End the run at all sites: this one is the first to fail."""
        self.fail(error, f"{self.setup.name} ended the run: {error}")

    def end_misfit(self, text: str) -> None:
        """End the run at all sites: the journal is not of this run. The others need not know the details."""
        error = InputError(f"the journal of {self.setup.name} does not fit this run: {text}.")
        self.fail(error, f"{self.setup.name} ended the run: its journal does not fit it.")

    def suspect(self, error: Exception) -> None:
        """End the run with this error, but only after the sites have compared what they have heard."""
        self.doubt = self.doubt or error

    def fail(self, error: Exception, warning: str = "", origin: tuple[int, int] | None = None) -> None:
        """Keep the first failure, report it to the solver, and pass the reason on to all neighbours.

        ``origin`` is the index of the site that parks the run, and the number of that site's start.
        """
        if self.failure is not None:
            return
        self.failure = error
        if self.setup.has_result:
            # The others may go on without this site.
            warning = ""
        site, start = origin or (self.setup.sites.index(self.setup.name), self.past.instance.start)
        kind = Kind.PARK if isinstance(error, ParkedError) else Kind.ABORT
        self._warning = self.message(kind, wire.text_body(warning[:2000]), site, start)
        self._instances_at_failure = {name: self.membership.instance(name) for name in self.epoch.links}
        self.tell_failure()

    def tell_failure(self) -> None:
        """Report the failure to the solver, and tell all neighbours why the run has ended."""
        if self.failure is None:
            return
        self.emit(ev.Fail(self.failure))
        for link in self.epoch.links.values():
            self.warn(link)

    def warn(self, link: Link) -> None:
        """Tell a neighbour why the run has ended, unless the failure concerns only this site.

        A neighbour that was started again since then is not parked again.
        """
        if link.stream is None or not self._warning.payload_bytes:
            return
        is_same = self.membership.instance(link.name) == self._instances_at_failure.get(link.name)
        if self._warning.kind is Kind.ABORT or is_same:
            self.write(link, self._warning)
        link.warned = True
