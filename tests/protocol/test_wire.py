"""Frames come back as they were sent; anything else is refused with one error, before memory is taken for it."""

import hashlib
import random
import re
import struct
import tracemalloc
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from eigenmesh.data import CrossProducts, Shards
from eigenmesh.errors import FrameError, InputError, TransportError
from eigenmesh.protocol import Run, wire
from eigenmesh.protocol.wire import HEAD_BYTES, Kind

RUN = bytes(range(16))
LIMIT = 1 << 16
DTYPES = st.sampled_from(["<f8", "<f4", "<i8", "<i4", "u1", "?"])
SMALL = hnp.arrays(DTYPES, hnp.array_shapes(min_dims=0, max_dims=2, min_side=0, max_side=5))
MATRICES = hnp.arrays(
    st.sampled_from(["<f8", "<f4"]),
    hnp.array_shapes(min_dims=3, max_dims=4, min_side=0, max_side=4),
    elements={"allow_nan": False, "allow_infinity": False},
)
ROUNDS = st.integers(0, wire.MAX_ROUND)


def data_frame(*arrays, round=7):  # noqa: A002
    return wire.encode(Kind.DATA, RUN, 3, round, 5, wire.array_body(arrays, LIMIT), tag=9)


@given(st.lists(SMALL | MATRICES, max_size=5), ROUNDS, ROUNDS, st.integers(0, 2**32 - 1), st.integers(0, 2**32 - 1))
def test_arrays_come_back_as_they_were_sent(arrays, round_, acknowledged, tag, epoch):
    body = wire.array_body(arrays, LIMIT)
    frame = wire.decode(wire.encode(Kind.DATA, RUN, epoch, round_, acknowledged, body, tag), LIMIT)
    assert frame[:6] == (Kind.DATA, tag, epoch, RUN, round_, acknowledged)
    assert len(frame.arrays) == len(arrays)
    for ours, theirs in zip(frame.arrays, arrays, strict=True):
        assert (ours.dtype, ours.shape, ours.tobytes()) == (theirs.dtype, theirs.shape, theirs.tobytes())
        assert ours.flags.aligned
    assert body.payload_bytes == sum(array.nbytes for array in arrays)


def test_what_is_acknowledged_is_brought_up_to_date_and_nothing_else():
    frame = data_frame(np.arange(6.0))
    assert wire.acknowledging(frame, 5) is frame
    later = wire.acknowledging(frame, wire.MAX_ROUND)
    assert wire.decode(later, LIMIT).acknowledged == wire.MAX_ROUND
    assert wire.acknowledging(later, 5) == frame


@pytest.mark.parametrize("body", [wire.text_body("a word"), wire.array_body([np.arange(6.0)], LIMIT)])
def test_a_body_that_has_changed_is_noticed(body):
    frame = wire.encode(Kind.DATA, RUN, 0, 0, 0, body)
    assert wire.is_intact(frame)
    assert wire.is_intact(wire.acknowledging(frame, 9))
    for place in range(wire.HEAD_BYTES - wire.CHECK_BYTES, len(frame)):
        changed = bytearray(frame)
        changed[place] ^= 4
        assert not wire.is_intact(bytes(changed))
    assert not wire.is_intact(frame[:-1])
    assert not wire.is_intact(frame[:20])


@given(st.text(max_size=50), st.sampled_from([kind for kind in Kind if kind is not Kind.DATA]), ROUNDS)
def test_text_comes_back_as_it_was_sent(text, kind, round_):
    frame = wire.decode(wire.encode(kind, RUN, 0, round_, 0, wire.text_body(text)), LIMIT)
    assert (frame.kind, frame.text, frame.round, frame.arrays) == (kind, text, round_, ())


def test_strided_and_big_endian_arrays_are_sent_by_value():
    whole = np.arange(24.0).reshape(4, 6)
    sent = [whole[::2, ::3], whole.T, whole.astype(">f8"), np.array(2.5)]
    frame = wire.decode(data_frame(*sent), LIMIT)
    for ours, theirs in zip(frame.arrays, sent, strict=True):
        assert ours.shape == theirs.shape
        assert (ours == theirs).all()


