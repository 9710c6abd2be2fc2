"""Reports the progress of a run about every second: to the event log, the status file, Prometheus and a listener."""

import logging
import math
import threading
import time
from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import replace
from typing import Any, Self

from eigenmesh._text import one_line
from eigenmesh.errors import UnreadableFileError, import_extra
from eigenmesh.events import Ended, Entry, Event, EventLog, JsonlWriter, Members, NeighbourStatus, SiteStatus
from eigenmesh.protocol import Membership
from eigenmesh.sites._site import Site
from eigenmesh.sites._status import Status, write_status
from eigenmesh.transports.tls import Supervisor, TlsTransport

logger = logging.getLogger(__name__)

EVERY_S = 1.0
LOOPBACK = "127.0.0.1"
LONGEST_PROBLEM = 300
# Prometheus metrics of a site and of its links: description and value.
SITE_GAUGES: dict[str, tuple[str, Callable[[Status], float]]] = {
    "round": ("Exchanges with neighbours so far.", lambda status: status.round),
    "residual": ("Residual of the last check.", lambda s: s.residual if math.isfinite(s.residual) else math.nan),
    "sent_bytes": ("Payload that the site has sent.", lambda status: status.bytes),
    "waiting_seconds": ("How long the current wait for neighbours has lasted.", lambda status: status.waiting_s),
    "running": ("1 during the run, 0 once it has ended.", lambda status: not status.ended),
}
LINK_GAUGES: dict[str, tuple[str, Callable[[NeighbourStatus], float]]] = {
    "up": ("1 while the link to the neighbour is up.", lambda link: link.connected),
    "sent_bytes": ("Payload sent to the neighbour.", lambda link: link.bytes_sent),
    "round_trip_seconds": ("Round trip time to the neighbour.", lambda link: link.round_trip_s or math.nan),
    "last_heard_timestamp_seconds": ("When the neighbour was last heard.", lambda link: link.last_heard),
}


class Metrics:
    """Serves the last status to Prometheus, at ``http://127.0.0.1:port/metrics``; port 0 takes a free one."""

    def __init__(self, port: int, site: str, run: str) -> None:
        prometheus = import_extra("prometheus_client", "peers", "the metrics port")
        registry = prometheus.CollectorRegistry()
        self._labels = (site, run)

        def gauge(name: str, words: str, *labels: str) -> Any:
            return prometheus.Gauge(f"eigenmesh_{name}", words, ("site", "run", *labels), registry=registry)

        self._site = [(gauge(name, words), value) for name, (words, value) in SITE_GAUGES.items()]
        self._links = [
            (gauge(f"neighbour_{name}", words, "neighbour"), value) for name, (words, value) in LINK_GAUGES.items()
        ]
        try:
            self._server, self._thread = prometheus.start_http_server(port, addr=LOOPBACK, registry=registry)
        except OSError as error:
            raise UnreadableFileError(f"metrics_port {port} cannot be used: {error.strerror}; use another.") from error

    @property
    def port(self) -> int:
        """The port on which Prometheus finds the numbers."""
        return int(self._server.server_port)

    def show(self, status: Status) -> None:
        """Take over the numbers of a status."""
        for gauge, value in self._site:
            gauge.labels(*self._labels).set(value(status))
        for neighbour in status.neighbours:
            for gauge, link_value in self._links:
                gauge.labels(*self._labels, neighbour.name).set(link_value(neighbour))

    def close(self) -> None:
        """Stop serving; may be called more than once."""
        if self._thread.is_alive():
            self._server.shutdown()
            self._thread.join(timeout=5)
        self._server.server_close()


class Reporter:
    """The event log of a site, and the status that follows from the events; a context manager.

    A thread polls the transport and emits an event for everything that has changed; ``supervisor`` hears of exceptions
    in it.
    """

    def __init__(
        self, site: Site, listener: Callable[[Status], None] | None = None, supervisor: Supervisor | None = None
    ) -> None:
        self.site, self.listener = site, listener
        self.log = EventLog(self._take)
        self.transport: TlsTransport | None = None
        most = site.settings.asked.max_rounds
        self._status = Status(site.name, site.run_and_batch, "connecting", max_rounds=most, started=time.time())
        self._seen: tuple[Event, ...] = ()
        self._waiting_since, self._round = 0.0, 0
        self._round_trips_s: dict[str, float] = {}
        self._ended = threading.Event()
        self._stack = ExitStack()
        self._metrics: Metrics | None = None
        self._thread = (supervisor or Supervisor()).thread(self._report_regularly, "eigenmesh-status")

    def __enter__(self) -> Self:
        if self.site.metrics_port is not None:
            self._metrics = Metrics(self.site.metrics_port, self.site.name, self.site.run)
            self._stack.callback(self._metrics.close)
        self.log.listeners.append(self._stack.enter_context(JsonlWriter(self.site.out.events, append=True)))
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
        self.log.emit(Members(self.site.run, self.site.name, len(view.lost), view.members, view.missing))

    def end(self, last: Ended) -> None:
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

    def _take(self, entry: Entry) -> None:
        self._status = self._status.after(entry.event)

    def _report(self) -> None:
        status = replace(self._status, written=time.time())
        write_status(self.site.out.status, status)
        if self._metrics is not None:
            self._metrics.show(status)
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
        before, self._seen = self._seen, (SiteStatus(seen.round, self._waiting_since, seen.journal_problem),)
        for link, trip_s in zip(seen.links, seen.round_trips_s, strict=True):
            # A link that is down keeps its last round trip time.
            self._round_trips_s[link.name] = trip_s = trip_s or self._round_trips_s.get(link.name, 0.0)
            # Rounded to a tenth of a second, so that a time computed twice compares as equal.
            heard, waiting = round(max(0.0, now - link.heard_s), 1), link.name in seen.waiting_for
            traffic = (link.round, link.bytes_out, link.bytes_in)
            problem = one_line(link.problem, LONGEST_PROBLEM)
            self._seen += (NeighbourStatus(link.name, link.connected, heard, waiting, *traffic, problem, trip_s),)
        for event in self._seen:
            if event not in before:
                self.log.emit(event)
