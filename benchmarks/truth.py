"""True components of pooled samples, which the benchmarks measure angles to."""

from __future__ import annotations

import numpy as np


def leading(X: np.ndarray, k: int) -> np.ndarray:
    """Leading eigenvectors of the covariance of X (n, d), from the smaller of covariance and Gram matrix: (d, k)."""
    centred = X - X.mean(axis=0, dtype=np.float64)
    if X.shape[0] >= X.shape[1]:
        return np.linalg.eigh(centred.T @ centred)[1][:, ::-1][:, :k]
    vectors = centred.T @ np.linalg.eigh(centred @ centred.T)[1][:, ::-1][:, :k]
    return vectors / np.linalg.norm(vectors, axis=0)
