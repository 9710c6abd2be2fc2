"""Error against cost of one run of one method, and the folder that stores finished runs."""

from __future__ import annotations

import hashlib
import zipfile
import zlib
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

import numpy as np

from eigenmesh._atomic_write import save_arrays
from eigenmesh.errors import UnreadableFileError
from eigenmesh.events import Record
from eigenmesh.experiments._settings import TrialRun

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
    """Cost so far and error (the paper's mean sin^2) after the iterations of a run, all (n,); the cost never falls.

    A method without a network counts one round and one matrix per iteration, as the paper does, and no bytes.
    The error is NaN if the iterates were lost.
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
        return float(min(self.error[np.isfinite(self.error)], default=np.nan))

    def cost_to_reach(self, target: float, unit: str) -> float:
        """Cost at which the error was first at most ``target``; infinite if never."""
        reached = np.flatnonzero(self.error <= target)
        return float(self.cost(unit)[reached[0]]) if len(reached) else np.inf

    def error_at(self, unit: str, costs: np.ndarray) -> np.ndarray:
        """Error of the last iteration within each of ``costs``; NaN before the first one."""
        return error_within(self.cost(unit), self.error, costs)


def error_within(spent: np.ndarray, error: np.ndarray, costs: np.ndarray) -> np.ndarray:
    """Last error whose cost so far (n,) is within each of ``costs``; NaN before the first one."""
    place = np.searchsorted(spent, costs, side="right") - 1
    return np.where(place >= 0, error[np.maximum(place, 0)], np.nan)


def curve_of(history: Sequence[Record], alone: bool) -> Curve:
    """Curve of a run's history; ``alone`` if the run had one node and so nothing to send."""
    # The certificate, which ends a run, is not an iteration of the method.
    history = [record for record in history if np.isnan(record.bound)]
    counts = [(record.iteration, record.rounds, record.matrices, record.bytes) for record in history]
    iterations, rounds, matrices, payload = np.array(counts, dtype=np.int64).reshape(-1, 4).T
    if alone:
        rounds = matrices = iterations
    return Curve(iterations, rounds, matrices, payload, np.array([record.error for record in history], dtype=float))


def thinned(curve: Curve) -> Curve:
    """The curve with about a thousand points at most.

    The points at which the targets and the floor were first reached are kept, so these costs stay exact.
    """
    count = len(curve.error)
    if count <= 2 * KEPT_POINTS:
        return curve
    reached = [np.flatnonzero(curve.error <= target)[:1] for target in (*TARGETS, curve.floor)]
    spaced = [np.linspace(0, count - 1, KEPT_POINTS), np.geomspace(1, count, KEPT_POINTS) - 1]
    rows = np.unique(np.rint(np.concatenate([*spaced, *reached])).astype(np.intp))
    return Curve(*(column[rows] for column in curve))


@dataclass(frozen=True)
class Store:
    """A folder of curves, each named after all settings that it depends on."""

    folder: Path

    @classmethod
    def open(cls, folder: Path) -> Store:
        """The folder, created if it does not exist."""
        try:
            folder.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise UnreadableFileError(
                f"cannot create the folder {folder}: {error.strerror}; choose another."
            ) from error
        return cls(folder)

    def path(self, run: TrialRun) -> Path:
        """File of a run, named after panel, method and trial, with a digest of all settings."""
        digest = hashlib.sha256(run.description().encode()).hexdigest()[:16]
        return self.folder / f"{run.panel.name}-{run.method.name}-trial{run.trial}-{digest}.npz"

    def load(self, run: TrialRun) -> Curve | None:
        """The curve of a run; None if the file does not exist, is damaged or belongs to another run."""
        try:
            with open(self.path(run), "rb") as file, np.load(file, allow_pickle=False) as arrays:
                if str(arrays["description"]) != run.description():
                    return None
                curve = Curve(*(arrays[name] for name in Curve._fields))
        except (OSError, ValueError, KeyError, EOFError, zipfile.BadZipFile, zlib.error):
            return None
        is_valid = len(curve.error) > 0 and all(column.shape == curve.error.shape for column in curve)
        return curve if is_valid else None

    def save(self, run: TrialRun, curve: Curve) -> None:
        save_arrays(self.path(run), {**curve._asdict(), "description": np.str_(run.description())})
