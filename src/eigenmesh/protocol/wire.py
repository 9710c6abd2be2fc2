"""The bytes of the protocol: frames between sites, and the records of a journal; nothing in them is executable.

A frame has a fixed header, then raw numbers or plain text.

docs/sites/protocol.md has the table of fields. A frame is one message of a stream. All integers are little-endian.
Every field is checked before it is used, and arrays are views of the received bytes. TLS protects against changes on
the way. The hash protects frames that are stored and read again, see ``is_intact``.
"""

from __future__ import annotations

import hashlib
import json
import struct
import zlib
from collections.abc import Callable, Sequence
from enum import IntEnum
from typing import NamedTuple

import numpy as np

from eigenmesh.errors import FrameError, InputError, TransportError

MAGIC, VERSION = b"EGNM", 4
MAX_TEXT_BYTES = 1 << 20
MAX_ARRAYS, MAX_AXES = 64, 8
# Rounds are counted from 0. The highest bit stays free, so that every round fits a signed integer.
MAX_ROUND = (1 << 63) - 1
ALIGNMENT = 16
# A matrix has one axis for its node and two of its own. Maxima that nodes agree on are vectors. These may be infinite.
MATRIX_AXES = 3

_HEAD = struct.Struct("<4sBBHII16sQQQ8s")
# Descriptors, by number of axes.
_SHAPES = [struct.Struct(f"<BB{n_axes}Q") for n_axes in range(MAX_AXES + 1)]
HEAD_BYTES = _HEAD.size
ACKNOWLEDGED_AT = 40
CHECK_BYTES = 8
# Most bytes of header, descriptors and padding that a frame has in addition to its numbers.
OVERHEAD_BYTES = HEAD_BYTES + MAX_ARRAYS * (2 + 8 * MAX_AXES + ALIGNMENT) + ALIGNMENT

_DTYPES: dict[int, np.dtype] = {
    code: np.dtype(name) for code, name in enumerate(("<f8", "<f4", "<i8", "<i4", "u1", "?", "<u8"), start=1)
}
_CODES = {dtype: code for code, dtype in _DTYPES.items()}
# Names are cached, because NumPy builds a dtype's name at every access, which would slow a round down. So do
# enumerations, see KIND_NAMES.
_NAMES = {dtype: dtype.name for dtype in _CODES}


class Kind(IntEnum):
    """What a frame is for."""

    HELLO = 1
    WELCOME = 2
    REFUSE = 3
    DATA = 4
    ACK = 5
    HEARTBEAT = 6
    ABORT = 7
    PARK = 8
    DONE = 9
    STATEMENT = 10
    MANIFEST = 11


_KINDS = {int(kind): kind for kind in Kind}
KIND_NAMES = {kind: kind.name for kind in Kind}


class Frame(NamedTuple):
    """A frame that has passed all checks that need no knowledge of the run."""

    kind: Kind
    tag: int
    epoch: int
    run_id: bytes
    round: int
    acknowledged: int
    arrays: tuple[np.ndarray, ...]
    text: str


class Body(NamedTuple):
    """What follows the header: descriptors and numbers, or text. ``payload_bytes`` counts only numbers or text."""

    parts: tuple[bytes | memoryview, ...]
    shapes: tuple[tuple[int, ...], ...]
    dtypes: tuple[str, ...]
    payload_bytes: int
    sha256: bytes


def text_body(text: str) -> Body:
    """The body of a control frame. Raises InputError if the text is too long."""
    data = text.encode()
    if len(data) > MAX_TEXT_BYTES:
        raise InputError(f"a control message of {len(data)} bytes is too long; at most {MAX_TEXT_BYTES} are sent.")
    return Body((data,), (), (), len(data), hashlib.sha256(data).digest())


def array_body(arrays: Sequence[np.ndarray], max_bytes: int) -> Body:
    """The body of a DATA frame. Raises TransportError for arrays that the receiver would refuse."""
    if len(arrays) > MAX_ARRAYS:
        raise TransportError(f"{len(arrays)} arrays in one message are too many; at most {MAX_ARRAYS} are sent.")
    descriptors, size = b"", 0
    wholes: list[np.ndarray] = []
    parts: list[bytes | memoryview] = []
    for array in arrays:
        dtype = array.dtype if array.dtype in _CODES else array.dtype.newbyteorder("<")
        if dtype not in _CODES or array.ndim > MAX_AXES:
            allowed = f"{', '.join(_NAMES.values())} and {MAX_AXES} axes"
            raise TransportError(
                f"an array of {array.dtype} with {array.ndim} axes cannot be sent; allowed are {allowed}."
            )
        require_finite(array, TransportError)
        descriptors += _SHAPES[array.ndim].pack(_CODES[dtype], array.ndim, *array.shape)
        whole = np.asarray(array, dtype=dtype, order="C")
        wholes.append(whole)
        parts += [whole.data, bytes(-whole.nbytes % ALIGNMENT)]
        size += whole.nbytes
    if size > max_bytes:
        raise TransportError(f"a message of {size} bytes exceeds the {max_bytes} bytes agreed on for this run.")
    parts.insert(0, descriptors + bytes(-len(descriptors) % ALIGNMENT))
    digest = hashlib.sha256()
    for part in parts:
        digest.update(part)
    return Body(tuple(parts), *shapes_and_dtypes(wholes), size, digest.digest())


