"""Time of the paper's figures, against the bare products and mixes that they consist of.

Run it with ``python benchmarks/experiments.py [ROUNDS]``: one trial of each figure in one thread, with the budgets of
``eigenmesh reproduce`` or the one given. Figure 3 needs EIGENMESH_DATA; without it, a message says that it is left out.
"""

from __future__ import annotations

import resource
import sys
import time
from dataclasses import dataclass, field

import numpy as np
from rich.console import Console
from rich.table import Table
from threadpoolctl import threadpool_limits
from timing import side_by_side

from eigenmesh.experiments.catalogue import FIGURES
from eigenmesh.experiments.experiment import Experiment, Method
from eigenmesh.experiments.problems import Comparison, make_comparison
from eigenmesh.experiments.runs import Curve, follow, missing_data

console = Console(width=118)
# Solvers that work on one column at a time.
SEQUENTIAL = {"seq-pm", "seq-dist-pm"}


@dataclass
class Floor:
    """Seconds of the products C_i X and the mixes W X of one comparison, each size measured once."""

    comparison: Comparison
    known: dict[tuple[bool, int], tuple[float, float]] = field(default_factory=dict)

    def seconds(self, method: Method, curve: Curve) -> float:
        """Seconds of the run's products and mixes alone."""
        width = 1 if method.solver.name in SEQUENTIAL else self.comparison.truth.shape[1]
        key = (method.centralised, width)
        if key not in self.known:
            self.known[key] = self._measure(*key)
        product, mix = self.known[key]
        mixes = 0 if method.centralised else int(curve.matrices[-1])
        return product * int(curve.iterations[-1]) + mix * mixes

    def _measure(self, centralised: bool, width: int) -> tuple[float, float]:
        prepared = self.comparison.prepared
        C = (self.comparison.centralised if centralised else prepared).covariance.matrices
        W = prepared.network.weights.matrix
        X = np.random.default_rng(0).standard_normal((*C.shape[:2], width))
        flat = np.zeros((len(W), C.shape[1] * width))
        repeats = 200 if C.shape[1] < 100 else 2
        least = side_by_side({"product": lambda: C @ X, "mix": lambda: W @ flat}, repeats, passes=7)
        return least["product"], least["mix"]


def one_trial(experiment: Experiment) -> None:
    table = Table(title=f"{experiment.title}: one trial, {experiment.panels[0].rounds:,} rounds, one thread")
    for heading in ("method", "seconds", "bare products and mixes", "ratio"):
        table.add_column(heading, justify="right")
    spent: dict[str, np.ndarray] = {}
    preparing = 0.0
    for panel in experiment.panels:
        began = time.process_time()
        comparison = make_comparison(panel, seed=0, trial=0)
        preparing += time.process_time() - began
        floor = Floor(comparison)
        for method in panel.methods:
            began = time.process_time()
            curve = follow(method, comparison, panel.rounds)
            times = np.array([time.process_time() - began, floor.seconds(method, curve)])
            spent[method.label] = spent.get(method.label, np.zeros(2)) + times
    for label, (taken, bare) in spent.items():
        table.add_row(label, f"{taken:.2f}", f"{bare:.2f}", f"{taken / bare:.2f}")
    table.add_section()
    taken, bare = sum(spent.values())
    table.add_row("all runs", f"{taken:.2f}", f"{bare:.2f}", f"{taken / bare:.2f}", style="bold")
    table.add_row("data and truth", f"{preparing:.2f}", "", "")
    console.print(table)


if __name__ == "__main__":
    budget = int(sys.argv[1]) if len(sys.argv) > 1 else None
    with threadpool_limits(1):
        for make in FIGURES.values():
            figure = make(budget)
            gone = missing_data(figure.panels)
            if gone:
                console.print(f"{figure.title} is left out: {'; '.join(gone.values())}")
                continue
            one_trial(figure)
    console.print(f"Peak memory of this process: {resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1e6:.2f} GB.")
