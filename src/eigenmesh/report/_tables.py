"""Tables for the terminal."""

from collections.abc import Sequence

import numpy as np
from rich import box
from rich.table import Table

from eigenmesh._text import readable_bytes
from eigenmesh.averaging import Chebyshev, Gossip, Polynomial, Tree
from eigenmesh.certificate import Certificate
from eigenmesh.experiments._claims import Finding
from eigenmesh.experiments._curves import TARGETS, goal
from eigenmesh.experiments._tables import NEVER, CostRow, cell
from eigenmesh.fitting._planner import Plan
from eigenmesh.graphs import Weights
from eigenmesh.networks import Traffic

# Rows of a table of components; output files have all of them.
LONGEST = 20


def components_table(certificate: Certificate, total_variance: float, true_sines: np.ndarray | None = None) -> Table:
    """One row per component: variance, share and bound on its angle to the true component.

    true_sines: (K,) largest true sin(angle) over the nodes, if known.
    """
    truth = [] if true_sines is None else ["true sin(angle)"]
    table = new_table("component", "variance", "share", "so far", "sin(angle) at most", *truth)
    shares = certificate.values / total_variance
    for k, value in enumerate(certificate.values[:LONGEST]):
        sines = [certificate.error_bounds[k], *([] if true_sines is None else [true_sines[k]])]
        cells = [str(k + 1), f"{value:.6g}", f"{shares[k]:.2%}", f"{shares[: k + 1].sum():.2%}"]
        table.add_row(*cells, *(f"{sine:.1e}" for sine in sines))
    if len(certificate.values) > LONGEST:
        table.caption = f"and {len(certificate.values) - LONGEST} more"
    return table


def traffic_table(traffic: Traffic, phases: dict[str, Traffic]) -> Table:
    """Traffic by phase, and in all."""
    table = new_table("sent for", "rounds", "messages", "matrices", "payload", left=1)
    for name, spent in (*phases.items(), ("all", traffic)):
        if name == "all":
            table.add_section()
        counts = [f"{count:,}" for count in (spent.rounds, spent.messages, spent.matrices)]
        table.add_row(name, *counts, readable_bytes(spent.bytes), style="bold" if name == "all" else None)
    return table


def sites_table(rows: dict[str, tuple[str, ...]]) -> Table:
    table = new_table("site", "sin(angle) at most", "true sin(angle)", "messages sent", "payload", left=1)
    for name, cells in rows.items():
        table.add_row(name, *cells)
    return table


def averaging_table(weights: Weights) -> Table:
    """Rounds and messages of one average over a network, for each averaging method."""
    table = new_table("one average by", "to accuracy", "rounds", "messages", left=1)
    kinds = (("plain gossip", Gossip), ("Chebyshev", Chebyshev), ("polynomial", Polynomial))
    averages = [(name, f"{accuracy:g}", kind(accuracy)) for name, kind in kinds for accuracy in (1e-6, 1e-12)]
    for name, accuracy, averaging in (*averages, ("tree", "exact", Tree())):
        average = averaging.prepare(weights)
        table.add_row(name, accuracy, f"{average.rounds:,}", f"{average.messages:,}")
    return table


def facts_table(facts: dict[str, str]) -> Table:
    """Names on the left, values on the right, no lines."""
    table = Table.grid(padding=(0, 2))
    table.add_column(style="bold")
    table.add_column(overflow="fold")
    for name, value in facts.items():
        table.add_row(name, value)
    return table


def new_table(*headings: str, left: int = 0) -> Table:
    """An empty table; the first columns are aligned to the left, the others to the right."""
    table = Table(box=box.SIMPLE_HEAD, header_style="bold", pad_edge=False)
    for number, heading in enumerate(headings):
        table.add_column(heading, justify="left" if number < left else "right")
    return table


def plan_table(plan: Plan, everything: bool = False) -> Table:
    """Forecast cost of each solver with its best averaging or with all of them, cheapest first; the taken line too."""
    table = new_table("solver", "averaging", "rounds", "payload", "memory", "seconds", "", left=2)
    table.collapse_padding = True
    for column in table.columns:
        column.no_wrap = True
    table.caption = "* shows covariances to neighbours: only on request"
    if any(not np.isfinite(line.rounds) for line in plan.forecasts):
        table.caption += f"\n> {plan.max_rounds:,}: not within {plan.max_rounds:,} rounds"
    seen: set[str] = set()
    for line in plan.forecasts:
        taken = line is plan.best
        if line.solver in seen and not everything and not taken:
            continue
        seen.add(line.solver)
        rounds, payload, seconds = f"> {plan.max_rounds:,}", "-", "-"
        if np.isfinite(line.rounds):
            rounds, payload, seconds = f"{line.rounds:,.0f}", readable_bytes(line.bytes), f"{line.seconds:,.3g}"
        name = f"{line.solver} *" if line.shows_covariances else line.solver
        cells = (name, line.averaging, rounds, payload, readable_bytes(line.memory_bytes), seconds)
        table.add_row(*cells, "taken" if taken else "", style="bold" if taken else None)
    return table


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


def claims_table(findings: Sequence[Finding]) -> Table:
    """One row per claim: its verdict as the paper counts, and counted equally."""
    table = new_table("claim", "as the paper counts", "counting every matrix", left=3)
    for finding in findings:
        equal = finding.equal_verdict
        table.add_row(finding.claim, finding.verdict.value, "not about cost" if equal is None else equal.value)
    return table
