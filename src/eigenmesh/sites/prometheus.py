"""Numbers of a peer, or of a relay, for Prometheus: its text format, over HTTP."""

from __future__ import annotations

import hmac
import json
import math
import socket
import threading
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import AbstractContextManager, closing, nullcontext
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import NamedTuple

from eigenmesh.atomic_write import read_secret
from eigenmesh.errors import file_errors
from eigenmesh.events import NeighbourStatus
from eigenmesh.sites.addresses import Address, MetricsFile
from eigenmesh.sites.status import Status

# Longest time of a request: callers who send nothing are given up.
REQUEST_S = 10.0


class Gauge(NamedTuple):
    """A number that changes: its name, a description, and its value for each set of labels."""

    name: str
    words: str
    values: Sequence[tuple[dict[str, str], float]]

    @property
    def text(self) -> str:
        """The lines that Prometheus reads."""
        name = f"eigenmesh_{self.name}"
        lines = [f"# HELP {name} {self.words}", f"# TYPE {name} gauge"]
        for labels, value in self.values:
            named = ",".join(f"{label}={json.dumps(said)}" for label, said in sorted(labels.items()))
            number = repr(float(value)) if math.isfinite(value) else "NaN"
            lines.append(f"{name}{{{named}}} {number}")
        return "\n".join(lines) + "\n"


# Prometheus metrics of a site and of its links: description and value.
SITE_GAUGES: dict[str, tuple[str, Callable[[Status], float]]] = {
    "round": ("Exchanges with neighbours so far.", lambda status: status.round),
    "residual": ("Residual of the last check.", lambda status: status.residual),
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


def gauges_of(status: Status) -> Iterator[Gauge]:
    """The numbers of a status for Prometheus."""
    own = {"site": status.site, "run": status.run}
    for name, (words, value) in SITE_GAUGES.items():
        yield Gauge(name, words, [(own, value(status))])
    for name, (words, of_link) in LINK_GAUGES.items():
        links = [({**own, "neighbour": link.name}, of_link(link)) for link in status.neighbours]
        yield Gauge(f"neighbour_{name}", words, links)


def served(described: MetricsFile | None, gauges: Callable[[], Iterable[Gauge]]) -> AbstractContextManager[object]:
    """Serve these numbers within a block, if the file asks for it."""
    if described is None:
        return nullcontext()
    token = "" if described.token is None else read_secret(described.token)
    return closing(Metrics(described.address, gauges, token))


class Metrics:
    """Serves numbers at ``http://host:port/metrics``, each request in a thread.

    Parameters
    ----------
    address : Address
        Where; port 0 takes a free one.
    gauges : callable
        Gives the numbers at the time of a request.
    token : str, optional
        What a caller has to show, as ``Authorization: Bearer TOKEN``.
    """

    def __init__(self, address: Address, gauges: Callable[[], Iterable[Gauge]], token: str = "") -> None:
        self.gauges, self.token = gauges, token
        with file_errors(f"metrics at {address} cannot be served", "use another address"):
            self._server = _MetricsServer(address, self)
        self._thread = threading.Thread(target=self._server.serve_forever, name="eigenmesh-metrics", daemon=True)
        self._thread.start()

    @property
    def port(self) -> int:
        """The port on which Prometheus finds the numbers."""
        return self._server.server_port

    def close(self) -> None:
        """Stop serving. May be called more than once."""
        if self._thread.is_alive():
            self._server.shutdown()
            self._thread.join(timeout=5)
        self._server.server_close()


class _MetricsServer(ThreadingHTTPServer):
    def __init__(self, address: Address, metrics: Metrics) -> None:
        self.metrics = metrics
        self.address_family = socket.AF_INET6 if ":" in address.host else socket.AF_INET
        super().__init__((address.host, address.port), _MetricsHandler)


class _MetricsHandler(BaseHTTPRequestHandler):
    server: _MetricsServer
    timeout = REQUEST_S

    def do_GET(self) -> None:
        metrics = self.server.metrics
        shown, expected = self.headers.get("Authorization", ""), f"Bearer {metrics.token}"
        if metrics.token and not hmac.compare_digest(shown.encode(), expected.encode()):
            self._answer(HTTPStatus.UNAUTHORIZED, "the token of this site is needed\n")
        else:
            self._answer(HTTPStatus.OK, "".join(gauge.text for gauge in metrics.gauges()))

    def _answer(self, status: HTTPStatus, text: str) -> None:
        self.send_response(status)
        if status == HTTPStatus.UNAUTHORIZED:
            self.send_header("WWW-Authenticate", "Bearer")
        self.send_header("Content-Type", "text/plain; version=0.0.4; charset=utf-8")
        self.send_header("Content-Length", str(len(text.encode())))
        self.end_headers()
        self.wfile.write(text.encode())

    def log_message(self, form: str, *values: object) -> None:
        """Requests are not logged."""
