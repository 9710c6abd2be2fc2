"""Says about every second how a run is going: to a file, to Prometheus, to whoever listens."""

from __future__ import annotations

import math
import threading
import time
from collections.abc import Callable
from contextlib import ExitStack
from typing import Self

from eigenmesh.iteration._result import Record
from eigenmesh.sites._prometheus import Metrics
from eigenmesh.sites._site import Site
from eigenmesh.sites._status import NeighbourStatus, Status, write_status
from eigenmesh.transports.grpc import GrpcTransport, TransportStatus

EVERY_S = 1.0


class Reporter:
    """A thread that looks at the transport and at the last record; used as a context."""

    def __init__(self, site: Site, listener: Callable[[Status], None] | None = None) -> None:
        self.site, self.listener = site, listener
        self.phase, self.message = "connecting", ""
        self.transport: GrpcTransport | None = None
        self._epoch = 0
        self._record: Record | None = None
        self._began, self._waiting_since = time.time(), 0.0
        self._ended = threading.Event()
        self._stack = ExitStack()
        self._metrics: Metrics | None = None
        self._thread = threading.Thread(target=self._tell_all, name="eigenmesh-status", daemon=True)

    def __enter__(self) -> Self:
        if self.site.metrics_port is not None:
            self._metrics = self._stack.enter_context(Metrics(self.site.metrics_port, self.site.name, self.site.run))
        self._tell()
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._ended.set()
        self._thread.join()
        self._tell()
        self._stack.close()

    def follow(self, transport: GrpcTransport, epoch: int) -> None:
        """Look at this transport from now on."""
        self.transport, self._epoch, self.phase = transport, epoch, "connecting"

    def record(self, record: Record) -> None:
        """Take note of a check of the run."""
        self._record, self.phase = record, "running"

    def end(self, phase: str, message: str = "") -> None:
        """The last word: done, parked, aborted or failed, and why."""
        self.phase, self.message = phase, message

    def _tell_all(self) -> None:
        while not self._ended.wait(EVERY_S):
            self._tell()

    def _tell(self) -> None:
        status = self._status()
        write_status(self.site.out.status, status)
        if self._metrics is not None:
            self._metrics.show(status)
        if self.listener is not None:
            self.listener(status)

    def _status(self) -> Status:
        now, record = time.time(), self._record
        seen = TransportStatus(0, False, (), "", ()) if self.transport is None else self.transport.status()
        if not seen.waiting_for:
            self._waiting_since = now
        if self.phase == "connecting" and seen.round:
            self.phase = "moments"
        return Status(
            self.site.name,
            self.site.run,
            self.phase,
            round=seen.round,
            max_rounds=self.site.settings.max_rounds,
            epoch=self._epoch,
            residual=math.nan if record is None else record.residual,
            bytes=sum(link.bytes_out for link in seen.links),
            waiting_s=now - self._waiting_since,
            neighbours=tuple(
                NeighbourStatus(
                    link.name,
                    link.connected,
                    max(0.0, now - link.heard_s),
                    link.name in seen.waiting_for,
                    link.round,
                    link.bytes_out,
                    link.bytes_in,
                    link.problem,
                )
                for link in seen.links
            ),
            message=self.message or seen.journal_problem,
            started=self._began,
        )
