"""Live progress of a run in a notebook: the page of the run in a frame, which is replaced during the run."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from html import escape
from importlib import import_module
from typing import Any

from eigenmesh.events import Entry, Listener

Show = Callable[[str], object]
# Shortest time between two updates, and the share of the time of a run that they may take.
EVERY_S, SHARE = 1.0, 0.02
# Most events of the page; a notebook is saved with its outputs, so they should be small.
MOST_EVENTS = 400
HEIGHT = 560
# The frame has no origin, so its script cannot reach the notebook around it.
FRAME = 'sandbox="allow-scripts" style="width: 100%; border: 0"'


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
    """Yield a listener that shows the page of a run in a notebook; with ``keep``, the page stays after the run."""
    entries: list[Entry] = []
    show = put(framed(entries))
    due = time.monotonic()

    def listen(entry: Entry) -> None:
        nonlocal due
        entries.append(entry)
        began = time.monotonic()
        if began >= due:
            show(framed(entries))
            ended = time.monotonic()
            due = ended + max(EVERY_S, (ended - began) / SHARE)

    try:
        yield listen
    finally:
        show(framed(entries) if keep else "")


def framed(entries: list[Entry]) -> str:
    """The page of these events as HTML of a frame."""
    from eigenmesh.report.page import report_page

    page = escape(report_page("Decentralised PCA", entries, most=MOST_EVENTS))
    return f'<iframe title="The run" height="{HEIGHT}" {FRAME} srcdoc="{page}"></iframe>'
