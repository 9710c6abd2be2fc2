"""Peers of different organisations: mutual TLS over gRPC, no server, nothing executable on the wire."""

import logging
import queue
import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

from eigenmesh import arrays as ea
from eigenmesh.errors import AbortedError, InputError, ParkedError
from eigenmesh.transports._base import Arrays, Links, Transport, in_library_of
from eigenmesh.transports.grpc import _wire as wire
from eigenmesh.transports.grpc._board import POLL_S, Board, Run
from eigenmesh.transports.grpc._greeting import Compare
from eigenmesh.transports.grpc._journal import DONE, MET, Journal
from eigenmesh.transports.grpc._link import Link, Neighbour, Sent
from eigenmesh.transports.grpc._rounds import Rounds, TransportStatus
from eigenmesh.transports.grpc._security import Credentials
from eigenmesh.transports.grpc._streams import Streams
from eigenmesh.transports.grpc._wire import Kind

logger = logging.getLogger(__name__)

# How long a failure may take to reach the neighbours before this site leaves.
PARTING_S = 2.0
START_AGAIN = "Start all sites again once that is mended."


@dataclass(frozen=True)
class TaggedLinks(Links):
    """Links of one kind of round, with its tag, the same at all sites."""

    tag: int = 0


class GrpcTransport(Transport):
    """One site's end of the links to its neighbours, over gRPC with mutual TLS.

    Parameters
    ----------
    rank : global id of this site.
    names : of all sites, by rank.
    neighbours : the sites that it shares a link with.
    credentials : this site's key and X.509 certificate, and the certificate authority.
    run : what all sites must agree on.
    listen : ``host:port`` for the neighbours that dial this site.
    journal : file for what is received; with it a site that was killed resumes.
    patience_s : a neighbour is lost if nothing has come from it for this long.
    join_s : the same if nothing has ever come from it.
    round_s : bound on one wait, even if the neighbour is alive.
    on_sent : told everything before it leaves this site, in the communication thread; if it raises, no numbers leave,
        and the run ends, or is parked if that was a ParkedError.
    on_control : told the sender and the text of each control message, in the communication thread.
    compare : which fields of two manifests differ, in words.
    """

    def __init__(
        self,
        rank: int,
        names: Sequence[str],
        neighbours: Iterable[Neighbour],
        credentials: Credentials,
        run: Run,
        *,
        listen: str | None,
        journal: Path | None = None,
        patience_s: float = 60.0,
        join_s: float = 3600.0,
        round_s: float = 3600.0,
        on_sent: Callable[[Sent], None] | None = None,
        on_control: Callable[[int, str], None] | None = None,
        compare: Compare | None = None,
    ) -> None:
        neighbours = tuple(neighbours)
        _require(rank, names, neighbours, listen)
        for wait, seconds in (("patience_s", patience_s), ("join_s", join_s)):
            if not seconds > 0:
                raise InputError(f"{wait} = {seconds!r} must be above 0.")
        self._rank, self._size, self._round_s = rank, len(names), round_s
        self._kinds_of_round = 0
        self._closed = False
        self._board = Board(names[rank], run, neighbours, patience_s, join_s, on_sent, on_control)
        self._journal = None if journal is None else _open_journal(journal, self._board)
        try:
            self._streams = Streams(self._board, credentials, listen, compare)
        except BaseException:
            if self._journal is not None:
                self._journal.close()
            raise
        self._rounds = Rounds(self._board, self._journal, round_s, self._streams.thread.is_alive)

    @property
    def neighbours(self) -> tuple[Neighbour, ...]:
        return tuple(link.neighbour for link in self._board.links.values())

    def links(self, send_to: Sequence[int], receive_from: Sequence[int]) -> Links:
        """Prepare a kind of round; only neighbours can be linked."""
        strangers = sorted({*send_to, *receive_from} - self._board.links.keys())
        if strangers:
            raise InputError(f"sites {strangers} are no neighbours of {self._board.name!r}.")
        self._kinds_of_round += 1
        return TaggedLinks(tuple(send_to), tuple(receive_from), self._kinds_of_round)

    def exchange(self, arrays: Arrays, links: Links) -> dict[int, Arrays]:
        own = [ea.to_numpy(array) for array in arrays]
        body = wire.array_body(own, self._board.run.max_message_bytes)
        received = self._rounds.exchange(body, getattr(links, "tag", 0), links)
        self.sent.add(len(links.send_to), sum([array.nbytes for array in own]))
        return {rank: in_library_of(arrays, received[rank].frame.arrays) for rank in links.receive_from}

    def send_control(self, rank: int, text: str) -> None:
        """Send a short text to one neighbour, outside the rounds."""
        with self._board.changed:
            self._board.tell(self._board.links[rank], Kind.VIEW, wire.text_body(text))
        self._board.wake((rank,))

    def receive_control(self, timeout_s: float) -> tuple[int, str] | None:
        """The next control message, its sender first; None if there is none in time."""
        try:
            return self._board.controls.get(timeout=timeout_s)
        except queue.Empty:
            return None

    def check(self) -> None:
        """Raise what has ended the run, if anything has."""
        if self._board.failure is not None:
            raise self._board.failure.with_traceback(None)

    def interrupt(self, error: Exception | None) -> None:
        """Make a waiting ``exchange``, and every later one, raise this error; None takes it back."""
        with self._board.changed:
            self._board.interruption = error
            self._board.changed.notify_all()

    def status(self) -> TransportStatus:
        """How the site and its links stand."""
        return self._rounds.status()

    def abort(self, reason: str) -> None:
        text = f"{self._board.name} ended the run: {reason}"
        self._board.fail(AbortedError(text), text)

    def park(self, reason: str) -> None:
        """End the run at every site for now; with their journals they resume when they are started again."""
        _park(self._board, reason)

    def close(self) -> None:
        """Wait until the neighbours have what they need, then release everything; may be called more than once."""
        if self._closed:
            return
        self._closed = True
        try:
            if self._journal is not None:
                self._journal.flush(PARTING_S if self._board.failure else self._board.patience_s)
            self._part()
        finally:
            with self._board.changed:
                self._board.closing = True
                self._board.changed.notify_all()
            self._streams.stop()
            if self._journal is not None:
                self._journal.close()

    def _part(self) -> None:
        """Say farewell and wait for the answers; after a failure, only until its reason is on its way."""
        board = self._board
        with board.changed:
            if board.failure is None and board.interruption is None:
                for link in board.links.values():
                    link.farewell_due = True
                    board.tell(link, Kind.ACK)
        board.wake(board.links)
        began = time.monotonic()
        with board.changed:
            board.awaits_room = True
            while not all(map(self._is_parted, board.links.values())):
                failed = board.failure or board.interruption
                late = time.monotonic() - began > (PARTING_S if failed else self._round_s)
                if late or not self._streams.thread.is_alive():
                    break
                board.changed.wait(0.05 if failed else POLL_S)
        if board.failure is None and board.interruption is None:
            for link in board.links.values():
                if link.lost and not link.finished:
                    logger.warning("%s was lost before it had acknowledged everything.", link.neighbour.name)

    def _is_parted(self, link: Link) -> bool:
        if link.finished:
            return not (link.connected and link.control)
        if self._board.failure or self._board.interruption:
            # Also to a neighbour whose link is about to come up.
            return link.lost or not link.control
        return link.lost or (link.farewell_taken and not link.retained)


