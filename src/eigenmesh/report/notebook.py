"""Live progress of a run in a notebook: plain HTML that is replaced during the run."""

from __future__ import annotations

import math
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from importlib import import_module
from typing import Any

from eigenmesh.events import Ended, Entry, Listener, Record, Started
from eigenmesh.words import html_paragraphs, readable_bytes

Show = Callable[[str], object]
# Shortest time between two updates.
EVERY_S = 0.2
WIDTH, HEIGHT = 480, 120
# Most points of a curve; the page of a run has all of them.
MOST_POINTS = 400
CURVES = {"bound": ("#0072b2", "certified bound"), "residual": ("#d55e00", "residual")}


def notebook() -> Callable[[str], Show] | None:
    """A function that shows HTML in the current notebook and returns one that replaces it; None outside a notebook."""
    marimo = sys.modules.get("marimo")
    if marimo is not None and marimo.running_in_notebook():
        return _in_marimo
    ipython = sys.modules.get("IPython")
    shell = None if ipython is None else ipython.get_ipython()
    # IPython in a terminal has no kernel; there the live line of the terminal is used.
    return None if getattr(shell, "kernel", None) is None else _in_jupyter


def _in_jupyter(html: str) -> Show:
    display: Any = import_module("IPython.display")
    handle = display.display(display.HTML(html), display_id=True)
    return lambda new: handle.update(display.HTML(new))


def _in_marimo(html: str) -> Show:
    marimo: Any = import_module("marimo")

    def show(new: str) -> None:
        marimo.output.replace(marimo.Html(new))

    show(html)
    return show


@contextmanager
def notebook_progress(put: Callable[[str], Show], keep: bool) -> Iterator[Listener]:
    """Yield a listener that shows the run in a notebook; with ``keep``, its last state stays after the run."""
    picture, last = _Picture(), 0.0
    show = put(picture.html())

    def listen(entry: Entry) -> None:
        nonlocal last
        picture.take(entry)
        if time.monotonic() - last >= EVERY_S:
            last = time.monotonic()
            show(picture.html())

    try:
        yield listen
    finally:
        show(picture.html() if keep else "")


class _Picture:
    """The run so far, as a sentence and two curves on a logarithmic scale."""

    def __init__(self) -> None:
        self.started: Started | None = None
        self.record: Record | None = None
        self.ended: Ended | None = None
        self.first_s = self.last_s = 0.0
        self.points: dict[str, list[tuple[int, float]]] = {key: [] for key in CURVES}

    def take(self, entry: Entry) -> None:
        event, self.last_s = entry.event, entry.time_s
        if isinstance(event, Started):
            self.started, self.first_s = event, entry.time_s
        elif isinstance(event, Record):
            self.record = event
            for key, points in self.points.items():
                value = getattr(event, key)
                if 0 < value < math.inf:
                    points.append((event.rounds, value))
        elif isinstance(event, Ended):
            self.ended = event

    def html(self) -> str:
        words = [self._words()]
        return f'<div role="status">{html_paragraphs(words)}{self._curves()}</div>'

    def _words(self) -> str:
        started, record = self.started, self.record
        if started is None:
            return "Preparing."
        words = [f"{started.solver}, {started.averaging} averaging, {len(started.nodes)} nodes"]
        if record is not None:
            words.append(f"round {record.rounds:,} of a budget of {started.max_rounds:,}")
            words.append(f"{readable_bytes(record.bytes)} sent")
        if self.points["bound"]:
            words.append(f"certified bound {self.points['bound'][-1][1]:.1e} (target {started.tol:g})")
        elif self.points["residual"]:
            words.append(f"residual {self.points['residual'][-1][1]:.1e} (target {started.tol:g})")
        end = "" if self.ended is None else f", {'converged' if self.ended.converged else self.ended.message}"
        return f"{', '.join(words)}, {self.last_s - self.first_s:.1f} s{end}."

    def _curves(self) -> str:
        every = [point for points in self.points.values() for point in points]
        if self.started is None or len({rounds for rounds, _ in every}) < 2:
            return ""
        logs = [math.log10(value) for _, value in every] + [math.log10(self.started.tol)]
        low, high, most = math.floor(min(logs)), math.ceil(max(logs)), max(rounds for rounds, _ in every)
        span = max(1, high - low)

        def place(rounds: int, value: float) -> str:
            return f"{rounds / most * WIDTH:.1f},{(high - math.log10(value)) / span * HEIGHT:.1f}"

        parts = []
        for key, points in self.points.items():
            thinned = [*points[:: max(1, len(points) // MOST_POINTS)], *points[-1:]]
            at = " ".join(place(*point) for point in thinned)
            colour, words = CURVES[key]
            parts.append(f'<polyline points="{at}" fill="none" stroke="{colour}" stroke-width="2">')
            parts.append(f"<title>{words}</title></polyline>")
            if points:
                x, y = place(*points[-1]).split(",")
                parts.append(f'<circle cx="{x}" cy="{y}" r="3" fill="{colour}"/>')
        goal = place(0, self.started.tol).partition(",")[2]
        parts.append(f'<line x1="0" x2="{WIDTH}" y1="{goal}" y2="{goal}" stroke="#009e73" stroke-dasharray="6 4"/>')
        label = f"Bound (blue) and residual (orange) from 1e{high} to 1e{low} over {most} rounds; target dashed"
        start = f'<svg viewBox="-2 -2 {WIDTH + 4} {HEIGHT + 4}" width="{WIDTH}" role="img" aria-label="{label}"'
        caption = html_paragraphs([f"{label}."])
        return f'{start} style="background: white; max-width: 100%">{"".join(parts)}</svg><small>{caption}</small>'
