"""The figures of the FAST-PCA paper, as settings."""

from __future__ import annotations

import io
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from html import escape
from itertools import chain, product
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
from rich import box
from rich.table import Table

from eigenmesh import solvers
from eigenmesh.experiments.claims import (
    EQUAL_UNIT,
    FACTOR,
    NEVER,
    OURS,
    PAPER_UNIT,
    ClaimVerdict,
    CostRow,
    Evidence,
    JudgedClaim,
    Line,
    cell,
    line_of,
    problems_solved,
)
from eigenmesh.experiments.runs import TARGETS, UNITS, goal
from eigenmesh.experiments.settings import DataSet, Experiment, Method, Panel, Synthetic
from eigenmesh.experiments.streams import OUR_STREAM, STREAM_UNITS, StreamPanel, StreamRow
from eigenmesh.report import page
from eigenmesh.report.pictures import TEXT_SIZE, draw_frame, new_figure, set_heading, write_figure
from eigenmesh.report.tables import new_table
from eigenmesh.words import readable_bytes

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

# T_c of the paper, and SA-DOT's cap.
MIXES = 50
# The paper does not give DeEPCA's m. These are the smallest with which it reached 1e-10 in all of ten trials with
# distinct eigenvalues: with 1 on Erdos-Renyi graphs eight of ten did, with 5 on the cycle none.
DEEPCA_MIXES = {"erdos_renyi": 2, "cycle": 6}
STEPS = {"erdos_renyi": 0.7, "cycle": 0.1}
GRAPHS = {"erdos_renyi": "Erdős–Rényi", "cycle": "Cycle"}
GAPS = (0.8, 0.97)
# Budgets that let figures 1 to 3 with ten trials end in half an hour on two cores.
SYNTHETIC_ROUNDS, IMAGE_ROUNDS = 15_000, 1_000
# Products per component of SeqPM with distinct eigenvalues: as many as orthogonal iteration needs for 1e-10.
DISTINCT_PRODUCTS = 300

COMMON_FACTS = {
    "nodes": "20, Metropolis weights",
    "inner loops": f"T_c = {MIXES} mixes for SeqDistPM and S-DOT; SA-DOT's grow by one per iteration up to {MIXES}",
    "DeEPCA": "m = 2 mixes on Erdős–Rényi graphs, 6 on the cycle, the smallest that converged in all of ten trials "
    "with distinct eigenvalues; the paper does not give its value",
}


def figure_1(rounds: int | None = None) -> Experiment:
    """Distinct eigenvalues: two graphs, two gaps."""
    return Experiment(
        "fig1",
        "Figure 1: distinct eigenvalues",
        "With distinct leading eigenvalues the authors see FAST-PCA far ahead of both sequential power methods, which "
        "find one eigenvector after another, and of S-DOT and SA-DOT, whose inner consensus loops cost rounds. DSA "
        "falls behind because it only converges to a neighbourhood of the eigenvectors. DeEPCA does about as well, but "
        "needs a QR factorisation per iteration. FAST-PCA stays close to centralised orthogonal iteration.",
        _synthetic_facts("evenly spaced from 1 to 0.8", "gap x 0.8", "300 products per component"),
        _synthetic_panels("fig1", rounds, equal=False),
    )


def figure_2(rounds: int | None = None) -> Experiment:
    """The same with nearly equal leading eigenvalues."""
    return Experiment(
        "fig2",
        "Figure 2: nearly equal eigenvalues",
        "The K leading eigenvalues of the distribution are equal, so those of the samples differ by chance alone. "
        "Every method gets much slower. The authors see FAST-PCA ahead of all other distributed methods, DeEPCA "
        "included, and still close to centralised orthogonal iteration.",
        _synthetic_facts("all 1", "the gap", "the budget divided by K for each component"),
        _synthetic_panels("fig2", rounds, equal=True),
    )


