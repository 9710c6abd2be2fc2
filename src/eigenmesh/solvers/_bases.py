"""Where solvers start from: orthonormal bases that every node can draw for itself."""

import numpy as np


def random_basis(n_features: int, n_components: int, seed: int) -> np.ndarray:
    """Orthonormal columns drawn uniformly, the same for every node: (d, K)."""
    rng = np.random.default_rng(seed)
    Q, R = np.linalg.qr(rng.standard_normal((n_features, n_components)))
    return np.asarray(Q * np.where(np.diagonal(R) < 0, -1.0, 1.0))


def widened(basis: np.ndarray, n_columns: int, seed: int) -> np.ndarray:
    """The basis and random directions orthogonal to it: (d, K) -> (d, n_columns), orthonormal."""
    found, R = np.linalg.qr(basis.astype(np.float64))
    found = found * np.where(np.diagonal(R) < 0, -1.0, 1.0)
    fresh = random_basis(len(basis), n_columns, seed)[:, basis.shape[1] :]
    for _ in range(2):
        fresh = np.linalg.qr(fresh - found @ (found.T @ fresh))[0]
    return np.hstack([found, fresh])
