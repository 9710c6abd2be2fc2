"""Distances from the true components, for simulations and tests, which know them."""

import numpy as np

from eigenmesh import arrays as ea
from eigenmesh.arrays import Array

__all__ = ["largest_angle", "mean_error", "sin_squared", "subspace_angle"]


def sin_squared(X: Array, reference: Array) -> np.ndarray:
    """sin^2 of the angle between each column and the true eigenvector: (nodes, d, K), (d, K) -> (nodes, K).

    Computed as ``|x - (q^T x) q|^2 / |x|^2``: the textbook ``1 - (q^T x)^2 / |x|^2`` cannot go below 1e-16.
    """
    X, reference = ea.to_numpy(X), ea.to_numpy(reference)
    away = X - np.sum(X * reference, axis=-2, keepdims=True) * reference
    return np.asarray(np.sum(away * away, axis=-2) / np.sum(X * X, axis=-2))


def mean_error(X: Array, reference: Array) -> float:
    """The paper's error: E = 1/(M K) sum_i sum_k sin^2 angle(x_ik, q_k)."""
    return float(np.mean(sin_squared(X, reference)))


def largest_angle(X: Array, reference: Array) -> float:
    """Largest sine of an angle between a column at any node and the true eigenvector."""
    return float(np.sqrt(np.max(sin_squared(X, reference))))


def subspace_angle(A: Array, B: Array) -> float:
    """Sine of the largest principal angle between the column spans of A and B: (d, k), (d, k)."""
    A, B = np.linalg.qr(ea.to_numpy(A))[0], np.linalg.qr(ea.to_numpy(B))[0]
    return float(np.linalg.norm(B - A @ (A.T @ B), 2))


def __dir__() -> list[str]:
    return __all__
