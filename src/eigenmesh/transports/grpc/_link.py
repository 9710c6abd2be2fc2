"""What one site keeps about one neighbour: what is on its way to it and from it."""

import time
from collections import deque
from dataclasses import dataclass, field
from typing import NamedTuple

from eigenmesh.errors import FrameError
from eigenmesh.transports.grpc._journal import Entry
from eigenmesh.transports.grpc._wire import Frame, Kind

# Frames that a neighbour may be ahead by, and that are kept until it has them safe; then the sender waits.
WINDOW_FRAMES = 256
WINDOW_BYTES = 64 << 20


@dataclass(frozen=True)
class Neighbour:
    """A site that shares a link with this one: its certificate has its name; its address is None if it dials us."""

    rank: int
    name: str
    address: str | None = None


class Sent(NamedTuple):
    """One message that is about to leave this site, for the neighbour of that name.

    ``bytes`` counts numbers or text alone, ``frame_bytes`` the head too; ``sha256`` is of the body, in hexadecimal.
    ``again`` says that the same round has gone to this neighbour before, over a link that broke.
    """

    neighbour: str
    kind: str
    epoch: int
    round: int
    shapes: tuple[tuple[int, ...], ...]
    dtypes: tuple[str, ...]
    bytes: int
    frame_bytes: int
    sha256: str
    again: bool


class Letter(NamedTuple):
    """A frame that goes out, whole, shared by its receivers; what it acknowledges is brought up to date for each."""

    kind: Kind
    round: int
    tag: int
    shapes: tuple[tuple[int, ...], ...]
    dtypes: tuple[str, ...]
    payload_bytes: int
    sha256: bytes
    frame: bytes


class Received(NamedTuple):
    frame: Frame
    data: bytes


@dataclass
class Link:
    """The state of one link; hold the lock of the board to read or change it.

    Attributes
    ----------
    retained : DATA letters that the neighbour has not acknowledged yet, oldest first.
    unsent : those of them that are still to be written to the present stream.
    safe_there, safe_here : every round below this one is on the neighbour's disk, on ours.
    inbox : frames that came and were not asked for yet, by round.
    next_in : the neighbour may send rounds from this one on.
    told : the last ``safe_here`` that the neighbour was told; ``untold_bytes`` have been used since.
    replay : records of the journal that were not asked for yet.
    identity : of the neighbour's journal, once it is known.
    agreed, agreed_now : a greeting has been agreed on, ever or since the last dial.
    joined : the neighbour has contacted this process, even if only to refuse it.
    finished : the neighbour has said that it is done; ``complete``: to this process, after all that it had to send.
    farewell_due, farewell_said, farewell_taken : the same word of ours, on its way.
    """

    neighbour: Neighbour
    window_bytes: int
    retained: deque[Letter] = field(default_factory=deque)
    unsent: deque[Letter] = field(default_factory=deque)
    control: deque[Letter] = field(default_factory=deque)
    retained_bytes: int = 0
    safe_there: int = 0
    has_there: int = 0
    written: int = 0
    inbox: dict[int, Received] = field(default_factory=dict)
    inbox_bytes: int = 0
    next_in: int = 0
    safe_here: int = 0
    told: int = 0
    untold_bytes: int = 0
    replay: deque[Entry] = field(default_factory=deque)
    identity: str = ""
    agreed: bool = False
    agreed_now: bool = False
    connected: bool = False
    joined: bool = False
    heard: float = field(default_factory=time.monotonic)
    lost: bool = False
    finished: bool = False
    complete: bool = False
    farewell_due: bool = False
    farewell_said: bool = False
    farewell_taken: bool = False
    strikes: int = 0
    refusal: str = ""
    their_round: int = 0
    their_waiting: tuple[str, ...] = ()
    bytes_out: int = 0
    bytes_in: int = 0

    @property
    def full(self) -> bool:
        return len(self.retained) >= WINDOW_FRAMES or self.retained_bytes >= self.window_bytes

    def post(self, letter: Letter) -> None:
        """Keep a DATA letter until it is acknowledged, and write it unless the neighbour has it."""
        if letter.round < self.safe_there or self.finished:
            return
        self.retained.append(letter)
        self.retained_bytes += len(letter.frame)
        if letter.round >= self.has_there:
            self.unsent.append(letter)

    def acknowledge(self, round_: int) -> bool:
        """Let go of every round below this one; whether there was any."""
        self.safe_there = max(self.safe_there, round_)
        before = len(self.retained)
        while self.retained and self.retained[0].round < round_:
            self.retained_bytes -= len(self.retained.popleft().frame)
        return len(self.retained) < before

    def meet(self, needs: int, safe: int, identity: str) -> bool:
        """A new stream: go on from the round that the neighbour needs next; True for a journal never met before."""
        first, self.identity = self.identity != identity, identity
        self.has_there = needs
        self.acknowledge(safe)
        self.unsent = deque(letter for letter in self.retained if letter.round >= needs)
        self.control = deque(letter for letter in self.control if letter.kind in (Kind.ABORT, Kind.PARK, Kind.VIEW))
        self.agreed = self.agreed_now = True
        self.lost, self.refusal, self.farewell_said = False, "", False
        self.joined, self.heard = True, time.monotonic()
        return first

    def join(self) -> None:
        """Count the patience with the neighbour from its first sign of life."""
        if not self.joined:
            self.joined, self.heard = True, time.monotonic()

    def finish(self) -> None:
        self.finished = True
        self.retained.clear()
        self.unsent.clear()
        self.retained_bytes = 0

    def put(self, received: Received) -> bool:
        """Take in a frame; False if it was there before. Raises FrameError if it is beyond the window."""
        round_, size = received.frame.round, len(received.data)
        if round_ < self.next_in:
            return False
        if len(self.inbox) >= 2 * WINDOW_FRAMES or self.inbox_bytes + size > 2 * self.window_bytes:
            raise FrameError(f"round {round_} comes too early: {len(self.inbox)} frames wait to be used already.")
        self.inbox[round_] = received
        self.inbox_bytes += size
        self.next_in = round_ + 1
        return True

    def take(self, round_: int) -> Received | None:
        received = self.inbox.pop(round_, None)
        if received is not None:
            self.inbox_bytes -= len(received.data)
        return received

    def forget(self, round_: int) -> None:
        """Throw away what has come from this round on, to have it sent again."""
        for later in [known for known in self.inbox if known >= round_]:
            self.take(later)
        self.next_in = round_
        self.strikes += 1

    @property
    def owes_word(self) -> bool:
        """Whether the neighbour waits to be told what is safe here."""
        behind = self.safe_here - self.told
        return behind >= WINDOW_FRAMES // 4 or (behind > 0 and self.untold_bytes >= self.window_bytes // 4)
