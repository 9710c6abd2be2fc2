"""Tables for the terminal."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import numpy as np
from rich import box
from rich.console import Console
from rich.table import Table

from eigenmesh.averaging import Chebyshev, Gossip, Polynomial, Tree
from eigenmesh.certificate import Certificate
from eigenmesh.events import Entry, Listener, Record, Started
from eigenmesh.fitting import Plan
from eigenmesh.graphs import Weights
from eigenmesh.networks import Traffic
from eigenmesh.report.notebook import notebook, notebook_progress
from eigenmesh.words import readable_bytes

# Rows of a table of components; output files have all of them.
LONGEST = 20
# Features of each component in the table of loadings.
LOADINGS = 6


def components_table(certificate: Certificate, total_variance: float, true_sines: np.ndarray | None = None) -> Table:
    """One row per component: variance, share and bound on its angle to the true component.

    true_sines: (K,) largest true sin(angle) over the nodes, if known.
    """
    head = ["component", "variance", "share", "so far", "sin(angle) at most"]
    sines, shares = [certificate.error_bounds], certificate.values / total_variance
    if true_sines is not None:
        head, sines = [*head, "true sin(angle)"], [*sines, true_sines]
    rows = []
    for k, value in enumerate(certificate.values[:LONGEST]):
        cells = [str(k + 1), f"{value:.6g}", f"{shares[k]:.2%}", f"{shares[: k + 1].sum():.2%}"]
        rows.append([*cells, *(f"{each[k]:.1e}" for each in sines)])
    more = len(certificate.values) - LONGEST
    return new_table(*head, rows=rows, caption=f"and {more} more" if more > 0 else None)


def loadings_table(loadings: list[dict[str, float]]) -> Table:
    """One row per component: its largest loadings."""
    shown = [list(weights.items())[:LOADINGS] for weights in loadings[:LONGEST]]
    lines = [", ".join(f"{name} {weight:+.3f}" for name, weight in each) for each in shown]
    table = new_table("component", "largest loadings", left=2, rows=[(str(k), line) for k, line in enumerate(lines, 1)])
    table.columns[1].overflow = "fold"
    return table


def traffic_table(traffic: Traffic, phases: dict[str, Traffic]) -> Table:
    """Traffic by phase, and in all."""

    def cells(name: str, spent: Traffic) -> list[str]:
        counts = [f"{count:,}" for count in (spent.rounds, spent.messages, spent.matrices)]
        return [name, *counts, readable_bytes(spent.bytes)]

    head = ("sent for", "rounds", "messages", "matrices", "payload")
    table = new_table(*head, left=1, rows=[cells(name, spent) for name, spent in phases.items()])
    table.add_section()
    table.add_row(*cells("all", traffic), style="bold")
    return table


def averaging_table(weights: Weights) -> Table:
    """Rounds and messages of one average over a network, for each averaging method that its weights allow."""
    mixing = (("plain gossip", Gossip), ("Chebyshev", Chebyshev), ("polynomial", Polynomial))
    kinds = mixing if weights.averages else ()
    averages = [(name, f"{accuracy:g}", kind(accuracy)) for name, kind in kinds for accuracy in (1e-6, 1e-12)]
    rows = []
    for name, accuracy, averaging in (*averages, ("tree", "exact", Tree())):
        average = averaging.prepare(weights)
        rows.append((name, accuracy, f"{average.rounds:,}", f"{average.messages:,}"))
    return new_table("one average by", "to accuracy", "rounds", "messages", left=1, rows=rows)


def facts_table(facts: dict[str, str]) -> Table:
    """Names on the left, values on the right, no lines."""
    table = Table.grid(padding=(0, 2))
    table.add_column(style="bold")
    table.add_column(overflow="fold")
    for name, value in facts.items():
        table.add_row(name, value)
    return table


def new_table(
    *headings: str, left: int = 0, rows: Iterable[Sequence[str]] = (), narrow: bool = False, **looks: Any
) -> Table:
    """A table with these rows; the first columns are aligned to the left, the others to the right.

    A ``narrow`` one fits into 80 columns. ``looks`` are further properties of a ``rich.table.Table``.
    """
    table = Table(box=box.SIMPLE_HEAD, header_style="bold", pad_edge=False, collapse_padding=narrow, **looks)
    for number, heading in enumerate(headings):
        table.add_column(heading, justify="left" if number < left else "right", no_wrap=narrow)
    for cells in rows:
        table.add_row(*cells)
    return table


def plan_table(plan: Plan, everything: bool = False) -> Table:
    """Forecast cost of each solver with its best averaging, or with all, cheapest first; the chosen line is marked."""
    caption = "* sums up covariances: without masks, neighbours see those of others"
    if any(not np.isfinite(line.rounds) for line in plan.forecasts):
        caption += f"\n> {plan.max_rounds:,}: not within {plan.max_rounds:,} rounds"
    head = ("solver", "averaging", "rounds", "payload", "memory", "seconds", "")
    table = new_table(*head, left=2, narrow=True, caption=caption)
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


# Live progress of a run, in the terminal or in a notebook.


@contextmanager
def live_progress(keep: bool) -> Iterator[Listener]:
    """Yield a listener that shows rounds, residual and traffic during the fit.

    In a notebook it shows the page of the run, which stays after the fit with ``keep``. Elsewhere it shows a line on
    standard error.
    """
    put = notebook()
    if put is not None:
        with notebook_progress(put, keep) as show:
            yield show
    else:
        with Console(stderr=True).status("fitting") as line:
            yield rounds_told(line.update)


def rounds_told(tell: Callable[[str], object]) -> Listener:
    """A listener that tells in words how far a fit is, after each check."""
    max_rounds, residual = 0, "-"

    def listen(entry: Entry) -> None:
        nonlocal max_rounds, residual
        event = entry.event
        if isinstance(event, Started):
            max_rounds = event.max_rounds
        elif isinstance(event, Record):
            # If the residual was not measured, the last one stays.
            residual = f"{event.residual:.1e}" if math.isfinite(event.residual) else residual
            where = f"round {event.rounds:,} of a budget of {max_rounds:,}"
            tell(f"{where}, residual {residual}, {readable_bytes(event.bytes)} sent")

    return listen
