"""Checks of the paper's claims against the measured costs."""

from __future__ import annotations

import csv
import io
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from enum import Enum
from itertools import chain, groupby
from typing import Any, NamedTuple

import numpy as np

from eigenmesh.experiments.experiment import Method, Panel, TrialRun
from eigenmesh.experiments.runs import TARGETS, UNITS, Curve, goal

# Cost of each method to reach each error, over all trials.


NEVER = "-"
# Points of a line in a picture.
LINE_POINTS = 300


@dataclass(frozen=True, eq=False)
class CostRow:
    """One method's row of a table.

    costs: by unit, (targets, trials) cost to reach each target, infinite if never. floors, halves, ends: (trials,)
    smallest error, error at half the cost of the run, and at its end.
    """

    method: Method
    costs: dict[str, np.ndarray]
    floors: np.ndarray
    halves: np.ndarray
    ends: np.ndarray

    @classmethod
    def of(cls, method: Method, curves: Sequence[Curve]) -> CostRow:
        """Row of a method from its curves, one per trial."""
        costs = {
            unit: np.array([[curve.cost_to_reach(target, unit) for curve in curves] for target in TARGETS])
            for unit in UNITS
        }
        floors = np.array([curve.floor for curve in curves])
        halves = np.array([float(curve.error_at("rounds", curve.rounds[-1:] / 2)[0]) for curve in curves])
        return cls(method, costs, floors, halves, np.array([curve.error[-1] for curve in curves]))

    @property
    def trials(self) -> int:
        return len(self.floors)

    @property
    def floor(self) -> float:
        """Median of the smallest errors."""
        return float(np.median(self.floors))

    def typical(self, unit: str) -> np.ndarray:
        """Median cost over the trials, (targets,); infinite if at least half of them never reached it."""
        return np.asarray(np.median(self.costs[unit], axis=1))

    def reached(self) -> np.ndarray:
        """Number of trials that reached each target: (targets,)."""
        return np.asarray(np.isfinite(self.costs["rounds"]).sum(axis=1))


def cost_rows(panel: Panel, results: dict[TrialRun, Curve]) -> list[CostRow]:
    """One row per method, in the panel's order; methods without a run are left out."""
    curves: dict[Method, list[Curve]] = {method: [] for method in panel.methods}
    for run, curve in results.items():
        if run.panel == panel:
            curves[run.method].append(curve)
    return [CostRow.of(method, each) for method, each in curves.items() if each]


def best_rows(rows: Iterable[CostRow]) -> list[CostRow]:
    """The best row per label: most targets reached, then the cheapest, then the lowest floor."""
    return [min(same, key=_rank) for _, same in groupby(rows, key=lambda row: row.method.label)]


def _rank(row: CostRow) -> tuple[float, ...]:
    costs = row.typical("rounds")
    reached = int(np.isfinite(costs).sum())
    return (-reached, costs[reached - 1] if reached else 0.0, row.floor if np.isfinite(row.floor) else np.inf)


def cell(row: CostRow, target: int, unit: str) -> str:
    """A cost as text, with the number of trials that reached the target if not all did."""
    cost, reached = float(row.typical(unit)[target]), int(row.reached()[target])
    number = f"{cost:,.0f}" if np.isfinite(cost) else NEVER
    return f"{number} ({reached}/{row.trials})" if 0 < reached < row.trials else number


class Line(NamedTuple):
    """A method's line in a picture: median error over the trials, with the quartiles, all (points,)."""

    method: Method
    cost: np.ndarray
    median: np.ndarray
    lower: np.ndarray
    upper: np.ndarray


def line_of(method: Method, curves: Sequence[Curve], unit: str) -> Line:
    """Errors of all trials on a common axis of costs; a run that has ended keeps its last error."""
    first = max(max(float(curve.cost(unit)[0]) for curve in curves), 1.0)
    last = max(max(float(curve.cost(unit)[-1]) for curve in curves), first)
    costs = np.unique(np.geomspace(first, last, LINE_POINTS))
    errors = np.array([curve.error_at(unit, costs) for curve in curves])
    # Lost iterates count as the largest error, 1.
    errors = np.where(np.isfinite(errors), errors, 1.0)
    lower, median, upper = np.quantile(errors, [0.25, 0.5, 0.75], axis=0)
    return Line(method, costs, median, lower, upper)


