"""The log of all events of a fit, and its files: one event per line, which can be read while they are written."""

import contextlib
import logging
import os
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext, suppress
from pathlib import Path
from typing import Any, Self, TypeAlias

from eigenmesh.errors import UnreadableFileError
from eigenmesh.events._schema import Ended, Entry, Event, Record, Started, from_json, to_json

logger = logging.getLogger(__name__)

Listener: TypeAlias = Callable[[Entry], Any]


class EventLog:
    """Adds the time to every event and passes it to the listeners in order, one at a time; any thread may emit."""

    def __init__(self, *listeners: Listener, clock: Callable[[], float] = time.time) -> None:
        self.listeners, self._clock = list(listeners), clock
        self._records: list[Record] = []
        self._lock = threading.Lock()

    def emit(self, event: Event) -> None:
        """Pass an event to all listeners."""
        with self._lock:
            if isinstance(event, Started):
                self._records.clear()
            elif isinstance(event, Record):
                self._records.append(event)
            entry = Entry(self._clock(), event)
            for listener in self.listeners:
                listener(entry)

    @property
    def history(self) -> tuple[Record, ...]:
        """The records since the last start."""
        return tuple(self._records)


def on_record(function: Callable[[Record], Any]) -> Listener:
    """A listener that calls a function with each record of the history, one per check."""
    return lambda entry: function(entry.event) if isinstance(entry.event, Record) else None


class JsonlWriter:
    """A listener that writes each event to a file at once; with ``append``, after the existing lines.

    If the disk fails, it logs a warning and stops writing; the run goes on. A lock on the file, which ends with the
    process however it ends, tells readers that somebody still writes to it.
    """

    def __init__(self, path: str | os.PathLike[str], append: bool = False) -> None:
        self.path, self._append = Path(path), append
        self._file: Any = None
        self._failed = False

    def __call__(self, entry: Entry) -> None:
        """Write one line."""
        if self._failed:
            return
        try:
            if self._file is None:
                start = "\n" if self._append and is_torn(self.path) else ""
                self._file = open(self.path, "a" if self._append else "w", encoding="utf-8", buffering=1)  # noqa: SIM115
                _lock(self._file.fileno(), exclusive=False)
                self._file.write(start)
            self._file.write(to_json(entry) + "\n")
        except OSError as error:
            self._failed = True
            logger.warning("events are no longer written to %s: %s", self.path, error.strerror)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        if self._file is not None:
            with suppress(OSError):
                self._file.close()


def is_torn(path: Path) -> bool:
    """Whether the last line of a file has no newline, as after the death of the process that wrote it."""
    if not path.exists():
        return False
    with path.open("rb") as file:
        file.seek(max(0, file.seek(0, os.SEEK_END) - 1))
        return file.read(1) not in (b"", b"\n")


def _lock(file: int, exclusive: bool) -> bool:
    """Lock a file, for writers together or for one reader alone; False if a writer has it. True without such locks."""
    with contextlib.suppress(ImportError):
        import fcntl

        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB if exclusive else fcntl.LOCK_SH)
        except BlockingIOError:
            return False
        except OSError:
            # Some file systems have no locks.
            return not exclusive
        return True
    return not exclusive


class EventReader:
    """Reads a file of events, even while it is written."""

    def __init__(self, path: str | os.PathLike[str]) -> None:
        self.path, self._position = Path(path), 0

    def new(self) -> list[Entry]:
        """Entries since the last call; none if the file does not exist yet. Unreadable lines are skipped."""
        try:
            with open(self.path, "rb") as file:
                if file.seek(0, os.SEEK_END) < self._position:
                    # A new run has started the file again.
                    self._position = 0
                file.seek(self._position)
                text = file.read()
        except FileNotFoundError:
            return []
        whole = text[: text.rfind(b"\n") + 1]
        self._position += len(whole)
        entries = []
        for line in whole.decode(errors="replace").splitlines():
            with suppress(UnreadableFileError):
                entries.append(from_json(line))
        return entries

    @property
    def is_abandoned(self) -> bool:
        """Whether nobody writes to the file any longer; False if the system cannot tell, or if there is no file."""
        with suppress(OSError), open(self.path, "rb") as file:
            return _lock(file.fileno(), exclusive=True)
        return False


@contextmanager
def event_log(path: Path | None, *listeners: Listener | None) -> Iterator[EventLog]:
    """A log that also writes to a file, if there is a path. If the code inside raises, the last event reports it."""
    with nullcontext() if path is None else JsonlWriter(path) as writer:
        log = EventLog(*(listener for listener in (*listeners, writer) if listener is not None))
        try:
            yield log
        except KeyboardInterrupt as error:
            log.emit(Ended("stopped", message=str(error) or "interrupted by Ctrl-C"))
            raise
        except BaseException as error:
            log.emit(Ended("failed", message=str(error) or type(error).__name__))
            raise
