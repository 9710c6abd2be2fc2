"""Rayleigh-Ritz and block expansion, for the Krylov solvers and for the look beyond K."""

from typing import NamedTuple

import numpy as np

from eigenmesh import arrays as ea
from eigenmesh.arrays import Array, squared_norms
from eigenmesh.certificate._basis import Basis
from eigenmesh.certificate._look import Look
from eigenmesh.errors import DataError


def leading_pairs(T: Array, present: Array, count: int) -> tuple[Array, Array]:
    """Leading eigenpairs of ``T = V^T C V``: (nodes, w, w) -> values (nodes, count), vectors (nodes, w, count).

    Zero columns of V, where ``present`` (nodes, w) is 0, come last, with values below any eigenvalue of a covariance.
    """
    xp = ea.namespace(T)
    values, vectors = ea.eigenpairs(_zero_columns_last(T, present))
    # Copied, because a view would keep all w vectors in memory.
    return xp.flip(values[:, -count:], axis=-1), xp.asarray(xp.flip(vectors[:, :, -count:], axis=-1), copy=True)


def _zero_columns_last(T: Array, present: Array) -> Array:
    """``sym(T)`` with a large negative diagonal at the zero columns of V: (nodes, w, w)."""
    xp = ea.namespace(T)
    T = T + T.mT
    T *= 0.5
    largest = xp.maximum(xp.max(T), -xp.min(T))
    far_below = xp.where(largest > 0, 2 * largest, xp.ones_like(largest))
    T -= ((1 - present) * far_below)[:, :, None] * xp.eye(T.shape[-1], dtype=T.dtype, device=T.device)
    return T


def asymmetry(T: Array) -> Array:
    """Largest entry of ``|T - T^T|`` for ``T = V^T C V``: (nodes, w, w) -> (nodes, 1); rounding if C is symmetric."""
    xp = ea.namespace(T)
    return xp.max(xp.abs(T - T.mT), axis=(-2, -1))[:, None]


def require_symmetric(defect: float, floor: float) -> None:
    """Raise if products with C differ from those of a covariance by more than rounding."""
    if defect > 1000 * floor:
        raise DataError(
            f"products with the covariance differ by {defect:.2g} from those of a symmetric positive matrix, more than "
            f"rounding explains ({floor:.2g}). Samples changed during the fit, or a node computes wrong products."
        )


def bordered(T: Array, column: Array, leak: Array) -> Array:
    """``V^T C V`` with one more block: (1, w, w) -> (1, w + b, w + b).

    column : (1, w + b, b), coordinates of the product with the new block; leak : (1, b, at most w), the part of the
    products with the last columns along the new block. Products with earlier columns have no such part.
    """
    xp, (w, b) = ea.namespace(T), (T.shape[-1], column.shape[-1])
    lower = xp.zeros((1, b, w), dtype=T.dtype, device=T.device)
    lower[:, :, w - leak.shape[-1] :] = leak
    return xp.concat([xp.concat([T, lower], axis=-2), column], axis=-1)


def look_beyond(
    T: Array, present: Array, leak: Array, lost: float, G: Array, *, n_components: int, dimension: int, products: int
) -> Look:
    """A look beyond the components: the space of V, built from Gaussian columns, without its leading Ritz vectors.

    Parameters
    ----------
    T : (1, w, w), ``V^T C V``.
    present : (1, w), 0 where a column of V is zero.
    leak : (1, b, b), the part of C times the last columns of V outside V, in an orthonormal basis.
    lost : norm of what neither V nor the leak contains.
    G : (1, up to w, s), the Gaussian columns in the basis of the first columns of V.
    n_components : number of leading Ritz vectors that are components.
    dimension : of the whole space that V is a part of.
    products : number of products that V was built from.
    """
    values, vectors = ea.eigenpairs(ea.to_numpy(_zero_columns_last(T, present))[0])
    values, vectors = values[::-1][n_components:], vectors[:, ::-1][:, n_components:]
    rank, start = np.count_nonzero(ea.to_numpy(present)), ea.to_numpy(G)[0]
    # Zero columns of V, where a block lost rank, are not directions.
    genuine = np.arange(len(values)) < rank - n_components
    # Only products with the last block leave the space.
    last = vectors[-leak.shape[-1] :, genuine]
    return Look(
        values[genuine],
        vectors[: len(start), genuine].T @ start,
        ea.to_numpy(leak)[0] @ last,
        products,
        whole=bool(rank >= dimension),
        lost=lost,
    )


class NextBlock(NamedTuple):
    """What a product Z adds to a basis V.

    whitening : (1, b, b), H such that B H has orthonormal or zero columns for the next block B; along : (1, w, b)
    ``V^T Z``; leak : (1, b, b) ``(B H)^T Z``; faded : (1, 2 b, b), a matrix whose columns are at least as long as what
    is left of those of Z.
    """

    whitening: Array
    along: Array
    leak: Array
    faded: Array


def soft_polar(V: Basis, count: int, noise: float, recent: int | None = None) -> NextBlock:
    """Polar factor B of ``W = (I - V V^T) Z`` with directions at noise level faded out, and its whitening.

    Z are the ``count`` columns behind those of V; B is written over them. With ``W = P s Q^T``: ``B = P f Q^T``,
    ``f = s / sqrt(s^2 + e^2)``, a continuous function of W; and ``B Q f^-1`` has orthonormal columns, zero where f is
    small. V is projected out twice, the second time after all directions are scaled to one length, so that small ones
    become orthogonal to V too. If Z has nothing but rounding along all but the last ``recent`` columns of V, the first
    projection may use only those; None: all.
    """
    xp, B = ea.namespace(V.buffer), V.next_block(count)
    near = V if recent is None else V.recent(recent)
    first = near.along(B)
    size = xp.sqrt(xp.sum(squared_norms(B), axis=-1, keepdims=True))
    near.subtract(B, first)
    triangle = ea.qr_in_place(B)
    # Scaled by the size of Z, which may be so small that its squares underflow.
    unit = xp.where(size > 0, size, xp.ones_like(size))[:, :, None]
    left, s, right = xp.linalg.svd(triangle / unit, full_matrices=False)
    level = 64 * ea.EPS + 10 * noise
    fade = s / xp.sqrt(s * s + level * level)
    strong = fade > 0.5
    inverse = xp.where(strong, 1 / xp.where(strong, fade, xp.ones_like(fade)), xp.zeros_like(fade))
    ea.turn_in_place(B, (left * fade[:, None, :]) @ right)
    rest = V.along(B)
    V.subtract(B, rest)
    turn, outside = right.mT * inverse[:, None, :], s[:, :, None] * right * unit
    along = rest @ (turn @ outside)
    along[:, V.width - near.width :, :] += first
    lengths, axes = ea.eigenpairs(turn.mT @ (B.mT @ B) @ turn)
    lengths = xp.sqrt(xp.maximum(lengths, xp.zeros_like(lengths)))
    # Directions that the second projection shortens by half or more were rounding.
    new = xp.astype(lengths > 0.5, B.dtype)
    whitening = turn @ (axes * (new / xp.where(lengths > 0.5, lengths, xp.ones_like(lengths)))[:, None, :])
    left_out = xp.astype(~strong, B.dtype)[:, :, None] * outside
    outside = lengths[:, :, None] * (axes.mT @ (outside - left_out))
    # The two parts need not be orthogonal, hence the factor sqrt(2).
    faded = xp.concat([left_out, (1 - new)[:, :, None] * outside], axis=-2) * 2**0.5
    return NextBlock(whitening, along, new[:, :, None] * outside, faded)
