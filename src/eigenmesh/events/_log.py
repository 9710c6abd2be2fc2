"""The one place that events of a fit go through."""

import threading
import time
from collections.abc import Callable
from typing import Any, NamedTuple, TypeAlias

from eigenmesh.events._schema import Event, Record, Started


class Entry(NamedTuple):
    """An event and when it happened, by the clock of the log."""

    time_s: float
    event: Event


Listener: TypeAlias = Callable[[Entry], Any]


class EventLog:
    """Gives every event its time and passes it on; any thread may emit.

    Parameters
    ----------
    listeners : called with each entry, in this order, one entry at a time.
    clock : seconds since 1970, or any other time.
    """

    def __init__(self, *listeners: Listener, clock: Callable[[], float] = time.time) -> None:
        self.listeners, self._clock = list(listeners), clock
        self._records: list[Record] = []
        self._lock = threading.Lock()

    def emit(self, event: Event) -> None:
        """Tell all listeners."""
        with self._lock:
            if isinstance(event, Started):
                self._records.clear()
            elif isinstance(event, Record):
                self._records.append(event)
            entry = Entry(self._clock(), event)
            for listener in self.listeners:
                listener(entry)

    @property
    def history(self) -> tuple[Record, ...]:
        """The records since the last start."""
        return tuple(self._records)


def on_record(callback: Callable[[Record], Any]) -> Listener:
    """A listener that passes on records alone."""

    def listen(entry: Entry) -> None:
        if isinstance(entry.event, Record):
            callback(entry.event)

    return listen
