"""The Gram matrix of columns that are split over the nodes, as the covariance operator of each node.

Node j holds N samples of d_j features. With ``A_j = sqrt(M/(N-1)) (Y_j - mean) / scale``, (N, d_j), its operator is
``A_j A_j^T``, (N, N), and the mean over the nodes is the Gram matrix ``G = A A^T`` of all centred columns over N - 1.
G has the eigenvalues of the covariance; its eigenvectors u are scores, and ``v = A^T u / sqrt(theta)`` are loadings, of
which node j can compute the part of its own columns only.

Columns are centred, so G 1 = 0. The Householder reflection H that turns the vector of ones into the first axis removes
it: vectors here are ``x' = [0 I] H x``, (N - 1,), for any x with mean zero.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

import numpy as np

from eigenmesh.arrays import Array, everywhere, namespace, to_numpy
from eigenmesh.data._block import Block
from eigenmesh.data._centring import Centring
from eigenmesh.data._choice import CovarianceKind
from eigenmesh.data._covariance import Covariance, Formed, MatrixFree
from eigenmesh.data._feature_shards import FeatureShards
from eigenmesh.data._moments import Moments
from eigenmesh.data._place import CHUNK_BYTES, Place


def lifted(X: Array) -> Array:
    """``x = H [0, x']``, vectors with mean zero: (..., N - 1, k) -> (..., N, k)."""
    xp, n = namespace(X), X.shape[-2] + 1
    first = xp.sum(X, axis=-2, keepdims=True) / n**0.5
    return xp.concat([first, X - first / (n**0.5 - 1)], axis=-2)


def lowered(X: Array) -> Array:
    """``x' = [0 I] H x``, which removes the mean of x: (..., N, k) -> (..., N - 1, k)."""
    n = X.shape[-2]
    shift = (namespace(X).sum(X, axis=-2, keepdims=True) / n**0.5 - X[..., :1, :]) / (n**0.5 - 1)
    return X[..., 1:, :] - shift


@dataclass(frozen=True, eq=False)
class ColumnMoments(Moments):
    """Moments of the columns in this process, and the numbers that all nodes agree on.

    total : trace of G; n_columns : d of all nodes together.
    """

    total: float = 0.0
    n_columns: int = 0

    @classmethod
    def together(cls, parts: Sequence[Moments], order: np.ndarray, agreed: ColumnMoments) -> ColumnMoments:
        """Moments of the columns of several nodes, in this order, with the numbers that all nodes agree on."""

        def joined(name: str) -> np.ndarray:
            return np.asarray(np.concatenate([getattr(part, name) for part in parts])[order])

        return replace(
            agreed,
            mean=joined("mean"),
            variance=joined("variance"),
            scale=None if parts[0].scale is None else joined("scale"),
            n_missing=sum(part.n_missing for part in parts),
        )

    @property
    def n_features(self) -> int:
        return self.n_columns

    @property
    def total_variance(self) -> float:
        return self.total

    @property
    def diagonal(self) -> np.ndarray:
        """Upper bound of the diagonal of G, (N - 1,): its trace, because no node reveals its share of the diagonal."""
        return np.full(int(self.n_samples) - 1, self.total)


@dataclass(frozen=True, eq=False)
class Gram:
    """``M A_j A_j^T`` of the nodes in this process, on vectors of mean zero: (nodes, N - 1, k) -> (nodes, N - 1, k).

    parts : the operator of each node, or None if its columns are read in chunks of rows, twice per product; order : of
    the columns, as in ``FeatureShards``.
    """

    blocks: tuple[Block, ...]
    centrings: tuple[Centring, ...]
    parts: tuple[Covariance | None, ...]
    kind: CovarianceKind
    where: Place
    n_nodes: int
    order: np.ndarray
    rounding_size: float = 0.0

    @classmethod
    def of(
        cls, shards: FeatureShards, moments: tuple[Moments, ...], kinds: tuple[CovarianceKind, ...], place: Place
    ) -> Gram:
        """From the moments of each node's columns. Each node has its own kind, so bits do not depend on other nodes."""
        centrings = tuple(each.centring(shards.n_nodes) for each in moments)
        triples = zip(shards.blocks, centrings, kinds, strict=True)
        parts = tuple(_part(block, centring, kind, place) for block, centring, kind in triples)
        return cls(shards.blocks, centrings, parts, kinds[0], place, shards.n_nodes, shards.order)

    @property
    def n_features(self) -> int:
        return self.blocks[0].n_rows - 1

    def place(self, values: np.ndarray) -> Array:
        return self.where.put(np.asarray(values, dtype=np.float64))

    def apply(self, X: Array) -> Array:
        products = []
        for node, part in enumerate(self.parts):
            own = X[node : node + 1, ...]
            products.append(self._in_chunks(node, own) if part is None else part.apply(own))
        return namespace(X).concat(products, axis=0)

    def across(self, X: Array) -> list[Array]:
        """``A_j^T x`` of each node in this process: (1 or nodes, N - 1, k) -> (d_j, k) each."""
        full = everywhere(lifted(X), len(self.blocks))
        return [self._across(node, full[node, ...]) for node in range(len(self.blocks))]

    def squares_across(self, X: Array) -> Array:
        """``|A_j^T x|^2`` of each node in this process: (1 or nodes, N - 1, k) -> (nodes, k)."""
        xp = namespace(X)
        squares = [xp.sum(shown * shown, axis=0) for shown in self.across(X)]
        return xp.stack(squares)

    def traces_beyond(self, U: np.ndarray) -> np.ndarray:
        """By rows of ``(I - U U^T) A_j = A_j - U (A_j^T U)^T``: (N - 1, K) -> (nodes,)."""
        full, traces = lifted(U[np.newaxis])[0], np.zeros(len(self.blocks))
        for node in range(len(self.blocks)):
            shown = to_numpy(self._across(node, self.where.put(full)))
            for start, piece in self._chunks(node):
                rows = to_numpy(piece)
                traces[node] += np.sum((rows - full[start : start + len(rows)] @ shown.T) ** 2)
        return traces

    def _in_chunks(self, node: int, X: Array) -> Array:
        xp, full = namespace(X), lifted(X)[0, ...]
        shown = self._across(node, full)
        products = [piece @ shown for _, piece in self._chunks(node)]
        return lowered(xp.concat(products, axis=0))[None, ...]

    def _across(self, node: int, full: Array) -> Array:
        total: Array = 0.0
        for start, piece in self._chunks(node):
            total = total + piece.mT @ full[start : start + piece.shape[0], :]
        return total

    def _chunks(self, node: int) -> Iterator[tuple[int, Array]]:
        return self.centrings[node].chunks(self.blocks[node], place=self.where)


def _part(block: Block, centring: Centring, kind: CovarianceKind, place: Place) -> Covariance | None:
    """The operator of one node: a matrix (N - 1, N - 1), a copy of its columns, or None for chunks."""
    if kind is CovarianceKind.CHUNKED:
        return None
    xp, n = place.xp, block.n_rows - 1
    pieces = _columns(block, centring, place)
    if kind is CovarianceKind.FORMED:
        total = sum((piece @ piece.mT for _, piece in pieces), xp.zeros((n, n), dtype=xp.float64, device=place.device))
        return Formed(((total + total.mT) * 0.5)[None, ...])
    factor = xp.empty((n, block.n_features), dtype=xp.float64, device=place.device)
    for start, piece in pieces:
        factor[:, start : start + piece.shape[1]] = piece
    return MatrixFree((factor.mT,))


def _columns(block: Block, centring: Centring, place: Place) -> Iterator[tuple[int, Array]]:
    """Pairs (first column, prepared columns without their mean) of a block in memory."""
    rows = block.read(slice(None))
    rows = rows.tocsc() if block.is_sparse else place.put(rows)
    step = max(1, 4 * CHUNK_BYTES // (8 * block.n_rows))
    for start in range(0, block.n_features, step):
        part = slice(start, start + step)
        piece = centring.part(part).apply(rows[:, part])
        yield start, lowered(piece if not block.is_sparse else place.put(piece))
