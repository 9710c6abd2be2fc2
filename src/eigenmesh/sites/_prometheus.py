"""Prometheus metrics of a running peer, for the machine it runs on alone."""

import math
from threading import Thread
from typing import Any, Self

from eigenmesh.errors import UnreadableFileError, import_extra
from eigenmesh.sites._status import Status

LOOPBACK = "127.0.0.1"


class Metrics:
    """Serves what the last status said, at ``http://127.0.0.1:port/metrics``; port 0 takes a free one."""

    def __init__(self, port: int, site: str, run: str) -> None:
        prometheus = import_extra("prometheus_client", "peers", "the metrics port")
        self._registry = prometheus.CollectorRegistry()
        self._site = {"site": site, "run": run}
        names = tuple(self._site)

        def gauge(name: str, words: str, *labels: str) -> Any:
            return prometheus.Gauge(f"eigenmesh_{name}", words, (*names, *labels), registry=self._registry)

        self._round = gauge("round", "Neighbour exchanges so far.")
        self._residual = gauge("residual", "Residual of the last check.")
        self._bytes = gauge("sent_bytes", "Payload that has left the site.")
        self._waiting = gauge("waiting_seconds", "How long the present wait for neighbours has lasted.")
        self._running = gauge("running", "1 while the run goes on, 0 once it has ended.")
        self._up = gauge("neighbour_up", "1 while the link to the neighbour stands.", "neighbour")
        self._sent = gauge("neighbour_sent_bytes", "Payload that went to the neighbour.", "neighbour")
        self._heard = gauge("neighbour_last_heard_timestamp_seconds", "When the neighbour was last heard.", "neighbour")
        try:
            self._server, self._thread = prometheus.start_http_server(port, addr=LOOPBACK, registry=self._registry)
        except OSError as error:
            raise UnreadableFileError(
                f"metrics cannot be served at {LOOPBACK}:{port}: {error.strerror}; choose another metrics_port."
            ) from error

    @property
    def port(self) -> int:
        """Where they are served."""
        return int(self._server.server_port)

    def show(self, status: Status) -> None:
        """Take over what a status says."""
        self._round.labels(**self._site).set(status.round)
        self._residual.labels(**self._site).set(status.residual if math.isfinite(status.residual) else math.nan)
        self._bytes.labels(**self._site).set(status.bytes)
        self._waiting.labels(**self._site).set(status.waiting_s)
        self._running.labels(**self._site).set(not status.ended)
        for neighbour in status.neighbours:
            labels = {**self._site, "neighbour": neighbour.name}
            self._up.labels(**labels).set(neighbour.connected)
            self._sent.labels(**labels).set(neighbour.bytes_sent)
            self._heard.labels(**labels).set(neighbour.last_heard)

    def close(self) -> None:
        """Stop serving; more than once is harmless."""
        thread: Thread = self._thread
        if thread.is_alive():
            self._server.shutdown()
            thread.join(timeout=5)
        self._server.server_close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()
