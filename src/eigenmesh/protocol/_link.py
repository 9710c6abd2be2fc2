"""The state of the link to one neighbour: messages that are on their way to it and from it."""

import math
from collections import deque
from dataclasses import dataclass, field
from typing import NamedTuple

from eigenmesh.errors import FrameError
from eigenmesh.protocol._records import JournalRecord
from eigenmesh.protocol._wire import Frame, Kind, shapes_and_dtypes

# Most bytes that are kept for a neighbour until they are on its disk; then the sender waits. More for larger messages.
WINDOW_BYTES = 64 << 20
# How often a frame that does not fit is requested again; after that the neighbour itself must be wrong.
MAX_STRIKES = 3


class Message(NamedTuple):
    """An outgoing frame, shared by its receivers; the acknowledged round in it is updated for each of them."""

    kind: Kind
    round: int
    tag: int
    shapes: tuple[tuple[int, ...], ...]
    dtypes: tuple[str, ...]
    payload_bytes: int
    sha256: bytes
    frame: bytes


class Arrived(NamedTuple):
    frame: Frame
    data: bytes


class LinkStatus(NamedTuple):
    """The status of one link.

    ``heard_s`` is the time since the neighbour's last sign of life, infinite before the first; ``round`` and
    ``waiting_for`` are its round and the sites it waited for at that time. It is ``lost`` if it was silent for too
    long, and ``finished`` if it has said farewell. Bytes are those of whole frames, control messages included.
    ``problem`` is why there is no stream, if known.
    """

    name: str
    connected: bool
    heard_s: float
    lost: bool
    round: int
    waiting_for: tuple[str, ...]
    bytes_out: int
    bytes_in: int
    finished: bool
    problem: str


@dataclass
class Link:
    """The state of one link.

    Attributes
    ----------
    stream : number of the stream whose greeting was accepted; None while there is none.
    retained : DATA messages that the neighbour has not acknowledged yet, oldest first.
    safe_there, safe_here : every round below this one is on the neighbour's disk; on our disk.
    has_there : the neighbour has every round below this one, perhaps only in memory.
    written : every round below this one has been written to the neighbour at least once.
    inbox : frames that have arrived and were not used yet, by round.
    next_in : the neighbour may send rounds from this one on.
    safe_reported : the last ``safe_here`` sent to the neighbour; ``unreported_bytes`` of frames were used since.
    replay : records of the journal that were not used yet.
    agreed : a greeting was accepted, last from the process ``met``.
    joined : the neighbour has shown a sign of life, even if only a refusal.
    finished : the neighbour has said farewell; ``complete``: to this process, after all that it had to send.
    farewell_said, farewell_taken : our farewell was sent; it was acknowledged.
    warned : the neighbour was sent our reason for the end of the run.
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
    safe_reported: int = 0
    unreported_bytes: int = 0
    replay: deque[JournalRecord] = field(default_factory=deque)
    agreed: bool = False
    met: tuple[str, int, str] | None = None
    joined: bool = False
    lost: bool = False
    finished: bool = False
    complete: bool = False
    farewell_said: bool = False
    farewell_taken: bool = False
    warned: bool = False
    strikes: int = 0
    attempts: int = 0
    refusal: str = ""
    their_round: int = 0
    their_waiting: tuple[str, ...] = ()
    bytes_out: int = 0
    bytes_in: int = 0

    def status(self, now: float) -> LinkStatus:
        return LinkStatus(
            name=self.name,
            connected=self.stream is not None,
            heard_s=now - self.heard if self.joined else math.inf,
            lost=self.lost,
            round=self.their_round,
            waiting_for=self.their_waiting,
            bytes_out=self.bytes_out,
            bytes_in=self.bytes_in,
            finished=self.finished,
            problem=self.refusal,
        )

    @property
    def full(self) -> bool:
        return len(self.retained) >= self.window_frames or self.retained_bytes >= self.window_bytes

    def retain(self, message: Message) -> bool:
        """Keep a DATA message until it is acknowledged; returns whether it must be written to the stream."""
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
        """Use a new stream; returns the messages that the neighbour still needs, from the round that it asks for."""
        self.stream, self.has_there = stream, needs
        self.acknowledge(safe)
        self.agreed, self.joined, self.heard = True, True, now
        self.lost = self.farewell_said = self.warned = False
        self.refusal, self.attempts = "", 0
        return [message for message in self.retained if message.round >= needs]

    def join(self, now: float) -> None:
        """Note the neighbour's first sign of life; from then on ``patience_s`` applies instead of ``join_s``."""
        if not self.joined:
            self.joined, self.heard = True, now

    def finish(self) -> None:
        self.finished = True
        self.retained.clear()
        self.retained_bytes = 0

    def put(self, arrived: Arrived) -> None:
        """Store a frame unless its round is here already; raises FrameError if it is beyond the window."""
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


def misfit_of(arrived: Arrived | None, message: Message) -> str:
    """What is wrong with a frame in this round; empty if it fits."""
    if arrived is None:
        return f"left out round {message.round}"
    frame = arrived.frame
    if frame.tag != message.tag:
        return f"sent a round of kind {frame.tag} where kind {message.tag} is expected"
    shapes, dtypes = shapes_and_dtypes(frame.arrays)
    if shapes != message.shapes or dtypes != message.dtypes:
        return f"sent shapes {shapes} of {dtypes} where {message.shapes} of {message.dtypes} are expected"
    return ""
