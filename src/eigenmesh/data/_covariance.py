"""The covariance of each node as an operator, C_i X_i, of one of four kinds."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar, Protocol

import numpy as np

from eigenmesh.arrays import Array, Namespace, like, namespace, to_numpy
from eigenmesh.arrays import numpy as numpy_namespace
from eigenmesh.data._block import Block, Centring
from eigenmesh.data._choice import MEMORY_BYTES, CovarianceKind, choose
from eigenmesh.data._moments import Moments
from eigenmesh.data._shards import Shards
from eigenmesh.data._sparse_covariance import Sparse, require_numpy, squares_beyond


class Covariance(Protocol):
    """C_i = (M/(N-1)) (Y_i - mu)^T (Y_i - mu) of the nodes held here, eq (1), with scaled columns on request."""

    @property
    def kind(self) -> CovarianceKind:
        """How products are computed."""

    @property
    def n_features(self) -> int:
        """Number of columns of the data, d."""

    def place(self, values: np.ndarray) -> Array:
        """Values in the library, dtype and device that ``apply`` takes."""

    @property
    def rounding_size(self) -> float:
        """Size of what cancels inside a product, in float64; 0 if nothing does."""
        return 0.0

    def apply(self, X: Array) -> Array:
        """C_i X_i at every node held here, in X's library and dtype: (nodes, d, k) -> (nodes, d, k)."""

    def traces_beyond(self, U: np.ndarray) -> np.ndarray:
        """``trace((I - U U^T) C_i (I - U U^T))`` without cancellation, for orthonormal U: (d, K) -> (nodes,)."""


@dataclass(frozen=True, eq=False)
class Formed:
    """C_i as matrices, eq (1): matrices (nodes, d, d), symmetric to the last bit."""

    matrices: Array
    kind: ClassVar[CovarianceKind] = CovarianceKind.FORMED
    rounding_size: ClassVar[float] = 0.0

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
        return cls(_placed(matrices, xp, device))

    @property
    def n_features(self) -> int:
        return int(self.matrices.shape[1])

    def place(self, values: np.ndarray) -> Array:
        return like(values, self.matrices)

    def apply(self, X: Array) -> Array:
        return self.matrices @ X

    def traces_beyond(self, U: np.ndarray) -> np.ndarray:
        beyond = np.linalg.qr(U.astype(np.float64), mode="complete")[0][:, U.shape[1] :]
        matrices = to_numpy(self.matrices).astype(np.float64, copy=False)
        return np.array([np.vdot(beyond, matrix @ beyond) for matrix in matrices])


@dataclass(frozen=True, eq=False)
class MatrixFree:
    """C_i = A_i^T A_i through its factors A_i = sqrt(M/(N-1)) (Y_i - mu) / scale, (N_i, d) each."""

    factors: tuple[Array, ...]
    kind: ClassVar[CovarianceKind] = CovarianceKind.MATRIX_FREE
    rounding_size: ClassVar[float] = 0.0

    @classmethod
    def of(cls, shards: Shards, moments: Moments, xp: Namespace, device: Any = None) -> MatrixFree:
        """Centred copies of each node's rows, in the working dtype."""
        centring = moments.centring(shards.n_nodes)
        factors = []
        for block in shards.blocks:
            rows = np.empty((block.n_rows, block.n_features), dtype=shards.dtype)
            for start, chunk in centring.chunks(block):
                rows[start : start + len(chunk)] = chunk
            factors.append(_placed(rows, xp, device))
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

    def traces_beyond(self, U: np.ndarray) -> np.ndarray:
        return np.array([squares_beyond(to_numpy(factor), U) for factor in self.factors])


@dataclass(frozen=True, eq=False)
class Chunked:
    """C_i = A_i^T A_i from samples that are read in chunks, one pass over the data per product."""

    blocks: tuple[Block, ...]
    centring: Centring
    dtype: np.dtype
    kind: ClassVar[CovarianceKind] = CovarianceKind.CHUNKED
    rounding_size: ClassVar[float] = 0.0

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
            for _, chunk in self.centring.chunks(block):
                piece = chunk.astype(X.dtype, copy=False)
                total[node] += piece.T @ (piece @ X[node])
        return total.astype(X.dtype, copy=False)

    def traces_beyond(self, U: np.ndarray) -> np.ndarray:
        chunks = (self.centring.chunks(block) for block in self.blocks)
        return np.array([sum(squares_beyond(rows, U) for _, rows in pieces) for pieces in chunks])


def build_covariance(
    shards: Shards,
    moments: Moments,
    *,
    kind: CovarianceKind | None = None,
    n_components: int = 10,
    products: int = 50,
    memory_bytes: int = MEMORY_BYTES,
    xp: Namespace | None = None,
    device: Any = None,
) -> Covariance:
    """Covariance of the nodes held here, of the given kind or of the one that ``choose`` picks.

    n_components, products and memory_bytes are for ``choose``. xp and device say which library and device hold the
    arrays, NumPy by default; chunked and sparse covariances work with NumPy only.
    """
    xp = numpy_namespace if xp is None else xp
    kind = kind or choose(shards, n_components, products, memory_bytes).kind
    if kind is CovarianceKind.FORMED:
        return Formed.of(shards, moments, xp, device)
    if kind is CovarianceKind.MATRIX_FREE:
        return MatrixFree.of(shards, moments, xp, device)
    require_numpy(xp.empty(0), kind)
    if kind is CovarianceKind.SPARSE:
        return Sparse.of(shards, moments)
    return Chunked(shards.blocks, moments.centring(shards.n_nodes), shards.dtype)


def _placed(values: np.ndarray, xp: Namespace, device: Any) -> Array:
    return xp.asarray(values, dtype=getattr(xp, values.dtype.name), device=device)
