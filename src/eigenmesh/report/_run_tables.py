"""Tables for the terminal."""

from collections.abc import Iterable

import numpy as np
from rich import box
from rich.table import Table

from eigenmesh._text import readable_bytes
from eigenmesh.averaging import Chebyshev, Gossip, Polynomial, Tree
from eigenmesh.certificate._certify import Certificate
from eigenmesh.fitting._planner import Plan
from eigenmesh.graphs import Weights
from eigenmesh.networks import Traffic

# Rows of a table of components; output files have all of them.
LONGEST = 20


def components_table(certificate: Certificate, total_variance: float, true_sines: np.ndarray | None = None) -> Table:
    """One row per component: variance, share and bound on its angle to the true component.

    true_sines: (K,) largest true sin(angle) over the nodes, if known.
    """
    table = new_table("component", "variance", "share", "so far", "sin(angle) at most")
    if true_sines is not None:
        table.add_column("true sin(angle)", justify="right")
    shares = certificate.values / total_variance
    for k, value in enumerate(certificate.values[:LONGEST]):
        cells = [str(k + 1), f"{value:.6g}", f"{shares[k]:.2%}", f"{shares[: k + 1].sum():.2%}"]
        cells.append(f"{certificate.error_bounds[k]:.1e}")
        if true_sines is not None:
            cells.append(f"{true_sines[k]:.1e}")
        table.add_row(*cells)
    hidden = len(certificate.values) - LONGEST
    if hidden > 0:
        table.caption = f"and {hidden} more"
    return table


def traffic_table(traffic: Traffic, phases: dict[str, Traffic]) -> Table:
    """Traffic by phase, and in all."""
    table = new_table("sent for", "rounds", "messages", "matrices", "payload", left=1)
    for name, spent in phases.items():
        table.add_row(name, *_counts(spent))
    table.add_section()
    table.add_row("all", *_counts(traffic), style="bold")
    return table


def sites_table(rows: dict[str, tuple[str, ...]]) -> Table:
    """One row per site: certified bound, true angle and traffic."""
    table = new_table("site", "sin(angle) at most", "true sin(angle)", "messages sent", "payload", left=1)
    for name, cells in rows.items():
        table.add_row(name, *cells)
    return table


def averaging_table(weights: Weights, accuracies: Iterable[float] = (1e-6, 1e-12)) -> Table:
    """Rounds and messages of one average over a network, for each averaging method."""
    table = new_table("one average by", "to accuracy", "rounds", "messages", left=1)
    accuracies = tuple(accuracies)
    for name, kind in (("plain gossip", Gossip), ("Chebyshev", Chebyshev), ("polynomial", Polynomial)):
        for accuracy in accuracies:
            average = kind(accuracy).prepare(weights)
            table.add_row(name, f"{accuracy:g}", f"{average.rounds:,}", f"{average.messages:,}")
    tree = Tree().prepare(weights)
    table.add_row("tree", "exact", f"{tree.rounds:,}", f"{tree.messages:,}")
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
    for place, heading in enumerate(headings):
        table.add_column(heading, justify="left" if place < left else "right")
    return table


def _counts(traffic: Traffic) -> tuple[str, ...]:
    counts = (f"{count:,}" for count in (traffic.rounds, traffic.messages, traffic.matrices))
    return (*counts, readable_bytes(traffic.bytes))


def plan_table(plan: Plan, everything: bool = False) -> Table:
    """Forecast cost of each solver with its best averaging or with all of them, cheapest first; the taken line too."""
    table = new_table("solver", "averaging", "rounds", "payload", "memory", "seconds", "", left=2)
    table.collapse_padding = True
    for column in table.columns:
        column.no_wrap = True
    notes = ["* shows covariances to neighbours: only on request"]
    if any(not np.isfinite(line.rounds) for line in plan.forecasts):
        notes.append(f"> {plan.max_rounds:,}: not within {plan.max_rounds:,} rounds")
    table.caption = "\n".join(notes)
    seen: set[str] = set()
    for line in plan.forecasts:
        taken = line is plan.best
        if line.solver in seen and not everything and not taken:
            continue
        seen.add(line.solver)
        converges = np.isfinite(line.rounds)
        table.add_row(
            f"{line.solver}{' *' if line.shows_covariances else ''}",
            line.averaging,
            f"{line.rounds:,.0f}" if converges else f"> {plan.max_rounds:,}",
            readable_bytes(line.bytes) if converges else "-",
            readable_bytes(line.memory_bytes),
            f"{line.seconds:,.3g}" if converges else "-",
            "taken" if taken else "",
            style="bold" if taken else None,
        )
    return table
