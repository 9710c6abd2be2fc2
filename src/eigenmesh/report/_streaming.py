"""Streams of samples: the table of what every method ends with, the picture and the page."""

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
# Samples differ from their distribution, so no method gets below this with the samples of these streams.
LEAST = 3e-4
# Ratio of the two ends of an axis: from a message per node to a thousand for each that partial_fit sends.
AXIS_RATIO = 1_000_000
WORDS = (
    "Every node gets one sample at a time, and no method keeps any. The error is the mean over nodes and components of "
    "the squared sine of the angle to the eigenvectors of the distribution. partial_fit gives the components of all "
    "samples so far. The published methods are shown at the best step of a grid, chosen by their error at the end. "
    "IncrementalPCA gets all samples in one place, a message per node and batch. Messages are directed sends over a "
    "link. The last two columns are what partial_fit has, times so much."
)


class StreamResult(NamedTuple):
    panel: StreamPanel
    rows: Sequence[StreamRow]


def streaming_cells(result: StreamResult) -> list[list[str]]:
    """One row per method: medians at the end of the stream, and what they are beside those of ``partial_fit``."""
    ours = next(row for row in result.rows if row.method.label == OURS)
    cells = []
    for row in result.rows:
        error, messages, sent = (row.at_end(what) for what in ("error", "messages", "bytes"))
        beside = [f"{error / ours.at_end('error'):.3g}", f"{messages / ours.at_end('messages'):.3g}"]
        numbers = [f"{error:.2e}", f"{messages:,.0f}", readable_bytes(sent), *beside]
        cells.append([row.method.label, row.method.words, *numbers])
    return cells


def streaming_table(result: StreamResult) -> Table:
    table = new_table(HEADINGS[0], *HEADINGS[2:], left=1)
    table.title, table.title_justify = result.panel.title, "left"
    for cells in streaming_cells(result):
        table.add_row(cells[0], *cells[2:])
    return table


def streaming_picture(results: Sequence[StreamResult]) -> Figure:
    """Per panel the error against samples, and beside it against messages."""
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
