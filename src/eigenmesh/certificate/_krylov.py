"""Rayleigh-Ritz and block expansion, shared by the Krylov solver and by the look beyond K."""

from eigenmesh import arrays as ea
from eigenmesh.arrays import Array, squared_norms


def rayleigh_ritz(V: Array, CV: Array, count: int) -> tuple[Array, Array, Array]:
    """Leading eigenpairs of ``V^T C V``: (nodes, d, w) twice -> values (nodes, count), U and C U (nodes, d, count).

    Zero columns of V are put at the end of the spectrum, below any eigenvalue of a covariance.
    """
    xp = ea.namespace(V)
    T = V.mT @ CV
    T = (T + T.mT) / 2
    present = xp.astype(squared_norms(V) > 0.5, V.dtype)
    largest = xp.max(xp.abs(T))
    far_below = xp.where(largest > 0, 2 * largest, xp.ones_like(largest))
    T = T - (1 - present)[:, :, None] * xp.eye(T.shape[-1], dtype=T.dtype, device=T.device) * far_below
    values, vectors = xp.linalg.eigh(T)
    values, vectors = xp.flip(values[:, -count:], axis=-1), xp.flip(vectors[:, :, -count:], axis=-1)
    return values, V @ vectors, CV @ vectors


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
    left, s, right = xp.linalg.svd(triangle, full_matrices=False)
    size = xp.sqrt(xp.sum(squared_norms(Z), axis=-1, keepdims=True))
    level = (64 * float(xp.finfo(Z.dtype).eps) + 10 * noise) * size
    fade = s / xp.where(s + level > 0, xp.sqrt(s * s + level * level), xp.ones_like(s))
    kept = fade > 0.5
    inverse = xp.where(kept, 1 / xp.where(kept, fade, xp.ones_like(fade)), xp.zeros_like(fade))
    B = basis @ (left * fade[:, None, :]) @ right
    return B, right.mT * inverse[:, None, :]
