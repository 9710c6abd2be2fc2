"""The covariance of each node as an operator, C_i X_i, of one of four kinds."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any, ClassVar, Protocol

import numpy as np

from eigenmesh.arrays import (
    Array,
    Namespace,
    Parts,
    add_gram,
    add_product,
    column_norms,
    everywhere,
    like,
    namespace,
    subtract_outer,
    symmetric_product,
    to_numpy,
)
from eigenmesh.data.block import INDEX_BYTES, Block, lent
from eigenmesh.data.choice import CovarianceKind, Sizes, choose_by_size
from eigenmesh.data.moments import Centring, Moments, Scatter, scaled_mean
from eigenmesh.data.samples import FeatureShards, Partition
from eigenmesh.data.source import CHUNK_BYTES, HELD_BYTES, HOST, Place, Samples
from eigenmesh.errors import InputError

# The covariance of sparse samples, and helpers of all kinds of covariance.


# Sparse rows to make dense at a time, where that cannot be avoided.
DENSE_ROWS = 64
# Bytes of an entry of a sparse float64 matrix.
STORED_BYTES = 8 + INDEX_BYTES
# Columns to multiply at a time: with fewer, reading the entries again takes longer.
COLUMNS = 16
# Bytes of stored rows, and columns, whose products are formed at a time.
FORMED_BYTES, COLUMNS_FORMED = 32 * 2**20, 512
# Fewest bytes per column of the stored rows that are multiplied at a time.
BYTES_PER_COLUMN = 64


@dataclass(frozen=True, eq=False)
class Sparse:
    """C_i of CSR rows, centred without making them dense.

    With weights w = sqrt(M/(N-1)) / scale on rows and x = w X_i::

        Z = Y_i x - 1 (mu^T x),  C_i X_i = w (Y_i^T Z - mu (1^T Z))

    Parameters
    ----------
    matrices : tuple of csr_array or Block
        Y_i (N_i, d) in float64; a Block for rows that are read or converted in pieces, for every product.
    mean : array of shape (d,)
        The pooled mean mu.
    weights : array of shape (d,)
        The factors w.
    counts : tuple of arrays of shape (N_i,) or None
        Numbers of samples that the rows stand for, a factor of Z; None if each is one sample.
    fills : bool
        Whether missing stored entries become the mean.
    """

    matrices: tuple[Samples | Block, ...]
    mean: np.ndarray
    weights: np.ndarray
    counts: tuple[np.ndarray | None, ...]
    fills: bool = False
    kind: ClassVar[CovarianceKind] = CovarianceKind.SPARSE

    @classmethod
    def of(cls, shards: Partition, moments: Moments) -> Sparse:
        """Rows of the nodes, held if they are float64 in memory or a small file; missing entries become the mean."""
        lazy = cls.reading(shards, moments)

        def is_held(block: Block) -> bool:
            small = (block.n_stored or 0) * STORED_BYTES <= HELD_BYTES
            return block.dtype == np.float64 if block.in_memory else small

        held = (lazy._filled(block.read(slice(None))) if is_held(block) else block for block in shards.blocks)
        return replace(lazy, matrices=tuple(held))

    @classmethod
    def reading(cls, shards: Partition, moments: Moments) -> Sparse:
        """The same without rows in memory: they are read in pieces."""
        if not shards.is_sparse:
            raise InputError(f"kind {cls.kind} needs scipy.sparse data; use formed or matrix-free for dense data.")
        centring = moments.centring(shards.n_nodes)
        weights = np.broadcast_to(np.asarray(centring.factor), (shards.n_features,))
        counts = tuple(block.weights for block in shards.blocks)
        return cls(shards.blocks, moments.mean, weights, counts, centring.fills)

    def _filled(self, piece: Samples) -> Samples:
        """A piece in float64, with missing stored entries replaced by the mean."""
        matrix = piece.astype(np.float64, copy=False)
        missing = ~np.isfinite(matrix.data) if self.fills else np.zeros(0, dtype=bool)
        if missing.any():
            matrix = matrix.copy()
            matrix.data[missing] = self.mean[matrix.indices[missing]]
        return matrix

    def _pieces(self, node: int, n_bytes: int | None = None) -> Iterator[tuple[Samples, np.ndarray | None]]:
        """Rows of a node with their weights, (n, d) and (n, 1); None if each row is one sample."""
        rows, counts = self.matrices[node], self.counts[node]
        lazy = isinstance(rows, Block)
        # Each piece makes a product of d rows, so it has several times as many entries.
        n_bytes = n_bytes or max(CHUNK_BYTES, BYTES_PER_COLUMN * self.n_features)
        for start, piece in rows.chunks(n_bytes, made_dense=False) if lazy else [(0, rows)]:
            own = None if counts is None else counts[start : start + piece.shape[0], np.newaxis]
            yield (self._filled(piece) if lazy else piece), own

    @property
    def n_features(self) -> int:
        return len(self.mean)

    def place(self, values: np.ndarray) -> np.ndarray:
        return np.asarray(values, dtype=np.float64)

    @property
    def rounding_size(self) -> float:
        """Largest ``N_i |w mu|^2``, the size of what cancels in both differences."""
        pairs = zip(self.matrices, self.counts, strict=True)
        rows = max(matrix.shape[0] if counts is None else float(counts.sum()) for matrix, counts in pairs)
        return rows * float(np.sum((self.weights * self.mean) ** 2))

    def traces_beyond(self, U: np.ndarray) -> np.ndarray:
        traces = np.zeros(len(self.matrices))
        for node in range(len(self.matrices)):
            for matrix, counts in self._pieces(node):
                for start in range(0, matrix.shape[0], DENSE_ROWS):
                    rows = (matrix[start : start + DENSE_ROWS].toarray() - self.mean) * self.weights
                    if counts is not None:
                        rows *= counts[start : start + DENSE_ROWS] ** 0.5
                    traces[node] += squares_beyond(rows, U)
        return traces

    def formed(self, node: int) -> np.ndarray:
        """``C_i = w (Y^T Y - s mu^T - mu s^T + N_i mu mu^T) w`` with the sums s of the rows: (d, d).

        It computes some columns of Y^T Y at a time, and only the upper triangle of the symmetric matrix.
        """
        d, n_rows = self.n_features, 0.0
        total, sums = np.zeros((d, d)), np.zeros(d)
        blocks = [slice(start, start + COLUMNS_FORMED) for start in range(0, d, COLUMNS_FORMED)]
        for piece, counts in self._pieces(node, FORMED_BYTES):
            # Square roots of the weights on both sides make the matrix symmetric to the last bit.
            rows = piece if counts is None else piece.multiply(counts**0.5).tocsr()
            columns = rows.tocsc()
            for some in blocks:
                total[some, some.start :] += (columns[:, some].T @ rows[:, some.start :]).toarray()
            sums += piece.sum(axis=0) if counts is None else piece.T @ counts[:, 0]
            n_rows += piece.shape[0] if counts is None else float(counts.sum())
        half = sums - n_rows / 2 * self.mean
        for some in blocks:
            total[some, : some.start] = total[: some.start, some].T
        for some in blocks:
            total[some] -= np.outer(half[some], self.mean) + np.outer(self.mean[some], half)
            total[some] *= np.outer(self.weights[some], self.weights)
        return total

    def apply(self, X: Array) -> np.ndarray:
        """C_i X_i, a few columns at a time: each term of a product needs as much memory as its columns.

        If rows are read in pieces, all columns at once, so that the rows are read once.
        """
        require_numpy(X, self.kind)
        nodes, d, k = X.shape
        # Stored by columns, like the blocks of solvers.
        product = np.empty((nodes, k, d)).mT
        weights, shift = self.weights[:, np.newaxis], self.weights * self.mean
        for node, rows in enumerate(self.matrices):
            for columns in np.array_split(np.arange(k), 1 if isinstance(rows, Block) else -(-k // COLUMNS)):
                some = slice(columns[0], columns[-1] + 1)
                with lent((d, len(columns))) as x:
                    np.multiply(weights, X[node, :, some], out=x)
                    total, sums = self._uncentred(node, x)
                np.multiply(total, weights, out=product[node, :, some])
                subtract_outer(product[node, :, some], shift, sums)
                # Free it before the next columns are multiplied.
                del total
        return product

    def _uncentred(self, node: int, x: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """``Y_i^T Z`` and the sums of the rows of Z: (d, k) -> (d, k), (k,)."""
        shift, total, sums = self.mean @ x, None, np.zeros(x.shape[1])
        for matrix, counts in self._pieces(node):
            Z = matrix @ x
            Z -= shift
            if counts is not None:
                Z *= counts
            part = matrix.T @ Z
            total = part if total is None else total + part
            sums += Z.sum(axis=0)
        return np.asarray(total), sums


def require_numpy(array: object, kind: CovarianceKind) -> None:
    """Raise unless the array is a NumPy array."""
    if not isinstance(array, np.ndarray):
        library = f"{type(array).__module__}.{type(array).__name__}"
        raise InputError(f"kind {kind} works on NumPy arrays; got {library}. Use another kind for those.")


def squares_beyond(rows: Array, U: np.ndarray) -> float:
    """``|A (I - U U^T)|_F^2``, computed on the device of the rows: (rows, d), (d, K) -> a number."""
    xp = namespace(rows)
    rest, axes = rows, xp.asarray(U, device=rows.device)
    # Twice, because the first difference may leave rounding along U.
    for _ in range(2):
        rest = rest - (rest @ axes) @ axes.mT
    return float(xp.sum(rest * rest))


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
    """C_i as matrices, eq (1).

    Parameters
    ----------
    matrices : array of shape (nodes, d, d)
        C_i, symmetric to the last bit.
    rounding_size : float
        Size of what cancelled when they were formed; 0 if nothing did.
    """

    matrices: Array
    rounding_size: float = 0.0
    kind: ClassVar[CovarianceKind] = CovarianceKind.FORMED

    @classmethod
    def of(cls, shards: Partition, moments: Moments, place: Place) -> Formed:
        """Sum of chunk^T chunk over each node's prepared rows; very sparse rows stay sparse."""
        xp, d, centring = place.xp, shards.n_features, moments.centring(shards.n_nodes)
        matrices = xp.zeros((len(shards.blocks), d, d), dtype=xp.float64, device=place.device)
        thin = Sparse.reading(shards, moments) if shards.is_sparse else None
        rounding_size = 0.0
        for node, block in enumerate(shards.blocks):
            if thin is not None and Sizes.of(block).is_thin:
                matrices[node, ...] = place.put(thin.formed(node))
                rounding_size = thin.rounding_size
                continue
            add_gram(matrices[node, ...], (chunk for _, chunk in centring.chunks(block, place=place)))
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

    Samples are centred a piece at a time, so that the pieces stay in the cache: one pass over the data per product.
    Sources that are read by columns need two passes: the first completes ``A_i X``, (N_i, k).

    Parameters
    ----------
    rows : tuple of Block
        Y_i.
    centring : Centring
        The map from samples to A_i.
    where : Place
        Library and device of the products.
    kind : CovarianceKind
        Whether the samples are in memory, or are read again for every product.
    """

    rows: tuple[Block, ...]
    centring: Centring
    where: Place = HOST
    kind: CovarianceKind = CovarianceKind.MATRIX_FREE
    rounding_size: ClassVar[float] = 0.0

    @property
    def n_features(self) -> int:
        return self.rows[0].n_features

    def place(self, values: np.ndarray) -> Array:
        # Always a copy by rows, because products have other bits if a block is stored by columns.
        return self.where.put(np.array(values, dtype=np.float64, order="C"))

    def apply(self, X: Array) -> Array:
        """A_i^T (A_i X_i) per node: (nodes, d, k) -> (nodes, d, k)."""
        nodes, d, k = X.shape
        # Stored by columns, like the blocks of solvers.
        total = namespace(X).zeros((nodes, k, d), dtype=X.dtype, device=X.device).mT
        # Nodes have different numbers of rows, and padding would cost more than this loop.
        for node, rows in enumerate(self.rows):
            if rows.by_columns:
                scores = self._scores(rows, X[node, ...])
                for columns, piece in self.centring.columns(rows, self.where):
                    total[node, columns, :] = piece.mT @ scores
                continue
            for _, chunk in self.centring.chunks(rows, place=self.where):
                add_product(total[node, ...], chunk, chunk @ X[node, ...])
        return total

    def traces_beyond(self, U: np.ndarray) -> np.ndarray:
        return np.array([self._trace_beyond(rows, U) for rows in self.rows])

    def _trace_beyond(self, rows: Block, U: np.ndarray) -> float:
        if not rows.by_columns:
            return sum(squares_beyond(chunk, U) for _, chunk in self.centring.chunks(rows, place=self.where))
        axes = self.where.put(U)
        scores, xp = self._scores(rows, axes), namespace(axes)
        pieces = self.centring.columns(rows, self.where)
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


# The Gram matrix of columns that are split over the nodes, as the covariance operator of each node.
#
# Node j holds N samples of d_j features. With ``A_j = sqrt(M/(N-1)) (Y_j - mean) / scale``, (N, d_j), its operator is
# ``A_j A_j^T``, (N, N), and the mean over the nodes is the Gram matrix ``G = A A^T`` of all centred columns over
# N - 1. G has the eigenvalues of the covariance; its eigenvectors u are scores, and ``v = A^T u / sqrt(theta)`` are
# loadings, of which node j can compute the part of its own columns only.
#
# Columns are centred, so G 1 = 0. The Householder reflection H that turns the vector of ones into the first axis
# removes it: vectors here are ``x' = [0 I] H x``, (N - 1,), for any x with mean zero.


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
class Gram:
    """``M A_j A_j^T`` of the nodes in this process, on vectors of mean zero: (nodes, N - 1, k) -> (nodes, N - 1, k).

    parts : the matrix of each node, or None if its columns are read in chunks of rows, twice per product; order : of
    the columns, as in ``FeatureShards``.
    """

    blocks: tuple[Block, ...]
    centrings: tuple[Centring, ...]
    parts: tuple[Formed | None, ...]
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
        parts = tuple(
            _formed_gram(block, centring, place) if kind is CovarianceKind.FORMED else None
            for block, centring, kind in triples
        )
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


def _formed_gram(block: Block, centring: Centring, place: Place) -> Formed:
    """The operator of one node as a matrix (N - 1, N - 1)."""
    n = block.n_rows - 1
    matrices = place.xp.zeros((1, n, n), dtype=place.xp.float64, device=place.device)
    add_gram(matrices[0, ...], (piece.mT for piece in _columns(block, centring, place)))
    return Formed(matrices)


def _columns(block: Block, centring: Centring, place: Place) -> Iterator[Array]:
    """Prepared columns of a block, without their mean, some at a time."""
    rows = block.read(slice(None))
    rows = rows.tocsc() if block.is_sparse else place.put(rows)
    step = max(1, 4 * CHUNK_BYTES // (8 * block.n_rows))
    for start in range(0, block.n_features, step):
        part = slice(start, start + step)
        piece = centring.part(part).apply(rows[:, part])
        yield lowered(piece if not block.is_sparse else place.put(piece))


# Distances of samples from a model: Hotelling's T2 and the squared prediction error (SPE), with their limits.


# Share of normal samples that are beyond a limit.
SHARE = 0.01


def distances(Z: Array, components: np.ndarray, variances: np.ndarray) -> tuple[Array, Array, Array]:
    """T2 and SPE of samples, and the squared residuals of their features: (n, d) -> (n,), (n,), (n, d).

    Z: centred and scaled, on any device. With scores t and residual e of a sample, ``T2 = sum_k t_k^2 / l_k`` and
    ``SPE = |e|^2``.
    """
    xp, axes = namespace(Z), like(components, Z)
    scores = Z @ axes.mT
    squares = (Z - scores @ axes) ** 2
    positive = like(np.maximum(variances, np.finfo(float).tiny), Z)
    return xp.sum(scores**2 / positive, axis=1), xp.sum(squares, axis=1), squares


def t2_limit(n_samples: float, n_components: int) -> float:
    """Limit that 1 % of new samples exceed, ``K (N^2 - 1) / (N (N - K)) F(K, N - K)``; infinite unless N > K."""
    N, K = n_samples, n_components
    if N <= K:
        return float("inf")
    # Imported here, because peers do not need it.
    from scipy import special

    return float(K * (N**2 - 1) / (N * (N - K)) * special.fdtri(K, N - K, 1 - SHARE))


def spe_limit(mean: float, variance: float) -> float:
    """Limit that 1 % of normal samples exceed, ``g chi2(h)`` with g = v / 2m, h = 2 m^2 / v; infinite unless m > 0."""
    if not mean > 0:
        return float("inf")
    variance = max(variance, 1e-12 * mean**2)
    from scipy import special

    return float(variance / (2 * mean) * special.chdtri(2 * mean**2 / variance, SHARE))


# Build the covariance of the nodes in this process, of the requested or the best kind.


# Up to this many columns, matrices of many nodes are multiplied in one call; larger ones one after the other.
SMALL_MATRIX = 128


def build_covariance(
    shards: Partition,
    moments: Moments,
    *,
    kind: CovarianceKind | None = None,
    n_components: int = 10,
    products: int = 50,
    xp: Namespace | None = None,
    device: Any = None,
) -> Covariance:
    """Covariance of the nodes in this process, of the given kind or of the one that ``choose_by_size`` picks.

    A sparse covariance works only with NumPy.

    Parameters
    ----------
    shards : Shards
        Samples of the nodes.
    moments : Moments
        Their pooled moments.
    kind : CovarianceKind or None
        How C_i is stored; None to choose.
    n_components, products : int
        For ``choose_by_size``.
    xp : namespace or None
        Library of the arrays, NumPy by default.
    device : object or None
        Device of that library.
    """
    place = Place.of(xp, device)
    kind = kind or choose_by_size(Sizes.of(*shards.blocks), n_components, products).kind
    if kind is CovarianceKind.FORMED:
        return Formed.of(shards, moments, place)
    if kind is CovarianceKind.SPARSE:
        require_numpy(place.xp.empty(0), kind)
        return Sparse.of(shards, moments)
    rows = shards.blocks if kind is CovarianceKind.CHUNKED else tuple(block.held() for block in shards.blocks)
    return MatrixFree(rows, moments.centring(shards.n_nodes), place, kind)


def is_one_pass(block: Block, kind: CovarianceKind) -> bool:
    """Whether one pass over the rows of a node gives its moments and its covariance; it has a ``Scatter`` then."""
    dense = not block.is_sparse and block.device is None and not block.by_columns
    return kind is CovarianceKind.FORMED and dense


def covariance_of_each(
    shards: Partition,
    moments: Moments,
    kinds: Sequence[CovarianceKind],
    place: Place,
    scatters: Sequence[Scatter | None] = (),
) -> Covariance:
    """The covariances of the nodes in this process, of these kinds, each with the bits that it would have alone.

    ``scatters`` : what a pass over the rows of each node has found, if it was made already.
    """
    centring, lost = moments.centring(shards.n_nodes), _rounding_size(moments)
    triples = zip(shards.ids, kinds, scatters or [None] * len(kinds), strict=True)
    parts = tuple(
        Formed(one.about(centring)[np.newaxis], lost if one.cancels else 0.0)
        if one
        else build_covariance(shards.take([node]), moments, kind=kind, xp=place.xp, device=place.device)
        for node, kind, one in triples
    )
    rounding_size = lost if any(part.rounding_size > 0 for part in parts) else 0.0
    matrices = [part.matrices for part in parts if isinstance(part, Formed)]
    if shards.n_features <= SMALL_MATRIX and len(matrices) == len(parts):
        return Formed(place.xp.concat(matrices), rounding_size)
    return OneByOne(parts, rounding_size)


def _rounding_size(moments: Moments) -> float:
    """Size of what cancels in an average of products with rows that are centred afterwards, from pooled numbers.

    It is the average over the nodes of N_i |w mu|^2, with weights w^2 = M / (N - 1).
    """
    means, n_samples = scaled_mean(moments), moments.n_samples
    return float(means @ means) * n_samples / (n_samples - 1)
