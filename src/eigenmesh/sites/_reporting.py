"""Says about every second how a run is going: to the log of events, to a file, to Prometheus, to whoever listens."""

import threading
import time
from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import replace
from typing import Self

from eigenmesh.events import Ended, Entry, Event, EventLog, JsonlWriter, Members, NeighbourStatus, SiteStatus
from eigenmesh.sites._membership import Membership
from eigenmesh.sites._prometheus import Metrics
from eigenmesh.sites._site import Site
from eigenmesh.sites._status import Status, write_status
from eigenmesh.transports.grpc import GrpcTransport

EVERY_S = 1.0


class Reporter:
    """The log of a site's events and the status that follows from them; used as a context.

    A thread looks at the transport and makes events of what has changed there.
    """

    def __init__(self, site: Site, listener: Callable[[Status], None] | None = None) -> None:
        self.site, self.listener = site, listener
        self.log = EventLog(self._take)
        self.transport: GrpcTransport | None = None
        settings, began = site.settings, time.time()
        self._status = Status(site.name, site.run, "connecting", max_rounds=settings.max_rounds, started=began)
        self._seen: tuple[Event, ...] = ()
        self._waiting_since = 0.0
        self._ended = threading.Event()
        self._stack = ExitStack()
        self._metrics: Metrics | None = None
        self._thread = threading.Thread(target=self._tell_all, name="eigenmesh-status", daemon=True)

    def __enter__(self) -> Self:
        if self.site.metrics_port is not None:
            self._metrics = self._stack.enter_context(Metrics(self.site.metrics_port, self.site.name, self.site.run))
        self.log.listeners.append(self._stack.enter_context(JsonlWriter(self.site.out.events, append=True)))
        self._tell()
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stop()
        self._tell()
        self._stack.close()

    def follow(self, transport: GrpcTransport, view: Membership) -> None:
        """Look at this transport from now on."""
        self.transport = transport
        self.log.emit(Members(self.site.run, self.site.name, view.epoch, view.members, view.missing))

    def end(self, last: Ended) -> None:
        """The last event."""
        self._stop()
        self._look()
        self.log.emit(last)

    def _stop(self) -> None:
        self._ended.set()
        self._thread.join()

    def _tell_all(self) -> None:
        while not self._ended.wait(EVERY_S):
            self._look()
            self._tell()

    def _take(self, entry: Entry) -> None:
        self._status = self._status.after(entry.event)

    def _tell(self) -> None:
        status = replace(self._status, written=time.time())
        write_status(self.site.out.status, status)
        if self._metrics is not None:
            self._metrics.show(status)
        if self.listener is not None:
            self.listener(status)

    def _look(self) -> None:
        """Make events of what has changed at the transport since the last look."""
        if self.transport is None:
            return
        now, seen = time.time(), self.transport.status()
        self._waiting_since = (self._waiting_since or now) if seen.waiting_for else 0.0
        neighbours = (
            NeighbourStatus(
                link.name,
                link.connected,
                # To a tenth of a second, so that two looks at the same moment agree.
                round(max(0.0, now - link.heard_s), 1),
                link.name in seen.waiting_for,
                link.round,
                link.bytes_out,
                link.bytes_in,
                link.problem,
            )
            for link in seen.links
        )
        before = self._seen
        self._seen = (SiteStatus(seen.round, self._waiting_since, seen.journal_problem), *neighbours)
        for event in self._seen:
            if event not in before:
                self.log.emit(event)
