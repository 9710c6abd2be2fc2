"""Covariances held as arrays of any Array API library, in memory or on a device."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np

from eigenmesh.arrays import Array, Namespace, like, namespace
from eigenmesh.data._choice import CovarianceKind
from eigenmesh.data._moments import Moments
from eigenmesh.data._shards import Shards


@dataclass(frozen=True, eq=False)
class Formed:
    """C_i as matrices, eq (1): matrices (nodes, d, d), symmetric to the last bit."""

    matrices: Array
    kind: ClassVar[CovarianceKind] = CovarianceKind.FORMED

    @classmethod
    def of(cls, shards: Shards, moments: Moments, xp: Namespace, device: Any = None) -> Formed:
        """Sum of chunk^T chunk over each node's prepared rows, in float64, then cast."""
        d = shards.n_features
        centring = moments.centring(shards.n_nodes)
        matrices = np.zeros((len(shards.blocks), d, d), dtype=shards.dtype)
        for matrix, block in zip(matrices, shards.blocks, strict=True):
            # Summed in place if the dtype is precise enough.
            total = matrix if matrix.dtype == np.float64 else np.zeros((d, d))
            for _, chunk in centring.chunks(block):
                total += chunk.T @ chunk
            total += total.T
            np.multiply(total, 0.5, out=matrix, casting="same_kind")
        return cls(place(matrices, xp, device))

    @property
    def n_features(self) -> int:
        return int(self.matrices.shape[1])

    def place(self, values: np.ndarray) -> Array:
        return like(values, self.matrices)

    def apply(self, X: Array) -> Array:
        return self.matrices @ X


@dataclass(frozen=True, eq=False)
class MatrixFree:
    """C_i = A_i^T A_i through its factors A_i = sqrt(M/(N-1)) (Y_i - mu) / scale, (N_i, d) each."""

    factors: tuple[Array, ...]
    kind: ClassVar[CovarianceKind] = CovarianceKind.MATRIX_FREE

    @classmethod
    def of(cls, shards: Shards, moments: Moments, xp: Namespace, device: Any = None) -> MatrixFree:
        """Centred copies of each node's rows, in the working dtype."""
        centring = moments.centring(shards.n_nodes)
        factors = []
        for block in shards.blocks:
            rows = np.empty((block.n_rows, block.n_features), dtype=shards.dtype)
            for start, chunk in centring.chunks(block):
                rows[start : start + len(chunk)] = chunk
            factors.append(place(rows, xp, device))
        return cls(tuple(factors))

    @property
    def n_features(self) -> int:
        return int(self.factors[0].shape[1])

    def place(self, values: np.ndarray) -> Array:
        return like(values, self.factors[0])

    def apply(self, X: Array) -> Array:
        """A_i^T (A_i X_i) per node."""
        xp = namespace(X)
        # Nodes have different numbers of rows, and padding would cost more than this loop.
        products = [xp.matmul(factor.mT, xp.matmul(factor, X[node, :, :])) for node, factor in enumerate(self.factors)]
        return xp.stack(products)


def place(values: np.ndarray, xp: Namespace, device: Any) -> Array:
    """Values as an array of a namespace on a device, in the same dtype."""
    return xp.asarray(values, dtype=getattr(xp, values.dtype.name), device=device)
