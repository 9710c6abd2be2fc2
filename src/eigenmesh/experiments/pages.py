"""The pages of experiments: one HTML file each, with style and pictures embedded, that can be read offline."""

from __future__ import annotations

import base64
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from html import escape
from importlib.resources import files

from eigenmesh.experiments import claims, figures, streams
from eigenmesh.experiments.claims import ClaimVerdict, CostRow, Evidence, JudgedClaim, Line
from eigenmesh.experiments.experiment import Experiment, Panel
from eigenmesh.experiments.runs import TARGETS, goal

GROUPS = (
    ("the paper's unit, which is the rounds", claims.PAPER_UNIT),
    ("matrices", claims.EQUAL_UNIT),
    ("payload", "bytes"),
)
CITATION = (
    'A. Gang and W. U. Bajwa, "FAST-PCA: A fast and exact algorithm for distributed principal component analysis", '
    "IEEE Transactions on Signal Processing 70 (2022)."
)
CLAIMS_RULE = (
    f"Close, or about as well: within a factor of {claims.FACTOR:g} at every error that either reaches. Ahead: cheaper "
    "at every such error. In part: at some of them, or in some panels."
)
SIGNS = {ClaimVerdict.HOLDS: "✓", ClaimVerdict.PARTLY: "◐", ClaimVerdict.FAILS: "✗", ClaimVerdict.OPEN: "?"}
HOW_COUNTED = (
    "The paper counts one unit per round, whatever is sent in it, and one per iteration of a centralised method. "
    "FAST-PCA sends two d x K matrices per round, the estimate and the tracker, so it costs twice as much in matrices. "
    "SeqDistPM sends single columns: each counts as one matrix, but its payload is K times smaller. Payload is the sum "
    "over all links. The error is the mean over nodes and components of the squared sine of the angle."
)
HOW_STREAMED = (
    "Every node gets one sample at a time, and no method keeps any. The error is the mean over nodes and components of "
    "the squared sine of the angle to the eigenvectors of the distribution. partial_fit gives the components of all "
    "samples so far. The published methods are shown with the best step size of a grid, chosen by their final error. "
    "IncrementalPCA gets all samples in one place, with one message per node and batch. A message goes over one link "
    "in one direction. The last two columns are relative to partial_fit."
)


@dataclass(frozen=True)
class PanelResult:
    """Table and lines of a panel, or the reason why there are none."""

    panel: Panel
    rows: Sequence[CostRow] = ()
    lines: Sequence[Line] = ()
    missing: str = ""

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


def figures_page(title: str, chapters: Sequence[Chapter], about: Mapping[str, str]) -> str:
    """The page of the paper's figures."""
    links = "".join(f'<a href="#{c.experiment.name}">{escape(c.experiment.title)}</a> ' for c in chapters)
    body = [f"<nav>{links}</nav>", _facts(about), _paragraph(HOW_COUNTED), *_summary(chapters)]
    for chapter in chapters:
        body += _chapter(chapter)
    return _page(title, [*body, _paragraph(f"Paper: {CITATION}", "small")])


def unlike_page(title: str, chapter: Chapter, about: Mapping[str, str]) -> str:
    """The page of nodes whose data differ: how often each method reached each target, then every problem."""
    made = chapter.made
    words = (
        f"Of {len(made)} problems, each method with the best setting of its grid for that problem. In brackets: the "
        "median of the rounds over the problems that it solved."
    )
    body = [
        _facts({**about, **chapter.experiment.facts}),
        "<h2>On how many problems each method reached each error</h2>",
        _paragraph(words),
        _solved_table(made),
        *chapter.missing,
        "<h2>Every problem</h2>",
        _pictures(made),
    ]
    names = ("method", "best setting", *(f"rounds to {goal(target)}" for target in TARGETS), "least error")
    for result in made:
        rows = [_cells(row, figures.cost_cells(row, "rounds")) for row in result.rows]
        body.append(_table(_row(names, "th"), map(_row, rows), result.panel.title, "settings"))
    if made:
        body.append(_paragraph(figures.cost_caption(made[0].rows, "rounds"), "small"))
    return _page(title, body)


def streaming_page(results: Sequence[figures.StreamResult], about: Mapping[str, str]) -> str:
    """The page of all panels of streams."""
    body = [_facts(about), _paragraph(HOW_STREAMED)]
    for result in results:
        axes = {f"{result.panel.title}: error against {unit}": unit for unit in streams.STREAM_UNITS}
        shown = [_picture(figures.stream_axis(result, unit), words) for words, unit in axes.items()]
        rows = map(_row, figures.streaming_cells(result))
        body += [f"<h2>{escape(result.panel.title)}</h2>", f'<div class="pictures">{"".join(shown)}</div>']
        body.append(_table(_row(figures.HEADINGS, "th"), rows, css="settings"))
    return _page("One pass over a stream of samples", body)


