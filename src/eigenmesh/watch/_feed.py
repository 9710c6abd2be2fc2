"""The feed of a page: lines of events as they arrive, from a run in this process or from a file that grows."""

import json
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from eigenmesh.events import Ended, Entry, EventReader, to_json

# Most events in one message to a page.
MOST_AT_ONCE = 500
LOOK_EVERY_S = 0.5
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


def follow(path: Path, feed: Feed, stop: threading.Event, look: Callable[[bool], dict[str, Any] | None]) -> None:
    """Pass new lines of a file of events to a feed, until ``stop``, and once more after it.

    ``look`` summarises what has left the site, or returns None if that is too expensive now; the last call is with
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
            now = look(ends)
            if now is not None and now != left:
                left = now
                feed.show_left(now)
        if ends:
            return
        ends = stop.wait(LOOK_EVERY_S)
