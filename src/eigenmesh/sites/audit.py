"""The audit: one line for everything that left the site, written as it leaves, in a file that stays.

Each line is a JSON object. A line of kind START opens a run, or goes on with one after a restart, and says what the
site holds, so that shapes can be judged later; all others are messages.
"""

from __future__ import annotations

import datetime as dt
import json
import logging
import os
import queue
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self

from eigenmesh.errors import UnreadableFileError

if TYPE_CHECKING:
    from eigenmesh.transports.grpc_link import Sent

logger = logging.getLogger(__name__)

# When, and what: a message, or the line that opens the file.
Line = tuple[float, "Sent | dict[str, Any]"]

START = "START"
# A line is a few hundred bytes; what is longer was not written here.
LONGEST_LINE = 1 << 20


class AuditWriter:
    """Appends lines in a thread of its own, in the order in which they were given.

    A write that fails is logged once and kept in ``failure``; the caller decides whether to go on unrecorded.
    """

    def __init__(self, path: Path, site: str, run: str, n_features: int, n_samples: int) -> None:
        self.path, self.failure = path, ""
        self.messages = self.bytes = 0
        self._lines: queue.SimpleQueue[Line | threading.Event | None] = queue.SimpleQueue()
        self._closed = False
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            self._file = path.open("ab")
            if _is_torn(path):
                self._file.write(b"\n")
        except OSError as error:
            raise UnreadableFileError(f"cannot write {path}: {error.strerror}; choose another out.folder.") from error
        self._thread = threading.Thread(target=self._write_all, name="audit", daemon=True)
        self._thread.start()
        start = {"kind": START, "site": site, "run": run, "n_features": n_features, "n_samples": n_samples}
        self._lines.put((time.time(), {**start, "pid": os.getpid()}))

    def record(self, sent: Sent) -> None:
        """Note a message that left the site; all but the time of day is worked out elsewhere."""
        if self._closed:
            self._fail("it was closed before the last message left")
        self.messages += 1
        self.bytes += sent.bytes
        self._lines.put((time.time(), sent))

    def flush(self, timeout_s: float = 10.0) -> bool:
        """Wait until everything given so far is in the file; False if that took too long, or it is closed."""
        if self._closed:
            return False
        done = threading.Event()
        self._lines.put(done)
        return done.wait(timeout_s)

    def close(self, timeout_s: float = 10.0) -> None:
        """Write what is left, bring it to the disk and let go of the file; more than once is harmless."""
        if self._closed:
            return
        self._closed = True
        self._lines.put(None)
        self._thread.join(timeout_s)
        if self._thread.is_alive():
            self._fail(f"the disk has not taken it within {timeout_s:g} s")

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _write_all(self) -> None:
        open_ = True
        while open_:
            batch = [self._lines.get()]
            while not self._lines.empty():
                batch.append(self._lines.get())
            open_ = None not in batch
            self._write(b"".join(_encoded(line) for line in batch if isinstance(line, tuple)))
            for waiting in batch:
                if isinstance(waiting, threading.Event):
                    waiting.set()
        try:
            os.fsync(self._file.fileno())
            self._file.close()
        except OSError as error:
            self._fail(error.strerror or str(error))

    def _write(self, data: bytes) -> None:
        try:
            self._file.write(data)
            self._file.flush()
        except OSError as error:
            self._fail(error.strerror or str(error))

    def _fail(self, reason: str) -> None:
        if not self.failure:
            self.failure = f"the audit file {self.path} is not complete: {reason}"
            logger.error("%s", self.failure)


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


def _encoded(line: Line) -> bytes:
    at, content = line
    if not isinstance(content, dict):
        content = content._asdict()
        content = {"to": content.pop("neighbour"), **content}
    when = dt.datetime.fromtimestamp(at, dt.UTC).isoformat(timespec="microseconds")
    return json.dumps({"at": when, **content}, separators=(",", ":")).encode() + b"\n"


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
