"""Live progress of a run in the terminal."""

from __future__ import annotations

import math
from collections.abc import Iterator
from contextlib import contextmanager

from rich.console import Console
from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn

from eigenmesh._text import readable_bytes
from eigenmesh.iteration._result import Record
from eigenmesh.iteration._run import Callback


@contextmanager
def live_progress(max_rounds: int, console: Console | None = None) -> Iterator[Callback]:
    """Give a callback that shows rounds, residual and traffic on standard error while the run lasts."""
    columns = (
        TextColumn("{task.description}"),
        BarColumn(bar_width=24),
        TextColumn("round {task.completed:.0f} of at most {task.total:.0f}"),
        TextColumn("residual {task.fields[residual]}"),
        TextColumn("{task.fields[sent]}"),
        TimeElapsedColumn(),
    )
    with Progress(*columns, console=console or Console(stderr=True), transient=True) as progress:
        task = progress.add_task("fitting", total=max_rounds, residual="-", sent="")

        def show(record: Record) -> None:
            residual = f"{record.residual:.1e}" if math.isfinite(record.residual) else "-"
            progress.update(
                task, completed=record.rounds, residual=residual, sent=f"{readable_bytes(record.bytes)} sent"
            )

        yield show
