"""The covariance of each node as an operator, C_i X_i, of one of four kinds."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, Protocol

import numpy as np

from eigenmesh.arrays import Array, Parts, column_norms, everywhere, like, namespace, symmetric_product, to_numpy
from eigenmesh.data._block import Block
from eigenmesh.data._centring import Centring
from eigenmesh.data._choice import CovarianceKind, Sizes
from eigenmesh.data._moments import Moments
from eigenmesh.data._place import HOST, Place, chunk_bytes
from eigenmesh.data._shards import Shards
from eigenmesh.data._sparse_covariance import Sparse, squares_beyond

# Largest size of a stack padded with zero rows, relative to the rows of the nodes.
MOST_PADDING = 1.25


class Covariance(Protocol):
    """C_i = (M/(N-1)) (Y_i - mu)^T (Y_i - mu) of the nodes in this process, eq (1), with scaled columns on request."""

    @property
    def kind(self) -> CovarianceKind:
        """How products are computed."""

    @property
    def n_features(self) -> int:
        """Number of columns of the data, d."""

    def place(self, values: np.ndarray) -> Array:
        """Values of any shape in the library, dtype and device of ``apply``."""

    @property
    def rounding_size(self) -> float:
        """Size of what cancels inside a product, in float64; 0 if nothing does."""
        return 0.0

    def apply(self, X: Array) -> Array:
        """C_i X_i of every node in this process, in the library and dtype of X: (nodes, d, k) -> (nodes, d, k)."""

    def traces_beyond(self, U: np.ndarray) -> np.ndarray:
        """``trace((I - U U^T) C_i (I - U U^T))`` without cancellation, for orthonormal U: (d, K) -> (nodes,)."""


@dataclass(frozen=True, eq=False)
class Formed:
    """C_i as matrices, eq (1): matrices (nodes, d, d), symmetric to the last bit."""

    matrices: Array
    rounding_size: float = 0.0
    kind: ClassVar[CovarianceKind] = CovarianceKind.FORMED

    @classmethod
    def of(cls, shards: Shards, moments: Moments, place: Place) -> Formed:
        """Sum of chunk^T chunk over each node's prepared rows; very sparse rows stay sparse."""
        xp, d, centring = place.xp, shards.n_features, moments.centring(shards.n_nodes)
        matrices = xp.empty((len(shards.blocks), d, d), dtype=xp.float64, device=place.device)
        thin = Sparse.reading(shards, moments) if shards.is_sparse else None
        rounding_size = 0.0
        for node, block in enumerate(shards.blocks):
            if thin is not None and Sizes.of(block).is_thin:
                matrices[node, ...] = place.put(thin.formed(node))
                rounding_size = thin.rounding_size
                continue
            total: Array = 0.0
            for _, chunk in centring.chunks(block, place=place):
                total += chunk.mT @ chunk
            matrices[node, ...] = (total + total.mT) * 0.5
        return cls(matrices, rounding_size)

    @property
    def n_features(self) -> int:
        return int(self.matrices.shape[1])

    def place(self, values: np.ndarray) -> Array:
        return like(values, self.matrices)

    def apply(self, X: Array) -> Array:
        return symmetric_product(self.matrices, X)

    def traces_beyond(self, U: np.ndarray) -> np.ndarray:
        beyond = np.linalg.qr(U, mode="complete")[0][:, U.shape[1] :]
        return np.array([np.vdot(beyond, matrix @ beyond) for matrix in to_numpy(self.matrices)])


