"""Pictures of error against cost, and the same numbers as tables for the terminal."""

from __future__ import annotations

import io
from collections.abc import Sequence
from itertools import chain, repeat
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
from rich.table import Table

from eigenmesh.experiments.claims import (
    EQUAL_UNIT,
    NEVER,
    PAPER_UNIT,
    CostRow,
    JudgedClaim,
    Line,
    cell,
    problems_solved,
)
from eigenmesh.experiments.runs import TARGETS, UNITS, goal
from eigenmesh.report.pictures import TEXT_SIZE, draw_frame, new_figure, set_heading, write_figure
from eigenmesh.report.tables import new_table
from eigenmesh.words import readable_bytes

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

# Pictures of error against cost, with lines that differ even without colour.


AXES = UNITS | {"seconds": "virtual seconds"}
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
    """One plot: its lines, and the unit of its horizontal axis."""

    title: str
    subtitle: str
    lines: Sequence[Line]
    unit: str = "rounds"


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
    content = io.BytesIO()
    # Letters as outlines, because readers may not have the font.
    write_figure(errors_picture([panel]), content, "svg", fonttype="path")
    return content.getvalue()


def draw_errors(axes: Axes, panel: Axis) -> None:
    """Draw the lines of a panel: the median of the trials, with the range between the quartiles shaded."""
    for number, (line, style) in enumerate(zip(panel.lines, styles_of(panel.lines), strict=True)):
        _draw_line(axes, line, style, number, len(panel.lines))
    first = min((line.cost[0] for line in panel.lines), default=1.0)
    last = max((line.cost[-1] for line in panel.lines), default=10.0)
    costs = (max(0.9 * first, last / AXIS_RATIO), 1.1 * last)
    axes.set(xscale="log", yscale="log", xlim=costs, ylim=(LEAST_ERROR, 2))
    draw_frame(axes, f"{AXES[panel.unit]} (log scale)", "error: mean of sin²(angle)")
    # Over many decades minor ticks show nothing, and they take most of the drawing time.
    axes.minorticks_off()
    set_heading(axes, panel.title, panel.subtitle)


def styles_of(lines: Sequence[Line]) -> list[Style]:
    """A style for each line, the same for a solver in every picture; a solver's second line gets a spare one."""
    spare = chain(SPARE_STYLES, repeat(Style("#777777", "-", "")))
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


# Tables of experiments for the terminal.


def cost_table(rows: Sequence[CostRow], unit: str, title: str = "") -> Table:
    """One row per method: its settings, its cost to reach each target, and its smallest error."""
    heading = f"{title}: {unit} to an error of" if title else f"{unit.capitalize()} to an error of"
    looks: Any = {"title": heading, "title_justify": "left", "caption_justify": "left"}
    cells = [[row.method.label, row.method.words, *cost_cells(row, unit), f"{row.floor:.1e}"] for row in rows]
    table = new_table("method", "settings", *map(goal, TARGETS), "least", left=2, rows=cells, narrow=True, **looks)
    table.columns[1].no_wrap, table.columns[1].overflow = False, "fold"
    table.caption = cost_caption(rows, unit) or None
    return table


def cost_cells(row: CostRow, unit: str) -> list[str]:
    """The costs of a row as text, one per target; bytes in readable units."""
    cells = [cell(row, target, unit) for target in range(len(TARGETS))]
    if unit != "bytes":
        return cells
    if row.method.centralised:
        return [text if text.startswith(NEVER) else "none" for text in cells]
    sizes = [readable_bytes(float(cost)) if np.isfinite(cost) else NEVER for cost in row.typical(unit)]
    return [" ".join([size, *text.split()[1:]]) for size, text in zip(sizes, cells, strict=True)]


def cost_caption(rows: Sequence[CostRow], unit: str) -> str:
    """Notes on how to read the numbers."""
    notes = []
    if any(cost == NEVER for row in rows for cost in cost_cells(row, unit)):
        notes.append(f"{NEVER} means never, within the budget.")
    trials = max((row.trials for row in rows), default=1)
    if trials > 1:
        notes.append(f"Medians of {trials} trials; (n/{trials}) if only n reached it.")
    if alone := [row.method.label for row in rows if row.method.centralised]:
        counted = "nothing is sent" if unit == "bytes" else "one unit per iteration, as the paper counts"
        notes.append(f"On the pooled data at a single node: {', '.join(alone)}; {counted}.")
    return " ".join(notes)


def claims_table(findings: Sequence[JudgedClaim]) -> Table:
    """One row per claim: in how many panels it is supported, as the paper counts, and counted equally."""
    rows = [(one.claim, *(one.words(unit) for unit in (PAPER_UNIT, EQUAL_UNIT))) for one in findings]
    return new_table("claim", "as the paper counts", "counting every matrix", left=3, rows=rows)


def evidence_table(findings: Sequence[JudgedClaim]) -> Table:
    """One row per claim, panel and way to count: the numbers behind the verdict."""
    counted = [(one.claim, unit, each) for one in findings for unit, each in one.evidence.items()]
    rows = [(claim, unit, one.panel, one.verdict.value, one.words) for claim, unit, each in counted for one in each]
    return new_table("claim", "counted in", "panel", "verdict", "numbers", left=5, rows=rows)


def solved_table(tables: Sequence[Sequence[CostRow]]) -> Table:
    """One row per method: the number of problems that reached each target, and the median of their rounds."""
    rows = [
        (label, *(f"{count} of {len(tables)}" + (f" ({rounds:,.0f})" if count else "") for count, rounds in each))
        for label, each in problems_solved(tables).items()
    ]
    title = f"Of {len(tables)} problems, with the best setting of a grid for each (median of rounds)"
    return new_table("method", *(f"to {goal(target)}" for target in TARGETS), left=1, rows=rows, title=title)
