"""Experiments small enough for tests, and made-up curves with known answers."""

from __future__ import annotations

import numpy as np

from eigenmesh.experiments.claims import CostRow
from eigenmesh.experiments.experiment import DataSet, Experiment, Method, Panel
from eigenmesh.experiments.runs import Curve
from eigenmesh.solvers import DeEPCA, FastPCA, OrthogonalIteration

METHODS = (
    Method("OI", OrthogonalIteration()),
    Method("DeEPCA", DeEPCA(mixes=3)),
    Method("FAST-PCA", FastPCA(step_size=0.7)),
)


def small_panel(**changes) -> Panel:
    settings = {
        "name": "small",
        "title": "Small",
        "data": DataSet("synthetic:d=6,k=2,gap=0.5,n=200", "contiguous"),
        "topology": "cycle",
        "n_components": 2,
        "rounds": 60,
        "methods": METHODS,
        "n_nodes": 4,
    }
    return Panel(**{**settings, **changes})


def small_experiment(**changes) -> Experiment:
    return Experiment("fig1", "Small", "Words.", {"data": "made up"}, (small_panel(**changes),))


def made_up(errors, rounds=None, matrices=None) -> Curve:
    """A curve whose iterations and, unless given, rounds and matrices are 1, 2, 3, .."""
    count = np.arange(1, len(errors) + 1)
    rounds = count if rounds is None else np.asarray(rounds)
    matrices = rounds if matrices is None else np.asarray(matrices)
    return Curve(count, rounds, matrices, 8 * matrices, np.asarray(errors, dtype=float))


def made_up_row(label: str, costs, per_round: int = 1, floor: float = 1e-12) -> CostRow:
    """A row that gets to 1e-2, 1e-4, 1e-6 and 1e-10 at these rounds in one trial; infinity for never."""
    rounds = np.asarray(costs, dtype=float)[:, None]
    units = {"rounds": rounds, "matrices": per_round * rounds, "bytes": 8 * per_round * rounds, "iterations": rounds}
    end = np.array([floor])
    return CostRow(Method(label, FastPCA(step_size=0.5)), units, end, end, end)