@dataclass(frozen=True, eq=False)
class MatrixFree:
    """C_i = A_i^T A_i through its factors A_i = sqrt(M/(N-1)) (Y_i - mu) / scale, (N_i, d) each.

    stack : the same as one array (nodes, n, d), padded with zero rows; None if they are not stacked.
    """

    factors: tuple[Array, ...]
    stack: Array | None = None
    kind: ClassVar[CovarianceKind] = CovarianceKind.MATRIX_FREE
    rounding_size: ClassVar[float] = 0.0

    @classmethod
    def of(cls, shards: Shards, moments: Moments, place: Place) -> MatrixFree:
        """Centred copies of each node's rows."""
        xp, centring = place.xp, moments.centring(shards.n_nodes)
        counts = [block.n_rows for block in shards.blocks]
        # On a GPU, nodes with similar numbers of rows are stacked, so that one call multiplies all of them.
        padded = len(counts) * max(counts)
        stacks = place.is_gpu and padded <= MOST_PADDING * sum(counts)
        shapes = [(max(counts) if stacks else count, shards.n_features) for count in counts]
        stack = xp.zeros((len(counts), *shapes[0]), dtype=xp.float64, device=place.device) if stacks else None
        factors = []
        for node, block in enumerate(shards.blocks):
            rows = xp.empty(shapes[node], dtype=xp.float64, device=place.device) if stack is None else stack[node, ...]
            for start, chunk in centring.chunks(block, place=place):
                rows[start : start + chunk.shape[0], :] = chunk
            factors.append(rows)
        return cls(tuple(factors), stack)

    @property
    def n_features(self) -> int:
        return int(self.factors[0].shape[1])

    def place(self, values: np.ndarray) -> Array:
        return like(values, self.factors[0])

    def apply(self, X: Array) -> Array:
        """A_i^T (A_i X_i) per node: (nodes, d, k) -> (nodes, d, k)."""
        if self.stack is not None:
            return self.stack.mT @ (self.stack @ X)
        total = namespace(X).zeros_like(X)
        # Nodes have different numbers of rows, and padding would cost more than this loop.
        for node, factor in enumerate(self.factors):
            # The pieces of a node that reads its rows in chunks: they stay in the cache, and the bits are the same.
            step = max(1, chunk_bytes(factor.device) // (8 * factor.shape[1]))
            for start in range(0, factor.shape[0], step):
                piece = factor[start : min(start + step, factor.shape[0]), :]
                total[node, ...] += piece.mT @ (piece @ X[node, ...])
        return total

    def traces_beyond(self, U: np.ndarray) -> np.ndarray:
        return np.array([squares_beyond(factor, U) for factor in self.factors])


@dataclass(frozen=True, eq=False)
class Chunked:
    """C_i = A_i^T A_i from samples that are read in chunks, one pass over the data per product.

    Sources that are read by columns need two passes: the first completes ``A_i X``, (N_i, k).
    """

    blocks: tuple[Block, ...]
    centring: Centring
    where: Place = HOST
    kind: ClassVar[CovarianceKind] = CovarianceKind.CHUNKED
    rounding_size: ClassVar[float] = 0.0

    @property
    def n_features(self) -> int:
        return self.blocks[0].n_features

    def place(self, values: np.ndarray) -> Array:
        return self.where.put(np.asarray(values, dtype=np.float64))

    def apply(self, X: Array) -> Array:
        """Sum over chunks of chunk^T (chunk X_i): (nodes, d, k) -> (nodes, d, k)."""
        total = namespace(X).zeros_like(X)
        for node, block in enumerate(self.blocks):
            if block.by_columns:
                scores = self._scores(block, X[node, ...])
                for columns, piece in self.centring.columns(block, self.where):
                    total[node, columns, :] = piece.mT @ scores
                continue
            for _, chunk in self.centring.chunks(block, place=self.where):
                total[node, ...] += chunk.mT @ (chunk @ X[node, ...])
        return total

    def traces_beyond(self, U: np.ndarray) -> np.ndarray:
        return np.array([self._trace_beyond(block, U) for block in self.blocks])

    def _trace_beyond(self, block: Block, U: np.ndarray) -> float:
        if not block.by_columns:
            return sum(squares_beyond(rows, U) for _, rows in self.centring.chunks(block, place=self.where))
        axes = self.where.put(U)
        scores, xp = self._scores(block, axes), namespace(axes)
        pieces = self.centring.columns(block, self.where)
        return sum(float(xp.sum((piece - scores @ axes[columns, :].mT) ** 2)) for columns, piece in pieces)

    def _scores(self, block: Block, X: Array) -> Array:
        """``A_i X`` of a block that is read by columns: (d, k) -> (n, k)."""
        total: Array = 0.0
        for columns, piece in self.centring.columns(block, self.where):
            total = total + piece @ X[columns, :]
        return total


@dataclass(frozen=True, eq=False)
class OneByOne:
    """Covariances of several nodes, each with the bits that it would have alone in a process."""

    parts: tuple[Covariance, ...]
    rounding_size: float = 0.0

    @property
    def kind(self) -> CovarianceKind:
        return self.parts[0].kind

    @property
    def n_features(self) -> int:
        return self.parts[0].n_features

    def place(self, values: np.ndarray) -> Array:
        return self.parts[0].place(values)

    def apply(self, X: Array) -> Array:
        products = [part.apply(X[node : node + 1, ...]) for node, part in enumerate(self.parts)]
        return namespace(X).concat(products, axis=0)

    def traces_beyond(self, U: np.ndarray) -> np.ndarray:
        return np.concatenate([part.traces_beyond(U) for part in self.parts])


class BlockProducts:
    """``C_i X`` of the nodes in this process, for an average, and their largest columns.

    X : (copies, d, k), one block for all nodes or one for each. Large products are made when they are needed.
    """

    def __init__(self, covariance: Covariance, X: Array, n_nodes: int) -> None:
        self._norms: dict[int, Array] = {}
        shared, xp = everywhere(X, n_nodes), namespace(X)
        if not isinstance(covariance, OneByOne):
            self.parts = covariance.apply(shared)
            self._norms = dict(enumerate(xp.unstack(xp.max(column_norms(self.parts), axis=(1, 2)))))
            return
        held = covariance.parts

        def product(node: int) -> Array:
            made = held[node].apply(shared[node : node + 1, ...])
            self._norms[node] = xp.max(column_norms(made))
            return made

        self.parts = Parts(product, n_nodes, X)

    @property
    def norms(self) -> Array:
        """Norm of the largest column at each node, once the products are averaged: (nodes,)."""
        norms = [self._norms[node] for node in sorted(self._norms)]
        return namespace(norms[0]).stack(norms)
