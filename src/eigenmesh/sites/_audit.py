"""The audit file: one JSON line per message, written before the message leaves the site.

A line of kind START begins a run, or continues one after a restart, and holds the shape of the site's data, so that
shapes of messages can be judged later. All other lines are messages.
"""

from __future__ import annotations

import datetime as dt
import errno
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
    from eigenmesh.transports.grpc._link import Sent

logger = logging.getLogger(__name__)

START = "START"
# A line is a few hundred bytes; a longer one was not written here.
MAX_LINE_BYTES = 1 << 20


class AuditWriter:
    """Appends lines without a buffer: each is with the operating system when ``record`` returns.

    After the first line that cannot be written, every call raises UnreadableFileError.
    """

    def __init__(self, path: Path, site: str, run: str, n_features: int, n_samples: int) -> None:
        self.path, self.failure = path, ""
        self.messages = self.bytes = 0
        self._lock = threading.Lock()
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            torn = is_torn(path)
            self._file = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT | getattr(os, "O_BINARY", 0), 0o666)
        except OSError as error:
            raise UnreadableFileError(f"cannot write {path}: {error.strerror}; choose another out.folder.") from error
        start = {"kind": START, "site": site, "run": run, "n_features": n_features, "n_samples": n_samples}
        try:
            self._write((b"\n" if torn else b"") + _line(_fields({**start, "pid": os.getpid()})))
        except UnreadableFileError:
            self.close()
            raise

    def record(self, sent: Sent) -> None:
        # Only round and hash change in every message, and they need no quoting; the rest is cached.
        rest = _message_fields(sent._replace(round=0, sha256=""))
        self._write(_line(f'{rest},"round":{sent.round},"sha256":"{sent.sha256}"'))
        self.messages += 1
        self.bytes += sent.bytes

    def close(self) -> None:
        """Flush to the disk and close; may be called more than once."""
        with self._lock:
            if self._file < 0:
                return
            try:
                os.fsync(self._file)
            except OSError as error:
                self._fail(error.strerror or str(error))
            finally:
                os.close(self._file)
                self._file = -1

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _write(self, line: bytes) -> None:
        with self._lock:
            reason = self.failure or ("it is closed" if self._file < 0 else "")
            try:
                # No line may follow an incomplete one, or it would be unreadable too.
                if not reason and os.write(self._file, line) < len(line):
                    reason = os.strerror(errno.ENOSPC)
            except OSError as error:
                reason = error.strerror or str(error)
        if reason:
            self._fail(reason)
            # Without the path: the message also goes to other sites.
            raise UnreadableFileError(f"the audit cannot be written: {self.failure}")

    def _fail(self, reason: str) -> None:
        if not self.failure:
            self.failure = reason
            logger.error("the audit file %s is not complete: %s", self.path, reason)


def read_audit(path: str | os.PathLike[str]) -> Iterator[dict[str, Any] | None]:
    """The entries of an audit file, one at a time; None for a damaged line."""
    try:
        with Path(path).open("rb") as file:
            while line := file.readline(MAX_LINE_BYTES):
                if line.strip():
                    yield _parse(line)
    except OSError as error:
        raise UnreadableFileError(f"{path} cannot be read: {error.strerror}; give a site's audit.jsonl.") from error


def _line(fields: str) -> bytes:
    second, rest = divmod(time.time_ns(), 10**9)
    return f'{{"at":"{_date(second)}.{rest // 1000:06d}+00:00",{fields}}}\n'.encode()


@lru_cache(maxsize=1)
def _date(second: int) -> str:
    return time.strftime("%Y-%m-%dT%H:%M:%S", time.gmtime(second))


@lru_cache(maxsize=64)
def _message_fields(sent: Sent) -> str:
    fields = {"to": sent.neighbour, **sent._asdict()}
    return _fields({key: value for key, value in fields.items() if key not in ("neighbour", "round", "sha256")})


def _fields(content: dict[str, Any]) -> str:
    return json.dumps(content, separators=(",", ":"))[1:-1]


def _parse(line: bytes) -> dict[str, Any] | None:
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
