"""Norms and orthonormal columns of the tall matrices that nodes hold."""

import numpy as np

from eigenmesh.arrays._library import Array, namespace

# Columns of wide rows that are multiplied at a time.
PIECE = 2048
# Entries of a matrix up to which BLAS multiplies a vector with one thread.
SMALL_FOR_BLAS = 2**13


def squared_norms(X: Array) -> Array:
    """Squared Euclidean norms of the columns: (nodes, d, k) -> (nodes, k)."""
    # NumPy's vecdot jumps from row to row for each column; einsum reads the rows in order.
    return np.einsum("...dk,...dk->...k", X, X) if isinstance(X, np.ndarray) else namespace(X).vecdot(X, X, axis=-2)


def column_norms(X: Array) -> Array:
    """Euclidean norms of the columns: (nodes, d, k) -> (nodes, 1, k)."""
    return namespace(X).sqrt(squared_norms(X))[:, None, :]


def normalised(X: Array) -> Array:
    """Columns divided by their norms: (nodes, d, k) -> (nodes, d, k)."""
    return X / column_norms(X)


def orthonormal(X: Array) -> Array:
    """Gram-Schmidt from the first column on, signs kept: (nodes, d, k) -> (nodes, d, k) with orthonormal columns."""
    xp = namespace(X)
    Q, R = xp.linalg.qr(X)
    signs = xp.sign(xp.linalg.diagonal(R))
    return Q * xp.where(signs == 0, xp.ones_like(signs), signs)[:, None, :]


def pieces(rows: Array, columns: int = PIECE) -> list[slice]:
    """Parts of the last axis of wide rows that a product on the CPU takes one by one, to need less room: (1, k, d)."""
    step = columns if isinstance(rows, np.ndarray) else max(1, rows.shape[-1])
    return [slice(start, start + step) for start in range(0, rows.shape[-1], step)]


def turn_in_place(X: Array, small: Array) -> None:
    """Write ``X small`` over X: (1, d, k), (1, k, k)."""
    rows = X.mT
    for piece in pieces(rows):
        rows[:, :, piece] = small.mT @ rows[:, :, piece]


def qr_in_place(X: Array) -> Array:
    """Write Q over a tall matrix X = Q R, and give R: (1, d, k) -> (1, k, k)."""
    d, k = X.shape[-2:]
    # Threads would wait for one another most of the time: pieces are so small that BLAS uses none.
    count = -(-d // max(4 * k, SMALL_FOR_BLAS // k)) if isinstance(X, np.ndarray) else 1
    if count == 1:
        X[...], R = namespace(X).linalg.qr(X)
        return R
    parts, triangles = np.array_split(X, count, axis=-2), []
    for part in parts:
        part[...], R = np.linalg.qr(part)
        triangles.append(R)
    turns = np.concatenate(triangles, axis=-2)
    R = qr_in_place(turns)
    for part, turn in zip(parts, np.split(turns, count, axis=-2), strict=True):
        part[...] = part @ turn
    return R
