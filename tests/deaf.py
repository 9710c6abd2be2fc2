"""A site that does not hear the end of a run."""

from __future__ import annotations

from pathlib import Path

from eigenmesh.transports.grpc import _wire as wire
from eigenmesh.transports.grpc._board import Board
from eigenmesh.transports.grpc._link import Link
from processes import command


def deaf_command(round_: int, sign: Path, *words: str) -> None:
    """``command`` in a process that is deaf."""
    deaf_from(round_, sign)
    command(*words)


def deaf_from(round_: int, sign: Path) -> None:
    """Make this process hear nothing of what a neighbour says from its numbers of a round on, while a file is there."""
    deliver, unheard = Board.deliver, set()

    def deliver_some(board: Board, link: Link, data: bytes) -> None:
        if not sign.exists():
            unheard.clear()
        elif (frame := wire.decode(data, board.run.max_message_bytes)).kind is wire.Kind.DATA and frame.round == round_:
            unheard.add(link.neighbour.rank)
        if link.neighbour.rank not in unheard:
            deliver(board, link, data)

    Board.deliver = deliver_some  # type: ignore[method-assign]
