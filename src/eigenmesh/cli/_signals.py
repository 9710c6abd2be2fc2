"""Signals that end a command are handled like Ctrl-C, so that the command can clean up first."""

import signal
from collections.abc import Iterator
from contextlib import contextmanager


def interrupt(number: int, frame: object) -> None:
    """Signal handler that raises KeyboardInterrupt, as Ctrl-C does."""
    raise KeyboardInterrupt(f"stopped by signal {number}")


@contextmanager
def signals_interrupt() -> Iterator[None]:
    """SIGTERM and SIGINT raise KeyboardInterrupt inside; also in background jobs, for which shells ignore SIGINT."""
    before = {kind: signal.signal(kind, interrupt) for kind in (signal.SIGTERM, signal.SIGINT)}
    try:
        yield
    finally:
        for kind, handler in before.items():
            signal.signal(kind, handler)
