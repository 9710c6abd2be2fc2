"""Rows of one source: of a node, of a table with labels, and prepared for products (centred, weighted, filled)."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
import scipy.sparse

from eigenmesh.arrays import Array, namespace
from eigenmesh.data._place import HOST, Place, chunk_bytes
from eigenmesh.data._source import Samples, Source, TensorSource
from eigenmesh.data._splits import Rows
from eigenmesh.errors import DataError, InputError

# Bytes of a column number in CSR, as scipy stores it up to 2^31 entries.
INDEX_BYTES = 4


@dataclass(frozen=True, eq=False)
class Block:
    """Rows of one source that one node holds. A block is itself a source; nothing is copied before it is read.

    rows: kept as ``slice(start, stop)`` or as row numbers. names: of the columns, if not those of the source.
    """

    source: Source
    rows: Rows = field(default_factory=lambda: slice(None))
    names: tuple[str, ...] | None = None

    def __post_init__(self) -> None:
        object.__setattr__(self, "rows", _plain_rows(self.rows, self.source.shape[0]))

    @property
    def n_rows(self) -> int:
        return _count(self.rows)

    @property
    def n_features(self) -> int:
        return int(self.source.shape[1])

    @property
    def shape(self) -> tuple[int, int]:
        return self.n_rows, self.n_features

    @property
    def dtype(self) -> np.dtype:
        return np.dtype(self.source.dtype)

    @property
    def feature_names(self) -> tuple[str, ...] | None:
        return self.source.feature_names if self.names is None else self.names

    @property
    def is_sparse(self) -> bool:
        return self.source.n_stored is not None

    @property
    def in_memory(self) -> bool:
        return self.source.in_memory

    @property
    def device(self) -> Any:
        """The device that the samples lie on; None in NumPy."""
        return getattr(self.source, "device", None)

    @property
    def in_place(self) -> bool:
        """Whether all rows are one piece of float64 numbers in memory."""
        matrix = getattr(self.source, "matrix", None)
        if not isinstance(matrix, np.ndarray) or not isinstance(self.rows, slice) or not self.in_memory:
            return False
        return matrix.dtype == np.float64 and bool(matrix[self.rows].flags.forc)

    @property
    def n_stored(self) -> int | None:
        """Stored entries of these rows if they are as full as the others, None if the source is dense."""
        whole = self.source.n_stored
        return None if whole is None else round(whole * self.n_rows / max(1, self.source.shape[0]))

    @property
    def n_bytes(self) -> int:
        """Size of these rows as they are stored."""
        stored, item = self.n_stored, self.dtype.itemsize
        return self.n_rows * self.n_features * item if stored is None else stored * (item + INDEX_BYTES)

    def read(self, rows: Rows) -> Samples:
        """Some rows of the block, (len(rows), d), in the source's dtype."""
        rows = _plain_rows(rows, self.n_rows)
        piece = self.source.read(self._in_source(rows))
        piece = piece if self.is_sparse or self.device is not None else np.asarray(piece)
        shape = _count(rows), self.n_features
        if tuple(piece.shape) != shape:
            reader = f"{type(self.source).__name__}.read"
            raise DataError(f"{reader} returned shape {piece.shape} instead of {shape}; return all rows and columns.")
        return piece

    def place(self, row: int, column: int) -> str | None:
        """Where an entry is, as its file counts rows and columns; None where there is no file."""
        place = getattr(self.source, "place", None)
        at = self.rows.start + row if isinstance(self.rows, slice) else int(self.rows[row])
        return None if place is None else place(at, column)

    def gathered(self) -> Block:
        """The same rows next to one another, if they are scattered over a tensor."""
        if self.device is None or isinstance(self.rows, slice):
            return self
        return Block(TensorSource(self.source.read(self.rows), self.feature_names), names=self.names)

    def thinned(self, n_rows: int) -> Block:
        """So many of these rows, evenly spread; all of them where there are no more."""
        if n_rows >= self.n_rows:
            return self
        chosen = np.linspace(0, self.n_rows - 1, n_rows).round().astype(np.intp)
        return Block(self.source, self._in_source(chosen), self.names)

    def chunks(self, n_bytes: int | None = None, made_dense: bool = True) -> Iterator[tuple[int, Samples]]:
        """Pairs (first row, piece) that cover the block's rows in order.

        A piece takes at most n_bytes as dense float64 or, without ``made_dense``, as it is stored.
        """
        n_bytes = n_bytes or chunk_bytes(self.device)
        entries = self.n_rows * self.n_features if made_dense or self.n_stored is None else 2 * self.n_stored
        step = max(1, n_bytes * self.n_rows // (8 * max(1, entries)))
        for start in range(0, self.n_rows, step):
            yield start, self.read(slice(start, start + step))

    def _in_source(self, rows: Rows) -> Rows:
        if not isinstance(self.rows, slice):
            return self.rows[rows]
        first = self.rows.start
        return slice(first + rows.start, first + rows.stop) if isinstance(rows, slice) else first + rows


@dataclass(frozen=True, eq=False)
class Table:
    """Samples (N, d) with labels and ids, (N,) each where there are any, and the name of the file or data set."""

    source: Source
    labels: np.ndarray | None = None
    ids: np.ndarray | None = None
    name: str = ""

    @property
    def X(self) -> Samples:
        """All samples (n_samples, n_features), dense or CSR. A mapped file stays mapped; others are read whole."""
        return self.source.read(slice(0, self.n_samples))

    @property
    def n_samples(self) -> int:
        return int(self.source.shape[0])

    @property
    def feature_names(self) -> tuple[str, ...] | None:
        return self.source.feature_names

    def take(self, rows: slice) -> Table:
        """Only these rows; if the source is not in memory, they are read later."""
        if rows == slice(0, self.n_samples):
            return self
        labels, ids = [None if values is None else values[rows] for values in (self.labels, self.ids)]
        return replace(self, source=Block(self.source, rows), labels=labels, ids=ids)


@dataclass(frozen=True, eq=False)
class Centring:
    """The map y -> (y - mean - rest) * factor on rows; with ``fills``, a missing (non-finite) entry becomes 0."""

    mean: np.ndarray
    factor: np.ndarray | float = 1.0
    fills: bool = False
    rest: np.ndarray | None = None
    _placed: dict[Any, list[Any]] = field(default_factory=dict, init=False, repr=False)

    def apply(self, piece: Samples) -> Array:
        """Dense (rows, d) float64 of a piece in any dtype, where it lies; a sparse piece is made dense."""
        dense = piece.toarray() if scipy.sparse.issparse(piece) else piece
        xp = namespace(dense)
        if dense.device not in self._placed:
            # Once, since moving anything to a GPU waits for all that it is doing.
            self._placed[dense.device] = [
                xp.asarray(value, device=dense.device) if isinstance(value, np.ndarray) else value
                for value in (self.mean, self.rest, self.factor)
            ]
        mean, rest, factor = self._placed[dense.device]
        centred = self._centred(dense, mean)
        if rest is not None:
            centred -= rest
        if isinstance(self.factor, np.ndarray) or self.factor != 1.0:
            centred *= factor
        return centred

    def stored(self, piece: Samples) -> Array:
        """The same, unweighted, for only the stored entries of a CSR piece: (stored,) float64."""
        return self._centred(piece.data, self.mean[piece.indices])

    def chunks(self, block: Block, n_bytes: int | None = None, place: Place = HOST) -> Iterator[tuple[int, Array]]:
        """Pairs (first row, prepared rows) that cover a block, at a place; a piece takes at most n_bytes as float64."""
        for start, piece in block.chunks(n_bytes or chunk_bytes(place.device)):
            yield start, self.apply(piece if scipy.sparse.issparse(piece) else place.put(piece))

    def _centred(self, values: Array, mean: Array) -> Array:
        xp = namespace(values)
        # In float64 as the mean is, whatever the values are.
        centred = xp.astype(values - mean, xp.float64, copy=False)
        if self.fills:
            centred[~xp.isfinite(centred)] = 0.0
        return centred


def _plain_rows(rows: Rows, total: int) -> Rows:
    """Rows within 0..total-1, in one of the two forms that every source takes: slice(start, stop) or row numbers."""
    if isinstance(rows, slice):
        run = range(total)[rows]
        return slice(run.start, run.start + len(run)) if run.step == 1 else np.asarray(run, dtype=np.intp)
    rows = np.asarray(rows)
    if rows.ndim != 1 or rows.dtype.kind not in "iu":
        raise InputError(f"rows must be a slice or a 1-D integer array; got {rows.dtype} of shape {rows.shape}.")
    if rows.size and not 0 <= rows.min() <= rows.max() < total:
        raise InputError(f"rows must be in 0..{total - 1}; got {rows.min()}..{rows.max()}.")
    return rows


def _count(rows: Rows) -> int:
    return int(rows.stop - rows.start) if isinstance(rows, slice) else len(rows)
