"""A deadline for blocking calls: a thread that checks whether one of them has taken too long."""

import threading
import time
from collections.abc import Callable


class Watchdog:
    """Checks ``current_call`` now and then: a different object for each call, None between calls.

    The watched thread only sets it. A call counts from the first check that sees it, so the deadline may be late by the
    time between two checks. ``on_late`` is called once, in the watchdog's thread, when a call exceeds ``timeout_s``.
    """

    def __init__(self, timeout_s: float, on_late: Callable[[], None]) -> None:
        self._timeout_s, self._on_late = timeout_s, on_late
        self.current_call: object = None
        self._closed = threading.Event()
        self._thread: threading.Thread | None = None

    def start(self) -> None:
        """Start the thread; may be called more than once."""
        if self._thread is None:
            self._thread = threading.Thread(target=self._watch, name="mpi-watchdog", daemon=True)
            self._thread.start()

    def close(self) -> None:
        self._closed.set()

    def _watch(self) -> None:
        seen, since = None, 0.0
        while not self._closed.wait(min(1.0, self._timeout_s / 4)):
            call, now = self.current_call, time.monotonic()
            if call is not seen:
                seen, since = call, now
            elif call is not None and now - since > self._timeout_s:
                self._on_late()
                return
