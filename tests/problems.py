"""Problems with known answers, shared by the tests."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from eigenmesh import graphs
from eigenmesh.data import Formed, Shards, build_covariance, pooled_moments
from eigenmesh.data.datasets import gaussian, unlike_nodes
from eigenmesh.networks import Stacked

GRAPHS = ("erdos_renyi", "cycle", "path", "star", "complete")


@dataclass(frozen=True)
class Problem:
    """Samples at nodes, the pooled truth and a network."""

    parts: list[np.ndarray]
    network: Stacked
    values: np.ndarray
    vectors: np.ndarray

    @property
    def pooled(self) -> np.ndarray:
        return np.vstack(self.parts)

    def covariance(self, **settings):
        shards = Shards.from_list(self.parts)
        return build_covariance(shards, pooled_moments(shards, self.network), **settings)


def make_problem(
    spectrum: np.ndarray,
    n_nodes: int = 8,
    topology: str = "erdos_renyi",
    seed: int = 0,
    unlike: bool = False,
    samples: int = 300,
    averaging=None,
) -> Problem:
    """Unequal nodes, non-zero mean; like or unlike covariances."""
    rng = np.random.default_rng(seed)
    sizes = rng.integers(samples // 2, 2 * samples, size=n_nodes).tolist()
    if unlike:
        parts = unlike_nodes(spectrum, sizes, seed)
    else:
        rows = gaussian(spectrum, sum(sizes), seed)
        parts = np.split(rows, np.cumsum(sizes)[:-1])
    mean = rng.normal(scale=3.0, size=len(spectrum))
    return from_parts([part + mean for part in parts], topology, seed, averaging)


def from_parts(parts: list[np.ndarray], topology: str = "erdos_renyi", seed: int = 0, averaging=None) -> Problem:
    values, vectors = truth(np.vstack(parts))
    weights = graphs.metropolis(graphs.topology(topology, len(parts), seed=seed))
    return Problem(parts, Stacked(weights, averaging), values, vectors)


def truth(X: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Eigenvalues (largest first) and eigenvectors (d, d) of the pooled sample covariance."""
    values, vectors = np.linalg.eigh(np.cov(X, rowvar=False))
    return values[::-1], vectors[:, ::-1]


def random_covariances(n_nodes: int, d: int, seed: int, spread: float = 1.0) -> Formed:
    """Unlike covariances drawn at random, without data behind them."""
    rng = np.random.default_rng(seed)
    factors = rng.standard_normal((n_nodes, d, d)) * np.exp(spread * rng.standard_normal((n_nodes, 1, d)) / 2)
    return Formed(factors @ np.swapaxes(factors, -1, -2) / d)


def one_large_node() -> Formed:
    """Covariances (10, 8, 8) of which one holds nearly all the variance, in directions of its own."""
    C = 0.05 * random_covariances(10, 8, seed=2).matrices
    factor = np.random.default_rng(0).standard_normal((8, 8)) * np.array([5, 4, 1, 1, 1, 1, 1, 1.0])
    C[0] += factor @ factor.T
    return Formed(C)


def angles(components: np.ndarray, vectors: np.ndarray) -> np.ndarray:
    """Sines of the angles between rows of components (..., K, d) and the first K columns of vectors: (..., K)."""
    q = vectors[:, : components.shape[-2]].T
    along = np.sum(components * q, axis=-1, keepdims=True)
    return np.linalg.norm(components - along * q, axis=-1) / np.linalg.norm(components, axis=-1)


def with_spectrum(values, n_nodes: int = 5, seed: int = 0, unlike: float = 0.05) -> tuple[Formed, np.ndarray]:
    """Node covariances that differ but average to exactly these eigenvalues, and their axes (d, d)."""
    rng = np.random.default_rng(seed)
    d = len(values)
    Q = np.linalg.qr(rng.standard_normal((d, d)))[0]
    C = np.broadcast_to((Q * np.asarray(values, dtype=float)) @ Q.T, (n_nodes, d, d)).copy()
    change = rng.standard_normal((d, d)) * unlike
    C[0] += change + change.T
    C[1] -= change + change.T
    return Formed(C), Q
