"""The audit: one line for everything that leaves the site, written before it does, in a file that stays.

Each line is a JSON object. A line of kind START opens a run, or goes on with one after a restart, and says what the
site holds, so that shapes can be judged later; all others are messages.
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

if TYPE_CHECKING:
    from eigenmesh.transports.grpc._link import Sent

logger = logging.getLogger(__name__)

START = "START"
# A line is a few hundred bytes; what is longer was not written here.
LONGEST_LINE = 1 << 20


class AuditWriter:
    """Appends lines, each with the operating system before ``record`` returns; a killed process loses none.

    A line that cannot be written raises an UnreadableFileError, and so does every later one.
    """

    def __init__(self, path: Path, site: str, run: str, n_features: int, n_samples: int) -> None:
        self.path, self.failure = path, ""
        self.messages = self.bytes = 0
        self._lock = threading.Lock()
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            torn = path.exists() and _is_torn(path)
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
        """Note a message that is about to leave the site."""
        to, kind, epoch, round_, shapes, dtypes, size, frame_size, sha256, again = sent
        # What changes with the round needs no quoting; the rest is put into words once.
        same = _about(to, kind, epoch, shapes, dtypes, size, frame_size, again)
        self._write(_line(f'{same},"round":{round_},"sha256":"{sha256}"'))
        self.messages += 1
        self.bytes += sent.bytes

    def close(self) -> None:
        """Bring everything to the disk and let go of the file; more than once is harmless."""
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
                # A line after a torn one would be lost with it.
                if not reason and os.write(self._file, line) < len(line):
                    reason = os.strerror(errno.ENOSPC)
            except OSError as error:
                reason = error.strerror or str(error)
        if reason:
            self._fail(reason)
            # Other sites are told too, and where files lie here is none of their business.
            raise UnreadableFileError(f"the audit cannot be written: {self.failure}")

    def _fail(self, reason: str) -> None:
        if not self.failure:
            self.failure = reason
            logger.error("the audit file %s is not complete: %s", self.path, reason)


def read_audit(path: str | os.PathLike[str]) -> Iterator[dict[str, Any] | None]:
    """The lines of an audit file, one at a time; None for one that is torn or damaged."""
    try:
        with Path(path).open("rb") as file:
            while line := file.readline(LONGEST_LINE):
                if line.strip():
                    yield _decoded(line)
    except OSError as error:
        raise UnreadableFileError(
            f"{path} cannot be read: {error.strerror}; give the audit.jsonl of a site's out folder."
        ) from error


def _line(fields: str) -> bytes:
    second, rest = divmod(time.time_ns(), 10**9)
    return f'{{"at":"{_date(second)}.{rest // 1000:06d}+00:00",{fields}}}\n'.encode()


@lru_cache(maxsize=1)
def _date(second: int) -> str:
    return time.strftime("%Y-%m-%dT%H:%M:%S", time.gmtime(second))


@lru_cache(maxsize=64)
def _about(
    to: str,
    kind: str,
    epoch: int,
    shapes: tuple[tuple[int, ...], ...],
    dtypes: tuple[str, ...],
    size: int,
    frame_size: int,
    again: bool,
) -> str:
    """Everything about a message but its round and hash."""
    what = {"to": to, "kind": kind, "epoch": epoch, "shapes": shapes, "dtypes": dtypes}
    return _fields({**what, "bytes": size, "frame_bytes": frame_size, "again": again})


def _fields(content: dict[str, Any]) -> str:
    return json.dumps(content, separators=(",", ":"))[1:-1]


def _decoded(line: bytes) -> dict[str, Any] | None:
    """An entry, or None unless it is whole and has the fields of its kind."""
    try:
        entry = json.loads(line)
        dt.datetime.fromisoformat(entry["at"])
        if entry["kind"] == START:
            sound = all(isinstance(entry[key], int) for key in ("n_features", "n_samples"))
        else:
            sound = isinstance(entry["to"], str) and all(
                isinstance(entry[key], int) for key in ("bytes", "frame_bytes", "round", "epoch", "again")
            )
            sound = sound and all(isinstance(size, int) for shape in entry["shapes"] for size in shape)
            sound = sound and isinstance(entry["kind"], str) and len(entry["sha256"]) == 64
    except (ValueError, KeyError, TypeError, RecursionError):
        return None
    return entry if sound else None


def _is_torn(path: Path) -> bool:
    """Whether the last line of a file lacks its end, as after a crash."""
    with path.open("rb") as file:
        if file.seek(0, os.SEEK_END) == 0:
            return False
        file.seek(-1, os.SEEK_END)
        return file.read(1) != b"\n"
