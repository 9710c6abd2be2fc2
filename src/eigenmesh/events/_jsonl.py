"""Event files: one JSON object per line, written as events happen and readable while they do."""

import json
import logging
import math
import os
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext, suppress
from pathlib import Path
from typing import Any, Self, get_type_hints

from eigenmesh.errors import UnreadableFileError
from eigenmesh.events._log import Entry, EventLog, Listener
from eigenmesh.events._schema import KINDS, VERSION, Ended, UnknownEvent

logger = logging.getLogger(__name__)

KIND_OF = {event: kind for kind, event in KINDS.items()}
FLOATS = {kind: [name for name, hint in get_type_hints(KINDS[kind]).items() if hint is float] for kind in KINDS}


def to_json(entry: Entry) -> str:
    """One line, without its end. NaN is null; infinities, which JSON has not, are "Infinity" and "-Infinity"."""
    event = entry.event
    if isinstance(event, UnknownEvent):
        kind, version, values = event.kind, event.version, event.fields
    else:
        kind, version, values = KIND_OF[type(event)], VERSION, event._asdict()
    plain = {name: _plain(value) for name, value in values.items()}
    return json.dumps({"version": version, "time_s": entry.time_s, "kind": kind, **plain}, allow_nan=False)


def from_json(line: str) -> Entry:
    """The entry of a line. Fields that are not known are left out; unknown kinds and newer versions are kept whole."""
    try:
        values = json.loads(line)
        version, kind, time_s = int(values.pop("version")), str(values.pop("kind")), float(values.pop("time_s"))
        if version > VERSION or kind not in KINDS:
            return Entry(time_s, UnknownEvent(kind, version, values))
        known = [name for name in values if name in KINDS[kind]._fields]
        return Entry(time_s, KINDS[kind](**{name: _value(values[name], name in FLOATS[kind]) for name in known}))
    except (ValueError, TypeError, KeyError, AttributeError) as error:
        raise UnreadableFileError(f"{line[:80]!r} is no event ({error!r}); give a file of --events.") from error


def _plain(value: Any) -> Any:
    if not isinstance(value, float) or math.isfinite(value):
        return value
    return None if math.isnan(value) else f"{'-' if value < 0 else ''}Infinity"


def _value(value: Any, is_float: bool) -> Any:
    if is_float:
        return math.nan if value is None else float(value)
    return tuple(_value(item, False) for item in value) if isinstance(value, list) else value


class JsonlWriter:
    """A listener that writes each event to a file at once. A disk that fails is no reason to end a run.

    Parameters
    ----------
    append : True to keep what is there.
    """

    def __init__(self, path: str | os.PathLike[str], append: bool = False) -> None:
        self.path = Path(path)
        self._file: Any = None
        self._failed = False
        self._append = append

    def __call__(self, entry: Entry) -> None:
        """Write one line."""
        if self._failed:
            return
        try:
            if self._file is None:
                self._file = self._opened()
            self._file.write(to_json(entry) + "\n")
        except OSError as error:
            self._failed = True
            logger.warning("events are no longer written to %s: %s", self.path, error.strerror)

    def _opened(self) -> Any:
        file = open(self.path, "a" if self._append else "w", encoding="utf-8", buffering=1)  # noqa: SIM115
        if file.tell():
            with open(self.path, "rb") as before:
                before.seek(-1, os.SEEK_END)
                # A process that was killed may have left a part of a line.
                file.write("" if before.read() == b"\n" else "\n")
        return file

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        if self._file is not None:
            with suppress(OSError):
                self._file.close()


class EventReader:
    """Reads a file of events, also while it is written."""

    def __init__(self, path: str | os.PathLike[str]) -> None:
        self.path, self._position = Path(path), 0

    def new(self) -> list[Entry]:
        """Entries since the last call; none before there is a file. Lines that a killed process left are skipped."""
        try:
            with open(self.path, "rb") as file:
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


@contextmanager
def event_log(path: Path | None, *listeners: Listener | None) -> Iterator[EventLog]:
    """A log that is also written to a file, if there is a path. If the work inside fails, its last event says so."""
    with nullcontext() if path is None else JsonlWriter(path) as writer:
        log = EventLog(*(listener for listener in (*listeners, writer) if listener is not None))
        try:
            yield log
        except BaseException as error:
            log.emit(Ended("failed", message=str(error) or type(error).__name__))
            raise
