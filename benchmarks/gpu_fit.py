"""A whole fit on one GPU against pooled covariance and ``torch.linalg.eigh`` on the same card.

Run it with ``python benchmarks/gpu_fit.py`` on a machine with a CUDA device. Both sides start from the same CUDA
tensor, or from the same NumPy array; they take turns, and the times are medians. The fit has 20 nodes, and its time
includes the split, the network, the moments, the covariances, the run and its certificate.
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

from eigenmesh import DecentralizedPCA

N_NODES, N_COMPONENTS, TURNS = 20, 10, 7
# Samples, features and dtype.
PROBLEMS = ((400_000, 1_024, "float64"), (400_000, 1_024, "float32"), (50_000, 8_192, "float32"))

console = Console(width=118)


def samples(torch, n: int, d: int, dtype: str):
    """Samples (n, d) on the GPU with the distribution of ``gpu.py``: K well separated axes, and a tail."""
    torch.manual_seed(0)
    tail = np.geomspace(1e-2, 1e-4, d - N_COMPONENTS)
    deviations = torch.asarray(np.sqrt(np.concatenate([np.linspace(1, 0.2, N_COMPONENTS), tail])), device="cuda")
    axes = torch.linalg.qr(torch.randn(d, d, device="cuda", dtype=torch.float64))[0]
    X = torch.randn(n, d, device="cuda", dtype=torch.float64)
    return ((X * deviations) @ axes.T + 0.1).to(getattr(torch, dtype))


def pooled(torch, X):
    """Eigenvectors of the pooled covariance, on the card: (d, K)."""
    X = torch.asarray(X, device="cuda")
    centred = X - X.mean(dim=0)
    vectors = torch.linalg.eigh(centred.T @ centred / (len(X) - 1)).eigenvectors
    return vectors[:, -N_COMPONENTS:].flip(1).cpu()


def fitted(X, **settings) -> DecentralizedPCA:
    return DecentralizedPCA(N_COMPONENTS, n_nodes=N_NODES, device="cuda", **settings).fit(X)


def seconds(calls: dict[str, Callable[[], object]]) -> dict[str, float]:
    """Median time over the turns, after one to warm up; every call ends with its result in NumPy or on the CPU."""
    taken: dict[str, list[float]] = {name: [] for name in calls}
    for turn in range(TURNS + 1):
        for name, call in calls.items():
            began = time.perf_counter()
            call()
            if turn:
                taken[name].append(time.perf_counter() - began)
    return {name: median(times) for name, times in taken.items()}


def sine(first: np.ndarray, second: np.ndarray) -> float:
    """Largest sine of an angle between two sets of rows of norm one."""
    along = np.sum(first * second, axis=1, keepdims=True)
    return float(np.linalg.norm(first - along * second, axis=1).max())


def main() -> None:
    try:
        import torch
    except ImportError:
        sys.exit("benchmarks/gpu_fit.py needs PyTorch: pip install 'eigenmesh[torch]'.")
    if not torch.cuda.is_available():
        sys.exit(f"benchmarks/gpu_fit.py needs a CUDA device; PyTorch {torch.__version__} sees none here.")
    table = Table(title=f"fit of {N_NODES} nodes, K = {N_COMPONENTS}, on {torch.cuda.get_device_name()}")
    for heading in ("samples", "from", "covariance + eigh", "fit", "ratio", "held as", "bound", "sine to float64"):
        table.add_column(heading, justify="right")
    for n, d, dtype in PROBLEMS:
        X = samples(torch, n, d, dtype)
        truth = pooled(torch, X.double()).numpy().T
        here = X.cpu().numpy()
        for place, data in (("CUDA tensor", X), ("NumPy array", here)):
            taken = seconds({"peer": partial(pooled, torch, data), "ours": partial(fitted, data)})
            pca = fitted(data)
            table.add_row(
                f"{n:,} x {d:,} {dtype}",
                place,
                *(f"{1e3 * taken[name]:.0f} ms" for name in ("peer", "ours")),
                f"{taken['ours'] / taken['peer']:.2f}",
                pca.fitted_.choice.kind,
                f"{pca.certificate_.error_bound:.1e}",
                f"{sine(pca.components_, truth):.1e}",
            )
        del X, here
        torch.cuda.empty_cache()
    console.print(table)


if __name__ == "__main__":
    main()
