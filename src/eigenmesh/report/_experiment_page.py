"""The page of an experiment: figures next to the paper's statements, tables, and the verdicts on claims."""

from collections.abc import Sequence
from dataclasses import dataclass
from html import escape

from eigenmesh.experiments._claims import EQUAL_UNIT, FACTOR, OURS, PAPER_UNIT, ClaimVerdict, Evidence, JudgedClaim
from eigenmesh.experiments._curves import TARGETS, goal
from eigenmesh.experiments._settings import Experiment, Panel
from eigenmesh.experiments._tables import CostRow, Line, problems_solved
from eigenmesh.report import _page as page
from eigenmesh.report._error_picture import Axis, panel_svg
from eigenmesh.report._experiment_tables import cost_caption, cost_cells

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
