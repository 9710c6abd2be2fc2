"""What a command says, and where: results on standard output, the rest on standard error."""

from __future__ import annotations

import os
import re
import time
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass
from typing import Any

from rich.console import Console, RenderableType

from eigenmesh._text import readable_bytes
from eigenmesh.certificate._certify import Certificate
from eigenmesh.events import Entry, JsonlWriter, Listener, Record, Started
from eigenmesh.iteration._result import Result
from eigenmesh.report._progress import live_progress

# Seconds between two lines of progress where there is no terminal to redraw.
LINE_EVERY_S = 10.0

# Where a command that was launched with others writes its progress, for the launcher to show.
PROGRESS_FILE = "EIGENMESH_PROGRESS"

# What the library calls its settings, and what they are called on the command line.
OPTION_NAMES = {
    'pass missing="mean"': "use --missing mean",
    'step_size="auto"': "--step-size auto",
    "step_size": "--step-size",
    "max_rounds": "--max-rounds",
    "n_components": "--components",
    "n_nodes": "--nodes",
    "label_column": "--label-column",
    "scale=True": "--scale",
}


def option_names(message: str) -> str:
    """The message with settings called as on the command line."""
    pattern = "|".join(rf"(?<![\w/]){re.escape(name)}(?![\w/]|\.\w)" for name in OPTION_NAMES)
    return re.sub(pattern, lambda found: OPTION_NAMES[found.group()], message)


@dataclass(frozen=True)
class Messages:
    """Two consoles: ``results`` for what was asked for, ``notices`` for progress, warnings and errors."""

    results: Console
    notices: Console
    quiet: bool = False

    @classmethod
    def of(cls, quiet: bool = False, machine_output: bool = False) -> Messages:
        """Messages of a command; with machine output standard output is kept free for it."""
        notices = Console(stderr=True, highlight=False)
        return cls(notices if machine_output else Console(highlight=False), notices, quiet)

    @classmethod
    def silent(cls) -> Messages:
        """For the nodes that leave the talking to node 0."""
        return cls(Console(quiet=True), Console(quiet=True), quiet=True)

    def tell(self, content: RenderableType = "") -> None:
        """Print a result, unless asked to be quiet."""
        if not self.quiet:
            # Away from a terminal lines are left whole, for whoever searches them.
            self.results.print(content, markup=False, soft_wrap=_is_line(content, self.results))

    def alert(self, text: str, style: str) -> None:
        """Print a warning or an error, quiet or not."""
        self.notices.print(text, style=style, markup=False, soft_wrap=_is_line(text, self.notices))

    def tell_end(self, result: Result, tol: float) -> None:
        """Say in words why the run ended, and what to know about the components."""
        advice = option_names(result.stop_reason.advice)
        if result.converged:
            self.tell(f"Converged in {result.iterations:,} iterations, {result.wall_s:.2g} s. {advice}")
        else:
            bound = result.certificate.error_bound
            self.alert(
                f"not converged ({result.stop_reason.label.replace('_', ' ')}): the angles to the true components are "
                f"bounded by {bound:.2g}, not by tol = {tol:g}. {advice}",
                style="yellow",
            )
        self._tell_warnings(result.certificate)

    def _tell_warnings(self, certificate: Certificate) -> None:
        for warning in certificate.warnings:
            self.alert(f"note: {warning}.", style="yellow")

    def waiting(self, text: str) -> AbstractContextManager[Any]:
        """A moving sign while something that has no progress of its own goes on."""
        if self.quiet or not self.notices.is_terminal:
            return nullcontext()
        return self.notices.status(text)

    @contextmanager
    def progress(self) -> Iterator[Listener | None]:
        """A listener that shows how a run is going: a live line in a terminal, else a line now and then."""
        followed = os.environ.get(PROGRESS_FILE)
        if self.quiet:
            yield None
        elif followed is not None:
            with JsonlWriter(followed) as writer:
                yield writer
        elif self.notices.is_terminal:
            with live_progress(self.notices) as show:
                yield show
        else:
            yield self._line_now_and_then()

    def _line_now_and_then(self) -> Listener:
        last, max_rounds = time.monotonic(), 0

        def show(entry: Entry) -> None:
            nonlocal last, max_rounds
            event = entry.event
            if isinstance(event, Started):
                max_rounds = event.max_rounds
            elif isinstance(event, Record) and time.monotonic() - last >= LINE_EVERY_S:
                last = time.monotonic()
                sent = readable_bytes(event.bytes)
                self.alert(
                    f"round {event.rounds:,} of at most {max_rounds:,}, residual {event.residual:.1e}, {sent} sent",
                    style="none",
                )

        return show


def _is_line(content: RenderableType, console: Console) -> bool:
    return isinstance(content, str) and not console.is_terminal
