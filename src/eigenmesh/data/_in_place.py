"""The covariance of dense samples without a copy: rows are converted in pieces, and centred after the product."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np
from scipy.linalg.blas import dsyrk

from eigenmesh.arrays import Array, pieces
from eigenmesh.data._choice import CovarianceKind
from eigenmesh.data._moments import MOST_LOST, Moments, scaled_mean
from eigenmesh.data._place import CHUNK_BYTES
from eigenmesh.data._shards import Shards
from eigenmesh.data._sparse_covariance import require_numpy, squares_beyond
from eigenmesh.data._summaries import sums_of_rows


def rows_in_place(shards: Shards) -> np.ndarray | None:
    """All rows in this process, (N_i, d), if they belong to one node and can be used without a copy; else None."""
    fits = len(shards.blocks) == 1 and shards.blocks[0].in_place
    return shards.blocks[0].read(slice(None)) if fits else None


def upper_products(rows: np.ndarray) -> np.ndarray:
    """Upper triangle of Y^T Y; the lower triangle is undefined: (n, d) -> (d, d)."""
    if rows.dtype == np.float64:
        return np.asarray(dsyrk(1.0, rows.T) if rows.flags.c_contiguous else dsyrk(1.0, rows, trans=True))
    d = rows.shape[1]
    step, total = max(1, CHUNK_BYTES // (8 * d)), np.zeros((d, d), order="F")
    buffer = np.empty((min(step, len(rows)), d))
    for start in range(0, len(rows), step):
        piece = _widened(rows[start : start + step], buffer)
        total = dsyrk(1.0, piece.T, beta=1.0, c=total, overwrite_c=True)
    return total


def _widened(piece: np.ndarray, buffer: np.ndarray) -> np.ndarray:
    """The piece in float64: itself, or a copy in the first rows and columns of the buffer."""
    if piece.dtype == np.float64:
        return piece
    copy = buffer[: piece.shape[0], : piece.shape[1]]
    copy[...] = piece
    return copy


@dataclass(frozen=True, eq=False)
class InPlace:
    """C_i of one node from rows Y (N_i, d) that are not centred.

    With weights w = sqrt(M/(N-1)) / scale and x = w X::

        Z = Y x - 1 (mu^T x),  C_i X = w (Y^T Z - mu (1^T Z))

    sums : Y^T 1, (d,); products : upper triangle of Y^T Y, (d, d), if it is known already, else None.
    """

    rows: np.ndarray
    mean: np.ndarray
    weights: np.ndarray
    sums: np.ndarray
    products: np.ndarray | None = None
    kind: ClassVar[CovarianceKind] = CovarianceKind.MATRIX_FREE

    @classmethod
    def of(cls, shards: Shards, moments: Moments, products: np.ndarray | None = None) -> InPlace | None:
        """None if rows would have to be copied or converted first, or if too much would cancel."""
        rows = rows_in_place(shards)
        if rows is None or moments.n_missing or moments.rest is not None:
            return None
        means = scaled_mean(moments)
        if means @ means > MOST_LOST * moments.total_variance:
            return None
        weights = np.broadcast_to(np.asarray(moments.centring(shards.n_nodes).factor), means.shape)
        sums = sums_of_rows(rows) if moments.own_sums is None else moments.own_sums
        return cls(rows, moments.mean, weights, sums, products)

    @property
    def n_features(self) -> int:
        return len(self.mean)

    @property
    def rounding_size(self) -> float:
        """``N_i |w mu|^2``, the size of what cancels in both differences."""
        return len(self.rows) * float(np.sum((self.weights * self.mean) ** 2))

    def place(self, values: np.ndarray) -> np.ndarray:
        return np.asarray(values, dtype=np.float64)

    def apply(self, X: Array, out: np.ndarray | None = None) -> np.ndarray:
        """``A^T (A x)``, (1, d, k) -> (1, d, k), by pieces that stay in the cache for both products.

        The block is the left factor, which is faster in BLAS. Wide rows are divided further, so that no temporary array
        of the size of X is needed.
        """
        require_numpy(X, self.kind)
        x, columns = X[0].T, pieces(self.mean)
        widest = min(self.n_features, columns[0].stop)
        step = CHUNK_BYTES // (8 * widest)
        buffer = np.empty((min(step, len(self.rows)), widest))
        shift = (x @ (self.weights * self.mean))[:, np.newaxis]
        product, total = np.empty(x.shape) if out is None else out[0].T, np.zeros((len(x), 1))
        product[...] = 0.0
        for start in range(0, len(self.rows), step):
            rows = self.rows[start : start + step]
            if len(columns) == 1:
                rows = _widened(rows, buffer)
            Z = np.repeat(-shift, len(rows), axis=1)
            for some in columns:
                Z += (x[:, some] * self.weights[some]) @ _widened(rows[:, some], buffer).T
            for some in columns:
                product[:, some] += Z @ _widened(rows[:, some], buffer)
            total += Z.sum(axis=1, keepdims=True)
        for row, shifted in zip(product, total, strict=True):
            row -= shifted * self.mean
            row *= self.weights
        return product.T[np.newaxis]

    def formed(self) -> np.ndarray:
        """``C_i = w (Y^T Y - s mu^T - mu s^T + N_i mu mu^T) w`` with the sums s of the rows: (d, d)."""
        total = np.triu(upper_products(self.rows) if self.products is None else self.products)
        total += np.triu(total, 1).T
        # An error of s is multiplied by the mean, so s must be accurate.
        shift = np.outer(self.sums - len(self.rows) / 2 * self.mean, self.mean)
        total -= shift + shift.T
        return np.asarray(total * np.outer(self.weights, self.weights))

    def traces_beyond(self, U: np.ndarray) -> np.ndarray:
        step = max(1, CHUNK_BYTES // (8 * self.n_features))
        pieces = (self.rows[start : start + step] for start in range(0, len(self.rows), step))
        return np.array([sum(squares_beyond((piece - self.mean) * self.weights, U) for piece in pieces)])