@pytest.mark.parametrize("shape", [(3,), (1, 3)])
def test_vectors_may_hold_nan_and_infinity(shape):
    values = np.broadcast_to([np.nan, np.inf, -np.inf], shape)
    assert np.array_equal(wire.decode(data_frame(values), LIMIT).arrays[0], values, equal_nan=True)


@pytest.mark.parametrize("bad", [np.nan, np.inf, -np.inf])
def test_a_matrix_that_is_not_finite_is_neither_sent_nor_taken(bad):
    matrix = np.ones((1, 12, 3))
    frame = bytearray(data_frame(matrix))
    matrix[0, 2, 1] = bad
    with pytest.raises(TransportError, match="not finite"):
        wire.array_body([matrix], LIMIT)
    frame[-matrix.nbytes :] = matrix.tobytes()
    with pytest.raises(FrameError, match="not finite"):
        wire.decode(bytes(frame), LIMIT)


@pytest.mark.parametrize(
    ("array", "message"),
    [
        (np.ones(3, complex), "complex128"),
        (np.array(["a"]), "allowed are float64"),
        (np.ones((1,) * 9), "9 axes"),
        (np.ones(LIMIT), "exceeds the 65536 bytes"),
    ],
)
def test_what_a_receiver_would_refuse_is_not_sent(array, message):
    with pytest.raises(TransportError, match=message):
        wire.array_body([array], LIMIT)


def test_too_many_arrays_and_too_long_texts_are_not_sent():
    with pytest.raises(TransportError, match="65 arrays"):
        wire.array_body([np.ones(1)] * 65, LIMIT)
    with pytest.raises(InputError, match="too long"):
        wire.text_body("x" * (wire.MAX_TEXT_BYTES + 1))


TEN_GB = 10 * 2**30
FIELDS = {
    "magic": (0, b"HTTP", "magic"),
    "version": (4, b"\x01", "version 1"),
    "kind 0": (5, b"\x00", "kind 0"),
    "kind 200": (5, b"\xc8", "kind 200"),
    "kind of another body": (5, bytes([Kind.ABORT]), "announces 2 arrays"),
    "fewer arrays": (6, struct.pack("<H", 1), "padding|follow the last"),
    "more arrays": (6, struct.pack("<H", 3), "dtype|descriptor|padding"),
    "65535 arrays": (6, b"\xff\xff", "65535 arrays"),
    "round": (32, b"\xff" * 8, "out of bounds"),
    "acknowledged": (40, b"\xff" * 8, "out of bounds"),
    "length": (48, struct.pack("<Q", TEN_GB), "10737418240 bytes is announced"),
    "dtype": (64, b"\x09", "dtype 9"),
    "axes": (65, b"\x09", "9 axes"),
    "one axis more": (65, b"\x04", "dtype 0 with 0 axes"),
    "axis of 10 GB": (66, struct.pack("<Q", TEN_GB), "announced"),
    "axes that overflow": (66, struct.pack("<QQQ", 2**32, 2**32, 1), "announced"),
    "an axis of 0 hides another": (66, struct.pack("<QQQ", 0, 2**63, 1), "announced"),
    "a smaller shape": (66, struct.pack("<QQQ", 1, 2, 3), "padding|follow"),
    "a larger shape": (66, struct.pack("<QQQ", 1, 40, 3), "ends before|padding"),
    "padding": (64 + 26 + 10, b"\x01", "padding"),
}


@pytest.mark.parametrize("name", FIELDS)
def test_every_corrupt_field_is_refused(name):
    frame = bytearray(data_frame(np.ones((1, 4, 3)), np.arange(3, 4)))
    wire.decode(bytes(frame), LIMIT)
    offset, value, message = FIELDS[name]
    frame[offset : offset + len(value)] = value
    with pytest.raises(FrameError, match=message):
        wire.decode(bytes(frame), LIMIT)


