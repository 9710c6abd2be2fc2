"""Output of commands: results on standard output; progress, warnings and errors on standard error."""

from __future__ import annotations

import os
import re
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager, nullcontext, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import typer
from rich.console import Console, RenderableType
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn, TimeRemainingColumn

from eigenmesh.cli.process import BAD_INPUT, warnings_shown
from eigenmesh.errors import EigenmeshError
from eigenmesh.events import Entry, EventLog, Listener, Record, Started, event_log
from eigenmesh.fitting import largest_loadings
from eigenmesh.report.tables import components_table, live_progress, loadings_table, traffic_table
from eigenmesh.settings import SETTINGS
from eigenmesh.words import readable_bytes

if TYPE_CHECKING:
    import numpy as np

    from eigenmesh.fitting import Fit
    from eigenmesh.report.page import Feed


# Seconds between two lines of progress if the output is not a terminal.
LINE_EVERY_S = 10.0

# Environment variable: the folder in which every launched node records its PID, because mpiexec and torchrun may name a
# failed process only by that.
NODES_FOLDER = "EIGENMESH_NODES"

# Names of settings in the library, and the matching options of the command line.
OPTION_NAMES = {
    # Names of one word may be words of a sentence.
    **{name: row.command.split(", ")[0] for name, row in SETTINGS.items() if row.command and "_" in name},
    'pass missing="mean"': "use --missing mean",
    "(drop)": "(--table drop=NAME)",
    **{name: f"--table {name}" for name in ("id_column", "label_column", "weight_column", "categories")},
    **{f"{name}=": f"--table {name}=" for name in ("encoding", "header", "decimal")},
    "scale=True": "--scale",
    "weights=": "--weights ",
    "averaging=": "--averaging ",
}


def option_names(message: str) -> str:
    """The message with the names of settings replaced by those of options."""
    longest = sorted(OPTION_NAMES, key=len, reverse=True)
    pattern = "|".join(rf"(?<![\w/-]){re.escape(name)}(?![\w/]|\.\w)" for name in longest)
    return re.sub(pattern, lambda found: OPTION_NAMES[found.group()], message)


def note_node(rank: int) -> None:
    """Record the PID of this node in the folder of its launch."""
    folder = os.environ.get(NODES_FOLDER)
    if folder is not None:
        with suppress(OSError):
            (Path(folder) / f"{os.getpid()}.node").write_text(str(rank))


@contextmanager
def plain_errors() -> Iterator[None]:
    """Report errors and warnings unchanged: ``n_components`` in a settings file must not become --components."""
    try:
        with warnings_shown():
            yield
    except EigenmeshError as error:
        Messages.of().alert(f"error: {error}", style="bold red")
        raise typer.Exit(BAD_INPUT) from error


