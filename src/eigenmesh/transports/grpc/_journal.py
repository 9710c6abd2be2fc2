"""What a peer has received, on disk: after a crash it works its way again through what it had, asking nobody.

The file is append-only: a head that says which run it belongs to, then records of length, CRC-32, mark, sender, round
and the frame as it came. The CRC covers the fields and the head of the frame, which has the sender's hash of the body.
A tail that was being written when the process died is cut off. A thread writes and flushes many records at a time.
"""

import contextlib
import json
import logging
import os
import queue
import secrets
import struct
import threading
import zlib
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

from eigenmesh._atomic_write import sync_folder
from eigenmesh.errors import InputError, UnreadableFileError
from eigenmesh.transports.grpc import _wire as wire

logger = logging.getLogger(__name__)

MAGIC = b"EGNMJRN2"
_HEAD, _RECORD = struct.Struct("<II"), struct.Struct("<IIBIQ")
MAX_HEAD_BYTES = 1 << 16
# A frame that was used; a neighbour's last word; the identity of the journal that a neighbour keeps.
FRAME, DONE, MET = 1, 2, 3
IDENTITY = "identity"
# What one call may be given to write; POSIX takes no more parts, macOS no more bytes.
MAX_PARTS, MAX_BYTES = 1024, 1 << 30
# Least time between two flushes, which take longer than the rounds; unless so much waits that neighbours might too.
FLUSH_EVERY_S, FLUSH_BYTES = 0.1, 8 << 20
# A site that starts again while others continue would mix two runs.
START_ANEW = "start again at all sites: give the run another name there."

# Called with pairs (sender, first round that is not on the disk yet).
OnDurable = Callable[[list[tuple[int, int]]], None]
OnFailure = Callable[[str], None]


class Entry(NamedTuple):
    mark: int
    sender: int
    round: int
    offset: int
    length: int


class Journal:
    """The log of one site in one run, which its ``head`` describes; a journal of another run is refused.

    In the journal's thread ``on_durable`` is told what has reached the disk, ``on_done`` whose last word has, and
    ``on_failure``, once, that the disk takes no more; nothing is called safe after that. ``entries`` are the records
    that were there when it was opened, oldest first; ``found`` says if there was a journal, even one without a record.
    ``identity`` is drawn when the file is made, so that neighbours can tell it from a new one.
    """

    def __init__(self, path: Path, head: dict[str, str], on_durable: OnDurable, on_failure: OnFailure) -> None:
        self.path, self._on_durable, self._on_failure = path, on_durable, on_failure
        self._queue: queue.SimpleQueue[tuple[int, int, int, bytes] | threading.Event | None] = queue.SimpleQueue()
        self.failed, self.found = "", False
        self.identity = secrets.token_hex(16)
        self.on_done: Callable[[int], None] = lambda sender: None
        self._waiting_bytes, self._hurry = 0, threading.Event()
        self._file = os.open(path, os.O_RDWR | os.O_CREAT | getattr(os, "O_BINARY", 0), 0o600)
        try:
            lock(self._file, path)
            self.entries = self._begin(head)
        except BaseException:
            os.close(self._file)
            raise
        self._thread = threading.Thread(target=self._work, name="eigenmesh-journal", daemon=True)
        self._thread.start()

    def _begin(self, head: dict[str, str]) -> list[Entry]:
        size = os.fstat(self._file).st_size
        known = _read_head(self._file, size, self.path, head) if size else None
        if known is None:
            if size:
                os.ftruncate(self._file, 0)
            self._write_head({**head, IDENTITY: self.identity})
            return []
        start, self.identity = known
        self.found = True
        entries, end = _scan(self._file, start, size)
        if end < size:
            logger.warning("journal %s: cut off %d bytes that are torn or damaged.", self.path, size - end)
            os.ftruncate(self._file, end)
        os.lseek(self._file, end, os.SEEK_SET)
        return entries

    def _write_head(self, head: dict[str, str]) -> None:
        data = json.dumps(head, sort_keys=True).encode()
        try:
            _write(self._file, [MAGIC, _HEAD.pack(len(data), zlib.crc32(data)), data])
            os.fsync(self._file)
            sync_folder(self.path.parent)
        except OSError as error:
            raise UnreadableFileError(f"journal {self.path} cannot be written: {error.strerror}; make room.") from error

    def append(self, sender: int, round_: int, frame: bytes, mark: int = FRAME) -> None:
        self._queue.put((mark, sender, round_, frame))
        self._waiting_bytes += len(frame)
        if self._waiting_bytes > FLUSH_BYTES:
            self._hurry.set()

    def read(self, entry: Entry) -> bytes:
        """The frame of a record that was there when the journal was opened."""
        data = _read(self._file, entry.length, entry.offset)
        if len(data) != entry.length:
            raise UnreadableFileError(f"journal {self.path} has become shorter while it was read.")
        return data

    def flush(self, timeout_s: float) -> bool:
        """Wait until everything appended so far is on the disk; False if that took too long."""
        flushed = threading.Event()
        self._queue.put(flushed)
        self._hurry.set()
        return flushed.wait(timeout_s)

    def close(self) -> None:
        """Write what is left and close the file; may be called more than once."""
        if self._file < 0:
            return
        self._queue.put(None)
        self._hurry.set()
        self._thread.join(30.0)
        if not self._thread.is_alive():
            os.close(self._file)
            self._file = -1

    def _work(self) -> None:
        closing = False
        while not closing:
            items = [self._queue.get()]
            self._hurry.wait(FLUSH_EVERY_S)
            self._hurry.clear()
            self._waiting_bytes = 0
            while not self._queue.empty():
                items.append(self._queue.get())
            closing = None in items
            if batch := [item for item in items if isinstance(item, tuple)]:
                self._store(batch)
            for item in items:
                if isinstance(item, threading.Event):
                    item.set()

    def _store(self, batch: list[tuple[int, int, int, bytes]]) -> None:
        if self.failed:
            return
        try:
            parts = [(_RECORD.pack(len(one[-1]), _checksum(*one), *one[:-1]), one[-1]) for one in batch]
            _write(self._file, [part for pair in parts for part in pair])
            getattr(os, "fdatasync", os.fsync)(self._file)
            # Only a restart reads it again, so it need not fill the memory of the machine; where that can be said.
            with contextlib.suppress(AttributeError, OSError):
                os.posix_fadvise(self._file, 0, 0, os.POSIX_FADV_DONTNEED)
        except OSError as error:
            self.failed = f"the journal cannot be written: {error.strerror}"
            logger.error("%s (%s)", self.failed, self.path)
            self._on_failure(self.failed)
            return
        safe = {sender: round_ + 1 for mark, sender, round_, _ in batch if mark == FRAME}
        self._on_durable(list(safe.items()))
        for mark, sender, _, _ in batch:
            if mark == DONE:
                self.on_done(sender)


