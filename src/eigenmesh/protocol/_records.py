"""Records of a journal as bytes: what a site has received and said, so that it can continue after a crash.

A record has a length, a CRC-32, and the fields of ``JournalRecord``. The CRC covers the fields and the content; of a
frame only its head, which has the hash of the numbers that follow: it was verified when the frame came in, and is again
when it is read. A tail that was being written when the process died, or that is damaged, is not believed.
"""

import json
import struct
import zlib
from collections.abc import Callable
from enum import IntEnum
from typing import NamedTuple

from eigenmesh.protocol import _wire as wire

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


class JournalRecord(NamedTuple):
    """One record; its content is ``length`` bytes at ``offset``. ``sender`` is the place of a site in the network."""

    mark: Mark
    sender: int
    epoch: int
    round: int
    offset: int
    length: int


def record(mark: Mark, content: bytes = b"", sender: int = 0, epoch: int = 0, round_: int = 0) -> tuple[bytes, bytes]:
    """The head of a record and its content, which follow each other in the journal."""
    fields = _FIELDS.pack(mark, sender, epoch, round_)
    return _LENGTH.pack(len(content), _checksum(fields, content)) + fields, content


def _checksum(fields: bytes, content: bytes) -> int:
    covered = content[: wire.HEAD_BYTES] if fields[0] == Mark.FRAME else content
    return zlib.crc32(covered, zlib.crc32(fields))


def is_whole(head: bytes, content: bytes) -> bool:
    """Whether a record is the one that was written."""
    length, checksum = _LENGTH.unpack_from(head)
    fields = head[_LENGTH.size :]
    if len(content) != length or checksum != _checksum(fields, content):
        return False
    return fields[0] != Mark.FRAME or wire.is_intact(content)


def scan(read: Callable[[int, int], bytes], start: int, size: int) -> tuple[list[JournalRecord], int]:
    """Whole records from ``start`` on, and where the last one ends; ``read`` takes an offset and a length."""
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
    text, _, start = content.partition(b"\n")
    return tuple((str(first), str(second)) for first, second in json.loads(text)), start
