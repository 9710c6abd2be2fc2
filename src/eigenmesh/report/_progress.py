"""Live progress of a run, in the terminal or in a notebook."""

import math
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from rich.console import Console
from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn

from eigenmesh._text import readable_bytes
from eigenmesh.events import Entry, Listener, Record, Started
from eigenmesh.report._notebook import notebook, notebook_progress


@contextmanager
def live_progress(console: Console | None = None, keep: bool = True) -> Iterator[Listener]:
    """Yield a listener that shows rounds, residual and traffic during the fit.

    In a notebook it shows curves, which stay after the fit with ``keep``; elsewhere a line on standard error.
    """
    put = None if console is not None else notebook()
    if put is not None:
        with notebook_progress(put, keep) as show:
            yield show
    else:
        with _line(console or Console(stderr=True)) as show:
            yield show


@contextmanager
def _line(console: Console) -> Iterator[Listener]:
    columns = (
        TextColumn("{task.description}"),
        BarColumn(bar_width=24),
        TextColumn("round {task.completed:.0f} of a budget of {task.total:.0f}"),
        TextColumn("residual {task.fields[residual]}"),
        TextColumn("{task.fields[sent]}"),
        TimeElapsedColumn(),
    )
    with Progress(*columns, console=console, transient=True) as progress:
        task = progress.add_task("fitting", total=0, residual="-", sent="")

        def show(entry: Entry) -> None:
            event = entry.event
            if isinstance(event, Started):
                progress.update(task, total=event.max_rounds)
            elif isinstance(event, Record):
                # If the residual was not measured, the last one stays.
                measured: Any = {"residual": f"{event.residual:.1e}"} if math.isfinite(event.residual) else {}
                progress.update(task, completed=event.rounds, sent=f"{readable_bytes(event.bytes)} sent", **measured)

        yield show
