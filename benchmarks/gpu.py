"""A whole network on one GPU: an iteration of FAST-PCA against the bare product, and the same answer as NumPy.

Run it with ``python benchmarks/gpu.py`` on a machine with a CUDA device. Times are medians of many turns between two
CUDA events, measured in turns.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Callable
from functools import partial
from statistics import median

import numpy as np
from rich.console import Console
from rich.table import Table

from eigenmesh import graphs, run
from eigenmesh.data import Formed
from eigenmesh.iteration.result import Result
from eigenmesh.networks import Stacked
from eigenmesh.solvers import FastPCA
from eigenmesh.solvers.base import random_basis

N_NODES, N_FEATURES, N_COMPONENTS = 20, 1024, 5
ITERATIONS_A_TURN, TURNS = 40, 60

console = Console(width=118)


def covariances() -> np.ndarray:
    """Unlike nodes: each has 600 samples of one distribution whose first axes are well separated."""
    rng = np.random.default_rng(0)
    axes = np.linalg.qr(rng.standard_normal((N_FEATURES, N_FEATURES)))[0]
    tail = np.geomspace(1e-2, 1e-4, N_FEATURES - N_COMPONENTS)
    deviations = np.sqrt(np.concatenate([np.linspace(1, 0.2, N_COMPONENTS), tail]))
    matrices = np.empty((N_NODES, N_FEATURES, N_FEATURES))
    for matrix in matrices:
        rows = (rng.standard_normal((600, N_FEATURES)) * deviations) @ axes.T
        np.divide(rows.T @ rows, 600, out=matrix)
    return (matrices + matrices.mT) / 2


def network() -> Stacked:
    return Stacked(graphs.metropolis(graphs.topologies.erdos_renyi(N_NODES, seed=0)))


def microseconds(torch, calls: dict[str, Callable[[], object]]) -> dict[str, float]:
    """Median time of one iteration, measured in turns so that a busy moment affects all equally."""
    taken: dict[str, list[float]] = {name: [] for name in calls}
    for _ in range(TURNS):
        for name, call in calls.items():
            call()
            begin, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
            begin.record()
            for _ in range(ITERATIONS_A_TURN):
                call()
            end.record()
            end.synchronize()
            taken[name].append(begin.elapsed_time(end) * 1e3 / ITERATIONS_A_TURN)
    return {name: median(times) for name, times in taken.items()}


class Chain:
    """Iterations one after the other, each from the state that the last one left."""

    def __init__(self, step: Callable[[object], object], state: object) -> None:
        self.step, self.state = step, state

    def __call__(self) -> None:
        self.state = self.step(self.state)


def times(torch, covariance: Formed) -> dict[str, float]:
    """Microseconds of the bare product, and of an iteration."""
    nodes, solver = network(), FastPCA()
    start = covariance.place(np.repeat(random_basis(N_FEATURES, N_COMPONENTS, 0)[np.newaxis], N_NODES, axis=0))
    state = solver.init(covariance, nodes, start)
    calls = {
        "product": lambda: covariance.matrices @ start,
        "iteration": Chain(partial(solver.step, covariance, nodes), state),
    }
    return microseconds(torch, calls)


def sine(first: np.ndarray, second: np.ndarray) -> float:
    """Largest sine of an angle between two sets of rows of norm one."""
    along = np.sum(first * second, axis=-1, keepdims=True)
    return float(np.linalg.norm(first - along * second, axis=-1).max())


def solved(covariance: Formed) -> tuple[Result, float]:
    """A whole run with an automatic step, and its seconds."""
    began = time.perf_counter()
    result = run(FastPCA(), covariance, network(), N_COMPONENTS)
    return result, time.perf_counter() - began


def main() -> None:
    try:
        import torch
    except ImportError:
        sys.exit("benchmarks/gpu.py needs PyTorch: pip install 'eigenmesh[torch]'.")
    if not torch.cuda.is_available():
        sys.exit(f"benchmarks/gpu.py needs a CUDA device; PyTorch {torch.__version__} sees none here.")
    size = f"M = {N_NODES}, d = {N_FEATURES}, K = {N_COMPONENTS}"
    speed = Table(title=f"FAST-PCA, {size}, on {torch.cuda.get_device_name()}")
    for heading in ("C @ X", "iteration", "ratio"):
        speed.add_column(heading, justify="right")
    answers = Table(title="The same run in NumPy and on the GPU")
    for heading in ("iterations", "stop", "sine to eigh", "NumPy's", "sine between", "NumPy", "GPU"):
        answers.add_column(heading, justify="right")
    exact = covariances()
    truth = np.linalg.eigh(exact.mean(axis=0))[1][:, ::-1][:, :N_COMPONENTS].T
    here = Formed(exact)
    there = Formed(torch.asarray(exact, device="cuda"))
    taken = times(torch, there)
    ratio = taken["iteration"] / taken["product"]
    speed.add_row(*(f"{value:.1f} us" for value in taken.values()), f"{ratio:.2f}")
    on_gpu, gpu_s = solved(there)
    on_cpu, cpu_s = solved(here)
    answers.add_row(
        f"{on_cpu.iterations}, {on_gpu.iterations}",
        f"{on_cpu.stop_reason.label}, {on_gpu.stop_reason.label}",
        *(f"{sine(result.node_components, truth):.1e}" for result in (on_gpu, on_cpu)),
        f"{sine(on_gpu.node_components, on_cpu.node_components):.1e}",
        *(f"{seconds:.2f} s" for seconds in (cpu_s, gpu_s)),
    )
    console.print(speed)
    console.print(answers)


if __name__ == "__main__":
    main()
