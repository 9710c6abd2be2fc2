"""Live progress of a run in the terminal."""

import math
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from rich.console import Console
from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn

from eigenmesh._text import readable_bytes
from eigenmesh.events import Entry, Listener, Record, Started


@contextmanager
def live_progress(console: Console | None = None) -> Iterator[Listener]:
    """Give a listener that shows rounds, residual and traffic on standard error while the fit lasts."""
    columns = (
        TextColumn("{task.description}"),
        BarColumn(bar_width=24),
        TextColumn("round {task.completed:.0f} of at most {task.total:.0f}"),
        TextColumn("residual {task.fields[residual]}"),
        TextColumn("{task.fields[sent]}"),
        TimeElapsedColumn(),
    )
    with Progress(*columns, console=console or Console(stderr=True), transient=True) as progress:
        task = progress.add_task("fitting", total=0, residual="-", sent="")

        def show(entry: Entry) -> None:
            event = entry.event
            if isinstance(event, Started):
                progress.update(task, total=event.max_rounds)
            elif isinstance(event, Record):
                # Where the residual was not measured, the last one stays.
                measured: Any = {"residual": f"{event.residual:.1e}"} if math.isfinite(event.residual) else {}
                progress.update(task, completed=event.rounds, sent=f"{readable_bytes(event.bytes)} sent", **measured)

        yield show
