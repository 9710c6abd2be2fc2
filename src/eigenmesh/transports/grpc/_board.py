"""Where the thread that computes and the thread that communicates meet: links, rounds, failures, one lock."""

import hashlib
import logging
import queue
import secrets
import threading
import time
from collections.abc import Callable, Iterable
from dataclasses import InitVar, dataclass
from functools import cached_property

from eigenmesh.errors import AbortedError, FrameError, InputError, LostNeighbourError, ParkedError, TransportError
from eigenmesh.transports.grpc import _wire as wire
from eigenmesh.transports.grpc._link import WINDOW_BYTES, Letter, Link, Neighbour, Received, Sent
from eigenmesh.transports.grpc._wire import Body, Frame, Kind

logger = logging.getLogger("eigenmesh.transports.grpc")

# How often a waiting thread looks whether the thread that it waits for is still there.
POLL_S = 0.5
NO_TEXT = wire.text_body("")


@dataclass(frozen=True)
class Run:
    """What the sites of a run must agree on before any of them works.

    No other run has the ``run_id``, 16 bytes. The epoch counts the links that have been lost since the start. The
    manifest says what is to be computed; sites whose texts differ refuse each other. ``max_message_bytes`` counts
    arrays alone. The fingerprint of this site's data is kept in its journal to detect changed data, and never sent.
    """

    run_id: bytes
    epoch: int
    manifest: str
    max_message_bytes: int
    fingerprint: str = ""

    def __post_init__(self) -> None:
        if len(self.run_id) != 16:
            raise InputError(f"run_id has {len(self.run_id)} bytes; it must have 16.")
        if not 0 <= self.epoch < 1 << 32:
            raise InputError(f"epoch = {self.epoch} must be from 0 to 2^32 - 1.")
        if self.max_message_bytes < 1:
            raise InputError(f"max_message_bytes = {self.max_message_bytes} must be at least 1.")
        wire.text_body(self.manifest)

    @cached_property
    def digest(self) -> str:
        return hashlib.sha256(self.manifest.encode()).hexdigest()


