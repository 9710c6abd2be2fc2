"""Tables of costs and claims for the terminal."""

from collections.abc import Sequence

from rich import box
from rich.table import Table

from eigenmesh._text import readable_bytes
from eigenmesh.experiments._claims import Finding
from eigenmesh.experiments._curves import TARGETS, goal
from eigenmesh.experiments._tables import NEVER, CostRow, cell


def cost_table(rows: Sequence[CostRow], unit: str, title: str = "", settings: bool = True) -> Table:
    """One row per method: its cost to reach each target, and its smallest error; ``settings``: with their column."""
    heading = f"{title}: {unit} to an error of" if title else f"{unit.capitalize()} to an error of"
    table = Table(box=box.SIMPLE_HEAD, header_style="bold", title=heading, title_justify="left", padding=(0, 1, 0, 0))
    table.add_column("method", no_wrap=True)
    if settings:
        table.add_column("settings", overflow="fold")
    for target in TARGETS:
        table.add_column(goal(target), justify="right", no_wrap=True)
    table.add_column("least", justify="right", no_wrap=True)
    for row in rows:
        words = [row.method.words] if settings else []
        table.add_row(row.method.label, *words, *cost_cells(row, unit), f"{row.floor:.1e}")
    caption = cost_caption(rows, unit)
    if caption:
        table.caption, table.caption_justify = caption, "left"
    return table


def cost_cells(row: CostRow, unit: str) -> list[str]:
    """The costs of a row as text, one per target."""
    cells = [cell(row, target, unit) for target in range(len(TARGETS))]
    if unit == "bytes" and row.method.centralised:
        return [text if text.startswith(NEVER) else "none" for text in cells]
    return cells if unit != "bytes" else [_with_size(text) for text in cells]


def _with_size(text: str) -> str:
    """The number of bytes at the start of a cell, in readable units."""
    number, space, rest = text.partition(" ")
    return text if number == NEVER else f"{readable_bytes(float(number.replace(',', '')))}{space}{rest}"


def cost_caption(rows: Sequence[CostRow], unit: str) -> str:
    """Notes on how to read the numbers."""
    notes = []
    if any(cost == NEVER for row in rows for cost in cost_cells(row, unit)):
        notes.append(f"{NEVER} means never, within the budget.")
    trials = max((row.trials for row in rows), default=1)
    if trials > 1:
        notes.append(f"Medians of {trials} trials; (n/{trials}) if only n reached it.")
    alone = [row.method.label for row in rows if row.method.centralised]
    if alone:
        counted = "nothing is sent" if unit == "bytes" else "one unit per iteration, as the paper counts"
        notes.append(f"On the pooled data at a single node: {', '.join(alone)}; {counted}.")
    return " ".join(notes)


def claims_table(findings: Sequence[Finding]) -> Table:
    """One row per claim: its verdict as the paper counts, and counted equally."""
    table = Table(box=box.SIMPLE_HEAD, header_style="bold", pad_edge=False)
    for heading in ("claim", "as the paper counts", "counting every matrix"):
        table.add_column(heading)
    for finding in findings:
        equal = finding.equal_verdict
        table.add_row(finding.claim, finding.verdict.value, "not about cost" if equal is None else equal.value)
    return table
