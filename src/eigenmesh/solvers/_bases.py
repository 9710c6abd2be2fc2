"""Where solvers start from: orthonormal bases that every node can draw for itself."""

import numpy as np

from eigenmesh import arrays as ea
from eigenmesh.arrays import Array


def random_basis(n_features: int, n_components: int, seed: int) -> np.ndarray:
    """Orthonormal columns drawn uniformly, the same for every node: (d, K)."""
    rng = np.random.default_rng(seed)
    Q, R = np.linalg.qr(rng.standard_normal((n_features, n_components)))
    return np.asarray(Q * np.where(np.diagonal(R) < 0, -1.0, 1.0))


def fresh_directions(basis: np.ndarray, n_columns: int, seed: int) -> np.ndarray:
    """Gaussian columns beside a basis that make it this wide, the same for every node: (d, K) -> (d, n_columns - K)."""
    d, k = basis.shape
    return np.random.default_rng([seed, k]).standard_normal((d, n_columns - k))


def gaussian_start(basis: np.ndarray, n_columns: int, seed: int) -> np.ndarray:
    """Gaussian columns in the span of ``widened``: all if the basis was drawn with the seed, else the fresh ones."""
    drawn = np.random.default_rng(seed).standard_normal(basis.shape)
    away = drawn - basis @ np.linalg.lstsq(basis, drawn)[0]
    fresh = fresh_directions(basis, n_columns, seed)
    return np.hstack([drawn, fresh]) if np.linalg.norm(away) <= 1e-6 * np.linalg.norm(drawn) else fresh


def widened(basis: np.ndarray, n_columns: int, seed: int) -> np.ndarray:
    """The basis and random directions orthogonal to it: (d, K) -> (d, n_columns), orthonormal."""
    found, R = np.linalg.qr(basis.astype(np.float64))
    found = found * np.where(np.diagonal(R) < 0, -1.0, 1.0)
    fresh = fresh_directions(basis, n_columns, seed)
    for _ in range(2):
        fresh = np.linalg.qr(fresh - found @ (found.T @ fresh))[0]
    return np.hstack([found, fresh])


def fade(sizes: Array, noise: float, largest: Array | None = None) -> Array:
    """0 for sizes at the level of noise, beside the largest that there can be, and from 100 times that on 1: (1, k).

    In between it grows evenly, so that no node decides alone. largest: a number; that of the sizes if None.
    """
    xp = ea.namespace(sizes)
    level = (64 * float(xp.finfo(sizes.dtype).eps) + 10 * noise) * (xp.max(sizes) if largest is None else largest)
    return xp.clip((sizes - level) / xp.where(level > 0, 99 * level, xp.ones_like(sizes)), 0.0, 1.0)


def faded(W: Array, noise: float, largest: Array | None = None) -> Array:
    """``P f R^T`` for ``W = P s R^T``, with f = 1 but for directions at the level of noise, which fade out: (1, w, k).

    Unlike the columns that QR makes of a block that has lost rank, it is a continuous function of W.
    """
    left, s, right = ea.namespace(W).linalg.svd(W, full_matrices=False)
    return (left * fade(s, noise, largest)[:, None, :]) @ right


def in_fixed_frame(Q: Array) -> Array:
    """Another orthonormal basis of the span of Q that depends on the span alone: (1, w, k) -> (1, w, k).

    Of all bases it is the nearest to a fixed random frame, so nodes whose last digits differ get the same one.
    """
    xp = ea.namespace(Q)
    frame = ea.like(np.random.default_rng(0).standard_normal((1, *Q.shape[1:])), Q)
    left, _, right = xp.linalg.svd(Q.mT @ frame, full_matrices=False)
    return Q @ (left @ right)
