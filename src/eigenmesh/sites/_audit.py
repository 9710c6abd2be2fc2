"""The audit file: one JSON line per message, written before the message leaves the site.

A line of kind START begins a run, or continues one after a restart. It holds the shape of the site's data, so that a
reader can later compare the shapes of messages with it. All other lines are messages. Each line holds the SHA-256 of
the line before it, in ``before``: a line that is changed, removed or inserted later breaks this chain.

A file that has become too large is renamed. The next file begins with a line of kind ROTATED: the new name of the old
file, its size, and the names of still older files that were deleted. The chain continues across files.
"""

from __future__ import annotations

import errno
import json
import logging
import os
import threading
import time
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self

from eigenmesh._atomic_write import sync_folder
from eigenmesh.errors import InputError, UnreadableFileError
from eigenmesh.events._log import is_torn
from eigenmesh.sites._audit_lines import ROTATED, START, hash_of, last_line
from eigenmesh.transports.tls import Supervisor
from eigenmesh.transports.tls._journal_file import lock

if TYPE_CHECKING:
    from eigenmesh.protocol import Sent

logger = logging.getLogger(__name__)

# Full files that are kept, in addition to the file being written.
KEPT_FILES = 9
# Longest time until a line is flushed to the disk.
SYNC_EVERY_S = 1.0


