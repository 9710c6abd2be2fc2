"""The process of a command: its exit statuses, the signals that end it, its warnings and its two streams.

This is all that ``eigenmesh --help`` needs of the command line, so nothing heavy is imported here.
"""

from __future__ import annotations

import os
import signal
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, TextIO

from rich.console import Console

from eigenmesh.errors import DataWarning, EigenmeshError

# 0 is a run whose certificate reached the tolerance.
NOT_CONVERGED = 1
# Of `eigenmesh site audit`: a line is not the one whose hash the next line contains.
BROKEN_CHAIN = 1
# Of `eigenmesh site status --well`: the process has ended without a result, or is stuck.
NOT_WELL = 1
BAD_INPUT = EigenmeshError.exit_status
# Another site ended the run of peers, or its neighbours were lost.
ENDED = 4
# A peer whose journal does not match what its neighbours know: they would refuse a restart again.
CANNOT_RESUME = 5
# A run of peers that a restart continues. 75 is EX_TEMPFAIL of sysexits.h: "try again later".
PARKED = 75
INTERRUPTED = 130
# The reader of the output has gone, as after `| head`: 128 + SIGPIPE, as a shell reports it.
PIPE_CLOSED = 141


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


@contextmanager
def warnings_shown(rewrite: Callable[[str], str]) -> Iterator[None]:
    """Show each warning about data once, after ``rewrite`` has put in the names of options."""
    seen: set[str] = set()
    with warnings.catch_warnings():
        warnings.simplefilter("always", DataWarning)
        usual = warnings.showwarning

        def show(message: Warning | str, category: type[Warning], *place: Any, **more: Any) -> None:
            if not issubclass(category, DataWarning):
                usual(message, category, *place, **more)
            elif str(message) not in seen:
                seen.add(str(message))
                alert(f"warning: {rewrite(str(message))}", style="yellow")

        warnings.showwarning = show
        yield


def alert(text: str, style: str) -> None:
    """One line on standard error."""
    # Does not use `_messages`, because an interrupt may arrive while that is being imported.
    console = Console(stderr=True, highlight=False)
    console.print(text, style=style, markup=False, soft_wrap=not console.is_terminal)


class Output:
    """Standard output or standard error, which may end before the command does: ``head`` leaves, or a disk is full.

    What is written after that is dropped, so that the command goes on: a fit writes its files, and a peer takes part
    until the run ends. ``error`` is the reason.
    """

    def __init__(self, stream: TextIO) -> None:
        self._stream = stream
        self.error: OSError | None = None

    def __getattr__(self, name: str) -> Any:
        return getattr(self._stream, name)

    def write(self, text: str) -> int:
        """Write a text, or drop it."""
        try:
            return self._stream.write(text)
        except OSError as error:
            self._end(error)
            return len(text)

    def flush(self) -> None:
        """Pass on what was written, or drop it."""
        try:
            self._stream.flush()
        except OSError as error:
            self._end(error)

    def _end(self, error: OSError) -> None:
        self.error = error
        nowhere = os.open(os.devnull, os.O_WRONLY)
        os.dup2(nowhere, self._stream.fileno())
        os.close(nowhere)
