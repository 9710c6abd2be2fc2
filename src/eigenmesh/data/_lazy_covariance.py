"""Covariances of data that are not copied densely: read in chunks, or sparse. NumPy only."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from eigenmesh.arrays import Array
from eigenmesh.data._block import CHUNK_BYTES, Block
from eigenmesh.data._centring import Centring
from eigenmesh.data._choice import CovarianceKind
from eigenmesh.data._moments import Moments
from eigenmesh.data._shards import Shards
from eigenmesh.data._source import Samples
from eigenmesh.errors import InputError


@dataclass(frozen=True, eq=False)
class Chunked:
    """C_i = A_i^T A_i from samples that are read in chunks, one pass over the data per product."""

    blocks: tuple[Block, ...]
    centring: Centring
    dtype: np.dtype
    chunk_bytes: int = CHUNK_BYTES
    kind: ClassVar[CovarianceKind] = CovarianceKind.CHUNKED

    @classmethod
    def of(cls, shards: Shards, moments: Moments) -> Chunked:
        return cls(shards.blocks, moments.centring(shards.n_nodes), shards.dtype)

    @property
    def n_features(self) -> int:
        return self.blocks[0].n_features

    def place(self, values: np.ndarray) -> np.ndarray:
        return np.asarray(values, dtype=self.dtype)

    def apply(self, X: Array) -> np.ndarray:
        """Sum over chunks of chunk^T (chunk X_i)."""
        require_numpy(X, self.kind)
        total = np.zeros(X.shape)
        for node, block in enumerate(self.blocks):
            for _, chunk in self.centring.chunks(block, self.chunk_bytes):
                piece = chunk.astype(X.dtype, copy=False)
                total[node] += piece.T @ (piece @ X[node])
        return total.astype(X.dtype, copy=False)


@dataclass(frozen=True, eq=False)
class Sparse:
    """C_i of CSR rows, centred without making them dense.

    With weights w = sqrt(M/(N-1)) / scale on rows and x = w X_i::

        Z = Y_i x - 1 (mu^T x),  C_i X_i = w (Y_i^T Z - mu (1^T Z))

    matrices: Y_i (N_i, d), in float64 because the two differences cancel if mu is large.
    """

    matrices: tuple[Samples, ...]
    mean: np.ndarray
    weights: np.ndarray
    dtype: np.dtype
    kind: ClassVar[CovarianceKind] = CovarianceKind.SPARSE

    @classmethod
    def of(cls, shards: Shards, moments: Moments) -> Sparse:
        """The nodes' rows; missing stored entries become the mean."""
        if not shards.is_sparse:
            raise InputError(f"kind {cls.kind} needs scipy.sparse data; use formed or matrix-free for dense data.")
        centring = moments.centring(shards.n_nodes)
        weights = np.broadcast_to(np.asarray(centring.factor), (shards.n_features,))
        matrices = []
        for block in shards.blocks:
            matrix = block.read(slice(None)).astype(np.float64, copy=False)
            missing = ~np.isfinite(matrix.data) if centring.fills else np.zeros(0, dtype=bool)
            if missing.any():
                matrix = matrix.copy()
                matrix.data[missing] = moments.mean[matrix.indices[missing]]
            matrices.append(matrix)
        return cls(tuple(matrices), moments.mean, weights, shards.dtype)

    @property
    def n_features(self) -> int:
        return len(self.mean)

    def place(self, values: np.ndarray) -> np.ndarray:
        return np.asarray(values, dtype=self.dtype)

    def apply(self, X: Array) -> np.ndarray:
        require_numpy(X, self.kind)
        product = np.empty(X.shape, dtype=X.dtype)
        weights = self.weights[:, np.newaxis]
        for node, matrix in enumerate(self.matrices):
            x = weights * X[node]
            Z = matrix @ x - self.mean @ x
            product[node] = weights * (matrix.T @ Z - np.outer(self.mean, Z.sum(axis=0)))
        return product


def require_numpy(array: object, kind: CovarianceKind) -> None:
    """Raise if the array is of another library."""
    if not isinstance(array, np.ndarray):
        raise InputError(
            f"kind {kind} works on NumPy arrays; got {type(array).__module__}.{type(array).__name__}. "
            "Use kind formed or matrix-free for other libraries and devices."
        )
