"""How a site and its links stand, for people to look at."""

import math
import time
from typing import NamedTuple

from eigenmesh.transports.grpc._board import Board


class LinkStatus(NamedTuple):
    """How one link stands.

    Attributes
    ----------
    name : of the neighbour.
    connected : whether there is a stream.
    heard_s : seconds since its last sign of life; infinite before the first.
    lost : whether it has been silent for too long.
    round : the round that it was in then.
    waiting_for : names of the sites that it waited for then.
    bytes_out, bytes_in : whole frames, control messages included.
    finished : whether it has said that it is done.
    problem : why there is no stream, if known.
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
    """How a site stands.

    Attributes
    ----------
    round : the next one.
    replaying : whether rounds still come out of the journal.
    waiting_for : names of the neighbours whose numbers are due.
    journal_problem : why the journal cannot be written, or empty.
    links : one for each neighbour.
    """

    round: int
    replaying: bool
    waiting_for: tuple[str, ...]
    journal_problem: str
    links: tuple[LinkStatus, ...]


def status_of(board: Board, journal_problem: str) -> TransportStatus:
    """A snapshot."""
    now = time.monotonic()
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
    return TransportStatus(board.round, replaying, waiting, journal_problem, links)
