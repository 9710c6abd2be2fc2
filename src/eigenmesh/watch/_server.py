"""Serves the page on this machine, to anybody who knows its address with the token."""

import hmac
import logging
import secrets
import threading
import time
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Self
from urllib.parse import parse_qs, urlsplit

from eigenmesh.errors import InputError
from eigenmesh.watch._document import page_of, policy
from eigenmesh.watch._feed import Feed

logger = logging.getLogger(__name__)

LOOPBACK = "127.0.0.1"
# Longest time of a request, and most pages open at once.
REQUEST_S = 10.0
MOST_PAGES = 32
# How long pages may take to get the last events when the server closes.
LAST_S = 2.0
HEADERS = {
    "Cache-Control": "no-store",
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "no-referrer",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",
}


class PageServer:
    """Serves the page of a feed, from construction to ``close``. Port 0 takes a free port.

    With ``apart`` the run is in another process, and may go on when this server has ended.

    A request needs the token of ``address``, and its Host and Origin must be the name that the server was started with.
    So pages of other hosts, and other names that resolve to this machine (DNS rebinding), are refused.
    """

    def __init__(self, feed: Feed, title: str, host: str = LOOPBACK, port: int = 0, apart: bool = False) -> None:
        self.feed, self.title, self.apart, self.token = feed, title, apart, secrets.token_urlsafe(24)
        self.streams = threading.BoundedSemaphore(MOST_PAGES)
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
        """End the streams, after they have sent everything, and then the server."""
        self.feed.close()
        deadline = time.monotonic() + LAST_S
        for _ in range(MOST_PAGES):
            # A stream releases its place when it ends.
            self.streams.acquire(timeout=max(0.0, deadline - time.monotonic()))
        self._server.shutdown()
        self._thread.join()
        self._server.server_close()


class _Server(ThreadingHTTPServer):
    daemon_threads = True

    def __init__(self, place: tuple[str, int], page: PageServer) -> None:
        self.page = page
        super().__init__(place, _Handler)


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
            self._answer(HTTPStatus.OK, page_of(page.title, {"live": live, "apart": page.apart}), "text/html")
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
        if not self.server.page.streams.acquire(blocking=False):
            self._answer(HTTPStatus.SERVICE_UNAVAILABLE, f"{MOST_PAGES} pages are open; close one.")
            return
        try:
            self.send_response(HTTPStatus.OK)
            for name, value in {**HEADERS, "Content-Type": "text/event-stream"}.items():
                self.send_header(name, value)
            self.end_headers()
            for message in self.server.page.feed.messages(int(last) if last.isdecimal() else 0):
                self.wfile.write(message.encode())
        except OSError:
            logger.debug("a page was closed.")
        finally:
            self.server.page.streams.release()

    def log_message(self, form: str, *values: object) -> None:
        """Log requests without the token, and not to standard error, where the output of the run is."""
        logger.debug("page: %s", values[1] if len(values) > 1 else form)
