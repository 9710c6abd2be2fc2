"""Experiments on streams of samples: table of the final errors and costs, picture and page."""

from __future__ import annotations

from collections.abc import Sequence
from html import escape
from typing import TYPE_CHECKING, NamedTuple

from rich.table import Table

from eigenmesh._text import readable_bytes
from eigenmesh.experiments._streaming import OURS, STREAM_UNITS, StreamPanel, StreamRow
from eigenmesh.experiments._tables import line_of
from eigenmesh.report import _page as page
from eigenmesh.report._error_picture import Axis, errors_picture, panel_svg
from eigenmesh.report._tables import new_table

if TYPE_CHECKING:
    from matplotlib.figure import Figure

HEADINGS = ("method", "settings", "error", "messages", "payload", "x error", "x messages")
# Smallest error of the pictures. The streams are finite samples of a distribution, so no method gets below this.
LEAST = 3e-4
# Ratio of the two ends of an axis: from one message per node to a thousand times as many as partial_fit sends.
AXIS_RATIO = 1_000_000
WORDS = (
    "Every node gets one sample at a time, and no method keeps any. The error is the mean over nodes and components of "
    "the squared sine of the angle to the eigenvectors of the distribution. partial_fit gives the components of all "
    "samples so far. The published methods are shown with the best step size of a grid, chosen by their final error. "
    "IncrementalPCA gets all samples in one place, with one message per node and batch. A message goes over one link "
    "in one direction. The last two columns are relative to partial_fit."
)


class StreamResult(NamedTuple):
    panel: StreamPanel
    rows: Sequence[StreamRow]


def streaming_cells(result: StreamResult) -> list[list[str]]:
    """One row per method: medians at the end of the stream, and their ratios to those of ``partial_fit``."""
    ours = next(row for row in result.rows if row.method.label == OURS)
    cells = []
    for row in result.rows:
        error, messages, sent = (row.at_end(what) for what in ("error", "messages", "bytes"))
        ratios = [f"{error / ours.at_end('error'):.3g}", f"{messages / ours.at_end('messages'):.3g}"]
        numbers = [f"{error:.2e}", f"{messages:,.0f}", readable_bytes(sent), *ratios]
        cells.append([row.method.label, row.method.words, *numbers])
    return cells


def streaming_table(result: StreamResult) -> Table:
    table = new_table(HEADINGS[0], *HEADINGS[2:], left=1)
    table.title, table.title_justify = result.panel.title, "left"
    for cells in streaming_cells(result):
        table.add_row(cells[0], *cells[2:])
    return table


def streaming_picture(results: Sequence[StreamResult]) -> Figure:
    """For each panel, the error against samples and, next to it, against messages."""
    return errors_picture(
        [_axis(result, unit) for result in results for unit in STREAM_UNITS], "One pass over a stream"
    )


def streaming_page(results: Sequence[StreamResult], about: dict[str, str]) -> str:
    title = "One pass over a stream of samples"
    body = [f"<h1>{escape(title)}</h1>", page.facts(about), f"<p>{escape(WORDS)}</p>"]
    for result in results:
        rows = [page.row(cells, left=2) for cells in streaming_cells(result)]
        title_of = f"{result.panel.title}: error against "
        shown = [page.picture(panel_svg(_axis(result, unit)), title_of + unit) for unit in STREAM_UNITS]
        body += [f"<h2>{escape(result.panel.title)}</h2>", page.pictures(shown)]
        body.append(page.table(page.row(HEADINGS, "th", left=2), rows))
    return page.page(title, body)


def _axis(result: StreamResult, unit: str) -> Axis:
    panel = result.panel
    words = f"{panel.n_nodes} nodes, {panel.n_samples:,} samples of {panel.d} features"
    lines = [line_of(row.method, row.curves, unit) for row in result.rows]
    return Axis(panel.title, words, lines, unit, LEAST, AXIS_RATIO)