def test_every_truncation_and_every_addition_is_refused():
    frame = data_frame(np.ones((1, 4, 3)), np.arange(2.0))
    for length in range(len(frame)):
        with pytest.raises(FrameError):
            wire.decode(frame[:length], LIMIT)
    with pytest.raises(FrameError, match="is announced but"):
        wire.decode(frame + b"\0", LIMIT)
    # Also when the length in the head fits.
    for change in (-16, -8, -1, 1, 16):
        body = (frame[HEAD_BYTES:] + bytes(16))[: len(frame) - HEAD_BYTES + change]
        with pytest.raises(FrameError):
            wire.decode(frame[:48] + struct.pack("<QQ", len(body), 0) + body, LIMIT)


def test_texts_that_are_no_utf8_or_too_long_are_refused():
    frame = wire.encode(Kind.ABORT, RUN, 0, 0, 0, wire.Body((b"\xff\xfe",), (), (), 2, bytes(32)))
    with pytest.raises(FrameError, match="UTF-8"):
        wire.decode(frame, LIMIT)
    frame = wire.encode(Kind.ABORT, RUN, 0, 0, 0, wire.Body((b"x" * (wire.MAX_TEXT_BYTES + 1),), (), (), 0, bytes(32)))
    with pytest.raises(FrameError, match="too long"):
        wire.decode(frame, LIMIT)


def test_truth_values_are_0_or_1():
    frame = bytearray(data_frame(np.array([True, False])))
    frame[-16] = 2
    with pytest.raises(FrameError, match="neither 0 nor 1"):
        wire.decode(bytes(frame), LIMIT)


@settings(max_examples=500)
@given(st.data())
def test_a_frame_with_changed_bytes_is_refused_or_read(data):
    frame = bytearray(data_frame(np.ones((1, 2, 2)), np.arange(3)))
    for position in data.draw(st.lists(st.integers(0, len(frame) - 1), min_size=1, max_size=4)):
        frame[position] = data.draw(st.integers(0, 255))
    try:
        decoded = wire.decode(bytes(frame), LIMIT)
    except FrameError:
        return
    assert sum(array.nbytes for array in decoded.arrays) <= len(frame)


def test_random_bytes_raise_one_error_and_take_no_memory():
    generator = random.Random(4)
    model = data_frame(np.ones((1, 4, 3)), np.arange(3.0))
    tracemalloc.start()
    try:
        for number in range(10_000):
            junk = generator.randbytes(generator.randrange(200))
            # Three in four get past the magic, the length or the whole head, so that later checks are reached too.
            data = [junk, model[:5] + junk, model[:48] + struct.pack("<QQ", len(junk), 0) + junk, model[:64] + junk]
            with pytest.raises(FrameError):
                wire.decode(data[number % 4], LIMIT)
        assert tracemalloc.get_traced_memory()[1] < 4 * LIMIT
    finally:
        tracemalloc.stop()


def test_the_vectors_of_the_page_on_the_wire():
    """The same that the independent site has to meet."""
    page = Path(__file__).parents[2].joinpath("docs", "sites", "protocol.md").read_text(encoding="utf-8")
    due = dict(re.findall(r"^\| ([^|]+) \| `([0-9a-f ]+)` \|$", page, re.MULTILINE))
    form = CrossProducts.usual(2, n_sites=3, weighted=True)
    words = [0, *map(int, form.encode(Shards.from_list([np.array([[1.5, -2.0], [0.25, 3.0]])]), 0))]
    assert " ".join(f"{word:x}" for word in words) == due["words of the two samples"]
    r = hashlib.sha256(b"eigenmesh run\n" + b"0" * 64).digest()[:16]
    run = Run(r, "", 1 << 20)
    assert run.id_of(()).hex() == due["run id"]
    body = wire.array_body([np.array([words], np.uint64)], 1 << 20)
    message = struct.pack("<Q", 64 + 144) + wire.encode(wire.Kind.DATA, run.id_of(()), 0, 0, 0, body, 1)
    assert hashlib.sha256(message).hexdigest() == due["SHA-256 of the message"]
