"""Error against cost of one run of one method."""

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from eigenmesh.events import Record

# Errors (mean sin^2) whose cost is reported, largest first.
TARGETS = (1e-2, 1e-4, 1e-6, 1e-10)
UNITS = {
    "rounds": "rounds of neighbour exchange",
    "matrices": "matrices that a node sends to each neighbour",
    "bytes": "payload over all links, in bytes",
    "iterations": "iterations",
}
# Points of a curve that are kept: this many evenly spaced, and as many on a logarithmic axis.
KEPT_POINTS = 400


def goal(target: float) -> str:
    """A target as tables write it: 1e-2."""
    return f"{target:.0e}".replace("e-0", "e-")


class Curve(NamedTuple):
    """Cost so far and error after the iterations of a run, all (n,); the cost never falls.

    Attributes
    ----------
    iterations, rounds, matrices, bytes : cost. A method without a network counts one round and one matrix per
        iteration, as the paper does, and no bytes.
    error : the paper's mean sin^2; NaN if the iterates were lost.
    """

    iterations: np.ndarray
    rounds: np.ndarray
    matrices: np.ndarray
    bytes: np.ndarray
    error: np.ndarray

    def cost(self, unit: str) -> np.ndarray:
        """Cost in one of ``UNITS``."""
        values: np.ndarray = getattr(self, unit)
        return values

    @property
    def floor(self) -> float:
        """Smallest finite error; NaN if there is none."""
        seen = self.error[np.isfinite(self.error)]
        return float(seen.min()) if len(seen) else np.nan

    def cost_to_reach(self, target: float, unit: str) -> float:
        """Cost at which the error was first at most ``target``; infinite if never."""
        return first_cost(self.cost(unit), self.error, target)

    def error_at(self, unit: str, costs: np.ndarray) -> np.ndarray:
        """Error of the last iteration within each of ``costs``; NaN before the first one."""
        place = np.searchsorted(self.cost(unit), costs, side="right") - 1
        return np.where(place >= 0, self.error[np.maximum(place, 0)], np.nan)


def first_cost(cost: np.ndarray, error: np.ndarray, target: float) -> float:
    """First of ``cost`` (n,) whose ``error`` (n,) is at most ``target``; infinite if there is none."""
    reached = np.flatnonzero(error <= target)
    return float(cost[reached[0]]) if len(reached) else np.inf


def curve_of(history: Sequence[Record], alone: bool) -> Curve:
    """Curve of a run's history; ``alone`` if the run had one node and so nothing to send."""
    # The certificate, which ends a run, is not an iteration of the method.
    history = [record for record in history if np.isnan(record.bound)]
    counts = [(record.iteration, record.rounds, record.matrices, record.bytes) for record in history]
    iterations, rounds, matrices, payload = np.array(counts, dtype=np.int64).reshape(-1, 4).T
    if alone:
        rounds = matrices = iterations
    return Curve(iterations, rounds, matrices, payload, np.array([record.error for record in history], dtype=float))


def thinned(curve: Curve, targets: Sequence[float] = TARGETS) -> Curve:
    """The curve with about a thousand points at most.

    The points at which the targets and the floor were first reached are kept, so these costs stay exact.
    """
    count = len(curve.error)
    if count <= 2 * KEPT_POINTS:
        return curve
    marks = [first_cost(np.arange(count), curve.error, target) for target in [*targets, curve.floor]]
    kept = np.concatenate(
        [
            np.linspace(0, count - 1, KEPT_POINTS),
            np.geomspace(1, count, KEPT_POINTS) - 1,
            [mark for mark in marks if np.isfinite(mark)],
        ]
    )
    rows = np.unique(np.rint(kept).astype(np.intp))
    return Curve(*(column[rows] for column in curve))
