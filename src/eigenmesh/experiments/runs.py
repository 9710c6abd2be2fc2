"""Run the methods of experiments, in several processes, and store each run when it finishes."""

from __future__ import annotations

import hashlib
import os
import threading
import time
import zipfile
import zlib
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures.process import BrokenProcessPool
from dataclasses import dataclass, replace
from functools import cache
from itertools import groupby
from pathlib import Path
from typing import Any, NamedTuple, TypeAlias

import numpy as np
from joblib import Parallel, delayed

from eigenmesh.arrays import Array
from eigenmesh.atomic_write import save_arrays
from eigenmesh.data.datasets import CIFAR10, MNIST, find_archive
from eigenmesh.errors import EigenmeshError, UnreadableFileError
from eigenmesh.events import EventLog, Record
from eigenmesh.experiments.experiment import Experiment, Method, Panel, TrialRun
from eigenmesh.experiments.problems import Comparison, make_comparison
from eigenmesh.fitting import fit
from eigenmesh.networks import Bound, Stacked, Traffic

# Error against cost of one run of one method, and the folder that stores finished runs.


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
        place = np.searchsorted(self.cost(unit), costs, side="right") - 1
        return np.where(place >= 0, self.error[np.maximum(place, 0)], np.nan)


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

    def path(self, run: TrialRun) -> Path:
        """File of a run, named after panel, method and trial, with a digest of all settings."""
        digest = hashlib.sha256(run.description().encode()).hexdigest()[:16]
        return self.folder / f"{run.panel.name}-{run.method.name}-trial{run.trial}-{digest}.npz"

    def load(self, run: TrialRun) -> Curve | None:
        """The curve of a run; None if the file does not exist or is damaged."""
        try:
            with open(self.path(run), "rb") as file, np.load(file, allow_pickle=False) as arrays:
                return Curve(*(arrays[name] for name in Curve._fields))
        except (OSError, ValueError, KeyError, EOFError, zipfile.BadZipFile, zlib.error):
            return None

    def save(self, run: TrialRun, curve: Curve) -> None:
        save_arrays(self.path(run), curve._asdict())


Results: TypeAlias = dict[TrialRun, Curve]
# Called with each finished run.
Report: TypeAlias = Callable[[TrialRun], Any]

ARCHIVES = {"mnist": MNIST, "cifar10": CIFAR10}
# Sine at which a run ends: far below the square root of the smallest target.
TOL = 1e-8
# Checks per run: too few to take slow progress for a stall, enough to end a diverged run early.
CHECKS = 40


class UncountedChecks(Stacked):
    """A network that counts mixing, but not maxima and exact averages.

    The published methods run without checks. Here they are checked, to end runs that have converged or diverged.
    Only the checks and the certificate use maxima and averages, and they must not count as the method's cost.
    """

    def maximum(self, values: Array) -> Array:
        return self._reduced_maximum(values)

    def mean(self, array: Array, bound: Bound = None) -> Array:
        with self.meter.paused():
            return super().mean(array, bound)


def needs_no_checks(method: Method) -> bool:
    """Whether no setting of the method is chosen from its iterates."""
    return method.solver.traits.fixed_schedule and "auto" not in method.settings.values()


def follow(method: Method, comparison: Comparison, rounds: int, events: EventLog | None = None) -> Curve:
    """Run a method until it converges, diverges or is out of rounds, and record its error after every iteration.

    A centralised method runs on one node that has the pooled covariance. Methods that need checks, for a setting
    "auto" or for their schedule, are checked as in any run, and their checks are counted.
    """
    prepared = comparison.centralised if method.centralised else comparison.prepared
    uncounted = needs_no_checks(method)
    network = (UncountedChecks if uncounted else Stacked)(prepared.network.weights, prepared.averaging)
    request = replace(prepared.request, tol=TOL, max_rounds=rounds)
    fitted = fit(
        replace(prepared, request=request, solver=method.solver, network=network, set_up=Traffic()),
        comparison.start,
        events=events,
        reference=comparison.truth,
        check_every=max(1, rounds // CHECKS) if uncounted else None,
    )
    return thinned(curve_of(fitted.result.history, method.centralised))


def runs_of(experiment: Experiment, trials: int, seed: int) -> list[TrialRun]:
    """All runs of an experiment; those that share data are adjacent."""
    panels = [(panel, trial) for panel in experiment.panels for trial in range(trials)]
    return [TrialRun(panel, method, seed, trial) for panel, trial in panels for method in panel.methods]


def missing_data(panels: Iterable[Panel]) -> dict[str, str]:
    """Data sets of the panels that cannot be loaded, with the message that says where to put each."""
    names = {panel.data.name for panel in panels}
    missing = {}
    for name in sorted(names & ARCHIVES.keys()):
        try:
            find_archive(ARCHIVES[name])
        except UnreadableFileError as error:
            missing[name] = str(error)
    return missing


def kept_runs(runs: Sequence[TrialRun], store: Store) -> Results:
    """The runs that are stored already, with their curves."""
    return {run: curve for run in runs if (curve := store.load(run)) is not None}


def make_runs(runs: Sequence[TrialRun], store: Store, jobs: int, report: Report) -> None:
    """Carry out and store runs in ``jobs`` processes, which share the cores for linear algebra.

    The runs of one trial stay in one process, because they share its data.
    """
    batches = [list(batch) for _, batch in groupby(runs, key=lambda run: (run.panel, run.seed, run.trial))]
    made = Parallel(min(jobs, len(batches)) or 1, return_as="generator_unordered")
    try:
        for batch in made(delayed(_make_batch)(batch, store, os.getpid()) for batch in batches):
            for run in batch:
                report(run)
    except BrokenProcessPool as error:
        message = "a worker process died, perhaps out of memory; run again with fewer --jobs. Finished runs are kept."
        raise EigenmeshError(message) from error


def _make_batch(batch: list[TrialRun], store: Store, starter: int) -> list[TrialRun]:
    """Carry out the runs of one trial of a panel, which share one problem, in a worker of a process or in itself."""
    if os.getpid() != starter:
        _end_with(starter)
    panel, _, seed, trial = batch[0]
    try:
        comparison = make_comparison(panel, seed, trial)
        for run in batch:
            store.save(run, follow(run.method, comparison, panel.rounds))
    except EigenmeshError as error:
        # Some of our errors take more arguments than the message, so pickle cannot rebuild them.
        raise EigenmeshError(str(error)) from None
    return batch


@cache
def _end_with(parent: int) -> None:
    """End this worker when its parent has ended: a parent that was killed cannot end its workers."""

    def guard() -> None:
        while os.getppid() == parent:
            time.sleep(1)
        os._exit(1)

    threading.Thread(target=guard, daemon=True).start()
