"""The log of all events of a fit, and its files: one event per line, which can be read while they are written."""

from __future__ import annotations

import json
import logging
import math
import os
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext, suppress
from pathlib import Path
from typing import Any, NamedTuple, Self, TypeAlias, get_type_hints

from eigenmesh.atomic_write import try_lock
from eigenmesh.errors import UnreadableFileError

# The kinds of events, their fields (plain values only), and their form as JSON.


# Increased when a field changes its meaning; new kinds, and new fields with a default, do not need that.
VERSION = 1


class Started(NamedTuple):
    """A fit starts, on these nodes and links. ``n_components`` is K, or the share of the variance to explain."""

    solver: str
    averaging: str
    nodes: tuple[str, ...]
    links: tuple[tuple[str, str], ...]
    n_features: int
    n_components: int | float
    tol: float
    max_rounds: int


class Planned(NamedTuple):
    """The planner's forecast of the fit that starts next, with ``latency_s`` per round, infinite if tol is missed."""

    rounds: float
    bytes: float
    seconds: float
    latency_s: float


class Record(NamedTuple):
    """One line of a run's history: the cost so far, with set-up and checks, and measured values, NaN if not measured.

    ``residual`` is the largest over nodes and components, ``error`` the paper's mean sin^2 error if the true components
    are known, ``step_size`` that of the solver, ``bound`` the certified bound on sin(angle) to the true components.
    """

    iteration: int
    rounds: int
    messages: int
    matrices: int
    bytes: int
    residual: float = math.nan
    error: float = math.nan
    step_size: float = math.nan
    bound: float = math.nan


class BoundCertified(NamedTuple):
    """The nodes have a certificate: a bound on sin(angle) to the true components, with its warnings."""

    rounds: int
    bound: float
    residual: float
    warnings: tuple[str, ...] = ()


class CertificateInWords(NamedTuple):
    """The final certificate of a fit, in complete sentences."""

    words: tuple[str, ...]


class BatchChecked(NamedTuple):
    """A batch of a stream compared with the batches before it: the variance that the last components lose, and alarms.

    ``t2_share`` and ``spe_share`` are the shares of samples above the limits of T2 and SPE. 1 % is normal.
    """

    batch: int
    samples: int
    variance_lost: float
    t2_share: float
    spe_share: float
    alarm: bool = False
    message: str = ""


class LinkTraffic(NamedTuple):
    """Traffic over a link in one direction during the whole fit: messages, and bytes of payload."""

    sender: str
    receiver: str
    messages: int
    bytes: int


class LinkLatency(NamedTuple):
    """Round-trip time of a link, as set by the conditions of a run in virtual time."""

    one: str
    other: str
    round_trip_s: float


class Members(NamedTuple):
    """The sites of a run between organisations, as ``site`` knows them. The epoch increases when links are lost."""

    run: str
    site: str
    epoch: int
    members: tuple[str, ...]
    missing: tuple[str, ...] = ()


class SiteStatus(NamedTuple):
    """The next round of this site, since when it has waited for neighbours (0: it does not), and why it cannot resume.

    ``problem`` is empty if it can resume.
    """

    round: int
    waiting_since: float = 0.0
    problem: str = ""


class NeighbourStatus(NamedTuple):
    """One neighbour as seen from this site. Bytes count whole frames. Times are seconds since 1970, 0 for never.

    ``round_trip_s`` is the last known round-trip time, or 0 if none is known.
    """

    name: str
    connected: bool = False
    last_heard: float = 0.0
    waiting: bool = False
    round: int = 0
    bytes_sent: int = 0
    bytes_received: int = 0
    refusal: str = ""
    round_trip_s: float = 0.0


class Lost(NamedTuple):
    """Sites were lost: the names of lost neighbours, or none if other sites reported the loss."""

    names: tuple[str, ...]
    reason: str


class Ended(NamedTuple):
    """The last event: done, stopped, parked, aborted or failed, whether the certificate reached tol, and why."""

    outcome: str
    converged: bool = False
    message: str = ""


FitEvent: TypeAlias = (
    Planned | Started | Record | BoundCertified | CertificateInWords | BatchChecked | LinkTraffic | LinkLatency | Ended
)
SiteEvent: TypeAlias = Members | SiteStatus | NeighbourStatus | Lost
Event: TypeAlias = FitEvent | SiteEvent

