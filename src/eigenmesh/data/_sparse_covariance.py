"""The covariance of sparse samples, and helpers of all kinds of covariance."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import ClassVar

import numpy as np

from eigenmesh.arrays import Array, namespace
from eigenmesh.data._block import INDEX_BYTES, Block
from eigenmesh.data._choice import FILE_COPY_BYTES, CovarianceKind
from eigenmesh.data._moments import Moments
from eigenmesh.data._place import CHUNK_BYTES
from eigenmesh.data._shards import Shards
from eigenmesh.data._source import Samples
from eigenmesh.errors import InputError

# Sparse rows to make dense at a time, where that cannot be avoided.
DENSE_ROWS = 64
# Bytes of an entry of a sparse float64 matrix.
STORED_BYTES = 8 + INDEX_BYTES
# Columns to multiply at a time: with fewer, reading the entries again takes longer.
COLUMNS = 8
# Bytes of stored rows, and columns, whose products are formed at a time.
FORMED_BYTES, COLUMNS_FORMED = 32 * 2**20, 512
# Fewest bytes per column of the stored rows that are multiplied at a time.
BYTES_PER_COLUMN = 64


@dataclass(frozen=True, eq=False)
class Sparse:
    """C_i of CSR rows, centred without making them dense.

    With weights w = sqrt(M/(N-1)) / scale on rows and x = w X_i::

        Z = Y_i x - 1 (mu^T x),  C_i X_i = w (Y_i^T Z - mu (1^T Z))

    matrices : Y_i (N_i, d) in float64; a Block for rows that are read or converted in pieces, for every product; counts
    : number of samples that each row stands for, (N_i,), a factor of Z; None if each is one sample.
    """

    matrices: tuple[Samples | Block, ...]
    mean: np.ndarray
    weights: np.ndarray
    counts: tuple[np.ndarray | None, ...]
    fills: bool = False
    kind: ClassVar[CovarianceKind] = CovarianceKind.SPARSE

    @classmethod
    def of(cls, shards: Shards, moments: Moments) -> Sparse:
        """Rows of the nodes, held if they are float64 in memory or a small file; missing entries become the mean."""
        lazy = cls.reading(shards, moments)

        def is_held(block: Block) -> bool:
            small = (block.n_stored or 0) * STORED_BYTES <= FILE_COPY_BYTES
            return block.dtype == np.float64 if block.in_memory else small

        held = (lazy._filled(block.read(slice(None))) if is_held(block) else block for block in shards.blocks)
        return replace(lazy, matrices=tuple(held))

    @classmethod
    def reading(cls, shards: Shards, moments: Moments) -> Sparse:
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
        weights, mean = self.weights[:, np.newaxis], self.mean[:, np.newaxis]
        for node, rows in enumerate(self.matrices):
            for columns in np.array_split(np.arange(k), 1 if isinstance(rows, Block) else -(-k // COLUMNS)):
                some = slice(columns[0], columns[-1] + 1)
                total, sums = self._uncentred(node, np.multiply(weights, X[node, :, some], order="C"))
                total -= mean * sums
                total *= weights
                product[node, :, some] = total
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
