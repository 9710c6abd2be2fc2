"""A look beyond the K components: how large is the largest eigenvalue that they leave out?"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from eigenmesh import arrays as ea
from eigenmesh.arrays import Array
from eigenmesh.data import Covariance
from eigenmesh.networks import Network

BATCH, LONGEST = 8, 48


class Complement(NamedTuple):
    """What is known of l_{K+1}, the same at every node.

    Attributes
    ----------
    lower : a Ritz value, never above the true one.
    upper : the Ritz value plus its residual.
    """

    lower: float
    upper: float


NOTHING_BEYOND = Complement(-np.inf, -np.inf)


def probe_complement(
    covariance: Covariance, network: Network, basis: Array, n_nodes: int, *, smallest: float, tol: float, seed: int = 0
) -> Complement:
    """Lanczos iteration on ``(I - Q Q^T) C (I - Q Q^T)`` from a random vector, Q an orthonormal basis of X.

    Each step averages one vector over the network. Whatever X is, the largest eigenvalue of the deflated
    operator is at least l_{K+1} (Courant and Fischer), so a direction that X has missed shows up here as a value
    above theta_K. From a random start Lanczos finds the largest eigenvalue with overwhelming probability.

    Parameters
    ----------
    basis : (1, d, K), the same at every node.
    n_nodes : nodes that this process holds.
    smallest : theta_K; the iteration ends when its own error is small beside the gap to it.
    tol : the angle that is asked for, to know when a gap is too small to matter.
    """
    d, k = basis.shape[-2:]
    if k >= d:
        return NOTHING_BEYOND
    Q = np.linalg.qr(ea.to_numpy(basis))[0]
    vectors = [_start(Q, seed)]
    alphas: list[np.ndarray] = []
    betas: list[np.ndarray] = []
    lower = upper = 0.0
    for length in range(1, min(LONGEST, d - k) + 1):
        product = covariance.apply(ea.everywhere(ea.like(vectors[-1], basis), n_nodes))
        _extend(ea.to_numpy(network.common_mean(product)), Q, vectors, alphas, betas)
        if length % BATCH and length < min(LONGEST, d - k):
            continue
        lower, upper = _agree(network, basis, alphas, betas)
        # Good enough to know the gap to a tenth, or the gap is at rounding level anyway.
        rounding = float(np.finfo(Q.dtype).eps) * max(smallest, upper) / tol
        if upper - lower <= max(0.1 * (smallest - upper), rounding):
            break
    return Complement(lower, upper)


def _start(Q: np.ndarray, seed: int) -> np.ndarray:
    # Keyed apart from the solver's own start so that the two are not the same directions.
    rng = np.random.default_rng([seed, 0x5EED])
    vector = np.broadcast_to(rng.standard_normal((Q.shape[-2], 1)).astype(Q.dtype), (*Q.shape[:-1], 1))
    return _unit(_deflate(Q, vector))[0]


def _extend(
    product: np.ndarray,
    Q: np.ndarray,
    vectors: list[np.ndarray],
    alphas: list[np.ndarray],
    betas: list[np.ndarray],
) -> None:
    """One Lanczos step with full reorthogonalisation: product is C times the last vector."""
    current = vectors[-1]
    alphas.append(np.sum(current * product, axis=(-2, -1)))
    product = _deflate(Q, product)
    for _ in range(2):
        for vector in vectors:
            product = product - vector * np.sum(vector * product, axis=-2, keepdims=True)
    following, length = _unit(_deflate(Q, product))
    vectors.append(following)
    betas.append(length)


def _deflate(Q: np.ndarray, vector: np.ndarray) -> np.ndarray:
    return np.asarray(vector - Q @ (np.swapaxes(Q, -1, -2) @ vector))


def _unit(vector: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Unit vectors and their former lengths; a vector of zeros stays so, and ends the iteration harmlessly."""
    length = np.linalg.norm(vector, axis=-2, keepdims=True)
    return vector / np.where(length > 0, length, 1), length[..., 0, 0]


def _agree(network: Network, model: Array, alphas: list[np.ndarray], betas: list[np.ndarray]) -> tuple[float, float]:
    """Largest Ritz value and itself plus its residual ``beta_m |s_m|``, agreed by all nodes."""
    size, nodes = len(alphas), alphas[0].shape[0]
    tridiagonal = np.zeros((nodes, size, size))
    index = np.arange(size)
    tridiagonal[:, index, index] = np.stack(alphas, axis=1)
    if size > 1:
        off = np.stack(betas[:-1], axis=1)
        tridiagonal[:, index[1:], index[:-1]] = off
        tridiagonal[:, index[:-1], index[1:]] = off
    ritz, shapes = np.linalg.eigh(tridiagonal)
    residual = betas[-1] * np.abs(shapes[:, -1, -1])
    agreed = network.worst(ea.like(np.stack([ritz[:, -1], ritz[:, -1] + residual], axis=1), model))
    lower, upper = ea.to_numpy(agreed[0, ...])
    return float(lower), float(upper)
