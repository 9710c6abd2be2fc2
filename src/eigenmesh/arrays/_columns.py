"""Norms and orthonormal columns of the tall matrices that nodes hold."""

import numpy as np
import scipy.linalg

from eigenmesh.arrays._library import Array, namespace

# Columns of a wide matrix to multiply at a time.
PIECE = 2048
# BLAS multiplies a matrix of up to this many entries with a vector in one thread.
SMALL_FOR_BLAS = 2**13


def squared_norms(X: Array) -> Array:
    """Squared Euclidean norms of the columns: (nodes, d, k) -> (nodes, k)."""
    # NumPy's vecdot strides over the rows for each column; einsum reads the rows in order.
    return np.einsum("...dk,...dk->...k", X, X) if isinstance(X, np.ndarray) else namespace(X).vecdot(X, X, axis=-2)


def column_norms(X: Array) -> Array:
    """Euclidean norms of the columns: (nodes, d, k) -> (nodes, 1, k)."""
    return namespace(X).sqrt(squared_norms(X))[:, None, :]


def normalised(X: Array) -> Array:
    """Columns divided by their norms: (nodes, d, k) -> (nodes, d, k)."""
    return X / column_norms(X)


def orthonormal(X: Array) -> Array:
    """Q of the QR decomposition whose R has no negative diagonal: (nodes, d, k) -> (nodes, d, k)."""
    xp = namespace(X)
    Q, R = xp.linalg.qr(X)
    signs = xp.sign(xp.linalg.diagonal(R))
    return Q * xp.where(signs == 0, xp.ones_like(signs), signs)[:, None, :]


def eigenpairs(T: Array) -> tuple[Array, Array]:
    """Eigenpairs of symmetric matrices, smallest first: (.., n, n) -> (.., n), (.., n, n)."""
    try:
        values, vectors = namespace(T).linalg.eigh(T)
    except np.linalg.LinAlgError:
        if not (isinstance(T, np.ndarray) and np.isfinite(T).all()):
            raise
        # Divide and conquer in LAPACK fails on some valid matrices with many equal eigenvalues; QR iteration does not.
        flat = T.reshape(-1, *T.shape[-2:])
        pairs = [scipy.linalg.eigh(matrix, driver="ev") for matrix in flat]
        values, vectors = np.stack([pair[0] for pair in pairs]), np.stack([pair[1] for pair in pairs])
        values, vectors = values.reshape(T.shape[:-1]), vectors.reshape(T.shape)
    return values, vectors


def pieces(rows: Array, columns: int = PIECE) -> list[slice]:
    """Slices of the last axis of a wide matrix (1, k, d), for products on the CPU that need less memory one by one."""
    step = columns if isinstance(rows, np.ndarray) else max(1, rows.shape[-1])
    return [slice(start, start + step) for start in range(0, rows.shape[-1], step)]


def turn_in_place(X: Array, small: Array) -> None:
    """Overwrite X by ``X small``: (1, d, k), (1, k, k)."""
    rows = X.mT
    for piece in pieces(rows):
        rows[:, :, piece] = small.mT @ rows[:, :, piece]


def qr_in_place(X: Array) -> Array:
    """Overwrite a tall matrix X by Q of ``X = Q R``, and return R: (1, d, k) -> (1, k, k)."""
    d, k = X.shape[-2:]
    # QR of tall parts (TSQR), each so small that BLAS uses one thread: on this shape threads mostly wait for each
    # other.
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
