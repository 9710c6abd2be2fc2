"""The page as one HTML document: style, script and data are embedded, and nothing is fetched from elsewhere."""

from __future__ import annotations

import base64
import hashlib
import hmac
import json
import logging
import secrets
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from functools import cache
from html import escape
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from importlib.resources import files
from itertools import pairwise
from pathlib import Path
from typing import Any, Self
from urllib.parse import parse_qs, urlsplit

from eigenmesh.errors import InputError
from eigenmesh.events import Ended, Entry, EventReader, to_json

# Most events of a report; of a longer run, every n-th record and all other events are kept.
MOST_EVENTS = 4000


def page_of(title: str, run: dict[str, Any]) -> str:
    """The page of a run, which has ``events``, or ``live``: the address of a stream of events."""
    # "</script>" inside a string would end the script element that contains the data.
    data = json.dumps(run, allow_nan=False).replace("<", "\\u003c")
    parts = {"STYLE": _part("page.css"), "SCRIPT": _part("page.js"), "RUN": data, "TITLE": escape(title)}
    page = _part("page.html")
    head, *rest = page.split("__")
    # The template has double underscores only around names, so every second piece is a name.
    return head + "".join(parts[piece] if number % 2 == 0 else piece for number, piece in enumerate(rest))


def report_page(title: str, entries: Sequence[Entry], most: int = MOST_EVENTS, **about: Any) -> str:
    """The page of these events as a file to open from disk.

    Parameters
    ----------
    title : str
        The heading of the page.
    entries : sequence of Entry
        The events of the run.
    most : int
        Of a run with more events, every n-th record and all other events are kept.
    about
        Facts, components and how to repeat the run.
    """
    return page_of(title, {"events": _thinned([json.loads(to_json(entry)) for entry in entries], most), **about})


