"""Pictures of error against cost, with lines that differ even without colour."""

from __future__ import annotations

import io
from collections.abc import Sequence
from itertools import chain
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from eigenmesh.experiments._curves import UNITS
from eigenmesh.experiments._streaming import STREAM_UNITS
from eigenmesh.experiments._tables import Line
from eigenmesh.report._pictures import TEXT_SIZE, draw_frame, new_figure, set_heading, write_figure

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

AXES = UNITS | STREAM_UNITS
# Smaller errors are rounding.
LEAST_ERROR = 1e-16
MARKERS_PER_LINE = 6
# Ratio of the two ends of the axis of costs.
AXIS_RATIO = 2000
_LEGEND: dict[str, Any] = {"loc": "outside lower center", "fontsize": TEXT_SIZE, "frameon": False}
_LEGEND |= {"handlelength": 3.6, "columnspacing": 1.6}


class Style(NamedTuple):
    """How a line is drawn: no two styles share dashes and marker."""

    colour: str
    dashes: Any
    marker: str
    width: float = 1.5


STYLES = {
    "fast-pca": Style("#d55e00", "-", "o", 2.2),
    "oi": Style("#000000", "-", "x"),
    "deepca": Style("#0072b2", "--", "s"),
    "dsa": Style("#cc79a7", ":", "v", 2.0),
    "s-dot": Style("#009e73", "-.", "^"),
    "sa-dot": Style("#56b4e9", (0, (6, 1.5, 1, 1.5, 1, 1.5)), "D"),
    "seq-pm": Style("#666666", (0, (8, 3)), "P"),
    "seq-dist-pm": Style("#b07a00", (0, (2, 1)), "X"),
    "block-krylov": Style("#882255", "-", "*", 2.0),
    "tracked-subspace": Style("#332288", (0, (4, 1)), "h", 2.0),
    "D-Krasulina": Style("#0072b2", "--", "p"),
    "DM-Krasulina": Style("#56b4e9", "-.", "<"),
    "C-DIEGO": Style("#cc79a7", ":", ">", 2.0),
    "distributed Oja": Style("#009e73", (0, (8, 3)), "d"),
    "IncrementalPCA": Style("#666666", (0, (3, 1, 1, 1)), "s"),
    "partial_fit": Style("#882255", "-", "h", 2.0),
}
SPARE_STYLES = (
    Style("#444444", "-", "d"),
    Style("#117733", (0, (3, 1, 1, 1)), "<"),
    Style("#aa4499", (0, (1, 2)), ">"),
    Style("#999933", (0, (10, 2)), "p"),
    Style("#000000", ":", "+"),
    Style("#0072b2", (0, (5, 1, 1, 1)), "1"),
)


class Axis(NamedTuple):
    title: str
    subtitle: str
    lines: Sequence[Line]
    unit: str = "rounds"
    least: float = LEAST_ERROR
    ratio: float = AXIS_RATIO


def errors_picture(panels: Sequence[Axis], title: str = "", columns: int = 2) -> Figure:
    """Figure with one plot per panel, ``columns`` side by side, and one legend for all."""
    columns = min(columns, len(panels))
    rows = -(-len(panels) // columns)
    figure = new_figure(max(5.0 * columns, 6.6), 3.7 * rows + 1.2)
    if title:
        figure.suptitle(title, fontsize=13, fontweight="bold")
    axes = np.atleast_1d(figure.subplots(rows, columns)).ravel()
    for panel, place in zip(panels, axes, strict=False):
        draw_errors(place, panel)
    for place in axes[len(panels) :]:
        place.axis("off")
    handles: dict[str, Any] = {}
    for place in axes:
        handles.update(zip(*reversed(place.get_legend_handles_labels()), strict=True))
    figure.legend(handles.values(), handles.keys(), ncols=4, **_LEGEND)
    return figure


def panel_svg(panel: Axis) -> bytes:
    """One panel with a legend, as an SVG that looks the same on every machine."""
    figure = new_figure(5.6, 5.0)
    draw_errors(figure.subplots(), panel)
    figure.legend(ncols=3 if len(panel.lines) > 4 else 2, **_LEGEND)
    content = io.BytesIO()
    # Letters as outlines, because readers may not have the font.
    write_figure(figure, content, "svg", fonttype="path")
    return content.getvalue()


def draw_errors(axes: Axes, panel: Axis) -> None:
    """Draw the lines of a panel: the median of the trials, with the range between the quartiles shaded."""
    for number, (line, style) in enumerate(zip(panel.lines, styles_of(panel.lines), strict=True)):
        _draw_line(axes, line, style, number, len(panel.lines))
    first = min((line.cost[0] for line in panel.lines), default=1.0)
    last = max((line.cost[-1] for line in panel.lines), default=10.0)
    costs = (max(1.0, 0.9 * first, last / panel.ratio), max(1.1 * last, 10.0))
    axes.set(xscale="log", yscale="log", xlim=costs, ylim=(panel.least, 2))
    draw_frame(axes, f"{AXES[panel.unit]} (log scale)", "error: mean of sin²(angle)")
    # Over many decades minor ticks show nothing, and they take most of the drawing time.
    axes.minorticks_off()
    set_heading(axes, panel.title, panel.subtitle)


def styles_of(lines: Sequence[Line]) -> list[Style]:
    """A style for each line, the same for a solver in every picture; a solver's second line gets a spare one."""
    spare = chain(SPARE_STYLES, (Style(f"{shade:.2f}", "-", "") for shade in np.linspace(0.2, 0.7, 200)))
    taken: list[Style] = []
    for line in lines:
        style = STYLES.get(line.method.name)
        taken.append(style if style is not None and style not in taken else next(spare))
    return taken


def _draw_line(axes: Axes, line: Line, style: Style, number: int, count: int) -> None:
    low, middle, high = (np.maximum(values, LEAST_ERROR) for values in (line.lower, line.median, line.upper))
    # A line ends when it reaches the smallest error.
    middle = np.where(np.roll(middle, 1) > LEAST_ERROR, middle, np.nan) if middle[0] > LEAST_ERROR else middle
    if np.any(high > 1.02 * low):
        axes.fill_between(line.cost, low, high, color=style.colour, alpha=0.13, linewidth=0)
    spacing = max(1, len(line.cost) // MARKERS_PER_LINE)
    # Each line starts its markers at another point, so that lines that overlap still show theirs.
    markers: Any = {"marker": style.marker, "markersize": 5, "markevery": (number * spacing // max(1, count), spacing)}
    label = f"{line.method.label} (centralised)" if line.method.centralised else line.method.label
    look: Any = {"linestyle": style.dashes, "color": style.colour, "linewidth": style.width}
    axes.plot(line.cost, middle, label=label, **look, **markers)
