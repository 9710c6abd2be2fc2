"""Records of a journal as bytes: what a site has received and sent, so that it can continue after a crash.

A record has a length, a CRC-32, and the fields of ``JournalRecord``. The CRC covers the fields and the content. Of a
frame it covers only the header, which has the hash of the numbers that follow; that hash was verified when the frame
arrived, and is verified again when it is read. A last record that is incomplete or damaged is ignored.
"""

from __future__ import annotations

import json
import struct
import zlib
from collections.abc import Callable
from enum import IntEnum
from typing import NamedTuple

from eigenmesh.protocol import wire

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
    covered = content[: wire.HEAD_BYTES] if fields[0] == Mark.FRAME else content
    return zlib.crc32(covered, zlib.crc32(fields))


def is_whole(head: bytes, content: bytes) -> bool:
    """Whether a record is complete and undamaged."""
    length, checksum = _LENGTH.unpack_from(head)
    fields = head[_LENGTH.size :]
    if len(content) != length or checksum != _checksum(fields, content):
        return False
    return fields[0] != Mark.FRAME or wire.is_intact(content)


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
