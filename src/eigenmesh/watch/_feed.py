"""The feed of a page: lines of events as they arrive, from a run in this process or from a file that grows."""

import json
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from eigenmesh.events import Entry, EventReader, to_json

# Most events in one message to a page.
MOST_AT_ONCE = 500
LOOK_EVERY_S = 0.5
# Longest time without a message: browsers close connections that stay silent.
ALIVE_S = 15.0


class Feed:
    """A listener that keeps all events, so that a page can be opened at any time.

    ``_left`` is the summary of what has left the site, as JSON; None if it is not known.
    """

    def __init__(self) -> None:
        self._lines: list[str] = []
        self._left: str | None = None
        self._closed = False
        self._news = threading.Condition()

    def __call__(self, entry: Entry) -> None:
        """Add one event."""
        with self._news:
            self._lines.append(to_json(entry))
            self._news.notify_all()

    def show_left(self, left: dict[str, Any]) -> None:
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
        while True:
            with self._news:
                if seen >= len(self._lines) and self._left == shown and not self._closed:
                    self._news.wait(ALIVE_S)
                lines, left, closed = self._lines[seen : seen + MOST_AT_ONCE], self._left, self._closed
            seen += len(lines)
            if lines:
                yield f"event: run\nid: {seen}\ndata: [{','.join(lines)}]\n\n"
            if left is not None and left != shown:
                shown = left
                yield f"event: left\ndata: {left}\n\n"
            elif not lines:
                if closed:
                    yield "event: end\ndata: {}\n\n"
                    return
                yield ": alive\n\n"


def follow(path: Path, feed: Feed, stop: threading.Event, look: Callable[[bool], dict[str, Any] | None]) -> None:
    """Pass new lines of a file of events to a feed, until ``stop``, and once more after it.

    ``look`` summarises what has left the site, or returns None if that is too expensive now; the last call is with
    True.
    """
    reader, ends = EventReader(path), False
    left: dict[str, Any] | None = None
    while True:
        entries = reader.new()
        for entry in entries:
            feed(entry)
        if entries or left is None or ends:
            now = look(ends)
            if now is not None and now != left:
                left = now
                feed.show_left(now)
        if ends:
            return
        ends = stop.wait(LOOK_EVERY_S)
