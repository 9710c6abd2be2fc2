"""Rayleigh-Ritz and block expansion, shared by the Krylov solver and by the look beyond K."""

import numpy as np

from eigenmesh import arrays as ea
from eigenmesh.arrays import Array, squared_norms
from eigenmesh.certificate._look import Look


def rayleigh_ritz(V: Array, CV: Array, count: int) -> tuple[Array, Array, Array]:
    """Leading eigenpairs of ``V^T C V``: (nodes, d, w) twice -> values (nodes, count), U and C U (nodes, d, count).

    Zero columns of V are put at the end of the spectrum, below any eigenvalue of a covariance.
    """
    xp = ea.namespace(V)
    values, vectors = xp.linalg.eigh(_projected(V, CV))
    values, vectors = xp.flip(values[:, -count:], axis=-1), xp.flip(vectors[:, :, -count:], axis=-1)
    return values, V @ vectors, CV @ vectors


def _projected(V: Array, CV: Array) -> Array:
    xp = ea.namespace(V)
    T = V.mT @ CV
    T = (T + T.mT) / 2
    present = xp.astype(squared_norms(V) > 0.5, V.dtype)
    largest = xp.max(xp.abs(T))
    far_below = xp.where(largest > 0, 2 * largest, xp.ones_like(largest))
    return T - (1 - present)[:, :, None] * xp.eye(T.shape[-1], dtype=T.dtype, device=T.device) * far_below


def asymmetry(V: Array, CV: Array) -> Array:
    """Largest entry of ``|T - T^T|`` for ``T = V^T C V``: (nodes, d, w) twice -> (nodes, 1), rounding if C is sound."""
    xp = ea.namespace(V)
    T = V.mT @ CV
    return xp.max(xp.abs(T - T.mT), axis=(-2, -1))[:, None]


def look_beyond(V: Array, CV: Array, G: Array, *, found: int, room: int, block: int, products: int) -> Look:
    """The space of V without its leading Ritz vectors, as a look that started from the Gaussian columns G.

    Parameters
    ----------
    V, CV : (1, d, w), built from G by so many products.
    G : (1, d, s), in the span of V.
    found : leading Ritz vectors that count as found.
    room : dimension of the whole space that V is a part of.
    block : columns of the last block of V, the only one whose product leaves the space.
    """
    values, vectors = np.linalg.eigh(ea.to_numpy(_projected(V, CV))[0].astype(np.float64))
    values, vectors = values[::-1][found:], vectors[:, ::-1][:, found:]
    # Zero columns of V, where a block had lost rank, are no directions.
    present = ea.to_numpy(squared_norms(V))[0] > 0.5
    kept = np.arange(len(values)) < np.count_nonzero(present) - found
    outside = CV[:, :, -block:]
    for _ in range(2):
        outside = outside - V @ (V.mT @ outside)
    triangle = ea.to_numpy(ea.namespace(V).linalg.qr(outside)[1])[0].astype(np.float64)
    return Look(
        values[kept],
        vectors[:, kept].T @ ea.to_numpy(V.mT @ G)[0].astype(np.float64),
        triangle @ vectors[-block:, kept],
        products,
        whole=bool(np.count_nonzero(present) >= room),
    )


def soft_polar(Z: Array, V: Array, noise: float) -> tuple[Array, Array]:
    """Polar factor of ``W = (I - V V^T) Z`` with directions at noise level faded out, and what whitens it.

    With ``W = P s Q^T``: ``B = P f Q^T``, ``f = s / sqrt(s^2 + e^2)``, a continuous function of W; and
    ``B Q f^-1`` has orthonormal columns, zero where f is small. (nodes, d, b) -> (nodes, d, b), (nodes, b, b).
    """
    xp = ea.namespace(Z)
    W = Z
    for _ in range(2):
        W = W - V @ (V.mT @ W)
    basis, triangle = xp.linalg.qr(W)
    size = xp.sqrt(xp.sum(squared_norms(Z), axis=-1, keepdims=True))
    # Relative to Z, which may be so small that squares would be lost in single precision.
    unit = xp.where(size > 0, size, xp.ones_like(size))[:, :, None]
    left, s, right = xp.linalg.svd(triangle / unit, full_matrices=False)
    level = 64 * float(xp.finfo(Z.dtype).eps) + 10 * noise
    fade = s / xp.sqrt(s * s + level * level)
    kept = fade > 0.5
    inverse = xp.where(kept, 1 / xp.where(kept, fade, xp.ones_like(fade)), xp.zeros_like(fade))
    B = basis @ (left * fade[:, None, :]) @ right
    return B, right.mT * inverse[:, None, :]