def _checksum(mark: int, sender: int, round_: int, frame: bytes) -> int:
    return zlib.crc32(frame[: wire.HEAD_BYTES], zlib.crc32(struct.pack("<BIQ", mark, sender, round_)))


def _write(file: int, parts: list[bytes]) -> None:
    """Write all parts, where the system can do that without bringing them together first."""
    for first in range(0, len(parts), MAX_PARTS):
        some = parts[first : first + MAX_PARTS]
        size = sum(map(len, some))
        written = os.writev(file, some) if hasattr(os, "writev") and size < MAX_BYTES else 0
        if written < size:
            data = memoryview(b"".join(some))[written:]
            while data:
                data = data[os.write(file, data) :]


def _read(file: int, length: int, offset: int) -> bytes:
    if hasattr(os, "pread"):
        return os.pread(file, length, offset)
    # Without pread the place to append at has to be kept.
    place = os.lseek(file, 0, os.SEEK_CUR)
    os.lseek(file, offset, os.SEEK_SET)
    data = os.read(file, length)
    os.lseek(file, place, os.SEEK_SET)
    return data


def _read_head(file: int, size: int, path: Path, head: dict[str, str]) -> tuple[int, str] | None:
    """Where the records start, and the journal's identity; None if not even the head was written to the end."""
    start = len(MAGIC) + _HEAD.size
    first = _read(file, start, 0)
    if not first.startswith(MAGIC[: len(first)]):
        raise UnreadableFileError(f"{path} is no journal that this eigenmesh can read; name another file.")
    if len(first) < start:
        return None
    length, checksum = _HEAD.unpack_from(first, len(MAGIC))
    data = _read(file, min(length, MAX_HEAD_BYTES), start)
    if zlib.crc32(data) != checksum:
        if start + length >= size:
            return None
        raise UnreadableFileError(f"the head of journal {path} is damaged; {START_ANEW}")
    theirs: dict[str, Any] = json.loads(data)
    identity = str(theirs.pop(IDENTITY, ""))
    differing = sorted(key for key in head.keys() | theirs.keys() if head.get(key) != theirs.get(key))
    if differing:
        what = f"journal {path} belongs to another run: {', '.join(differing)} differ"
        raise InputError(f"{what}. Go back to the settings and data that it was begun with, or {START_ANEW}")
    return int(start + length), identity


def _scan(file: int, start: int, size: int) -> tuple[list[Entry], int]:
    """Whole records from ``start`` on, and where the last one ends."""
    entries, offset = [], start
    while offset + _RECORD.size <= size:
        length, checksum, mark, sender, round_ = _RECORD.unpack(_read(file, _RECORD.size, offset))
        body = offset + _RECORD.size
        if body + length > size:
            break
        frame = _read(file, length, body)
        # An identity is shorter than a head, and no frame.
        if checksum != _checksum(mark, sender, round_, frame) or not (mark == MET or wire.is_intact(frame)):
            break
        entries.append(Entry(mark, sender, round_, body, length))
        offset = body + length
    return entries, offset


def lock(file: int, path: Path) -> None:
    try:
        import fcntl

        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except ImportError:
        return
    except OSError:
        raise InputError(f"journal {path} is in use by another process; is this site running already?") from None


def has_rounds(path: Path) -> bool:
    """Whether anything but greetings is in the journal of any run; what cannot be read counts."""
    with path.open("rb") as file:
        first = file.read(len(MAGIC) + _HEAD.size)
        if len(first) < len(MAGIC) + _HEAD.size:
            return False
        file.seek(_HEAD.unpack_from(first, len(MAGIC))[0], os.SEEK_CUR)
        while len(record := file.read(_RECORD.size)) == _RECORD.size:
            length, _, mark, _, _ = _RECORD.unpack(record)
            if mark != MET:
                return True
            file.seek(length, os.SEEK_CUR)
    return False