def problems_solved(tables: Sequence[Sequence[CostRow]]) -> dict[str, list[tuple[int, float]]]:
    """For each label and target: the number of problems that reached it, and the median of their rounds."""
    costs: dict[str, list[np.ndarray]] = {}
    for row in chain.from_iterable(tables):
        costs.setdefault(row.method.label, []).append(row.typical("rounds"))
    reached = {label: [column[np.isfinite(column)] for column in np.array(each).T] for label, each in costs.items()}
    return {
        label: [(len(rounds), float(np.median(rounds)) if len(rounds) else np.inf) for rounds in each]
        for label, each in reached.items()
    }


def cost_columns(parts: Iterable[tuple[str, Sequence[CostRow]]]) -> dict[str, list[Any]]:
    """Columns of a table with a row per part, solver and target: the costs in each unit, NaN for never."""
    goals = [(part, row, at) for part, rows in parts for row in rows for at in range(len(TARGETS))]
    return {
        "part": [part for part, _, _ in goals],
        **_about([row.method for _, row, _ in goals]),
        "error": [TARGETS[at] for _, _, at in goals],
        **{unit: [_or_nan(row.typical(unit)[at]) for _, row, at in goals] for unit in UNITS},
        "reached": [int(row.reached()[at]) for _, row, at in goals],
        "trials": [row.trials for _, row, _ in goals],
        "least_error": [row.floor for _, row, _ in goals],
    }


def error_columns(parts: Iterable[tuple[str, Iterable[tuple[Method, Sequence[Curve]]]]]) -> dict[str, list[Any]]:
    """Columns of a table with a row per part, solver, trial and recorded point: every cost so far, and the error."""
    runs = [(part, method, *one) for part, pairs in parts for method, each in pairs for one in enumerate(each)]
    points = [(part, method, trial) for part, method, trial, curve in runs for _ in curve.error]
    return {
        "part": [part for part, _, _ in points],
        **_about([method for _, method, _ in points]),
        "trial": [trial for _, _, trial in points],
        **{name: [value for *_, curve in runs for value in getattr(curve, name).tolist()] for name in Curve._fields},
    }


def _or_nan(cost: float) -> float:
    return float(cost) if np.isfinite(cost) else float("nan")


def _about(methods: Sequence[Method]) -> dict[str, list[Any]]:
    return {
        "solver": [method.label for method in methods],
        "settings": [method.words for method in methods],
        "centralised": [method.centralised for method in methods],
    }


def as_csv(columns: Mapping[str, Sequence[object]]) -> str:
    """A table as CSV; the cell of a number that is NaN is empty."""
    content = io.StringIO()
    writer = csv.writer(content, lineterminator="\n")
    writer.writerow(columns)
    for row in zip(*columns.values(), strict=True):
        writer.writerow([f"{cell:.10g}".replace("nan", "") if isinstance(cell, float) else cell for cell in row])
    return content.getvalue()


OURS = "FAST-PCA"
# Costs within this factor of each other count as close.
FACTOR = 2.0
# Relations between our cost and theirs. An infinite cost means that the target was never reached; at most one of the
# two is infinite.
RELATIONS: dict[str, Callable[[float, float], bool]] = {
    "ahead": lambda ours, theirs: ours < theirs,
    "close": lambda ours, theirs: ours <= FACTOR * theirs,
    "alike": lambda ours, theirs: max(ours, theirs) <= FACTOR * min(ours, theirs),
}
# A method has stopped if its error fell by less than a factor of STANDSTILL in the second half of its run. It has
# stopped short if another method's error is SHORT_OF times lower.
STANDSTILL, SHORT_OF = 2.0, 10.0
# The paper counts one unit per round, whatever is sent in it; equal counting takes one unit per matrix.
PAPER_UNIT, EQUAL_UNIT = "rounds", "matrices"


class ClaimVerdict(Enum):
    """Whether the numbers support a claim; the value is the text of a report."""

    HOLDS = "supported"
    PARTLY = "supported in part"
    FAILS = "not supported"
    OPEN = "undecided"


class Evidence(NamedTuple):
    """What one panel says about a claim."""

    panel: str
    verdict: ClaimVerdict
    words: str


