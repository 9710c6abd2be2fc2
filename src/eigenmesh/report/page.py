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
from collections.abc import Callable, Sequence
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
    """The page of a run, which has ``events``, or ``live``: the address of its news."""
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
    """The content security policy: the browser may use only the page's own style, script and news."""
    script, style = _hash("page.js"), _hash("page.css")
    own = f"default-src 'none'; script-src {script}; style-src {style}; connect-src 'self'; img-src data:"
    return f"{own}; base-uri 'none'; form-action 'none'; frame-ancestors 'none'"


@cache
def _part(name: str) -> str:
    return files("eigenmesh.report").joinpath("static", name).read_text(encoding="utf-8")


def _hash(name: str) -> str:
    return f"'sha256-{base64.b64encode(hashlib.sha256(_part(name).encode()).digest()).decode()}'"


# The news of a run, from its file of events.


# Most events in one answer to a page.
MOST_AT_ONCE = 5000


class Feed:
    """The news of a run for its pages. The file of events is read on when a page asks, and need not exist yet.

    Parameters
    ----------
    path : Path
        The file of events.
    first : sequence of Entry
        What a page is told before the events of the file.
    left_of : callable
        Summarises what has left the site; None if that is not known.
    """

    def __init__(
        self, path: Path, first: Sequence[Entry] = (), left_of: Callable[[], dict[str, Any] | None] = lambda: None
    ) -> None:
        self.path, self._left_of = path, left_of
        self._lines = [to_json(entry) for entry in first]
        self._reader, self._lock = EventReader(path), threading.Lock()
        self._last: Entry | None = None

    def news(self, seen: int) -> str:
        """As JSON: the events after the first ``seen``, whether there are more, what has left, and if the run lives."""
        with self._lock:
            for entry in self._reader.new():
                self._lines.append(to_json(entry))
                self._last = entry
            about = {"left": self._left_of(), **fate_of(self.path, self._last)}
            until = min(len(self._lines), seen + MOST_AT_ONCE)
            about["more"] = until < len(self._lines)
            return f'{{"events": [{",".join(self._lines[seen:until])}], {json.dumps(about, allow_nan=False)[1:]}'


def fate_of(path: Path, last: Entry | None) -> dict[str, Any]:
    """When a run last wrote to its file of events, when this is said, and whether its process is gone.

    ``last`` is its last event. Times are seconds since 1970.
    """
    lost = last is not None and not isinstance(last.event, Ended) and EventReader(path).is_abandoned
    now = time.time()
    return {"heard": path.stat().st_mtime if path.exists() else now, "now": now, "lost": lost}


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
        """End the server."""
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
        asked = parse_qs(parts.query)
        reason = self._refusal(asked.get("token", [""])[0])
        try:
            if reason:
                self._answer(HTTPStatus.FORBIDDEN, reason)
            elif parts.path == "/":
                live = f"events?token={page.token}"
                self._answer(HTTPStatus.OK, page_of(page.title, {"live": live}), "text/html")
            elif parts.path == "/events":
                seen = asked.get("seen", [""])[0]
                self._answer(HTTPStatus.OK, page.feed.news(int(seen) if seen.isdecimal() else 0), "application/json")
            else:
                self._answer(HTTPStatus.NOT_FOUND, "There is only one page here.")
        except OSError:
            logger.debug("a page was closed.")

    def _refusal(self, token: str) -> str:
        """Why the request is refused; empty if it is allowed."""
        page = self.server.page
        if self.headers.get("Host") not in page.hosts:
            return "This server answers only under its own name."
        origin = self.headers.get("Origin")
        if origin is not None and origin.removeprefix("http://") not in page.hosts:
            return "Pages of other hosts are refused."
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

    def log_message(self, form: str, *values: object) -> None:
        """Log requests without the token, and not to standard error, where the output of the run is."""
        logger.debug("page: %s", values[1] if len(values) > 1 else form)