# Names of the kinds in files.
KINDS: dict[str, type[FitEvent | SiteEvent]] = {
    "planned": Planned,
    "started": Started,
    "record": Record,
    "certified": BoundCertified,
    "certificate": CertificateInWords,
    "batch_checked": BatchChecked,
    "link_traffic": LinkTraffic,
    "link_latency": LinkLatency,
    "members": Members,
    "site_status": SiteStatus,
    "neighbour_status": NeighbourStatus,
    "lost": Lost,
    "ended": Ended,
}
KIND_OF = {event: kind for kind, event in KINDS.items()}
FLOATS = {kind: [name for name, hint in get_type_hints(KINDS[kind]).items() if hint is float] for kind in KINDS}


class Entry(NamedTuple):
    """An event and its time, by the clock of the log."""

    time_s: float
    event: Event


def to_json(entry: Entry) -> str:
    """The line of an event in a file, without newline.

    NaN becomes null. Infinities, which JSON lacks, become "Infinity" and "-Infinity".

    Parameters
    ----------
    entry : Entry
        The event and its time.
    """
    event = entry.event
    plain = {name: _plain(value) for name, value in event._asdict().items()}
    about = {"version": VERSION, "time_s": entry.time_s, "kind": KIND_OF[type(event)]}
    return json.dumps({**about, **plain}, allow_nan=False)


def from_json(line: str) -> Entry:
    """The entry of a line.

    Unknown fields are left out. An unknown kind or a newer version is an error.

    Parameters
    ----------
    line : str
        A line of a file of events.
    """
    try:
        values = json.loads(line)
        version, kind, time_s = int(values.pop("version")), str(values.pop("kind")), float(values.pop("time_s"))
        if version > VERSION or kind not in KINDS:
            raise ValueError(f"kind {kind!r} of version {version} is not known here")
        known = [name for name in values if name in KINDS[kind]._fields]
        return Entry(time_s, KINDS[kind](**{name: _value(values[name], name in FLOATS[kind]) for name in known}))
    except (ValueError, TypeError, KeyError, AttributeError) as error:
        raise UnreadableFileError(f"{line[:80]!r} is not an event ({error!r}); give a file of --events.") from error


def _plain(value: Any) -> Any:
    if not isinstance(value, float) or math.isfinite(value):
        return value
    return None if math.isnan(value) else f"{'-' if value < 0 else ''}Infinity"


def _value(value: Any, is_float: bool) -> Any:
    if is_float:
        return math.nan if value is None else float(value)
    return tuple(_value(item, False) for item in value) if isinstance(value, list) else value


logger = logging.getLogger(__name__)

Listener: TypeAlias = Callable[[Entry], Any]


class EventLog:
    """Adds the time to every event and passes it to the listeners in order, one at a time. Any thread may emit.

    Parameters
    ----------
    *listeners : callable
        Each is called with every entry.
    clock : callable
        The time in seconds, since 1970 by default.
    """

    def __init__(self, *listeners: Listener, clock: Callable[[], float] = time.time) -> None:
        self.listeners, self._clock = list(listeners), clock
        self._records: list[Record] = []
        self._lock = threading.Lock()

    def emit(self, event: Event) -> None:
        """Pass an event to all listeners.

        Parameters
        ----------
        event : Event
            What has happened.
        """
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
    """A listener that calls a function with each record of the history, one per check.

    Parameters
    ----------
    function : callable
        It is called with a Record.
    """
    return lambda entry: function(entry.event) if isinstance(entry.event, Record) else None


class JsonlWriter:
    """A listener that writes each event to a file at once.

    If the disk fails, it logs a warning and stops writing, and the run goes on. A lock on the file, which ends with the
    process however it ends, tells readers that somebody still writes to it.

    Parameters
    ----------
    path : path-like
        The file.
    append : bool
        Whether to write after the existing lines.
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
                try_lock(self._file.fileno(), shared=True)
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


class EventReader:
    """Reads a file of events, even while it is written.

    Parameters
    ----------
    path : path-like
        The file, which need not exist yet.
    """

    def __init__(self, path: str | os.PathLike[str]) -> None:
        self.path, self._position = Path(path), 0

    def new(self) -> list[Entry]:
        """Entries since the last call; none if the file does not exist yet. Lines that cannot be read are skipped."""
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
            return try_lock(file.fileno()) is True
        return False


@contextmanager
def event_log(path: Path | None, *listeners: Listener | None) -> Iterator[EventLog]:
    """A log that also writes to a file. If the code inside raises, the last event reports it.

    Parameters
    ----------
    path : Path or None
        The file of events, if there is one.
    *listeners : callable or None
        Each is called with every entry. None is left out.
    """
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