@dataclass(frozen=True)
class JudgedClaim:
    """A claim about a figure, and the evidence by panel, for each unit in which its costs are counted.

    A claim that is not about cost has evidence only for the paper's unit.
    """

    claim: str
    evidence: Mapping[str, tuple[Evidence, ...]]

    def words(self, unit: str) -> str:
        """In how many panels the numbers support the claim, with costs counted in this unit."""
        if unit not in self.evidence:
            return "not about cost"
        found = Counter(each.verdict for each in self.evidence[unit])
        panels = found.total()
        if len(found) == 1:
            (verdict,) = found
            return verdict.value if panels == 1 else f"{verdict.value} in all {panels} panels"
        rest = [f"{found[verdict]} {words}" for verdict, words in BESIDES.items() if found[verdict]]
        return ", ".join([f"supported in {found[ClaimVerdict.HOLDS]} of {panels} panels", *rest])


# How the panels are counted that do not support a claim.
BESIDES = {ClaimVerdict.PARTLY: "in part", ClaimVerdict.FAILS: "against it", ClaimVerdict.OPEN: "undecided"}


def check_claims(panels: Sequence[tuple[str, Sequence[CostRow]]], nearly_equal: bool) -> list[JudgedClaim]:
    """Check the paper's claims against the rows of a figure's panels, given by title."""
    slower = ("SeqPM", "SeqDistPM", "S-DOT", "SA-DOT", *(["DeEPCA"] if nearly_equal else []))
    claims = [("FAST-PCA is close to centralised OI", "OI", "close")]
    claims += [(f"FAST-PCA is ahead of {other}", other, "ahead") for other in slower]
    if not nearly_equal:
        claims.append(("FAST-PCA does about as well as DeEPCA", "DeEPCA", "alike"))
    tables = [(title, {row.method.label: row for row in rows}) for title, rows in panels]
    findings = []
    for claim, other, relation in claims:
        both = [(title, rows[OURS], rows[other]) for title, rows in tables if {OURS, other} <= rows.keys()]
        evidence = {
            unit: tuple(Evidence(title, *compare_costs(ours, theirs, unit, relation)) for title, ours, theirs in both)
            for unit in (PAPER_UNIT, EQUAL_UNIT)
        }
        findings.append(JudgedClaim(claim, evidence))
    both = [(title, rows["DSA"], rows[OURS]) for title, rows in tables if {"DSA", OURS} <= rows.keys()]
    stops = tuple(Evidence(title, *stops_short(theirs, ours)) for title, theirs, ours in both)
    findings.append(JudgedClaim("DSA stops at a neighbourhood, and FAST-PCA gets closer", {PAPER_UNIT: stops}))
    return [finding for finding in findings if finding.evidence[PAPER_UNIT]]


def compare_costs(ours: CostRow, theirs: CostRow, unit: str, relation: str) -> tuple[ClaimVerdict, str]:
    """Whether one of ``RELATIONS`` holds between two costs at each target that either method reached."""
    pairs = zip(TARGETS, ours.typical(unit), theirs.typical(unit), strict=True)
    reached = [(target, a, b) for target, a, b in pairs if np.isfinite(a) or np.isfinite(b)]
    if not reached:
        return ClaimVerdict.OPEN, f"neither reaches {goal(TARGETS[0])}"
    good = [RELATIONS[relation](a, b) for _, a, b in reached]
    verdict = ClaimVerdict.HOLDS if all(good) else ClaimVerdict.PARTLY if any(good) else ClaimVerdict.FAILS
    return verdict, "; ".join(_compared(*entry) for entry in reached)


def _compared(target: float, ours: float, theirs: float) -> str:
    costs = [f"{cost:,.0f}" if np.isfinite(cost) else "never" for cost in (ours, theirs)]
    ratio = f" ({ours / theirs:.2g} x)" if "never" not in costs and theirs > 0 else ""
    return f"{goal(target)}: {costs[0]} against {costs[1]}{ratio}"


def stops_short(theirs: CostRow, ours: CostRow) -> tuple[ClaimVerdict, str]:
    """Whether theirs stopped improving at an error far above the one that ours reached."""
    half, end = float(np.median(theirs.halves)), float(np.median(theirs.ends))
    words = f"{theirs.method.label} {half:.1e} at half the budget, {end:.1e} at its end; "
    words += f"{ours.method.label} down to {ours.floor:.1e}"
    if end * STANDSTILL < half:
        return ClaimVerdict.OPEN, f"{words}; still falling"
    return (ClaimVerdict.HOLDS if theirs.floor > SHORT_OF * ours.floor else ClaimVerdict.FAILS), words
