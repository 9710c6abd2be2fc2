"""Tables of experiments for the terminal."""

from collections.abc import Sequence

import numpy as np
from rich import box
from rich.table import Table

from eigenmesh._text import readable_bytes
from eigenmesh.experiments._claims import JudgedClaim
from eigenmesh.experiments._curves import TARGETS, goal
from eigenmesh.experiments._tables import NEVER, CostRow, cell
from eigenmesh.report._tables import new_table


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
