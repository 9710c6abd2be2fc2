"""The status of a run at one site: a small file, replaced atomically, that anyone at the site may read."""

from __future__ import annotations

import json
import logging
import math
import os
import time
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from eigenmesh._atomic_write import save_json
from eigenmesh.errors import UnreadableFileError
from eigenmesh.events import Ended, Event, Lost, Members, NeighbourStatus, Record, SiteStatus

logger = logging.getLogger(__name__)

# A running peer writes its status about every second. An older status means that the peer is stuck.
STALE_S = 15.0
LARGEST_BYTES = 1 << 22
# Phases after which a peer writes no more.
ENDED = ("done", "stopped", "parked", "aborted", "failed")


@dataclass(frozen=True)
class Status:
    """The state of a peer, built from its events.

    Attributes
    ----------
    phase : connecting, moments, running, agreeing, done, stopped, parked, aborted, failed.
    residual : of the last check; NaN before the first.
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

    def after(self, event: Event) -> Status:
        match event:
            case Members():
                return replace(self, phase="connecting", epoch=event.epoch, round=0, bytes=0, neighbours=())
            case SiteStatus():
                phase = "moments" if self.phase == "connecting" and event.round else self.phase
                since, problem = event.waiting_since, event.problem
                return replace(self, phase=phase, round=event.round, waiting_since=since, message=problem)
            case NeighbourStatus():
                known = {neighbour.name: neighbour for neighbour in self.neighbours}
                neighbours = tuple({**known, event.name: event}.values())
                return replace(self, neighbours=neighbours, bytes=sum(one.bytes_sent for one in neighbours))
            case Record():
                return replace(self, phase="running", residual=event.residual)
            case Lost():
                return replace(self, phase="agreeing")
            case Ended():
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
    residual = status.residual if math.isfinite(status.residual) else None
    return {**vars(status), "residual": residual, "neighbours": [one._asdict() for one in status.neighbours]}


def read_status(path: str | os.PathLike[str]) -> Status:
    """The status that a peer last wrote."""
    path = Path(path)
    try:
        if path.stat().st_size > LARGEST_BYTES:
            raise ValueError(f"it is larger than {LARGEST_BYTES:,} bytes")
        content = json.loads(path.read_text(encoding="utf-8"))
        neighbours = tuple(NeighbourStatus(**neighbour) for neighbour in content["neighbours"])
        residual = math.nan if content["residual"] is None else float(content["residual"])
        return Status(**{**content, "neighbours": neighbours, "residual": residual})
    except FileNotFoundError as error:
        raise UnreadableFileError(f"{path} does not exist: no peer has been started here yet.") from error
    except OSError as error:
        raise UnreadableFileError(f"{path} cannot be read: {error.strerror}; check its owner and mode.") from error
    except (ValueError, TypeError, KeyError) as error:
        raise UnreadableFileError(f"{path} is not a status file ({error}); a running peer will replace it.") from error


def _exists(pid: int) -> bool:
    """Whether a process with this number runs on this machine; by now it may be a different program."""
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