@dataclass(eq=False)
class Board:
    """The state of all links of one site. ``changed`` is the lock, and is notified when a wait may be over."""

    name: str
    run: Run
    neighbours: InitVar[Iterable[Neighbour]]
    patience_s: float
    join_s: float
    on_sent: Callable[[Sent], None] | None
    on_control: Callable[[int, str], None] | None

    def __post_init__(self, neighbours: Iterable[Neighbour]) -> None:
        window = max(WINDOW_BYTES, 4 * self.run.max_message_bytes)
        self.links = {neighbour.rank: Link(neighbour, window) for neighbour in neighbours}
        self.changed = threading.Condition()
        self.round = 0
        self.awaited: dict[int, int] = {}
        self.awaits_room = self.resumed = self.closing = False
        self.failure: Exception | None = None
        self.interruption: Exception | None = None
        self.controls: queue.SimpleQueue[tuple[int, str]] = queue.SimpleQueue()
        # Set by the thread that communicates: wakes the writers of these neighbours, or closes their streams.
        self.wake: Callable[[Iterable[int]], None] = lambda ranks: None
        self.cut: Callable[[int], None] = lambda rank: None
        # Until its last word is safe here, a neighbour stays; without a journal nothing is safer than having it.
        self.on_farewell: Callable[[Link, bytes], None] = lambda link, data: self.farewell_safe(link.neighbour.rank)
        self.on_met: Callable[[Link], None] = lambda link: None
        # What a site is recognised by when it comes back: that of its journal, which a new one would not have.
        self.identity = secrets.token_hex(16)

    def next_frame(self, link: Link) -> bytes | None:
        """The next frame to write to the neighbour, on record already; None if there is none."""
        while (letter := self._next_letter(link)) is not None:
            data = wire.acknowledging(letter.frame, link.safe_here)
            again = letter.kind is Kind.DATA and letter.round < link.written
            if self.record(link, letter, len(data), again):
                if letter.kind is Kind.DATA:
                    link.written = max(link.written, letter.round + 1)
                return data
        return None

    def _next_letter(self, link: Link) -> Letter | None:
        with self.changed:
            if link.control:
                letter = link.control.popleft()
            elif link.unsent:
                letter = link.unsent.popleft()
            elif link.farewell_due and not link.farewell_said and self.failure is None:
                # After all data, so that a neighbour that hears it has everything.
                link.farewell_said = True
                letter = self.letter(Kind.DONE, self.round, 0, NO_TEXT)
            else:
                return None
            link.told, link.untold_bytes = link.safe_here, 0
            return letter

    def letter(self, kind: Kind, round_: int, tag: int, body: Body, acknowledged: int = 0) -> Letter:
        frame = wire.encode(kind, self.run.run_id, self.run.epoch, round_, acknowledged, body, tag)
        return Letter(kind, round_, tag, *body[1:], frame)

    def record(self, link: Link, letter: Letter, size: int, again: bool = False) -> bool:
        """Put a frame on record before it leaves; False if it must stay, as numbers do that cannot be recorded."""
        if self.on_sent is not None:
            name, kind, epoch = link.neighbour.name, wire.KIND_NAMES[letter.kind], self.run.epoch
            what = letter.shapes, letter.dtypes, letter.payload_bytes
            try:
                self.on_sent(Sent(name, kind, epoch, letter.round, *what, size, letter.sha256.hex(), again))
            except Exception as error:
                if self.failure is None:
                    logger.error("what leaves %s can no longer be put on record: %s", self.name, error)
                parks = isinstance(error, ParkedError)
                self.fail(error, str(error) if parks else f"{self.name} ended the run: its audit failed: {error}")
                # Words still leave, for the others have to hear why the run is over; but not that all has been sent.
                if letter.kind in (Kind.DATA, Kind.DONE):
                    return False
        link.bytes_out += size
        return True

    def tell(self, link: Link, kind: Kind, body: Body = NO_TEXT, tag: int = 0) -> None:
        """Queue a control frame; the lock is held."""
        link.control.append(self.letter(kind, self.round, tag, body))

    def safe(self, rounds: list[tuple[int, int]]) -> None:
        """These neighbours' rounds have reached the disk."""
        told = []
        with self.changed:
            for rank, round_ in rounds:
                link = self.links[rank]
                link.safe_here = max(link.safe_here, round_)
                if link.owes_word or link.finished:
                    self.tell(link, Kind.ACK)
                    told.append(rank)
        if told:
            self.wake(told)

    def deliver(self, link: Link, data: bytes) -> None:
        """Check a frame and act on it; raises FrameError if it is not one of this run's."""
        frame = wire.decode(data, self.run.max_message_bytes)
        if frame.run_id != self.run.run_id or frame.epoch != self.run.epoch:
            raise FrameError(f"a frame of another run or epoch ({frame.run_id.hex()}, {frame.epoch}).")
        with self.changed:
            link.bytes_in += len(data)
            link.heard, link.lost = time.monotonic(), False
            # A site that resumes may find that its neighbours are ahead of it.
            if frame.acknowledged > self.round and not self.resumed:
                raise FrameError(f"round {frame.acknowledged - 1} is acknowledged, but {self.round - 1} is the last.")
            # Nearly every frame acknowledges something; do not wake a thread that waits for numbers for that.
            if link.acknowledge(frame.acknowledged) and self.awaits_room:
                self.changed.notify_all()
            if frame.kind is Kind.DATA:
                self._arrived(link, Received(frame, data))
                return
        self._control(link, frame, data)

    def _arrived(self, link: Link, received: Received) -> None:
        rank, round_ = link.neighbour.rank, received.frame.round
        link.their_round = round_
        due = self.awaited.get(rank)
        if due is not None and round_ > due and link.next_in <= due:
            raise FrameError(f"round {round_} comes where {due} is due.")
        if link.put(received) and due == round_:
            del self.awaited[rank]
            if not self.awaited:
                self.changed.notify_all()

    def _control(self, link: Link, frame: Frame, data: bytes) -> None:
        if frame.kind is Kind.ABORT:
            self.fail(AbortedError(frame.text), frame.text)
        elif frame.kind is Kind.PARK:
            self.fail(ParkedError(frame.text), frame.text)
        elif frame.kind is Kind.HEARTBEAT:
            link.their_round = frame.round
            link.their_waiting = tuple(frame.text.split("\n")) if frame.text else ()
        elif frame.kind is Kind.DONE:
            with self.changed:
                link.complete = True
                link.finish()
                self.changed.notify_all()
            self.on_farewell(link, data)
        elif frame.kind is Kind.VIEW:
            self.controls.put((link.neighbour.rank, frame.text))
            if self.on_control is not None:
                self.on_control(link.neighbour.rank, frame.text)
        elif frame.kind is not Kind.ACK:
            raise FrameError(f"{frame.kind.name} is out of place from {link.neighbour.name}.")
        elif frame.tag:
            with self.changed:
                link.farewell_taken = True
                self.changed.notify_all()

    def farewell_safe(self, rank: int) -> None:
        """The neighbour's last word is safe here: it may go."""
        with self.changed:
            self.tell(self.links[rank], Kind.ACK, tag=1)
        self.wake([rank])

    def fail(self, error: Exception, flood: str | None = None) -> None:
        """Note the first failure, and pass its reason on to all neighbours."""
        with self.changed:
            if self.failure is not None or self.closing:
                return
            self.failure = error
            if flood is not None:
                kind = Kind.PARK if isinstance(error, ParkedError) else Kind.ABORT
                for link in self.links.values():
                    self.tell(link, kind, wire.text_body(flood))
            self.changed.notify_all()
        self.wake(self.links)

    def check(self) -> None:
        """Raise what has ended the run; the lock is held."""
        error = self.failure or self.interruption
        if error is not None:
            # A fresh traceback for each raise.
            raise error.with_traceback(None)
        if self.closing:
            raise TransportError("the transport is closed.")

    def check_lost(self, ranks: Iterable[int]) -> None:
        """Raise if one of these neighbours is lost; the lock is held."""
        lost = [link for link in map(self.links.__getitem__, ranks) if link.lost]
        if lost:
            for link in lost:
                # Addresses stay in the log of this site: what is raised may be told to all.
                logger.warning("%s is lost: %s", link.neighbour.name, link.refusal or "it is silent")
            silent = ", ".join(link.neighbour.name for link in lost if link.joined)
            absent = ", ".join(link.neighbour.name for link in lost if not link.joined)
            reasons = [f"has heard nothing from {silent} for {self.patience_s:g} s"] if silent else []
            reasons += [f"has waited {self.join_s:g} s for {absent} to join"] if absent else []
            raise LostNeighbourError(f"{self.name} {' and '.join(reasons)}.", [link.neighbour.name for link in lost])

    def refuse(self, who: str, reason: str) -> None:
        logger.warning("refused %s: %s", who, reason)
