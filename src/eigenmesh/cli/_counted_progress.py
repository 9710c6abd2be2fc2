"""Progress of work that is counted in pieces: a bar for each kind in a terminal, else a line now and then."""

import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager

from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn, TimeRemainingColumn

from eigenmesh.cli import _messages as messages_module
from eigenmesh.cli._messages import Messages


@contextmanager
def counted_progress(
    messages: Messages, totals: Mapping[str, int], done: Mapping[str, int]
) -> Iterator[Callable[[str], None]]:
    """Give a function to call with the kind of each piece that is finished.

    Parameters
    ----------
    totals : pieces of each kind.
    done : how many of them need not be done any more.
    """
    if messages.quiet:
        yield lambda kind: None
    elif messages.notices.is_terminal:
        columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn())
        with Progress(*columns, TextColumn("left"), TimeRemainingColumn(), console=messages.notices) as progress:
            bars = {kind: progress.add_task(kind, total=total) for kind, total in totals.items()}
            for kind, count in done.items():
                progress.update(bars[kind], completed=count)
            yield lambda kind: progress.advance(bars[kind])
    else:
        yield _lines(messages, totals, done)


def _lines(messages: Messages, totals: Mapping[str, int], done: Mapping[str, int]) -> Callable[[str], None]:
    counts, last = dict(done), time.monotonic()

    def finish(kind: str) -> None:
        nonlocal last
        counts[kind] += 1
        if time.monotonic() - last >= messages_module.LINE_EVERY_S or counts[kind] == totals[kind]:
            last = time.monotonic()
            messages.alert(f"{kind}: {counts[kind]:,} of {totals[kind]:,} runs are done", style="none")

    return finish