@dataclass(frozen=True)
class Messages:
    """Two consoles: ``results`` for the results, ``notices`` for progress, warnings and errors."""

    results: Console
    notices: Console
    quiet: bool = False
    live: bool = False

    @classmethod
    def of(cls, quiet: bool = False, machine_output: bool = False, live: bool = False) -> Messages:
        """Messages of a command; with ``machine_output``, standard output is reserved for JSON."""
        notices = Console(stderr=True, highlight=False)
        return cls(notices if machine_output else Console(highlight=False), notices, quiet, live)

    @classmethod
    def silent(cls) -> Messages:
        """For all nodes but node 0, which print nothing."""
        return cls(Console(quiet=True), Console(quiet=True), quiet=True)

    def print(self, content: RenderableType = "") -> None:
        """Print a result, unless quiet."""
        if not self.quiet:
            # Lines are wrapped only in a terminal, so that files and pipes can be searched.
            self.results.print(content, markup=False, soft_wrap=_is_line(content, self.results))

    def alert(self, text: str, style: str) -> None:
        """Print a warning or an error, quiet or not."""
        self.notices.print(text, style=style, markup=False, soft_wrap=_is_line(text, self.notices))

    def print_fit(self, fitted: Fit, true_sines: np.ndarray | None = None, loadings: bool = False) -> None:
        """Print the components, their cost, why the run ended, what it disclosed, and warnings."""
        result, certificate = fitted.result, fitted.result.certificate
        self.print(components_table(certificate, fitted.total_variance, true_sines))
        if loadings and fitted.facts.feature_names is not None:
            self.print(loadings_table(largest_loadings(fitted)))
        self.print(traffic_table(result.traffic, result.traffic_by_phase))
        advice = option_names(result.stop_reason.advice)
        if result.converged:
            self.print(f"Converged in {result.iterations:,} iterations, {result.wall_s:.2g} s. {advice}")
        else:
            reason, bound = result.stop_reason.label.replace("_", " "), f"bounded by {certificate.error_bound:.2g}"
            angles = f"the sines of the angles to the true components are {bound}, above tol = {fitted.request.tol:g}"
            self.alert(f"not converged ({reason}): {angles}. {advice}", style="yellow")
        for line in certificate.disclosure.words:
            self.print(line)
        for warning in certificate.warnings:
            self.alert(f"note: {warning}.", style="yellow")

    def waiting(self, text: str) -> AbstractContextManager[Any]:
        """A spinner, in a terminal, during work that reports no progress itself."""
        if self.quiet or not self.notices.is_terminal:
            return nullcontext()
        return self.notices.status(text)

    @contextmanager
    def progress(self) -> Iterator[Listener | None]:
        """A listener that shows the progress of a run: a live line in a terminal, otherwise one line every 10 s."""
        if self.quiet:
            yield None
        elif self.notices.is_terminal:
            with live_progress(self.notices) as show:
                yield show
        else:
            yield self._regular_lines()

    @contextmanager
    def log(self, path: Path | None = None, *listeners: Listener | None) -> Iterator[EventLog]:
        """A log of events that shows the progress of a run, and writes the events to ``path`` and to the listeners."""
        with self.progress() as show, event_log(path, show, *listeners) as log:
            yield log

    @contextmanager
    def page(self, title: str) -> Iterator[Feed | None]:
        """With ``live``, serve a page and yield its feed; in a terminal the page stays after the run, until Ctrl-C."""
        if not self.live:
            yield None
            return
        # Imported only here: commands without a page, above all a peer, should not load a web server.
        from eigenmesh.report.page import Feed, PageServer

        feed = Feed()
        with PageServer(feed, title) as server:
            self.alert(f"watch it at {server.address}", style="bold")
            yield feed
            if self.notices.is_terminal:
                self.alert("the page stays until Ctrl-C.", style="bold")
                with suppress(KeyboardInterrupt):
                    threading.Event().wait()

    def _regular_lines(self) -> Listener:
        last, max_rounds = time.monotonic(), 0

        def show(entry: Entry) -> None:
            nonlocal last, max_rounds
            event = entry.event
            if isinstance(event, Started):
                max_rounds = event.max_rounds
            elif isinstance(event, Record) and time.monotonic() - last >= LINE_EVERY_S:
                last = time.monotonic()
                where = f"round {event.rounds:,} of a budget of {max_rounds:,}"
                self.alert(f"{where}, residual {event.residual:.1e}, {readable_bytes(event.bytes)} sent", style="none")

        return show

    @contextmanager
    def counted_progress(self, totals: Mapping[str, int], done: Mapping[str, int]) -> Iterator[Callable[[str], None]]:
        """Yield a function to call with the kind of each run that finishes; ``done`` counts those finished before."""
        if self.quiet:
            yield lambda kind: None
        elif self.notices.is_terminal:
            columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn())
            with Progress(*columns, TextColumn("left"), TimeRemainingColumn(), console=self.notices) as progress:
                bars = {kind: progress.add_task(kind, total=total) for kind, total in totals.items()}
                for kind, count in done.items():
                    progress.update(bars[kind], completed=count)
                yield lambda kind: progress.advance(bars[kind])
        else:
            yield self._regular_counts(totals, done)

    def _regular_counts(self, totals: Mapping[str, int], done: Mapping[str, int]) -> Callable[[str], None]:
        counts, last = dict(done), time.monotonic()

        def finish(kind: str) -> None:
            nonlocal last
            counts[kind] += 1
            if time.monotonic() - last >= LINE_EVERY_S or counts[kind] == totals[kind]:
                last = time.monotonic()
                self.alert(f"{kind}: {counts[kind]:,} of {totals[kind]:,} runs are done", style="none")

        return finish


def _is_line(content: RenderableType, console: Console) -> bool:
    return isinstance(content, str) and not console.is_terminal
