"""The journal of a peer on the disk: after a crash the peer repeats its computation from it, without its neighbours.

The header holds the run that it belongs to, and the number of bytes that are on the disk. The records of
``eigenmesh.protocol`` follow. An incomplete last record, left by a crash, is cut off. If anything before it cannot be
read, the site may have forgotten what it has sent to others, and must not resume. A thread writes and flushes many
records at a time.
"""

from __future__ import annotations

import contextlib
import itertools
import json
import logging
import os
import queue
import secrets
import struct
import threading
import time
import zlib
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any

from eigenmesh.atomic_write import lock, sync_folder, write_atomically
from eigenmesh.errors import CannotResumeError, InputError, UnreadableFileError, file_errors
from eigenmesh.protocol.setup import Instance, Past
from eigenmesh.protocol.wire import RECORD_BYTES, JournalRecord, Mark, record, scan
from eigenmesh.transports.tls.connection import Supervisor

# Reads, writes and locks the file of a journal, on systems with and without POSIX calls.


MAGIC = b"EGNMJRN5"


def write(file: int, parts: Iterable[bytes]) -> None:
    """Write all parts, one after the other. One call of the system may write less than it is given."""
    data = memoryview(b"".join(parts))
    while data:
        data = data[os.write(file, data) :]


def read(file: int, length: int, offset: int) -> bytes:
    """Read from a file at an offset, and leave the position at which records are appended as it was."""
    if hasattr(os, "pread"):
        return os.pread(file, length, offset)
    with _at(file, offset):
        return os.read(file, length)


def sync(file: int) -> None:
    """Flush the file to the disk, then write the end of the flushed part to the header, and flush that.

    The noted end tells damage from an incomplete last record: everything before it was on the disk. So records count as
    durable only when the note is on the disk, too.
    """
    flush = getattr(os, "fdatasync", os.fsync)
    flush(file)
    end = struct.pack("<Q", os.lseek(file, 0, os.SEEK_CUR))
    if hasattr(os, "pwrite"):
        os.pwrite(file, end, len(MAGIC))
    else:
        with _at(file, len(MAGIC)):
            os.write(file, end)
    flush(file)


@contextlib.contextmanager
def _at(file: int, offset: int) -> Iterator[None]:
    """Move to an offset, and back again afterwards: Windows cannot read and write at an offset otherwise."""
    before = os.lseek(file, 0, os.SEEK_CUR)
    os.lseek(file, offset, os.SEEK_SET)
    try:
        yield
    finally:
        os.lseek(file, before, os.SEEK_SET)


logger = logging.getLogger(__name__)

# Number of bytes of the file that are on the disk; length and CRC-32 of the description.
_HEAD = struct.Struct("<QII")
MAX_HEAD_BYTES = 1 << 16
IDENTITY, SECRET = "identity", "secret"
# Shortest time between two flushes, because a flush takes longer than a round. More than FLUSH_BYTES are flushed
# sooner: neighbours may be waiting for them.
FLUSH_EVERY_S, FLUSH_BYTES = 0.1, 8 << 20
# At all sites: a site that starts over while others continue would mix two runs.
START_OVER = "start over at all sites: give the run another name there."


def new_identity() -> str:
    """The identity of a journal; the time comes first, so that all sites can see which of two journals is newer."""
    return f"{time.time_ns():016x}{secrets.token_hex(8)}"


