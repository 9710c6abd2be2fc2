"""The pages of experiments: one HTML file each, with style and pictures embedded, that can be read offline."""

from __future__ import annotations

import base64
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from html import escape
from importlib.resources import files

from rich.table import Table

from eigenmesh.experiments import claims, figures
from eigenmesh.experiments.claims import CostRow, JudgedClaim, Line
from eigenmesh.experiments.experiment import Experiment, Method, Panel
from eigenmesh.experiments.runs import Curve

UNITS_SHOWN = (claims.PAPER_UNIT, claims.EQUAL_UNIT, "bytes")
CITATION = (
    'A. Gang and W. U. Bajwa, "FAST-PCA: A fast and exact algorithm for distributed principal component analysis", '
    "IEEE Transactions on Signal Processing 70 (2022)."
)
CLAIMS_RULE = (
    f"Close, or about as well: within a factor of {claims.FACTOR:g} at every error that either reaches. Ahead: cheaper "
    "at every such error. In part: at some of them. Undecided: neither method reaches an error."
)
HOW_COUNTED = (
    "The paper counts one unit per round, whatever is sent in it, and one per iteration of a centralised method. "
    "FAST-PCA sends two d x K matrices per round, the estimate and the tracker, so it costs twice as much in matrices. "
    "SeqDistPM sends single columns: each counts as one matrix, but its payload is K times smaller. Payload is the sum "
    "over all links. The error is the mean over nodes and components of the squared sine of the angle."
)


@dataclass(frozen=True)
class PanelResult:
    """Table and curves of a panel, one per trial of each of its rows, or the reason why there are none."""

    panel: Panel
    rows: Sequence[CostRow] = ()
    curves: Sequence[Sequence[Curve]] = ()
    missing: str = ""

    @property
    def runs(self) -> list[tuple[Method, Sequence[Curve]]]:
        """The methods of the rows, each with its curves."""
        return [(row.method, curves) for row, curves in zip(self.rows, self.curves, strict=True)]

    @cached_property
    def lines(self) -> list[Line]:
        """The lines of the plot."""
        return [claims.line_of(method, curves, "rounds") for method, curves in self.runs]

    @property
    def axis(self) -> figures.Axis:
        """The plot of the panel."""
        panel = self.panel
        budget = f"{panel.n_nodes} nodes, K = {panel.n_components}, at most {panel.rounds:,} rounds"
        return figures.Axis(panel.title, budget, self.lines)


@dataclass(frozen=True)
class Chapter:
    """One experiment on the page: its panels and what they say about the paper's claims."""

    experiment: Experiment
    panels: Sequence[PanelResult]
    findings: Sequence[JudgedClaim] = ()

    @property
    def made(self) -> list[PanelResult]:
        """The panels that were run."""
        return [result for result in self.panels if result.rows]

    @property
    def missing(self) -> list[str]:
        """A note for each panel that was not run."""
        gone = (result for result in self.panels if result.missing)
        return [f'<p class="note">{escape(f"{one.panel.title} is not shown. {one.missing}")}</p>' for one in gone]


def experiments_page(title: str, chapters: Sequence[Chapter], about: Mapping[str, str]) -> str:
    """The page of experiments: how each was run, its pictures, what it says about the paper, and its tables."""
    meta = '<meta charset="utf-8">\n<meta name="viewport" content="width=device-width, initial-scale=1">'
    style = files("eigenmesh.experiments").joinpath("page.css").read_text(encoding="utf-8")
    head = f"<head>\n{meta}\n<title>{escape(title)}</title>\n<style>{style}</style>\n</head>"
    body = [f"<h1>{escape(title)}</h1>", _facts(about), _paragraph(HOW_COUNTED)]
    for chapter in chapters:
        body += _chapter(chapter)
    content = "\n".join([*body, _paragraph(f"Paper: {CITATION}", "small")])
    return f'<!DOCTYPE html>\n<html lang="en">\n{head}\n<body>\n{content}\n</body>\n</html>\n'


# The parts of the pages.


def _chapter(chapter: Chapter) -> list[str]:
    experiment, made = chapter.experiment, chapter.made
    said = ["<h3>What the paper says, in our words</h3>", _paragraph(experiment.says)] if experiment.says else []
    parts = [f"<h2>{escape(experiment.title)}</h2>", *said, "<h3>How it was run</h3>", _facts(experiment.facts)]
    parts += [*chapter.missing, _pictures(made)]
    if not made:
        return parts
    trials = max(row.trials for result in made for row in result.rows)
    if trials > 1:
        parts.append(_paragraph(f"Lines: median of {trials} trials. Shades: from quartile to quartile.", "small"))
    if chapter.findings:
        parts += ["<h3>Do the numbers support it?</h3>", _table(figures.claims_table(chapter.findings))]
        parts += [_paragraph(CLAIMS_RULE, "small"), "<details><summary>The numbers</summary>"]
        parts += [_table(figures.evidence_table(chapter.findings)), "</details>"]
    else:
        parts += ["<h3>On how many problems each method reached each error</h3>"]
        parts.append(_table(figures.solved_table([result.rows for result in made])))
    parts.append("<h3>Cost to reach an error</h3>")
    parts += [_table(figures.cost_table(one.rows, unit, one.panel.title)) for one in made for unit in UNITS_SHOWN]
    return [*parts, _paragraph(figures.cost_caption(made[0].rows, claims.PAPER_UNIT), "small")]


# HTML. Whatever becomes part of a page is escaped here, except what this file has written itself.


def _facts(entries: Mapping[str, str]) -> str:
    """Names and values as a list of definitions."""
    return f"<dl>{''.join(f'<dt>{escape(name)}</dt><dd>{escape(value)}</dd>' for name, value in entries.items())}</dl>"


def _paragraph(words: str, css: str = "") -> str:
    return f'<p class="{css}">{escape(words)}</p>'


def _pictures(made: Sequence[PanelResult]) -> str:
    """The plots of panels, next to each other if there is room."""
    shown = []
    for result in made:
        labels = ", ".join(line.method.label for line in result.lines)
        words = f"{result.panel.title}: error against rounds of {labels}"
        # Separate images, so that the ids of two pictures cannot clash.
        data = base64.b64encode(figures.panel_svg(result.axis)).decode()
        shown.append(f'<figure><img alt="{escape(words)}" src="data:image/svg+xml;base64,{data}"></figure>')
    return f'<div class="pictures">{"".join(shown)}</div>'


def _table(table: Table) -> str:
    """A table of the terminal, which scrolls on narrow screens."""
    caption = f"<caption>{escape(str(table.title))}</caption>" if table.title else ""
    head = "".join(f"<th>{escape(str(column.header))}</th>" for column in table.columns)
    rows = zip(*(column.cells for column in table.columns), strict=True)
    lines = ("".join(f"<td>{escape(str(cell))}</td>" for cell in row) for row in rows)
    body = "".join(f"<tr>{line}</tr>" for line in lines)
    inside = f"{caption}<thead><tr>{head}</tr></thead><tbody>{body}</tbody>"
    return f'<div class="scroll"><table>{inside}</table></div>'
