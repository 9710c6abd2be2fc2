"""What leaves a site, one frame after another: recorded before it does, or not at all."""

import numpy as np
import pytest

pytest.importorskip("grpc")

from eigenmesh.errors import ParkedError
from eigenmesh.transports.grpc import _wire as wire
from eigenmesh.transports.grpc._board import Board, Run
from eigenmesh.transports.grpc._link import WINDOW_FRAMES, Neighbour
from eigenmesh.transports.grpc._wire import Kind

LIMIT = 1 << 20


def board_with(on_sent=None):
    board = Board("oslo", Run(bytes(16), 0, "", LIMIT), [Neighbour(1, "bergen")], 1.0, 1.0, on_sent, None)
    return board, board.links[1]


def post(board, link):
    letter = board.letter(Kind.DATA, board.round, 1, wire.array_body([np.ones((1, 3, 2))], LIMIT))
    board.round += 1
    link.post(letter)


def kinds(board, link):
    """All that there is to write, in order."""
    found = []
    while (data := board.next_frame(link)) is not None:
        found.append(wire.decode(data, LIMIT).kind)
    return found


def test_every_frame_is_on_record_before_it_is_given_out():
    record = []
    board, link = board_with(record.append)
    post(board, link)
    assert record == []
    data = board.next_frame(link)
    assert [(sent.neighbour, sent.kind, sent.frame_bytes) for sent in record] == [("bergen", "DATA", len(data))]
    assert link.bytes_out == len(data)


@pytest.mark.parametrize(
    ("error", "last"), [(ParkedError("oslo parked the run: full"), Kind.PARK), (OSError("no disk"), Kind.ABORT)]
)
def test_numbers_that_cannot_be_recorded_stay_and_the_neighbour_hears_why(error, last):
    def refuse(sent):
        raise error

    board, link = board_with(refuse)
    for _ in range(3):
        post(board, link)
    link.farewell_due = True
    assert kinds(board, link) == [last]
    assert board.failure is error
    post(board, link)
    assert kinds(board, link) == []


def test_what_is_safe_counts_as_told_only_when_a_frame_has_said_it():
    board, link = board_with()
    link.safe_here = WINDOW_FRAMES
    assert board.next_frame(link) is None
    assert link.owes_word
    post(board, link)
    assert wire.decode(board.next_frame(link), LIMIT).acknowledged == WINDOW_FRAMES
    assert not link.owes_word


def test_a_frame_that_is_sent_again_says_so_and_has_the_same_numbers():
    record = []
    board, link = board_with(record.append)
    post(board, link)
    first = board.next_frame(link)
    link.safe_here = 7
    link.meet(needs=0, safe=0, identity="bergen's")
    second = board.next_frame(link)
    assert [sent.again for sent in record] == [False, True]
    assert record[0].sha256 == record[1].sha256
    assert (wire.decode(first, LIMIT).acknowledged, wire.decode(second, LIMIT).acknowledged) == (0, 7)
    assert first[wire.HEAD_BYTES :] == second[wire.HEAD_BYTES :]
