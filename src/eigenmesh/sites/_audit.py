"""The audit file: one JSON line per message, written before the message leaves the site.

A line of kind START begins a run, or continues one after a restart, and holds the shape of the site's data, so that
shapes of messages can be judged later. All other lines are messages. Each line has the SHA-256 of the line before it,
``before``, so that a line that was changed, taken out or put in later breaks the chain.
"""

from __future__ import annotations

import datetime as dt
import errno
import hashlib
import json
import logging
import os
import threading
import time
from collections.abc import Iterator
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self

from eigenmesh.errors import UnreadableFileError
from eigenmesh.events._log import is_torn

if TYPE_CHECKING:
    from eigenmesh.protocol import Sent

logger = logging.getLogger(__name__)

START, DATA = "START", "DATA"
# What the first line has for the hash of the one before it.
NO_LINE = "0" * 64
# Lines are on the disk after so long at the latest.
SYNC_EVERY_S = 1.0
# A line is a few hundred bytes; a longer one was not written here.
MAX_LINE_BYTES = 1 << 20


class AuditWriter:
    """Appends lines without a buffer: each is with the operating system when ``record`` returns, and on the disk soon.

    After the first line that cannot be written, every call raises UnreadableFileError. ``data_messages`` counts those
    with numbers.
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
    ) -> None:
        self.path, self.failure = path, ""
        self.messages = self.data_messages = self.bytes = 0
        self._lock, self._written, self._closing = threading.Lock(), threading.Event(), threading.Event()
        try:
            path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
            torn, self._before = is_torn(path), hash_of(last_line(path))
            self._file = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT | getattr(os, "O_BINARY", 0), 0o600)
        except OSError as error:
            raise UnreadableFileError(f"cannot write {path}: {error.strerror}; choose another out.folder.") from error
        self._thread = threading.Thread(target=self._sync_now_and_then, name="eigenmesh-audit", daemon=True)
        self._thread.start()
        start: dict[str, Any] = {
            "kind": START,
            "site": site,
            "run": run,
            "n_features": n_features,
            "n_samples": n_samples,
        }
        start |= {"privacy": privacy, "partition": partition, "pid": os.getpid()}
        try:
            self._write(_fields(start), b"\n" if torn else b"")
        except UnreadableFileError:
            self.close()
            raise

    def record(self, sent: Sent) -> None:
        # Only round and hash change in every message, and they need no quoting; the rest is cached.
        rest = _message_fields(*sent[:3], *sent[4:8], sent.again)
        self._write(f'{rest},"round":{sent.round},"sha256":"{sent.sha256}"')
        self.messages += 1
        self.data_messages += sent.kind == DATA
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

    def _write(self, fields: str, end_of_torn: bytes = b"") -> None:
        with self._lock:
            line = _line(f'{fields},"before":"{self._before}"')
            data = end_of_torn + line + b"\n"
            reason = self.failure or ("it is closed" if self._file < 0 else "")
            try:
                # No line may follow an incomplete one, or it would be unreadable too.
                if not reason and os.write(self._file, data) < len(data):
                    reason = os.strerror(errno.ENOSPC)
            except OSError as error:
                reason = error.strerror or str(error)
            if not reason:
                self._before = hash_of(line)
                if not self._written.is_set():
                    self._written.set()
        if reason:
            self._fail(reason)
            # Without the path: the message also goes to other sites.
            raise UnreadableFileError(f"the audit cannot be written: {self.failure}")

    def _sync_now_and_then(self) -> None:
        """Bring new lines to the disk, many at a time: messages do not wait for it."""
        while not self._closing.is_set():
            self._written.wait()
            self._written.clear()
            self._sync()
            self._closing.wait(SYNC_EVERY_S)
        self._sync()

    def _sync(self) -> None:
        try:
            os.fsync(self._file)
        except OSError as error:
            # A device has nothing to bring to a disk.
            if error.errno != errno.EINVAL:
                self._fail(error.strerror or str(error))

    def _fail(self, reason: str) -> None:
        if not self.failure:
            self.failure = reason
            logger.error("the audit file %s is not complete: %s", self.path, reason)


def hash_of(line: bytes) -> str:
    """What the next line has for this one, without its end; NO_LINE for none."""
    return hashlib.sha256(line).hexdigest() if line else NO_LINE


def last_line(path: Path) -> bytes:
    """The last line that is not empty, without its end, whole or torn; empty if there is none."""
    if not path.exists():
        return b""
    with path.open("rb") as file:
        file.seek(max(0, file.seek(0, os.SEEK_END) - MAX_LINE_BYTES))
        lines = [line for line in file.read(MAX_LINE_BYTES).split(b"\n") if line.strip()]
    return lines[-1] if lines else b""


def read_lines(path: str | os.PathLike[str]) -> Iterator[bytes]:
    """The lines of an audit file without their ends, one at a time; empty ones are left out."""
    try:
        with Path(path).open("rb") as file:
            while line := file.readline(MAX_LINE_BYTES):
                if line.strip():
                    yield line.removesuffix(b"\n")
    except OSError as error:
        raise UnreadableFileError(f"{path} cannot be read: {error.strerror}; give a site's audit.jsonl.") from error


def read_audit(path: str | os.PathLike[str]) -> Iterator[dict[str, Any] | None]:
    """The entries of an audit file, one at a time; None for a damaged line."""
    return map(parse_line, read_lines(path))


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


def parse_line(line: bytes) -> dict[str, Any] | None:
    """An entry, or None if it is not JSON or lacks a field of its kind."""
    try:
        entry = json.loads(line)
        dt.datetime.fromisoformat(entry["at"])
        if entry["kind"] == START:
            valid = all(isinstance(entry[key], int) for key in ("n_features", "n_samples"))
        else:
            numbers = [entry[key] for key in ("bytes", "frame_bytes", "round", "epoch", "again")]
            numbers += [size for shape in entry["shapes"] for size in shape]
            valid = all(isinstance(number, int) for number in numbers) and len(entry["sha256"]) == 64
            valid = valid and isinstance(entry["to"], str) and isinstance(entry["kind"], str)
    except (ValueError, KeyError, TypeError, RecursionError):
        return None
    return entry if valid else None
