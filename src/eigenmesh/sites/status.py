"""The status of a run at one site: a small file, replaced atomically, that anyone at the site may read."""

from __future__ import annotations

import json
import logging
import math
import os
import threading
import time
from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self

from eigenmesh import events
from eigenmesh.atomic_write import save_json
from eigenmesh.errors import UnreadableFileError, file_errors
from eigenmesh.events import NeighbourStatus
from eigenmesh.words import one_line

if TYPE_CHECKING:
    from eigenmesh.protocol.membership import Membership
    from eigenmesh.sites.site import Site
    from eigenmesh.transports.tls import TlsTransport
    from eigenmesh.transports.tls.connection import Supervisor

logger = logging.getLogger(__name__)

# A running peer writes its status about every second. An older status means that the peer is stuck.
STALE_S = 15.0
# Phases after which a peer writes no more.
ENDED = ("done", "stopped", "parked", "aborted", "failed")


@dataclass(frozen=True)
class Status:
    """The state of a peer, built from its events.

    Attributes
    ----------
    phase : connecting, moments, running, agreeing, done, stopped, parked, aborted, failed.
    residual : of the last check. NaN before the first.
    bytes : sent by this site since the last change of members.
    waiting_since : start of the current wait, in seconds since 1970; 0 if there is none.
    message : why the run ended, or what keeps it from going on.
    """

    site: str
    run: str
    phase: str
    round: int = 0
    max_rounds: int = 0
    epoch: int = 0
    residual: float = math.nan
    bytes: int = 0
    waiting_since: float = 0.0
    neighbours: tuple[NeighbourStatus, ...] = ()
    message: str = ""
    pid: int = field(default_factory=os.getpid)
    started: float = 0.0
    written: float = field(default_factory=time.time)

    @property
    def waiting_for(self) -> tuple[str, ...]:
        return tuple(neighbour.name for neighbour in self.neighbours if neighbour.waiting)

    @property
    def waiting_s(self) -> float:
        """How long the current wait has lasted; 0 if there is none."""
        return self.written - self.waiting_since if self.waiting_since else 0.0

    @property
    def ended(self) -> bool:
        return self.phase in ENDED

    def after(self, event: events.Event) -> Status:
        match event:
            case events.Members():
                return replace(self, phase="connecting", epoch=event.epoch, round=0, bytes=0, neighbours=())
            case events.SiteStatus():
                phase = "moments" if self.phase == "connecting" and event.round else self.phase
                since, problem = event.waiting_since, event.problem
                return replace(self, phase=phase, round=event.round, waiting_since=since, message=problem)
            case NeighbourStatus():
                known = {neighbour.name: neighbour for neighbour in self.neighbours}
                neighbours = tuple({**known, event.name: event}.values())
                return replace(self, neighbours=neighbours, bytes=sum(one.bytes_sent for one in neighbours))
            case events.Record():
                return replace(self, phase="running", residual=event.residual)
            case events.Lost():
                return replace(self, phase="agreeing")
            case events.Ended():
                return replace(self, phase=event.outcome, message=event.message)
        return self


def write_status(path: Path, status: Status) -> bool:
    """Replace the file atomically, so that a reader never sees half of it; False if the disk fails."""
    try:
        save_json(path, plain_values(status))
    except OSError as error:
        # A full disk does not end the run.
        logger.warning("the status file %s cannot be written: %s", path, error.strerror)
        return False
    return True


def plain_values(status: Status) -> dict[str, Any]:
    """The status as values that JSON has."""
    residual = status.residual if math.isfinite(status.residual) else None
    return {**vars(status), "residual": residual, "neighbours": [one._asdict() for one in status.neighbours]}


def read_status(path: str | os.PathLike[str]) -> Status:
    """The status that a peer last wrote."""
    path = Path(path)
    try:
        with file_errors(f"{path} cannot be read", "if no peer has been started here yet, start one"):
            content = json.loads(path.read_text(encoding="utf-8"))
        neighbours = tuple(NeighbourStatus(**neighbour) for neighbour in content["neighbours"])
        residual = math.nan if content["residual"] is None else float(content["residual"])
        return Status(**{**content, "neighbours": neighbours, "residual": residual})
    except (ValueError, TypeError, KeyError) as error:
        raise UnreadableFileError(f"{path} is not a status file ({error}); a running peer will replace it.") from error


def _exists(pid: int) -> bool:
    """Whether a process with this number runs on this machine. By now it may be a different program."""
    try:
        # On Windows os.kill would end the process.
        if pid > 0 and os.name == "posix":
            os.kill(pid, 0)
    except PermissionError:
        return True
    except ProcessLookupError:
        return False
    return pid > 0


