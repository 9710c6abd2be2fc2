"""A deadline for calls that block: a thread that looks whether one of them has taken too long."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable


class Watchdog:
    """Looks now and then at ``call``: any object that is another one for each call, None between calls.

    The watched thread only sets it; when a call began is what the watchdog has seen of it, so a deadline may be late by
    the time between two looks.

    Parameters
    ----------
    timeout_s : deadline of a call.
    on_late : called in the watchdog's own thread, once, when a call has gone beyond it.
    """

    def __init__(self, timeout_s: float, on_late: Callable[[], None]) -> None:
        self._timeout_s, self._on_late = timeout_s, on_late
        self.call: object = None
        self._closed = threading.Event()
        self._thread: threading.Thread | None = None

    def start(self) -> None:
        """Begin to look; more than once is harmless."""
        if self._thread is None:
            self._thread = threading.Thread(target=self._watch, name="mpi-watchdog", daemon=True)
            self._thread.start()

    def close(self) -> None:
        """End the thread; more than once is harmless."""
        self._closed.set()

    def _watch(self) -> None:
        seen, since = None, 0.0
        while not self._closed.wait(min(1.0, self._timeout_s / 4)):
            call, now = self.call, time.monotonic()
            if call is not seen:
                seen, since = call, now
            elif call is not None and now - since > self._timeout_s:
                self._on_late()
                return
