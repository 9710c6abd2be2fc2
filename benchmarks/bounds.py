"""How far fits are from what no method can go below: products, words and rounds.

Run it with ``make bench-bounds``; the rows of MNIST and HapMap3 need EIGENMESH_DATA.
"""

from __future__ import annotations

import sys
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
from rich.console import Console
from rich.table import Table
from scipy.sparse.linalg import LinearOperator, eigsh

from eigenmesh import DecentralizedPCA, compare, graphs, run
from eigenmesh.averaging import Factored, Polynomial, Tree
from eigenmesh.data import Formed, load
from eigenmesh.errors import UnreadableFileError
from eigenmesh.networks import Stacked
from eigenmesh.solvers import BlockKrylov

console = Console(width=130)
EPSILONS = (1e-1, 1e-2, 1e-3, 1e-4)
SIZES = (250, 500, 1000)
SEEDS = range(5)
NODES, ANGLE = 20, 1e-6


@dataclass(frozen=True)
class Counted(Formed):
    """A covariance that counts the vectors that it is multiplied with."""

    vectors: ClassVar[int] = 0

    def apply(self, X: Any) -> Any:
        Counted.vectors += X.shape[-1]
        return super().apply(X)


def table(title: str, *headings: str) -> Table:
    made = Table(title=title)
    for heading in headings:
        made.add_column(heading, justify="right")
    return made


def beyond(v: np.ndarray, x: np.ndarray) -> np.ndarray:
    """The part of x that is orthogonal to v."""
    return x.ravel() - (v @ x.ravel()) * v


def products_to(singular: np.ndarray, seed: int) -> dict[float, int]:
    """Products with C = A^T A until |A (I - v v^T)| <= (1 + eps) sigma_2, for a random A with these singular values."""
    d = len(singular)
    alone = Stacked(graphs.metropolis(graphs.topologies.complete(1)), Tree())
    Counted.vectors, found = 0, {}

    def look(estimate: np.ndarray) -> None:
        # A is diagonal: a random start makes any orthogonal basis as good as another.
        v = estimate[:, 0] / np.linalg.norm(estimate[:, 0])
        away = LinearOperator((d, d), matvec=lambda x: beyond(v, singular**2 * beyond(v, x)))
        ratio = float(np.sqrt(eigsh(away, k=1, which="LA", tol=1e-7, v0=np.ones(d))[0][0])) / singular[1]
        for eps in EPSILONS:
            if ratio <= 1 + eps:
                found.setdefault(eps, Counted.vectors)

    covariance = Counted(np.diag(singular**2)[np.newaxis])
    run(BlockKrylov(), covariance, alone, 1, tol=1e-6, check_every=1, seed=seed, on_estimate=look)
    return found


def products() -> None:
    made = table(
        "Vectors multiplied with C, K = 1, Gaussian d x d matrices (mean of 5); in brackets times sqrt(eps) / ln d",
        "d",
        *(f"eps = {eps:g}" for eps in EPSILONS),
    )
    for d in SIZES:
        runs = []
        for seed in SEEDS:
            A = np.random.default_rng(seed).standard_normal((d, d))
            runs.append(products_to(np.linalg.svd(A, compute_uv=False), seed))
        means = [np.mean([one[eps] for one in runs]) for eps in EPSILONS]
        cells = [f"{mean:.0f} ({mean * eps**0.5 / np.log(d):.2f})" for mean, eps in zip(means, EPSILONS, strict=True)]
        made.add_row(f"{d:,}", *cells)
    console.print(made)


def problems() -> list[tuple[str, np.ndarray, Any, int]]:
    """Name, samples, their nodes and K."""
    digits = load("digits")
    found = [("digits", digits.X, np.arange(len(digits.X)) % NODES, 5)]
    for name, k in (("mnist", 10), ("hapmap3", 5)):
        try:
            one = load(name)
        except UnreadableFileError:
            console.print(f"{name} was not found (set EIGENMESH_DATA): left out.")
            continue
        nodes = one.labels if name == "hapmap3" else np.arange(one.n_samples) % NODES
        found.append((name, np.asarray(one.X, dtype=float), nodes, k))
    return found


def overhead() -> None:
    made = table(
        "Products until the error is 1e-12, an angle of 1e-6, and until this is certified; block Krylov over a tree",
        "data",
        "K",
        "products needed",
        "products made",
        "words / (M d K)",
        "one sum: words / (M d K)",
        "rounds / (products x diameter)",
    )
    for name, X, nodes, k in problems():
        pca = DecentralizedPCA(k, solver="block-krylov", averaging="tree", random_state=0).fit(X, nodes=nodes)
        m, d = pca.n_nodes_, X.shape[1]
        # The same start, with the error after every product.
        curve = compare(X, ["block-krylov"], k, nodes=nodes, averaging="tree", random_state=0).curves[0]
        needed = int(curve.cost_to_reach(ANGLE**2, "iterations"))
        spent = pca.result_.traffic_by_phase["iterations"]
        words, least = pca.traffic_.bytes / 8, m * d * k
        whole = 2 * (m - 1) * d * (d + 1) / 2
        graph = pca.weights_.spectrum
        made.add_row(
            name,
            str(k),
            str(needed),
            str(pca.n_iter_),
            f"{words / least:.1f}",
            f"{whole / least:.1f}",
            f"{spent.rounds / (pca.n_iter_ * graph.diameter):.2f}",
        )
    console.print(made)


def rounds() -> None:
    made = table(
        f"Rounds of one exact average over {NODES} nodes",
        "graph",
        "diameter: the least",
        "factored",
        "polynomial",
        "tree",
    )
    for name in ("complete", "star", "erdos_renyi", "hypercube", "grid", "cycle", "path"):
        n_nodes = 16 if name == "hypercube" else NODES
        weights = graphs.metropolis(graphs.topology(name, n_nodes, seed=0))
        taken = [str(kind().prepare(weights).rounds) for kind in (Factored, Polynomial, Tree)]
        made.add_row(f"{name}, {n_nodes}", str(weights.spectrum.diameter), *taken)
    console.print(made)


PARTS = {"products": products, "overhead": overhead, "rounds": rounds}

if __name__ == "__main__":
    for part in sys.argv[1:] or PARTS:
        PARTS[part]()
