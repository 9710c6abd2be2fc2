"""Rounds as the computing thread sees them: hand over what goes out, wait for what is due, check that it fits."""

import math
import time
from collections.abc import Callable, Collection, Sequence
from typing import NamedTuple

from eigenmesh.errors import DeadlineError, InputError, TransportError
from eigenmesh.transports._base import Links
from eigenmesh.transports.grpc import _wire as wire
from eigenmesh.transports.grpc._board import POLL_S, Board
from eigenmesh.transports.grpc._journal import Journal
from eigenmesh.transports.grpc._link import Letter, Link, Received
from eigenmesh.transports.grpc._wire import Body, Kind

# How often a frame that does not fit is requested; then the neighbour itself must be wrong.
MAX_STRIKES = 3
# The hash of a body is checked when the journal is read after a crash; a sender that hashes wrongly is found earlier.
HASH_EVERY = 64


class LinkStatus(NamedTuple):
    """How one link stands.

    ``heard_s`` is the time since the neighbour's last sign of life, infinite before the first; ``round`` and
    ``waiting_for`` are where it was then. It is lost if it has been silent for too long, and finished if it has said
    so. Bytes are those of whole frames, control messages included. ``problem`` is why there is no stream, if known.
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


class TransportStatus(NamedTuple):
    """How a site stands: its next round, whether rounds still come out of the journal, and whom it waits for."""

    round: int
    replaying: bool
    waiting_for: tuple[str, ...]
    journal_problem: str
    links: tuple[LinkStatus, ...]


class Rounds:
    """One round after another, all waits bounded."""

    def __init__(self, board: Board, journal: Journal | None, round_s: float, is_alive: Callable[[], bool]) -> None:
        self._board, self._journal, self._round_s, self._is_alive = board, journal, round_s, is_alive

    def exchange(self, body: Body, tag: int, links: Links) -> dict[int, Received]:
        board, send_to, deadline = self._board, links.send_to, time.monotonic() + self._round_s
        safe = board.links[send_to[0]].safe_here if send_to else 0
        letter = board.letter(Kind.DATA, board.round, tag, body, safe)
        with board.changed:
            board.check()
            self._wait_for_room(send_to, deadline)
            board.round += 1
            for rank in send_to:
                board.links[rank].post(letter)
        if send_to:
            board.wake(send_to)
        with board.changed:
            return self._collect(letter, links.receive_from, deadline)

    def status(self) -> TransportStatus:
        board, now = self._board, time.monotonic()
        with board.changed:
            links = tuple(
                LinkStatus(
                    name=link.neighbour.name,
                    connected=link.connected,
                    heard_s=now - link.heard if link.joined else math.inf,
                    lost=link.lost,
                    round=link.their_round,
                    waiting_for=link.their_waiting,
                    bytes_out=link.bytes_out,
                    bytes_in=link.bytes_in,
                    finished=link.finished,
                    problem=link.refusal,
                )
                for link in board.links.values()
            )
            waiting = tuple(board.links[rank].neighbour.name for rank in board.awaited)
            replaying = any(link.replay for link in board.links.values())
        problem = self._journal.failed if self._journal is not None else ""
        return TransportStatus(board.round, replaying, waiting, problem, links)

    def _wait_for_room(self, ranks: Sequence[int], deadline: float) -> None:
        board = self._board
        while full := [rank for rank in ranks if board.links[rank].full]:
            board.awaits_room = True
            try:
                self._wait(full, deadline, "to acknowledge what was sent")
            finally:
                board.awaits_room = False

    def _collect(self, letter: Letter, ranks: Sequence[int], deadline: float) -> dict[int, Received]:
        board = self._board
        got: dict[int, Received] = {}
        try:
            while missing := [rank for rank in ranks if rank not in got and not self._pick(rank, letter, got)]:
                board.awaited = dict.fromkeys(missing, letter.round)
                while board.awaited:
                    self._wait(board.awaited, deadline, f"to send round {letter.round}")
                    self._look_for_ends(letter.round)
        finally:
            board.awaited = {}
        return got

    def _wait(self, ranks: Collection[int], deadline: float, what: str) -> None:
        """Wait for a change; the lock is held."""
        board = self._board
        board.changed.wait(POLL_S)
        board.check()
        board.check_lost(ranks)
        if ranks and time.monotonic() > deadline:
            names = ", ".join(board.links[rank].neighbour.name for rank in ranks)
            raise DeadlineError(f"{board.name} waited {self._round_s:g} s for {names} {what}.")
        if not self._is_alive():
            raise TransportError(f"the communication thread of {board.name} has ended.")

    def _look_for_ends(self, round_: int) -> None:
        for rank in self._board.awaited:
            link = self._board.links[rank]
            if link.complete and round_ not in link.inbox:
                raise TransportError(f"{link.neighbour.name} has finished, but round {round_} of it is needed.")

    def _pick(self, rank: int, letter: Letter, got: dict[int, Received]) -> bool:
        """Take the frame of a neighbour, from the journal or from what came in; False if it is not there yet."""
        link = self._board.links[rank]
        if link.replay:
            got[rank] = self._from_journal(link, letter)
            return True
        if link.next_in <= letter.round:
            return False
        arrived = link.take(letter.round)
        misfit = _misfit(arrived, letter)
        if arrived is None or misfit:
            self._strike(link, letter.round, misfit)
            return False
        got[rank] = arrived
        link.strikes = 0
        link.untold_bytes += len(arrived.data)
        if self._journal is not None:
            self._journal.append(rank, letter.round, arrived.data)
        else:
            self._board.safe([(rank, letter.round + 1)])
        return True

    def _from_journal(self, link: Link, letter: Letter) -> Received:
        journal, entry, name = self._journal, link.replay.popleft(), link.neighbour.name
        if journal is None or entry.round != letter.round:
            raise InputError(f"the journal has round {entry.round} of {name}, but this run needs {letter.round}.")
        data = journal.read(entry)
        received = Received(wire.decode(data, self._board.run.max_message_bytes), data)
        if misfit := _misfit(received, letter, check_hash=False):
            raise InputError(f"the journal does not fit this run: {name} {misfit}.")
        # What the neighbour had safe then need not be kept for it again, so a replay waits for nobody.
        link.acknowledge(received.frame.acknowledged)
        return received

    def _strike(self, link: Link, round_: int, misfit: str) -> None:
        """Have a frame that does not fit sent again, over a new stream; it may not have come from the true sender."""
        name = link.neighbour.name
        link.forget(round_)
        if link.strikes >= MAX_STRIKES:
            raise InputError(f"{name} {misfit}, {link.strikes} times over.")
        self._board.refuse(name, misfit)
        self._board.cut(link.neighbour.rank)


def _misfit(received: Received | None, letter: Letter, check_hash: bool = True) -> str:
    """What is wrong with a frame in this round; nothing if it fits."""
    if received is None:
        return f"left out round {letter.round}"
    frame = received.frame
    if frame.tag != letter.tag:
        return f"is in a round of kind {frame.tag} where this site is in one of kind {letter.tag}"
    shapes, dtypes = wire.shapes_and_dtypes(frame.arrays)
    if (shapes, dtypes) != (letter.shapes, letter.dtypes):
        return f"sent shapes {shapes} of {dtypes} where {letter.shapes} of {letter.dtypes} are expected"
    if check_hash and letter.round % HASH_EVERY == 0 and not wire.is_intact(received.data):
        return f"sent a hash in round {letter.round} that is not that of the numbers"
    return ""
