"""Cost of each method to reach each error, over all trials."""

from __future__ import annotations

import csv
import io
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import chain, groupby
from typing import NamedTuple, Protocol

import numpy as np

from eigenmesh.experiments._curves import TARGETS, UNITS, Curve
from eigenmesh.experiments._settings import Method, Panel, TrialRun

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


class Named(Protocol):
    """A method as tables and legends show it."""

    @property
    def label(self) -> str: ...

    @property
    def name(self) -> str: ...

    @property
    def words(self) -> str:
        """Its settings."""
        ...

    @property
    def centralised(self) -> bool: ...


class ErrorCurve(Protocol):
    """Error against cost, in several units."""

    def cost(self, unit: str) -> np.ndarray: ...

    def error_at(self, unit: str, costs: np.ndarray) -> np.ndarray: ...


class Line(NamedTuple):
    """A method's line in a picture: median error over the trials, with the quartiles, all (points,)."""

    method: Named
    cost: np.ndarray
    median: np.ndarray
    lower: np.ndarray
    upper: np.ndarray


def line_of(method: Named, curves: Sequence[ErrorCurve], unit: str) -> Line:
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


def costs_csv(parts: Iterable[tuple[str, Sequence[CostRow]]]) -> str:
    """Tables as CSV, one line per part, method, unit and target; an empty cost means never."""
    numbers = ["cost", "least", "most", "reached", "trials", "floor"]
    records = [["part", "method", "settings", "centralised", "unit", "target", *numbers]]
    for part, row in ((part, row) for part, rows in parts for row in rows):
        about = [part, row.method.label, row.method.words, "yes" if row.method.centralised else "no"]
        reached = row.reached()
        for unit in UNITS:
            for target, cost, costs, count in zip(TARGETS, row.typical(unit), row.costs[unit], reached, strict=True):
                shown = [f"{value:.10g}" if np.isfinite(value) else "" for value in (cost, costs.min(), costs.max())]
                counts = [str(count), str(row.trials), f"{row.floor:.6e}"]
                records.append([*about, unit, f"{target:g}", *shown, *counts])
    return _csv(records)


def lines_csv(parts: Iterable[tuple[str, Sequence[Line]]], unit: str) -> str:
    """Lines of pictures as CSV, one line per point."""
    records = [["part", "method", "settings", unit, "median_error", "lower_quartile", "upper_quartile"]]
    for part, line in ((part, line) for part, lines in parts for line in lines):
        for cost, *errors in zip(line.cost, line.median, line.lower, line.upper, strict=True):
            numbers = [f"{cost:.6g}", *(f"{error:.6e}" for error in errors)]
            records.append([part, line.method.label, line.method.words, *numbers])
    return _csv(records)


def _csv(records: Iterable[Sequence[str]]) -> str:
    content = io.StringIO()
    csv.writer(content, lineterminator="\n").writerows(records)
    return content.getvalue()
