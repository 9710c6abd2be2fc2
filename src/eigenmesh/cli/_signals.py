"""Signals that end a command: what it has started is cleared away first."""

import signal
from collections.abc import Iterator
from contextlib import contextmanager


def interrupt(number: int, frame: object) -> None:
    """Take a signal as Ctrl-C."""
    raise KeyboardInterrupt(f"stopped by signal {number}")


@contextmanager
def signals_interrupt() -> Iterator[None]:
    """SIGTERM ends what is inside as Ctrl-C does, also where a shell has told its background jobs to ignore that."""
    before = {kind: signal.signal(kind, interrupt) for kind in (signal.SIGTERM, signal.SIGINT)}
    try:
        yield
    finally:
        for kind, handler in before.items():
            signal.signal(kind, handler)