def _thinned(events: list[dict[str, Any]], most: int) -> list[dict[str, Any]]:
    """Fewer events: every n-th record, the traffic of the last fit only, and each network only where it changes."""
    starts = [number for number, event in enumerate(events) if event["kind"] == "started"]
    for before, number in reversed(list(pairwise(starts))):
        same = {name for name in ("nodes", "links") if events[number][name] == events[before][name]}
        events[number] = {name: value for name, value in events[number].items() if name not in same}
    if len(events) > most and starts:
        events = [one for at, one in enumerate(events) if one["kind"] != "link_traffic" or at > starts[-1]]
    records = [number for number, event in enumerate(events) if event["kind"] == "record"]
    every = max(1, -(-len(records) // max(1, most - (len(events) - len(records)))))
    dropped = set(records) - set(records[::-1][::every])
    return [event for number, event in enumerate(events) if number not in dropped]


@cache
def policy() -> str:
    """The content security policy: the browser may use only the page's own style, script and stream."""
    script, style = _hash("page.js"), _hash("page.css")
    own = f"default-src 'none'; script-src {script}; style-src {style}; connect-src 'self'; img-src data:"
    return f"{own}; base-uri 'none'; form-action 'none'; frame-ancestors 'none'"


@cache
def _part(name: str) -> str:
    return files("eigenmesh.report").joinpath("static", name).read_text(encoding="utf-8")


def _hash(name: str) -> str:
    return f"'sha256-{base64.b64encode(hashlib.sha256(_part(name).encode()).digest()).decode()}'"


# The feed of a page: lines of events as they arrive, from a run in this process or from a file that grows.


# Most events in one message to a page.
MOST_AT_ONCE = 500
READ_EVERY_S = 0.5
# Longest time without a message, from which pages see that the server is alive.
ALIVE_S = 2.0


class Feed:
    """A listener that keeps all events, so that a page can be opened at any time.

    ``_left`` is the summary of what has left the site, as JSON; None if it is not known. ``_heard`` is the time of the
    last event, in seconds since 1970, and ``_lost`` says that the process of the run is gone.
    """

    def __init__(self) -> None:
        self._lines: list[str] = []
        self._left: str | None = None
        self._heard, self._lost = time.time(), False
        self._closed = False
        self._news = threading.Condition()

    def __call__(self, entry: Entry) -> None:
        """Add one event."""
        with self._news:
            self._lines.append(to_json(entry))
            self._heard = time.time()
            self._news.notify_all()

    def show_fate(self, heard: float, lost: bool) -> None:
        """Say when the run was last heard, in seconds since 1970, and whether its process is gone."""
        with self._news:
            self._heard, self._lost = heard, lost

    def show_left(self, left: dict[str, Any]) -> None:
        """Tell the pages what the run has left behind."""
        with self._news:
            self._left = json.dumps(left, allow_nan=False)
            self._news.notify_all()

    def close(self) -> None:
        """End the stream of all pages."""
        with self._news:
            self._closed = True
            self._news.notify_all()

    def messages(self, seen: int = 0) -> Iterator[str]:
        """Server-sent events after the first ``seen`` lines; waits for new ones until the feed is closed."""
        shown: str | None = None
        said = 0.0
        while True:
            with self._news:
                if seen >= len(self._lines) and self._left == shown and not self._closed:
                    self._news.wait(ALIVE_S)
                lines, left, closed = self._lines[seen : seen + MOST_AT_ONCE], self._left, self._closed
                fate = {"heard": self._heard, "now": time.time(), "lost": self._lost}
            seen += len(lines)
            if lines:
                yield f"event: run\nid: {seen}\ndata: [{','.join(lines)}]\n\n"
            if left is not None and left != shown:
                shown = left
                yield f"event: left\ndata: {left}\n\n"
            elif not lines and closed:
                yield "event: end\ndata: {}\n\n"
                return
            if time.monotonic() - said >= ALIVE_S / 2:
                said = time.monotonic()
                yield f"event: alive\ndata: {json.dumps(fate)}\n\n"


def fate_of(path: Path, last: Entry | None) -> tuple[float, bool]:
    """When a run last wrote to its file of events, and whether its process is gone; ``last`` is its last event."""
    lost = last is not None and not isinstance(last.event, Ended) and EventReader(path).is_abandoned
    return (path.stat().st_mtime if path.exists() else time.time()), lost


def follow(path: Path, feed: Feed, stop: threading.Event, left_of: Callable[[bool], dict[str, Any] | None]) -> None:
    """Pass new lines of a file of events to a feed, until ``stop``, and once more after it.

    ``left_of`` summarises what has left the site, or returns None if that is too expensive now; the last call is with
    True.
    """
    reader, ends = EventReader(path), False
    left: dict[str, Any] | None = None
    last: Entry | None = None
    while True:
        entries = reader.new()
        for entry in entries:
            feed(entry)
        last = entries[-1] if entries else last
        feed.show_fate(*fate_of(path, last))
        if entries or left is None or ends:
            now = left_of(ends)
            if now is not None and now != left:
                left = now
                feed.show_left(now)
        if ends:
            return
        ends = stop.wait(READ_EVERY_S)


# Serves the page on this machine, to anybody who knows its address with the token.


logger = logging.getLogger(__name__)

LOOPBACK = "127.0.0.1"
# Longest time of a request.
REQUEST_S = 10.0
HEADERS = {
    "Cache-Control": "no-store",
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "no-referrer",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",
}


class PageServer:
    """Serves the page of a feed, from construction to ``close``. Port 0 takes a free port.

    A request needs the token of ``address``, and its Host and Origin must be the name that the server was started with.
    So pages of other hosts, and other names that resolve to this machine (DNS rebinding), are refused.
    """

    def __init__(self, feed: Feed, title: str, host: str = LOOPBACK, port: int = 0) -> None:
        self.feed, self.title, self.token = feed, title, secrets.token_urlsafe(24)
        try:
            self._server = _Server((host, port), self)
        except OSError as error:
            raise InputError(f"no page can be served at {host}:{port}: {error.strerror}; choose another.") from error
        self.port = int(self._server.server_address[1])
        names = {host, "localhost"} if host == LOOPBACK else {host}
        self.hosts = {f"{name}:{self.port}" for name in names}
        self.address = f"http://{host}:{self.port}/?token={self.token}"
        self._thread = threading.Thread(target=self._server.serve_forever, name="eigenmesh-page", daemon=True)
        self._thread.start()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """End the streams, and then the server."""
        self.feed.close()
        self._server.shutdown()
        self._thread.join()
        self._server.server_close()


class _Server(ThreadingHTTPServer):
    daemon_threads = True

    def __init__(self, address: tuple[str, int], page: PageServer) -> None:
        self.page = page
        super().__init__(address, _Handler)


class _Handler(BaseHTTPRequestHandler):
    server: _Server
    server_version = "eigenmesh"
    sys_version = ""
    timeout = REQUEST_S

    def do_GET(self) -> None:
        page, parts = self.server.page, urlsplit(self.path)
        reason = self._refusal(parts.query)
        if reason:
            self._answer(HTTPStatus.FORBIDDEN, reason)
        elif parts.path == "/":
            live = f"events?token={page.token}"
            self._answer(HTTPStatus.OK, page_of(page.title, {"live": live}), "text/html")
        elif parts.path == "/events":
            self._stream()
        else:
            self._answer(HTTPStatus.NOT_FOUND, "There is only one page here.")

    def _refusal(self, query: str) -> str:
        """Why the request is refused; empty if it is allowed."""
        page = self.server.page
        if self.headers.get("Host") not in page.hosts:
            return "This server answers only under its own name."
        origin = self.headers.get("Origin")
        if origin is not None and origin.removeprefix("http://") not in page.hosts:
            return "Pages of other hosts are refused."
        token = parse_qs(query).get("token", [""])[0]
        if not hmac.compare_digest(token.encode(), page.token.encode()):
            return "The address lacks the token: use the complete address that eigenmesh has printed."
        return ""

    def _answer(self, status: HTTPStatus, text: str, kind: str = "text/plain") -> None:
        data = text.encode()
        self.send_response(status)
        for name, value in {**HEADERS, "Content-Security-Policy": policy()}.items():
            self.send_header(name, value)
        self.send_header("Content-Type", f"{kind}; charset=utf-8")
        self.send_header("Content-Length", str(len(data)))
        self.end_headers()
        self.wfile.write(data)

    def _stream(self) -> None:
        last = self.headers.get("Last-Event-ID", "")
        try:
            self.send_response(HTTPStatus.OK)
            for name, value in {**HEADERS, "Content-Type": "text/event-stream"}.items():
                self.send_header(name, value)
            self.end_headers()
            for message in self.server.page.feed.messages(int(last) if last.isdecimal() else 0):
                self.wfile.write(message.encode())
        except OSError:
            logger.debug("a page was closed.")

    def log_message(self, form: str, *values: object) -> None:
        """Log requests without the token, and not to standard error, where the output of the run is."""
        logger.debug("page: %s", values[1] if len(values) > 1 else form)