def shapes_and_dtypes(arrays: Sequence[np.ndarray]) -> tuple[tuple[tuple[int, ...], ...], tuple[str, ...]]:
    """Shapes of arrays, and the names of their dtypes on the wire."""
    return tuple([array.shape for array in arrays]), tuple([_NAMES[array.dtype] for array in arrays])


def require_finite(array: np.ndarray, error: type[TransportError]) -> None:
    """Raise unless a matrix is finite; vectors, such as maxima, may hold infinity and NaN."""
    if array.ndim >= MATRIX_AXES and array.dtype.kind == "f" and not np.isfinite(array).all():
        raise error(f"a matrix of shape {array.shape} holds values that are not finite.")


def encode(kind: Kind, run_id: bytes, epoch: int, round: int, acknowledged: int, body: Body, tag: int = 0) -> bytes:  # noqa: A002
    """The bytes of a frame."""
    length = sum(memoryview(part).nbytes for part in body.parts)
    count, hashed = len(body.shapes), body.sha256[:CHECK_BYTES]
    head = _HEAD.pack(MAGIC, VERSION, kind, count, tag, epoch, run_id, round, acknowledged, length, hashed)
    return b"".join((head, *body.parts))


def acknowledging(frame: bytes, acknowledged: int) -> bytes:
    """The same frame, with this acknowledged round: everything below it is on the sender's disk."""
    word = acknowledged.to_bytes(8, "little")
    end = ACKNOWLEDGED_AT + len(word)
    if frame[ACKNOWLEDGED_AT:end] == word:
        return frame
    return b"".join((frame[:ACKNOWLEDGED_AT], word, memoryview(frame)[end:]))


def is_intact(frame: bytes) -> bool:
    """Whether the body matches the hash in the header."""
    body = memoryview(frame)[HEAD_BYTES:]
    return frame[HEAD_BYTES - CHECK_BYTES : HEAD_BYTES] == hashlib.sha256(body).digest()[:CHECK_BYTES]


def decode(data: bytes, max_bytes: int) -> Frame:
    """Check every field and make the frame, whose arrays are views of ``data``. Raises only FrameError."""
    if len(data) < HEAD_BYTES:
        raise FrameError(f"{len(data)} bytes are not a frame; the header alone has {HEAD_BYTES}.")
    magic, version, code, count, tag, epoch, run_id, round_, acknowledged, length, _ = _HEAD.unpack_from(data)
    if magic != MAGIC:
        raise FrameError(f"magic {magic!r} is not {MAGIC!r}; these bytes do not come from eigenmesh.")
    if version != VERSION:
        fix = "install the same eigenmesh at both sites"
        raise FrameError(f"version {version} of the format is not {VERSION}; {fix}.")
    kind = _KINDS.get(code)
    if kind is None:
        raise FrameError(f"kind {code} is unknown; known are 1 .. {max(_KINDS)}.")
    if length != len(data) - HEAD_BYTES:
        raise FrameError(f"a body of {length} bytes is announced but {len(data) - HEAD_BYTES} came.")
    if round_ > MAX_ROUND or acknowledged > MAX_ROUND:
        raise FrameError(f"round {round_} and acknowledged {acknowledged} are out of bounds.")
    arrays = _arrays(data, count, max_bytes) if kind is Kind.DATA else ()
    text = "" if kind is Kind.DATA else _text(data, count)
    return Frame(kind, tag, epoch, run_id, round_, acknowledged, arrays, text)


def _text(data: bytes, count: int) -> str:
    if count:
        raise FrameError(f"a control frame announces {count} arrays; it must have none.")
    if len(data) - HEAD_BYTES > MAX_TEXT_BYTES:
        raise FrameError(f"a text of {len(data) - HEAD_BYTES} bytes is too long; at most {MAX_TEXT_BYTES} are read.")
    try:
        return str(memoryview(data)[HEAD_BYTES:], "utf-8")
    except UnicodeDecodeError as error:
        raise FrameError(f"the text of a control frame is not UTF-8: {error.reason}.") from None


def _arrays(data: bytes, count: int, max_bytes: int) -> tuple[np.ndarray, ...]:
    if count > MAX_ARRAYS:
        raise FrameError(f"{count} arrays are announced; at most {MAX_ARRAYS} are read.")
    layout, offset = [], HEAD_BYTES
    for _ in range(count):
        dtype, shape, offset = _descriptor(data, offset)
        layout.append((dtype, shape))
    offset = _skip_padding(data, offset)
    arrays = []
    for dtype, shape in layout:
        array = _array(data, offset, dtype, shape)
        offset = _skip_padding(data, offset + array.nbytes)
        arrays.append(array)
    size = sum(array.nbytes for array in arrays)
    if size > max_bytes:
        raise FrameError(f"arrays of {size} bytes are announced; at most {max_bytes} are agreed on for this run.")
    if offset != len(data):
        raise FrameError(f"{len(data) - offset} bytes follow the last array.")
    return tuple(arrays)