def figure_3(rounds: int | None = None) -> Experiment:
    """MNIST and CIFAR-10, split at random over an Erdos-Renyi graph."""
    budget = rounds or IMAGE_ROUNDS
    panels = []
    images = ((DataSet("mnist"), "MNIST", 10, 0.1), (DataSet("cifar10", unit=True), "CIFAR-10", 5, 0.8))
    for data, title, k, step in images:
        methods = paper_methods("erdos_renyi", k, budget, step, budget // k)
        panels.append(Panel(f"fig3-{data.name}", f"{title}, K = {k}", data, "erdos_renyi", k, budget, methods))
    return Experiment(
        "fig3",
        "Figure 3: MNIST and CIFAR-10",
        "The same comparison on images: MNIST with K = 10 and CIFAR-10 in grey with K = 5, 3,000 images at each of 20 "
        "nodes of an Erdős–Rényi graph. The text of the paper states no result for it, so the claims of figure 1 are "
        "checked on it.",
        {
            "data": "60,000 images split at random, 3,000 per node, pixels in [0, 1], pooled mean removed; CIFAR-10 "
            "scaled so that the largest eigenvalue is 1, as the authors' code does",
            "steps": "FAST-PCA and DSA: 0.1 for MNIST, 0.8 for CIFAR-10",
            "sequential methods": "the budget divided by K for each component",
            **COMMON_FACTS,
        },
        tuple(panels),
    )


FIGURES = {"fig1": figure_1, "fig2": figure_2, "fig3": figure_3}


def paper_methods(topology: str, k: int, rounds: int, step: float, products: int) -> tuple[Method, ...]:
    """The eight methods of the paper; ``products``: those of SeqPM per component."""
    return (
        Method("OI", solvers.OrthogonalIteration()),
        Method("SeqPM", solvers.SequentialPower(iterations=max(1, products))),
        Method("SeqDistPM", solvers.SequentialDistributedPower(iterations=max(1, rounds // (MIXES * k)), mixes=MIXES)),
        Method("S-DOT", solvers.SDOT(mixes=MIXES)),
        Method("SA-DOT", solvers.SADOT(cap=MIXES)),
        Method("DeEPCA", solvers.DeEPCA(mixes=DEEPCA_MIXES[topology])),
        Method("DSA", solvers.DSA(step_size=step)),
        Method("FAST-PCA", solvers.FastPCA(step_size=step)),
    )


def _synthetic_panels(name: str, rounds: int | None, equal: bool) -> tuple[Panel, ...]:
    budget, k = rounds or SYNTHETIC_ROUNDS, Synthetic.k
    products = budget // k if equal else min(DISTINCT_PRODUCTS, budget // k)
    panels = []
    for (topology, graph), gap in product(GRAPHS.items(), GAPS):
        methods = paper_methods(topology, k, budget, STEPS[topology], products)
        data, names = Synthetic(gap, equal), (f"{name}-{topology}-{gap:g}", f"{graph}, gap {gap:g}")
        panels.append(Panel(*names, data, topology, k, budget, methods))
    return tuple(panels)


def _synthetic_facts(leading: str, next_one: str, products: str) -> dict[str, str]:
    return {
        "data": f"Gaussian, d = 20, 5,000 samples per node, K = 5; leading eigenvalues {leading}, the rest evenly "
        f"spaced from {next_one} to 0.1; random axes, pooled mean removed",
        "graphs": "Erdős–Rényi with p = 0.5, drawn again for each trial, and the cycle",
        "steps": "FAST-PCA and DSA: 0.7 on Erdős–Rényi graphs, 0.1 on the cycle",
        "sequential methods": f"SeqPM: {products}, then again; SeqDistPM: the budget divided by K T_c",
        **COMMON_FACTS,
    }


# Pictures of error against cost, with lines that differ even without colour.


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
    """One plot: its lines, the unit of its horizontal axis and the range of errors that it shows."""

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


# A picture of error against seconds.


MARKERS = 8


def seconds_picture(curves: Mapping[str, np.ndarray], title: str, subtitle: str) -> Figure:
    """Figure of the mean error against seconds; curves by name, (n, 2) each: seconds and errors."""
    figure = new_figure(7.5, 5.2)
    axes, spare = figure.subplots(), iter(SPARE_STYLES * len(curves))
    for name, curve in curves.items():
        style = STYLES.get(name) or next(spare)
        every = max(1, len(curve) // MARKERS)
        look = {"color": style.colour, "linestyle": style.dashes, "marker": style.marker, "linewidth": style.width}
        axes.plot(curve[:, 0], np.maximum(curve[:, 1], LEAST_ERROR), label=name, markersize=5, markevery=every, **look)
    axes.set(yscale="log", ylim=(LEAST_ERROR, 2), xlim=(0, None))
    draw_frame(axes, "virtual seconds", "error: mean of sin²(angle)")
    set_heading(axes, title, subtitle)
    axes.legend(fontsize=TEXT_SIZE, frameon=False)
    return figure


# Experiments on streams of samples: table of the final errors and costs, picture and page.


HEADINGS = ("method", "settings", "error", "messages", "payload", "x error", "x messages")
# Smallest error of the pictures. The streams are finite samples of a distribution, so no method gets below this.
LEAST = 3e-4
# Ratio of the two ends of an axis: from one message per node to a thousand times as many as partial_fit sends.
STREAM_AXIS_RATIO = 1_000_000
WORDS = (
    "Every node gets one sample at a time, and no method keeps any. The error is the mean over nodes and components of "
    "the squared sine of the angle to the eigenvectors of the distribution. partial_fit gives the components of all "
    "samples so far. The published methods are shown with the best step size of a grid, chosen by their final error. "
    "IncrementalPCA gets all samples in one place, with one message per node and batch. A message goes over one link "
    "in one direction. The last two columns are relative to partial_fit."
)


class StreamResult(NamedTuple):
    """A panel of streams and the rows of its methods."""

    panel: StreamPanel
    rows: Sequence[StreamRow]


def streaming_cells(result: StreamResult) -> list[list[str]]:
    """One row per method: medians at the end of the stream, and their ratios to those of ``partial_fit``."""
    ours = next(row for row in result.rows if row.method.label == OUR_STREAM)
    cells = []
    for row in result.rows:
        error, messages, sent = (row.at_end(what) for what in ("error", "messages", "bytes"))
        ratios = [f"{error / ours.at_end('error'):.3g}", f"{messages / ours.at_end('messages'):.3g}"]
        numbers = [f"{error:.2e}", f"{messages:,.0f}", readable_bytes(sent), *ratios]
        cells.append([row.method.label, row.method.words, *numbers])
    return cells


def streaming_table(result: StreamResult) -> Table:
    """The table of a panel of streams, for the terminal."""
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
    """The page of all panels of streams."""
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
    return Axis(panel.title, words, lines, unit, LEAST, STREAM_AXIS_RATIO)


# Tables of experiments for the terminal.


def cost_table(rows: Sequence[CostRow], unit: str, title: str = "", settings: bool = True) -> Table:
    """One row per method: its cost to reach each target, and its smallest error; ``settings``: with their column."""
    heading = f"{title}: {unit} to an error of" if title else f"{unit.capitalize()} to an error of"
    table = Table(box=box.SIMPLE_HEAD, header_style="bold", title=heading, title_justify="left", padding=(0, 1, 0, 0))
    table.add_column("method", no_wrap=True)
    if settings:
        table.add_column("settings", overflow="fold")
    for heading in (*map(goal, TARGETS), "least"):
        table.add_column(heading, justify="right", no_wrap=True)
    for row in rows:
        words = [row.method.words] if settings else []
        table.add_row(row.method.label, *words, *cost_cells(row, unit), f"{row.floor:.1e}")
    table.caption, table.caption_justify = cost_caption(rows, unit) or None, "left"
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
    """One row per claim: its verdict as the paper counts, and counted equally."""
    table = new_table("claim", "as the paper counts", "counting every matrix", left=3)
    for finding in findings:
        equal = finding.equal_verdict
        table.add_row(finding.claim, finding.verdict.value, "not about cost" if equal is None else equal.value)
    return table


# The page of an experiment: figures next to the paper's statements, tables, and the verdicts on claims.


GROUPS = (("the paper's unit, which is the rounds", PAPER_UNIT), ("matrices", EQUAL_UNIT), ("payload", "bytes"))
CITATION = (
    'A. Gang and W. U. Bajwa, "FAST-PCA: A fast and exact algorithm for distributed principal component analysis", '
    "IEEE Transactions on Signal Processing 70 (2022)."
)
CLAIMS_RULE = (
    f"Close, or about as well: within a factor of {FACTOR:g} at every error that either reaches. Ahead: cheaper at "
    "every such error. In part: at some of them, or in some panels."
)
SIGNS = {ClaimVerdict.HOLDS: "✓", ClaimVerdict.PARTLY: "◐", ClaimVerdict.FAILS: "✗", ClaimVerdict.OPEN: "?"}
HOW_COUNTED = (
    "The paper counts one unit per round, whatever is sent in it, and one per iteration of a centralised method. "
    "FAST-PCA sends two d x K matrices per round, the estimate and the tracker, so it costs twice as much in matrices. "
    "SeqDistPM sends single columns: each counts as one matrix, but its payload is K times smaller. Payload is the sum "
    "over all links. The error is the mean over nodes and components of the squared sine of the angle."
)


@dataclass(frozen=True)
class PanelResult:
    """Table and lines of a panel, or the reason why there are none."""

    panel: Panel
    rows: Sequence[CostRow] = ()
    lines: Sequence[Line] = ()
    missing: str = ""


@dataclass(frozen=True)
class Chapter:
    """One experiment on the page: its panels and what they say about the paper's claims."""

    experiment: Experiment
    panels: Sequence[PanelResult]
    findings: Sequence[JudgedClaim] = ()


def figures_page(title: str, chapters: Sequence[Chapter], about: dict[str, str]) -> str:
    """The page of the paper's figures."""
    links = "".join(f'<a href="#{c.experiment.name}">{escape(c.experiment.title)}</a> ' for c in chapters)
    head = [f"<h1>{escape(title)}</h1>", f"<nav>{links}</nav>", page.facts(about), f"<p>{escape(HOW_COUNTED)}</p>"]
    parts = [part for chapter in chapters for part in _chapter(chapter)]
    return page.page(title, [*head, *_summary(chapters), *parts, page.small(f"Paper: {CITATION}")])


def unlike_page(title: str, chapter: Chapter, about: dict[str, str]) -> str:
    """The page of nodes whose data differ: how often each method reached each target, then every problem."""
    made = [result for result in chapter.panels if result.rows]
    body = [
        f"<h1>{escape(title)}</h1>",
        page.facts({**about, **chapter.experiment.facts}),
        "<h2>On how many problems each method reached each error</h2>",
        f"<p>Of {len(made)} problems, each method with the best setting of its grid for that problem. In brackets: the "
        "median of the rounds over the problems that it solved.</p>",
        _solved_table(made),
        *(_missing(result) for result in chapter.panels if result.missing),
        "<h2>Every problem</h2>",
        page.pictures([_picture(result) for result in made]),
    ]
    names = ("method", "best setting", *(f"rounds to {goal(target)}" for target in TARGETS), "least error")
    for result in made:
        rows = [_row(row, cost_cells(row, "rounds")) for row in result.rows]
        body.append(page.table(page.row(names, "th", left=2), rows, result.panel.title))
    if made:
        body.append(page.small(cost_caption(made[0].rows, "rounds")))
    return page.page(title, body)


def _summary(chapters: Sequence[Chapter]) -> list[str]:
    worse = [
        f"{chapter.experiment.title.partition(':')[0]}: “{finding.claim}” is {finding.verdict.value} as the paper "
        f"counts, and {equal.value} when every matrix is counted."
        for chapter in chapters
        for finding in chapter.findings
        if finding.depends_on_counting and (equal := finding.equal_verdict) is not None
    ]
    items = "".join(f"<li>{escape(words)}</li>" for words in worse)
    note = f'<h3>Claims that depend on how cost is counted</h3><div class="note"><ul>{items}</ul></div>'
    return [note] if worse else []


def _chapter(chapter: Chapter) -> list[str]:
    experiment = chapter.experiment
    text = f"<h3>What the paper says, in our words</h3><p>{escape(experiment.says)}</p>"
    text += f"<h3>How it was run</h3>{page.facts(experiment.facts)}"
    made = [result for result in chapter.panels if result.rows]
    shown = page.pictures([_picture(result) for result in made])
    missing = "".join(_missing(result) for result in chapter.panels if result.missing)
    beside = f'<div class="beside"><div>{text}</div><div>{missing}{shown}</div></div>'
    parts = [f'<h2 id="{experiment.name}">{escape(experiment.title)}</h2>', beside]
    if not made:
        return parts
    trials = max(row.trials for result in made for row in result.rows)
    if trials > 1:
        parts.append(page.small(f"Lines: median of {trials} trials. Shades: from quartile to quartile."))
    cards = "".join(_claim(finding) for finding in chapter.findings)
    parts += ["<h3>Do the numbers support it?</h3>", f'<div class="claims">{cards}</div>', page.small(CLAIMS_RULE)]
    parts.append("<h3>Cost to reach an error</h3>")
    for result in made:
        rows = [_grouped_row(row) for row in result.rows]
        parts.append(page.table(_grouped_head(), rows, result.panel.title, css="grouped"))
    return [*parts, page.small(cost_caption(made[0].rows, PAPER_UNIT))]


def _missing(result: PanelResult) -> str:
    return f'<p class="note">{escape(result.panel.title)} is not shown. {escape(result.missing)}</p>'


def _picture(result: PanelResult) -> str:
    panel = result.panel
    budget = f"{panel.n_nodes} nodes, K = {panel.n_components}, at most {panel.rounds:,} rounds"
    words = f"{panel.title}: error against rounds of {', '.join(line.method.label for line in result.lines)}"
    return page.picture(panel_svg(Axis(panel.title, budget, result.lines, PAPER_UNIT)), words)


def _claim(finding: JudgedClaim) -> str:
    verdicts, numbers = _badge(finding.verdict), _details("The numbers", finding.paper)
    equal = finding.equal_verdict
    if equal is not None:
        verdicts += f" as the paper counts<br>{_badge(equal)} counting every matrix"
        numbers = _details("The numbers in the paper's unit", finding.paper)
        numbers += _details("The numbers in matrices", finding.equal)
    return f'<div class="claim"><h4>{escape(finding.claim)}</h4><p>{verdicts}</p>{numbers}</div>'


def _badge(verdict: ClaimVerdict) -> str:
    return f'<span class="verdict {verdict.name.lower()}">{SIGNS[verdict]} {verdict.value}</span>'


def _details(words: str, evidence: Sequence[Evidence]) -> str:
    items = "".join(f"<li>{escape(e.panel)}, {e.verdict.value}: {escape(e.words)}</li>" for e in evidence)
    return f"<details><summary>{words}</summary><ul>{items}</ul></details>"


def _grouped_head() -> str:
    groups = "".join(f'<th scope="colgroup" colspan="{len(TARGETS)}">{escape(words)}</th>' for words, _ in GROUPS)
    targets = "".join(f"<th>{goal(target)}</th>" for _ in GROUPS for target in TARGETS)
    left = "".join(f'<th rowspan="2" class="left">{name}</th>' for name in ("method", "settings"))
    return f'<tr>{left}{groups}<th rowspan="2">least error</th></tr><tr>{targets}</tr>'


def _grouped_row(row: CostRow) -> str:
    # The number of trials that reached a target is the same in every unit: once is enough.
    first, *others = [cost_cells(row, unit) for _, unit in GROUPS]
    costs = [*first, *(text.partition(" (")[0] for group in others for text in group)]
    return _row(row, costs, css="ours" if row.method.label == OURS else "")


def _row(row: CostRow, costs: Sequence[str], css: str = "") -> str:
    return page.row([row.method.label, row.method.words, *costs, f"{row.floor:.1e}"], left=2, css=css)


def _solved_table(made: Sequence[PanelResult]) -> str:
    lines = []
    for label, each in problems_solved([result.rows for result in made]).items():
        cells = [f"{count} of {len(made)}" + (f" ({rounds:,.0f})" if count else "") for count, rounds in each]
        lines.append(page.row([label, *cells]))
    return page.table(page.row(("method", *(f"to {goal(target)}" for target in TARGETS)), "th"), lines)
