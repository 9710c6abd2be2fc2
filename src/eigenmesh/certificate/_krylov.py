"""Rayleigh-Ritz and block expansion, shared by the Krylov solver and by the look beyond K."""

from typing import NamedTuple

import numpy as np

from eigenmesh import arrays as ea
from eigenmesh.arrays import Array, squared_norms
from eigenmesh.certificate._look import Look


def leading_pairs(T: Array, present: Array, count: int) -> tuple[Array, Array]:
    """Leading eigenpairs of ``T = V^T C V``: (nodes, w, w) -> values (nodes, count), vectors (nodes, w, count).

    Zero columns of V, those not ``present`` (nodes, w), are put at the end of the spectrum, below any eigenvalue of a
    covariance.
    """
    xp = ea.namespace(T)
    values, vectors = xp.linalg.eigh(_marked(T, present))
    return xp.flip(values[:, -count:], axis=-1), xp.flip(vectors[:, :, -count:], axis=-1)


def columns_present(V: Array) -> Array:
    """1 where a column is a unit vector, 0 where it is zero: (nodes, d, w) -> (nodes, w)."""
    return ea.namespace(V).astype(squared_norms(V) > 0.5, V.dtype)


def _marked(T: Array, present: Array) -> Array:
    xp = ea.namespace(T)
    T = (T + T.mT) / 2
    largest = xp.max(xp.abs(T))
    far_below = xp.where(largest > 0, 2 * largest, xp.ones_like(largest))
    return T - (1 - present)[:, :, None] * xp.eye(T.shape[-1], dtype=T.dtype, device=T.device) * far_below


def asymmetry(T: Array) -> Array:
    """Largest entry of ``|T - T^T|`` for ``T = V^T C V``: (nodes, w, w) -> (nodes, 1), rounding if C is sound."""
    xp = ea.namespace(T)
    return xp.max(xp.abs(T - T.mT), axis=(-2, -1))[:, None]


def look_beyond(V: Array, T: Array, leak: Array, G: Array, *, found: int, room: int, products: int) -> Look:
    """The space of V without its leading Ritz vectors, as a look that started from the Gaussian columns G.

    Parameters
    ----------
    V : (1, d, w), built from G by so many products.
    T : (1, w, w), ``V^T C V``.
    leak : (1, b, b), what C times the last block of V has outside the space of V, in some orthonormal basis.
    G : (1, d, s), in the span of V.
    found : leading Ritz vectors that count as found.
    room : dimension of the whole space that V is a part of.
    """
    # Zero columns of V, where a block had lost rank, are no directions.
    present = columns_present(V)
    values, vectors = np.linalg.eigh(ea.to_numpy(_marked(T, present))[0].astype(np.float64))
    values, vectors = values[::-1][found:], vectors[:, ::-1][:, found:]
    present = ea.to_numpy(present)[0]
    kept = np.arange(len(values)) < np.count_nonzero(present) - found
    # The products with earlier blocks do not leave the space.
    last = vectors[-leak.shape[-1] :, kept]
    return Look(
        values[kept],
        vectors[:, kept].T @ ea.to_numpy(V.mT @ G)[0].astype(np.float64),
        ea.to_numpy(leak)[0].astype(np.float64) @ last,
        products,
        whole=bool(np.count_nonzero(present) >= room),
    )


class NextBlock(NamedTuple):
    """What a product Z adds to a basis V.

    B : (nodes, d, b) the next block; whitening : (nodes, b, b) B times it has orthonormal or zero columns;
    along : (nodes, w, b) ``V^T Z``; leak : (nodes, b, b), ``(I - V V^T) Z`` in an orthonormal basis.
    """

    B: Array
    whitening: Array
    along: Array
    leak: Array


def soft_polar(Z: Array, V: Array, noise: float) -> NextBlock:
    """Polar factor of ``W = (I - V V^T) Z`` with directions at noise level faded out, and what whitens it.

    With ``W = P s Q^T``: ``B = P f Q^T``, ``f = s / sqrt(s^2 + e^2)``, a continuous function of W; and
    ``B Q f^-1`` has orthonormal columns, zero where f is small.
    """
    xp = ea.namespace(Z)
    along = V.mT @ Z
    W = Z - V @ along
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
    return NextBlock(B, right.mT * inverse[:, None, :], along, triangle)