def _descriptor(data: bytes, offset: int) -> tuple[np.dtype, tuple[int, ...], int]:
    """Dtype and shape of an array, and the end of its descriptor."""
    if offset + 2 > len(data):
        raise FrameError("the frame ends within a descriptor.")
    code, n_axes = data[offset], data[offset + 1]
    dtype = _DTYPES.get(code)
    if dtype is None or n_axes > MAX_AXES:
        raise FrameError(f"dtype {code} with {n_axes} axes is not allowed.")
    form = _SHAPES[n_axes]
    end = offset + form.size
    if end > len(data):
        raise FrameError("the frame ends within a descriptor.")
    return dtype, form.unpack_from(data, offset)[2:], end


def _array(data: bytes, offset: int, dtype: np.dtype, shape: tuple[int, ...]) -> np.ndarray:
    """A view of the received bytes, so that no announced size takes memory."""
    try:
        array = np.ndarray(shape, dtype, data, offset)
    except (TypeError, ValueError):
        raise FrameError(f"an array of shape {shape} is announced but the frame ends before it does.") from None
    if dtype.kind == "b" and array.view(np.uint8).max(initial=0) > 1:
        raise FrameError("a boolean is neither 0 nor 1.")
    require_finite(array, FrameError)
    return array


def _skip_padding(data: bytes, offset: int) -> int:
    end = offset + -offset % ALIGNMENT
    if end > len(data) or data[offset:end].strip(b"\0"):
        raise FrameError("padding between arrays is missing or not zero.")
    return end


# Records of a journal: what a site has received and sent, so that it can continue after a crash.
#
# A record has a length, a CRC-32, and the fields of ``JournalRecord``. The CRC covers the fields and the content. Of a
# frame it covers only the header, which has the hash of the numbers that follow. That hash was verified when the frame
# arrived, and is verified again when it is read. A last record that is incomplete or damaged is ignored.


_LENGTH = struct.Struct("<II")
_FIELDS = struct.Struct("<BIIQ")
RECORD_BYTES = _LENGTH.size + _FIELDS.size


class Mark(IntEnum):
    """What a record holds.

    START: a start of the process. FRAME: a frame that was used. DONE: the farewell of a neighbour or of this site.
    STATEMENT: a signed statement. EPOCH: the beginning of an epoch. MASKED: this site's masked part of an average.
    """

    START = 1
    FRAME = 2
    DONE = 3
    STATEMENT = 4
    EPOCH = 5
    MASKED = 6


class JournalRecord(NamedTuple):
    """One record; its content is ``length`` bytes at ``offset``. ``sender`` is the index of a site in the network."""

    mark: Mark
    sender: int
    epoch: int
    round: int
    offset: int
    length: int


def record(mark: Mark, content: bytes = b"", sender: int = 0, epoch: int = 0, round_: int = 0) -> tuple[bytes, bytes]:
    """The header of a record, and its content, which follows it in the journal."""
    fields = _FIELDS.pack(mark, sender, epoch, round_)
    return _LENGTH.pack(len(content), _checksum(fields, content)) + fields, content


def _checksum(fields: bytes, content: bytes) -> int:
    covered = content[:HEAD_BYTES] if fields[0] == Mark.FRAME else content
    return zlib.crc32(covered, zlib.crc32(fields))


def is_whole(head: bytes, content: bytes) -> bool:
    """Whether a record is complete and undamaged."""
    length, checksum = _LENGTH.unpack_from(head)
    fields = head[_LENGTH.size :]
    if len(content) != length or checksum != _checksum(fields, content):
        return False
    return fields[0] != Mark.FRAME or is_intact(content)


def scan(read: Callable[[int, int], bytes], start: int, size: int) -> tuple[list[JournalRecord], int]:
    """Undamaged records from ``start`` on, and the end of the last one; ``read`` takes an offset and a length."""
    entries, offset = [], start
    while offset + RECORD_BYTES <= size:
        head = read(offset, RECORD_BYTES)
        length, begin = _LENGTH.unpack_from(head)[0], offset + RECORD_BYTES
        if begin + length > size or not is_whole(head, read(begin, length)):
            break
        mark, sender, epoch, round_ = _FIELDS.unpack_from(head, _LENGTH.size)
        entries.append(JournalRecord(Mark(mark), sender, epoch, round_, begin, length))
        offset = begin + length
    return entries, offset


def epoch_content(lost: tuple[tuple[str, str], ...], start: bytes) -> bytes:
    """The content of an EPOCH record: the lost links in JSON, a line feed, and the estimate to start from."""
    return json.dumps(lost).encode() + b"\n" + start


def read_epoch(content: bytes) -> tuple[tuple[tuple[str, str], ...], bytes]:
    """Links that are lost in an epoch, and the hash with which its transcript starts."""
    text, _, start = content.partition(b"\n")
    return tuple((str(first), str(second)) for first, second in json.loads(text)), start
