"""Records of a journal as bytes: what a site has received and said, so that it can continue after a crash.

A record has a length, a CRC-32 of all that follows it, and the fields of ``Entry``. A tail that was being written when
the process died, or that is damaged, is not believed.
"""

import json
import struct
import zlib
from collections.abc import Callable
from enum import IntEnum
from typing import NamedTuple

_LENGTH = struct.Struct("<II")
_FIELDS = struct.Struct("<BIIQ")
RECORD_BYTES = _LENGTH.size + _FIELDS.size


class Mark(IntEnum):
    """What a record holds: a start of the process, a frame that was used, the last word of a neighbour or of this site,
    a signed statement, the beginning of an epoch, what this site adds to an average, masked, by its number."""

    START = 1
    FRAME = 2
    DONE = 3
    STATEMENT = 4
    EPOCH = 5
    MASKED = 6


class Entry(NamedTuple):
    """One record; its content is ``length`` bytes at ``offset``. ``sender`` is the place of a site in the network."""

    mark: Mark
    sender: int
    epoch: int
    round: int
    offset: int
    length: int


def record(mark: Mark, content: bytes = b"", sender: int = 0, epoch: int = 0, round_: int = 0) -> bytes:
    fields = _FIELDS.pack(mark, sender, epoch, round_)
    return b"".join((_LENGTH.pack(len(content), zlib.crc32(content, zlib.crc32(fields))), fields, content))


def scan(read: Callable[[int, int], bytes], start: int, size: int) -> tuple[list[Entry], int]:
    """Whole records from ``start`` on, and where the last one ends; ``read`` takes an offset and a length."""
    entries, offset = [], start
    while offset + RECORD_BYTES <= size:
        head = read(offset, RECORD_BYTES)
        length, checksum = _LENGTH.unpack_from(head)
        begin = offset + RECORD_BYTES
        if begin + length > size or checksum != zlib.crc32(read(begin, length), zlib.crc32(head[_LENGTH.size :])):
            break
        mark, sender, epoch, round_ = _FIELDS.unpack_from(head, _LENGTH.size)
        entries.append(Entry(Mark(mark), sender, epoch, round_, begin, length))
        offset = begin + length
    return entries, offset


def epoch_content(lost: tuple[tuple[str, str], ...], start: bytes) -> bytes:
    """The content of an EPOCH record: the lost links in JSON, a line feed, and the estimate to start from."""
    return json.dumps(lost).encode() + b"\n" + start


def read_epoch(content: bytes) -> tuple[tuple[tuple[str, str], ...], bytes]:
    text, _, start = content.partition(b"\n")
    return tuple((str(first), str(second)) for first, second in json.loads(text)), start