# The parts of the pages.


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
    experiment, made = chapter.experiment, chapter.made
    text = f"<h3>What the paper says, in our words</h3>{_paragraph(experiment.says)}"
    text += f"<h3>How it was run</h3>{_facts(experiment.facts)}"
    shown = f"{''.join(chapter.missing)}{_pictures(made)}"
    beside = f'<div class="beside"><div>{text}</div><div>{shown}</div></div>'
    parts = [f'<h2 id="{experiment.name}">{escape(experiment.title)}</h2>', beside]
    if not made:
        return parts
    trials = max(row.trials for result in made for row in result.rows)
    if trials > 1:
        words = f"Lines: median of {trials} trials. Shades: from quartile to quartile."
        parts.append(_paragraph(words, "small"))
    cards = "".join(_claim(finding) for finding in chapter.findings)
    parts += ["<h3>Do the numbers support it?</h3>", f'<div class="claims">{cards}</div>']
    parts += [_paragraph(CLAIMS_RULE, "small"), "<h3>Cost to reach an error</h3>"]
    for result in made:
        rows = [_grouped_row(row) for row in result.rows]
        parts.append(_table(_grouped_head(), rows, result.panel.title, "settings grouped"))
    return [*parts, _paragraph(figures.cost_caption(made[0].rows, claims.PAPER_UNIT), "small")]


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
    left = "".join(f'<th rowspan="2">{name}</th>' for name in ("method", "settings"))
    return f'<tr>{left}{groups}<th rowspan="2">least error</th></tr><tr>{targets}</tr>'


def _grouped_row(row: CostRow) -> str:
    # The number of trials that reached a target is the same in every unit: once is enough.
    first, *others = [figures.cost_cells(row, unit) for _, unit in GROUPS]
    costs = [*first, *(text.partition(" (")[0] for group in others for text in group)]
    return _row(_cells(row, costs), css="ours" if row.method.label == claims.OURS else "")


def _cells(row: CostRow, costs: Sequence[str]) -> list[str]:
    return [row.method.label, row.method.words, *costs, f"{row.floor:.1e}"]


def _solved_table(made: Sequence[PanelResult]) -> str:
    lines = []
    for label, each in claims.problems_solved([result.rows for result in made]).items():
        cells = [f"{count} of {len(made)}" + (f" ({rounds:,.0f})" if count else "") for count, rounds in each]
        lines.append(_row([label, *cells]))
    return _table(_row(("method", *(f"to {goal(target)}" for target in TARGETS)), "th"), lines)


# HTML. Whatever becomes part of a page is escaped here, except what this file has written itself.


def _page(title: str, body: Sequence[str]) -> str:
    """A whole page under this heading."""
    meta = '<meta charset="utf-8">\n<meta name="viewport" content="width=device-width, initial-scale=1">'
    style = files("eigenmesh.experiments").joinpath("page.css").read_text(encoding="utf-8")
    head = f"<head>\n{meta}\n<title>{escape(title)}</title>\n<style>{style}</style>\n</head>"
    content = "\n".join([f"<h1>{escape(title)}</h1>", *body])
    return f'<!DOCTYPE html>\n<html lang="en">\n{head}\n<body>\n{content}\n</body>\n</html>\n'


def _facts(entries: Mapping[str, str]) -> str:
    """Names and values as a list of definitions."""
    return f"<dl>{''.join(f'<dt>{escape(name)}</dt><dd>{escape(value)}</dd>' for name, value in entries.items())}</dl>"


def _paragraph(words: str, css: str = "") -> str:
    return f'<p class="{css}">{escape(words)}</p>'


def _picture(axis: figures.Axis, words: str) -> str:
    """A plot as a separate image, so that the ids of two pictures cannot clash."""
    data = base64.b64encode(figures.panel_svg(axis)).decode()
    return f'<figure><img alt="{escape(words)}" src="data:image/svg+xml;base64,{data}"></figure>'


def _pictures(made: Sequence[PanelResult]) -> str:
    """The plots of panels, next to each other if there is room."""
    shown = []
    for result in made:
        labels = ", ".join(line.method.label for line in result.lines)
        shown.append(_picture(result.axis, f"{result.panel.title}: error against rounds of {labels}"))
    return f'<div class="pictures">{"".join(shown)}</div>'


def _table(head: str, rows: Iterable[str], caption: str = "", css: str = "") -> str:
    """A table that scrolls on narrow screens."""
    title = f"<caption>{escape(caption)}</caption>" if caption else ""
    inside = f"{title}<thead>{head}</thead><tbody>{''.join(rows)}</tbody>"
    return f'<div class="scroll"><table class="{css}">{inside}</table></div>'


def _row(cells: Sequence[str], kind: str = "td", css: str = "") -> str:
    """A row of a table from plain text."""
    inside = "".join(f"<{kind}>{escape(text)}</{kind}>" for text in cells)
    return f'<tr class="{css}">{inside}</tr>'