def _open_journal(path: Path, board: Board) -> Journal:
    """Open or make the journal, and prepare what is in it to be used again."""
    run = board.run
    head = {"run id": run.run_id.hex(), "epoch": str(run.epoch), "manifest": run.digest}
    head |= {"own data": run.fingerprint, "site": board.name}
    # What is not safe here is not acknowledged, so that all sites can go on from their journals once there is room.
    journal = Journal(path, head, board.safe, lambda reason: _park(board, f"{reason}. {START_AGAIN}"))
    for entry in journal.entries:
        link = board.links.get(entry.sender)
        if link is None:
            journal.close()
            raise InputError(f"journal {path} has rounds of site {entry.sender}, which is no neighbour of this one.")
        if entry.mark == DONE:
            link.finish()
        elif entry.mark == MET:
            link.identity = journal.read(entry).decode()
        else:
            link.replay.append(entry)
            link.next_in = link.safe_here = link.told = entry.round + 1
    board.resumed = journal.found
    board.identity = journal.identity
    journal.on_done = board.farewell_safe
    board.on_met = lambda link: journal.append(link.neighbour.rank, 0, link.identity.encode(), MET)
    board.on_farewell = lambda link, data: journal.append(link.neighbour.rank, board.round, data, DONE)
    return journal


def _park(board: Board, reason: str) -> None:
    text = f"{board.name} parked the run: {reason}"
    board.fail(ParkedError(text), text)


def _require(rank: int, names: Sequence[str], neighbours: Sequence[Neighbour], listen: str | None) -> None:
    if not 0 <= rank < len(names):
        raise InputError(f"rank = {rank} must be from 0 to {len(names) - 1}.")
    for neighbour in neighbours:
        if not 0 <= neighbour.rank < len(names) or names[neighbour.rank] != neighbour.name or neighbour.rank == rank:
            raise InputError(f"neighbour {neighbour.name!r} of rank {neighbour.rank} is not among the other sites.")
        if neighbour.address is None and listen is None:
            raise InputError(f"neighbour {neighbour.name!r} dials this site, so it must listen; give host:port.")
    if len({neighbour.rank for neighbour in neighbours}) < len(neighbours):
        raise InputError("a neighbour is given twice.")