def health(status: Status, now: float | None = None) -> str:
    """How far to trust the status: ended, running, stale (not written for STALE_S) or gone (no such process)."""
    if status.ended:
        return "ended"
    if not _exists(status.pid):
        return "gone"
    age_s = (time.time() if now is None else now) - status.written
    return "stale" if age_s > STALE_S else "running"


# Reports the progress of a run about every second: to the event log, the status file, Prometheus and a listener.


EVERY_S = 1.0
LONGEST_PROBLEM = 300


class Reporter:
    """The event log of a site, and the status that follows from the events, as a context manager.

    A thread polls the transport and emits an event for everything that has changed.

    Parameters
    ----------
    site : Site
        The site.
    listener : callable, optional
        Called about every second with the status, in that thread.
    supervisor : Supervisor, optional
        Hears of exceptions in the thread.
    """

    def __init__(
        self, site: Site, listener: Callable[[Status], None] | None = None, supervisor: Supervisor | None = None
    ) -> None:
        # Imported only here: whoever reads a status needs no cryptography.
        from eigenmesh.transports.tls.connection import Supervisor

        self.site, self.listener = site, listener
        self.log = events.EventLog(self._take)
        self.transport: TlsTransport | None = None
        # Called in the thread, about every second.
        self.sync_audit: Callable[[], None] = lambda: None
        most = site.settings.asked.max_rounds
        self._status = Status(site.name, site.run_and_batch, "connecting", max_rounds=most, started=time.time())
        self._seen: tuple[events.Event, ...] = ()
        self._waiting_since, self._round = 0.0, 0
        self._round_trips_s: dict[str, float] = {}
        self._ended = threading.Event()
        self._stack = ExitStack()
        self._thread = (supervisor or Supervisor()).thread(self._report_regularly, "eigenmesh-status")

    def __enter__(self) -> Self:
        if self.site.metrics is not None:
            # Imported only here: a peer without metrics needs no HTTP.
            from eigenmesh.sites.prometheus import gauges_of, served

            self._stack.enter_context(served(self.site.metrics, lambda: gauges_of(self._now())))
        self.log.listeners.append(self._stack.enter_context(events.JsonlWriter(self.site.out.events, append=True)))
        self._report()
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stop()
        self._report()
        self._stack.close()

    def follow(self, transport: TlsTransport, view: Membership) -> None:
        """Poll this transport from now on."""
        self.transport = transport
        self.log.emit(events.Members(self.site.run, self.site.name, len(view.lost), view.members, view.missing))

    def end(self, last: events.Ended) -> None:
        """Report the end of the run, and stop."""
        self._stop()
        self._poll()
        # On one line, because the reason may be text from another site.
        self.log.emit(last._replace(message=one_line(last.message)))

    def _stop(self) -> None:
        self._ended.set()
        self._thread.join()

    def _report_regularly(self) -> None:
        while not self._ended.wait(EVERY_S):
            self._poll()
            self._report()
            self.sync_audit()

    def _take(self, entry: events.Entry) -> None:
        self._status = self._status.after(entry.event)

    def _now(self) -> Status:
        return replace(self._status, written=time.time())

    def _report(self) -> None:
        status = self._now()
        write_status(self.site.out.status, status)
        if self.listener is not None:
            try:
                self.listener(status)
            except (OSError, SystemExit) as error:
                # The terminal, or the reader of a pipe, has gone; Rich raises SystemExit then. The run goes on.
                logger.warning("progress is no longer shown: %s", error)
                self.listener = None

    def _poll(self) -> None:
        """Emit an event for everything that has changed at the transport since the last poll."""
        if self.transport is None:
            return
        now, seen = time.time(), self.transport.status()
        # A new round begins a new wait, even if every poll happened to see a wait.
        since = self._waiting_since if seen.round == self._round else 0.0
        self._waiting_since, self._round = (since or now) if seen.waiting_for else 0.0, seen.round
        before, self._seen = self._seen, (events.SiteStatus(seen.round, self._waiting_since, seen.journal_problem),)
        for link in seen.links:
            # A link that is down keeps its last round trip time.
            trip_s = self._round_trips_s[link.name] = link.round_trip_s or self._round_trips_s.get(link.name, 0.0)
            self._seen += (link._replace(refusal=one_line(link.refusal, LONGEST_PROBLEM), round_trip_s=trip_s),)
        for event in self._seen:
            if event not in before:
                self.log.emit(event)