class Journal:
    """The journal of one site in one run.

    Parameters
    ----------
    path : the file. If it does not exist it is made, with an identity by which neighbours can tell it from another one.
    head : describes the run. A journal of another run is refused.
    on_durable : called in the journal's thread, with the number of records that are on the disk.
    on_failure : called in the journal's thread, once, if the disk fails. No record becomes durable after that.
    supervisor : hears of any other exception in the journal's thread.

    Attributes
    ----------
    past : the records from before, and a record of this start.
    failed : why the disk has failed, or empty.
    """

    def __init__(
        self,
        path: Path,
        head: dict[str, str],
        on_durable: Callable[[int], None],
        on_failure: Callable[[str], None],
        supervisor: Supervisor,
    ) -> None:
        self.path, self._on_durable, self._on_failure = path, on_durable, on_failure
        self._queue: queue.SimpleQueue[tuple[bytes, ...] | threading.Event | None] = queue.SimpleQueue()
        self.failed = ""
        self._waiting_bytes, self._hurry = 0, threading.Event()
        # Where the part of the file begins that the system may still have in its cache.
        self._dropped = 0
        self._file = os.open(path, os.O_RDWR | os.O_CREAT | getattr(os, "O_BINARY", 0), 0o600)
        try:
            lock(self._file, path)
            self.past = self._begin(head)
        except BaseException:
            os.close(self._file)
            raise
        self._records = len(self.past.entries)
        self._thread = supervisor.thread(self._work, "eigenmesh-journal")
        self._thread.start()

    def _begin(self, head: dict[str, str]) -> Past:
        size = os.fstat(self._file).st_size
        known = _read_head(self._file, size, self.path, head) if size else None
        entries: list[JournalRecord] = []
        if known is None:
            if size:
                os.ftruncate(self._file, 0)
            identity, secret = new_identity(), secrets.token_hex(32)
            data = json.dumps({**head, IDENTITY: identity, SECRET: secret}, sort_keys=True).encode()
            parts = [MAGIC, _HEAD.pack(0, len(data), zlib.crc32(data)), data]
        else:
            start, synced, identity, secret = known
            entries, end = scan(lambda offset, length: read(self._file, length, offset), start, size)
            if end < synced:
                lost = f"journal {self.path} is damaged: only {end} of the {synced} bytes on the disk can be read"
                raise CannotResumeError(f"{lost}; {START_OVER}")
            if end < size:
                logger.warning("journal %s: cut off %d incomplete or damaged bytes at its end.", self.path, size - end)
                os.ftruncate(self._file, end)
            os.lseek(self._file, end, os.SEEK_SET)
            parts = []
        begun = Instance(identity, 1 + sum(entry.mark is Mark.START for entry in entries), secrets.token_hex(8))
        # Put this start on the disk before any neighbour is called, so that no two starts have the same number.
        self._write_now([*parts, *record(Mark.START, begun.nonce.encode())])
        entries.append(JournalRecord(Mark.START, 0, 0, 0, 0, 0))
        return Past(begun, tuple(entries), self.read, secret)

    def _write_now(self, parts: list[bytes]) -> None:
        with file_errors(f"journal {self.path} cannot be written", "free some space, or correct its owner"):
            write(self._file, parts)
            sync(self._file)
            sync_folder(self.path.parent)

    def append(self, parts: tuple[bytes, ...], urgent: bool = False) -> None:
        """Write a record after all earlier ones; flush it at once if it is urgent."""
        self._queue.put(parts)
        self._waiting_bytes += sum(map(len, parts))
        if urgent or self._waiting_bytes > FLUSH_BYTES:
            self._hurry.set()

    def read(self, entry: JournalRecord) -> bytes:
        """The content of a record that was in the journal when it was opened."""
        data = read(self._file, entry.length, entry.offset)
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

    def _store(self, batch: list[tuple[bytes, ...]]) -> None:
        if self.failed:
            return
        try:
            write(self._file, itertools.chain.from_iterable(batch))
            sync(self._file)
            self._drop_from_cache()
        except OSError as error:
            self.failed = error.strerror or str(error)
            logger.error("the journal cannot be written: %s (%s)", self.failed, self.path)
            self._on_failure(self.failed)
            return
        self._records += len(batch)
        self._on_durable(self._records)

    def _drop_from_cache(self) -> None:
        """Let the system forget what only a restart reads again, where that is possible.

        Not after every flush: the page in which the journal ends would be read from the disk again to append to it.
        """
        end = os.lseek(self._file, 0, os.SEEK_CUR)
        if end - self._dropped > FLUSH_BYTES:
            with contextlib.suppress(AttributeError, OSError):
                os.posix_fadvise(self._file, self._dropped, end - self._dropped, os.POSIX_FADV_DONTNEED)
            self._dropped = end


def wipe(path: Path) -> None:
    """Overwrite the header of a journal, which holds the secret for keys, with zeros, and flush that to the disk."""
    with path.open("r+b") as file:
        first = file.read(len(MAGIC) + _HEAD.size)
        if len(first) == len(MAGIC) + _HEAD.size:
            length = min(_HEAD.unpack_from(first, len(MAGIC))[1], MAX_HEAD_BYTES)
            file.seek(len(MAGIC))
            file.write(bytes(_HEAD.size + length))
            file.flush()
            os.fsync(file.fileno())


def _read_head(file: int, size: int, path: Path, head: dict[str, str]) -> tuple[int, int, str, str] | None:
    """Start of the records, bytes on the disk, identity and secret, or None if the header is incomplete."""
    start = len(MAGIC) + _HEAD.size
    first = read(file, start, 0)
    if not first.startswith(MAGIC[: len(first)]):
        raise CannotResumeError(f"{path} is damaged, or not a journal that this eigenmesh can read; {START_OVER}")
    if len(first) < start:
        return None
    synced, length, checksum = _HEAD.unpack_from(first, len(MAGIC))
    data = read(file, min(length, MAX_HEAD_BYTES), start)
    if zlib.crc32(data) != checksum:
        if start + length >= size and not synced:
            return None
        raise CannotResumeError(f"the head of journal {path} is damaged; {START_OVER}")
    theirs: dict[str, Any] = json.loads(data)
    identity, secret = str(theirs.pop(IDENTITY, "")), str(theirs.pop(SECRET, ""))
    differing = sorted(key for key in head.keys() | theirs.keys() if head.get(key) != theirs.get(key))
    if differing:
        what = f"journal {path} belongs to another run: {', '.join(differing)} differ"
        raise InputError(f"{what}. Restore the settings with which it began, or {START_OVER}")
    return int(start + length), int(synced), identity, secret


def forget_masked(path: Path) -> None:
    """Take what this site has masked out of a journal, of which nothing was sent, so that other numbers may be masked.

    A journal that is damaged is left as it is.
    """
    content = path.read_bytes()
    if len(content) < len(MAGIC) + _HEAD.size:
        return
    synced, length, _ = _HEAD.unpack_from(content, len(MAGIC))
    start = len(MAGIC) + _HEAD.size + length
    entries, end = scan(lambda offset, size: content[offset : offset + size], start, len(content))
    if end < synced or all(entry.mark is not Mark.MASKED for entry in entries):
        return
    kept = [
        content[one.offset - RECORD_BYTES : one.offset + one.length] for one in entries if one.mark is not Mark.MASKED
    ]
    changed = bytearray(content[:start] + b"".join(kept))
    struct.pack_into("<Q", changed, len(MAGIC), len(changed))
    write_atomically(path, lambda file: file.write(changed))
