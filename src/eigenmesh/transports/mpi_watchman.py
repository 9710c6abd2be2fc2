"""A deadline for calls that block: a thread that looks whether one of them has taken too long."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable


class Watchman:
    """Looks now and then at ``since``, which the watched thread sets before a call and takes back after it.

    Parameters
    ----------
    timeout_s : deadline of a call.
    on_late : called in the watchman's own thread, once, when a call has gone beyond it.
    """

    def __init__(self, timeout_s: float, on_late: Callable[[], None]) -> None:
        self._timeout_s, self._on_late = timeout_s, on_late
        self.since: float | None = None
        self._closed = threading.Event()
        self._thread: threading.Thread | None = None

    def start(self) -> None:
        """Begin to look; more than once is harmless."""
        if self._thread is None:
            self._thread = threading.Thread(target=self._watch, name="mpi-watchman", daemon=True)
            self._thread.start()

    def close(self) -> None:
        """End the thread; more than once is harmless."""
        self._closed.set()

    def _watch(self) -> None:
        while not self._closed.wait(min(1.0, self._timeout_s / 4)):
            since = self.since
            if since is not None and time.monotonic() - since > self._timeout_s:
                self._on_late()
                return
