"""Rayleigh-Ritz and block expansion, shared by the Krylov solver and by the look beyond K."""

from typing import NamedTuple

import numpy as np

from eigenmesh import arrays as ea
from eigenmesh.arrays import Array, squared_norms
from eigenmesh.certificate._basis import Basis
from eigenmesh.certificate._look import Look
from eigenmesh.errors import DataError


def leading_pairs(T: Array, present: Array, count: int) -> tuple[Array, Array]:
    """Leading eigenpairs of ``T = V^T C V``: (nodes, w, w) -> values (nodes, count), vectors (nodes, w, count).

    Zero columns of V, those not ``present`` (nodes, w), are put at the end of the spectrum, below any eigenvalue of a
    covariance.
    """
    xp = ea.namespace(T)
    values, vectors = xp.linalg.eigh(_marked(T, present))
    # A view would keep all of them.
    return xp.flip(values[:, -count:], axis=-1), xp.asarray(xp.flip(vectors[:, :, -count:], axis=-1), copy=True)


def _marked(T: Array, present: Array) -> Array:
    xp = ea.namespace(T)
    T = T + T.mT
    T *= 0.5
    largest = xp.maximum(xp.max(T), -xp.min(T))
    far_below = xp.where(largest > 0, 2 * largest, xp.ones_like(largest))
    T -= ((1 - present) * far_below)[:, :, None] * xp.eye(T.shape[-1], dtype=T.dtype, device=T.device)
    return T


def asymmetry(T: Array) -> Array:
    """Largest entry of ``|T - T^T|`` for ``T = V^T C V``: (nodes, w, w) -> (nodes, 1), rounding if C is sound."""
    xp = ea.namespace(T)
    return xp.max(xp.abs(T - T.mT), axis=(-2, -1))[:, None]


def require_symmetric(defect: float, floor: float) -> None:
    """Raise if products with C show that it is not a covariance, beyond rounding."""
    if defect > 1000 * floor:
        raise DataError(
            f"products with the covariance are off by {defect:.2g} from those of one symmetric positive matrix, beyond "
            f"rounding ({floor:.2g}). Samples changed during the fit, or a node multiplies wrongly."
        )


def bordered(T: Array, column: Array, leak: Array) -> Array:
    """``V^T C V`` with one more block: (1, w, w) -> (1, w + b, w + b).

    column : (1, w + b, b), the product with the new block along all; leak : (1, b, at most w), what the products with
    the last columns had along the new block. Those with earlier ones had nothing there.
    """
    xp, (w, b) = ea.namespace(T), (T.shape[-1], column.shape[-1])
    lower = xp.zeros((1, b, w), dtype=T.dtype, device=T.device)
    lower[:, :, w - leak.shape[-1] :] = leak
    return xp.concat([xp.concat([T, lower], axis=-2), column], axis=-1)


def look_beyond(
    T: Array, present: Array, leak: Array, lost: float, G: Array, *, found: int, room: int, products: int
) -> Look:
    """The space of V without its leading Ritz vectors, as a look that started from Gaussian columns.

    Parameters
    ----------
    T : (1, w, w), ``V^T C V``; V was built by so many products.
    present : (1, w), 0 where a column of V is zero.
    leak : (1, b, b), what C times the last columns of V has outside the space of V, in some orthonormal basis.
    lost : norm of what it has outside of both.
    G : (1, up to w, s), the Gaussian columns in the basis of the first columns of V.
    found : leading Ritz vectors that count as found.
    room : dimension of the whole space that V is a part of.
    """
    # Zero columns of V, where a block had lost rank, are no directions.
    values, vectors = np.linalg.eigh(ea.to_numpy(_marked(T, present))[0].astype(np.float64))
    values, vectors = values[::-1][found:], vectors[:, ::-1][:, found:]
    there, start = np.count_nonzero(ea.to_numpy(present)), ea.to_numpy(G)[0].astype(np.float64)
    kept = np.arange(len(values)) < there - found
    # The products with earlier blocks do not leave the space.
    last = vectors[-leak.shape[-1] :, kept]
    return Look(
        values[kept],
        vectors[: len(start), kept].T @ start,
        ea.to_numpy(leak)[0].astype(np.float64) @ last,
        products,
        whole=bool(there >= room),
        lost=lost,
    )


class NextBlock(NamedTuple):
    """What a product Z adds to a basis V.

    whitening : (1, b, b), the next block B times it has orthonormal or zero columns; along : (1, w, b) ``V^T Z``;
    leak : (1, b, b), Z in the basis of those columns; faded : (1, 2 b, b), norms of what is left of Z.
    """

    whitening: Array
    along: Array
    leak: Array
    faded: Array


def soft_polar(V: Basis, count: int, noise: float, recent: int | None = None) -> NextBlock:
    """Polar factor of ``W = (I - V V^T) Z`` with directions at noise level faded out, and what whitens it.

    Z are so many columns that lie behind those of V, and B is written over them. With ``W = P s Q^T``: ``B = P f Q^T``,
    ``f = s / sqrt(s^2 + e^2)``, a continuous function of W; and ``B Q f^-1`` has orthonormal columns, zero where f is
    small. V is taken off twice, the second time once all directions have been brought to one length, so that small ones
    are orthogonal to it as well. If Z has no more than rounding along any but its last ``recent`` columns, those are
    enough for the first time; None: all.
    """
    xp, B = ea.namespace(V.room), V.next_block(count)
    near = V if recent is None else V.recent(recent)
    first = near.along(B)
    size = xp.sqrt(xp.sum(squared_norms(B), axis=-1, keepdims=True))
    near.subtract(B, first)
    triangle = ea.qr_in_place(B)
    # Relative to Z, which may be so small that squares would be lost in single precision.
    unit = xp.where(size > 0, size, xp.ones_like(size))[:, :, None]
    left, s, right = xp.linalg.svd(triangle / unit, full_matrices=False)
    level = 64 * float(xp.finfo(B.dtype).eps) + 10 * noise
    fade = s / xp.sqrt(s * s + level * level)
    kept = fade > 0.5
    inverse = xp.where(kept, 1 / xp.where(kept, fade, xp.ones_like(fade)), xp.zeros_like(fade))
    ea.turn_in_place(B, (left * fade[:, None, :]) @ right)
    rest = V.along(B)
    V.subtract(B, rest)
    turn, outside = right.mT * inverse[:, None, :], s[:, :, None] * right * unit
    along = rest @ (turn @ outside)
    along[:, V.width - near.width :, :] += first
    lengths, axes = xp.linalg.eigh(turn.mT @ (B.mT @ B) @ turn)
    lengths = xp.sqrt(xp.maximum(lengths, xp.zeros_like(lengths)))
    # What was in V for the most part was rounding.
    there = xp.astype(lengths > 0.5, B.dtype)
    whitening = turn @ (axes * (there / xp.where(lengths > 0.5, lengths, xp.ones_like(lengths)))[:, None, :])
    left_out = xp.astype(~kept, B.dtype)[:, :, None] * outside
    outside = lengths[:, :, None] * (axes.mT @ (outside - left_out))
    # The two parts need not be orthogonal.
    faded = xp.concat([left_out, (1 - there)[:, :, None] * outside], axis=-2) * 2**0.5
    return NextBlock(whitening, along, there[:, :, None] * outside, faded)