class AuditWriter:
    """Appends lines without a buffer.

    When ``record`` returns, the operating system has the line; a thread flushes it to the disk soon after. After the
    first line that cannot be written, every call raises UnreadableFileError. If ``max_bytes`` is given, a new file
    begins after that many bytes. ``supervisor`` hears of any other exception in the thread.
    """

    def __init__(
        self,
        path: Path,
        site: str,
        run: str,
        n_features: int,
        n_samples: int,
        privacy: str = "open",
        partition: str = "samples",
        max_bytes: int | None = None,
        supervisor: Supervisor | None = None,
    ) -> None:
        self.path, self.failure, self._max_bytes = path, "", max_bytes
        self._file = self._size = -1
        self.messages = self.bytes = 0
        self._lock, self._written, self._closing = threading.Lock(), threading.Event(), threading.Event()
        try:
            path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
            torn, rotated = is_torn(path), self._open()
        except (InputError, OSError) as error:
            if self._file >= 0:
                os.close(self._file)
            if isinstance(error, InputError):
                raise
            raise UnreadableFileError(f"cannot write {path}: {error.strerror}; choose another out.folder.") from error
        self._thread = (supervisor or Supervisor()).thread(self._sync_regularly, "eigenmesh-audit")
        self._thread.start()
        start = {"kind": START, "site": site, "run": run, "n_features": n_features, "n_samples": n_samples}
        self._start = _fields({**start, "privacy": privacy, "partition": partition, "pid": os.getpid()})
        try:
            with self._lock:
                self._append([*rotated, self._start], b"\n" if torn else b"")
        except UnreadableFileError:
            self.close()
            raise

    def record(self, sent: Sent) -> None:
        # Only the round and the hash differ from message to message, and they need no quoting. The rest is cached.
        rest = _message_fields(*sent[:3], *sent[4:8], sent.again)
        self._write(f'{rest},"round":{sent.round},"sha256":"{sent.sha256}"')
        self.messages += 1
        self.bytes += sent.bytes

    def close(self) -> None:
        """Flush to the disk and close; may be called more than once."""
        self._closing.set()
        self._written.set()
        self._thread.join()
        with self._lock:
            if self._file >= 0:
                os.close(self._file)
                self._file = -1

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _open(self) -> list[str]:
        """Open the file for appending. If it continues another file, return the line that it must begin with."""
        flags = os.O_WRONLY | os.O_APPEND | os.O_CREAT | getattr(os, "O_BINARY", 0)
        self._file = os.open(self.path, flags, 0o600)
        # Lines written by two processes at once would break the chain.
        lock(self._file, self.path)
        self._size, older = os.fstat(self._file).st_size, self._older()
        # A crash right after the file was made leaves it empty: it still continues the newest full file.
        last = self.path if self._size or not older else older[-1]
        self._before = hash_of(last_line(last))
        if last == self.path:
            return []
        dropped = older[:-KEPT_FILES]
        for path in dropped:
            path.unlink()
        facts = {"file": last.name, "file_bytes": last.stat().st_size, "deleted": [path.name for path in dropped]}
        return [_fields({"kind": ROTATED, **facts})]

    def _older(self) -> list[Path]:
        return sorted(self.path.parent.glob(f"{self.path.stem}-*{self.path.suffix}"))

    def _rotate(self) -> None:
        """Rename the full file, and continue in a new one."""
        os.fsync(self._file)
        os.close(self._file)
        self._file = -1
        older = self._older()
        number = 1 + (int(older[-1].stem.rpartition("-")[2]) if older else 0)
        os.rename(self.path, self.path.with_stem(f"{self.path.stem}-{number:06d}"))
        sync_folder(self.path.parent)
        self._append([*self._open(), self._start])

    def _write(self, fields: str) -> None:
        with self._lock:
            self._append([fields])
            if self._max_bytes is not None and self._size >= self._max_bytes:
                try:
                    self._rotate()
                except (OSError, ValueError) as error:
                    self._raise(getattr(error, "strerror", None) or str(error))

    def _append(self, lines: list[str], end_of_torn: bytes = b"") -> None:
        for fields in lines:
            line = _line(f'{fields},"before":"{self._before}"')
            data = end_of_torn + line + b"\n"
            end_of_torn = b""
            if self.failure or self._file < 0:
                self._raise("it is closed")
            try:
                # Stop after an incomplete line: a line written after it would be unreadable, too.
                if os.write(self._file, data) < len(data):
                    raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
            except OSError as error:
                self._raise(error.strerror or str(error))
            self._before = hash_of(line)
            self._size += len(data)
            if not self._written.is_set():
                self._written.set()

    def _raise(self, reason: str) -> None:
        self._fail(reason)
        # Without the path, because this message is also sent to other sites.
        raise UnreadableFileError(f"the audit cannot be written: {self.failure}")

    def _sync_regularly(self) -> None:
        """Flush new lines to the disk, many at a time, so that messages need not wait for the disk."""
        while not self._closing.is_set():
            self._written.wait()
            self._written.clear()
            self._sync()
            self._closing.wait(SYNC_EVERY_S)
        self._sync()

    def _sync(self) -> None:
        try:
            with self._lock:
                # A duplicate, because rotation may close the file during the flush.
                file = os.dup(self._file)
            try:
                os.fsync(file)
            finally:
                os.close(file)
        except OSError as error:
            # EINVAL: the path is a device, which has nothing to flush.
            if error.errno != errno.EINVAL:
                self._fail(error.strerror or str(error))

    def _fail(self, reason: str) -> None:
        if not self.failure:
            self.failure = reason
            logger.error("the audit file %s is incomplete: %s", self.path, reason)


def _line(fields: str) -> bytes:
    second, rest = divmod(time.time_ns(), 10**9)
    return f'{{"at":"{_date(second)}.{rest // 1000:06d}+00:00",{fields}}}'.encode()


@lru_cache(maxsize=1)
def _date(second: int) -> str:
    return time.strftime("%Y-%m-%dT%H:%M:%S", time.gmtime(second))


@lru_cache(maxsize=64)
def _message_fields(*values: Any) -> str:
    names = ("to", "kind", "epoch", "shapes", "dtypes", "bytes", "frame_bytes", "again")
    return _fields(dict(zip(names, values, strict=True)))


def _fields(content: dict[str, Any]) -> str:
    return json.dumps(content, separators=(",", ":"))[1:-1]
