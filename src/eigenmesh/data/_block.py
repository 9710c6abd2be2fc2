"""Rows of a source: the block of a node, and a table with labels, ids and weights."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
import scipy.sparse

from eigenmesh.arrays import Array, namespace
from eigenmesh.data._place import chunk_bytes
from eigenmesh.data._source import Samples, Source, TensorSource, reads_by_columns, require_exact
from eigenmesh.data._splits import Rows
from eigenmesh.data._table_options import column_label
from eigenmesh.errors import DataError, InputError

# Bytes of a column index in CSR; scipy uses int32 up to 2^31 entries.
INDEX_BYTES = 4


@dataclass(frozen=True, eq=False)
class Block:
    """Rows of one source that belong to one node. A block is itself a source; nothing is copied before it is read.

    rows : ``slice(start, stop)`` or row numbers; names : of the columns, if not those of the source; weights : number
    of samples that each row stands for, (n,) and positive; None if each row is one sample.
    """

    source: Source
    rows: Rows = field(default_factory=lambda: slice(None))
    names: tuple[str, ...] | None = None
    weights: np.ndarray | None = None

    def __post_init__(self) -> None:
        object.__setattr__(self, "rows", _plain_rows(self.rows, self.source.shape[0]))

    @property
    def n_rows(self) -> int:
        return _count(self.rows)

    @property
    def count(self) -> float:
        """Number of samples that the rows stand for."""
        return self.n_rows if self.weights is None else float(self.weights.sum())

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
    def by_columns(self) -> bool:
        return reads_by_columns(self.source)

    @property
    def device(self) -> Any:
        """Device of the samples; None for NumPy."""
        return getattr(self.source, "device", None)

    @property
    def n_stored(self) -> int | None:
        """Estimated number of stored entries, from the average of the source; None if it is dense."""
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
        self._require_exact(piece, rows)
        return piece

    def _require_exact(self, piece: Samples, rows: Rows) -> None:
        """Raise if a whole number is too large for float64."""

        def place(at: int) -> str:
            if self.is_sparse:
                row, column = int(np.searchsorted(piece.indptr, at, side="right")) - 1, int(piece.indices[at])
            else:
                row, column = divmod(at, self.n_features)
            row = rows.start + row if isinstance(rows, slice) else int(rows[row])
            where = self.rows.start + row if isinstance(self.rows, slice) else self.rows[row]
            return self.place(row, column) or f"row {where} of the data, {column_label(self.feature_names, column)},"

        require_exact(piece.data if self.is_sparse else piece, place)

    def read_columns(self, columns: Rows) -> Samples:
        """All rows of the block in some columns, (n, columns), for sources that are read by columns."""
        source: Any = self.source
        return source.read_columns(columns)[self.rows]

    def place(self, row: int, column: int) -> str | None:
        """Location of an entry in its file, for messages; None if there is no file."""
        place = getattr(self.source, "place", None)
        at = self.rows.start + row if isinstance(self.rows, slice) else int(self.rows[row])
        return None if place is None else place(at, column)

    def gathered(self) -> Block:
        """The same rows as one contiguous tensor, if they are scattered over a tensor."""
        if self.device is None or isinstance(self.rows, slice):
            return self
        return replace(self, source=TensorSource(self.source.read(self.rows), self.feature_names), rows=slice(None))

    def thinned(self, n_rows: int) -> Block:
        """``n_rows`` of these rows, evenly spread and without weights; all of them if there are no more."""
        if n_rows >= self.n_rows:
            return replace(self, weights=None)
        chosen = np.linspace(0, self.n_rows - 1, n_rows).round().astype(np.intp)
        return Block(self.source, self._in_source(chosen), self.names)

    def weighted(self, weights: np.ndarray) -> Block:
        """The same rows with weights; rows of weight 0 are left out."""
        if (weights == 1).all():
            return self
        kept = np.flatnonzero(weights)
        rows = self.rows if len(kept) == self.n_rows else self._in_source(kept)
        return replace(self, rows=rows, weights=weights[kept])

    def weights_of(self, start: int, piece: Samples) -> Array | None:
        """Weights of a piece from row ``start`` on: (rows, 1), or (stored,) for a csr_array; None if all are 1."""
        if self.weights is None:
            return None
        own = self.weights[start : start + piece.shape[0]]
        if scipy.sparse.issparse(piece):
            return np.repeat(own, np.diff(piece.indptr))
        return namespace(piece).asarray(own[:, np.newaxis], device=piece.device)

    def chunks(self, n_bytes: int | None = None, made_dense: bool = True) -> Iterator[tuple[int, Samples]]:
        """Pairs (first row, piece) that cover the block's rows in order.

        A piece takes at most n_bytes as dense float64 or, without ``made_dense``, as it is stored.
        """
        n_bytes = n_bytes or chunk_bytes(self.device)
        entries = self.n_rows * self.n_features if made_dense or self.n_stored is None else 2 * self.n_stored
        step = max(1, n_bytes * self.n_rows // (8 * max(1, entries)))
        for start in range(0, self.n_rows, step):
            yield start, self.read(slice(start, start + step))

    def column_chunks(self, n_bytes: int | None = None) -> Iterator[tuple[slice, Samples]]:
        """Pairs (columns, piece) that cover the columns in order; a piece takes at most n_bytes for all rows."""
        step = max(1, (n_bytes or chunk_bytes(self.device)) // (8 * max(1, self.source.shape[0])))
        for start in range(0, self.n_features, step):
            columns = slice(start, min(start + step, self.n_features))
            yield columns, self.read_columns(columns)

    def pieces(
        self, n_bytes: int | None = None, made_dense: bool = True, whole_rows: bool = False
    ) -> Iterator[tuple[slice, slice, Samples]]:
        """Triples (rows, columns, piece) that cover the block by rows or, for sources read by columns, by columns."""
        if self.by_columns and not whole_rows:
            for columns, piece in self.column_chunks(n_bytes):
                yield slice(0, self.n_rows), columns, piece
            return
        for start, piece in self.chunks(n_bytes, made_dense):
            yield slice(start, start + piece.shape[0]), slice(0, self.n_features), piece

    def _in_source(self, rows: Rows) -> Rows:
        if not isinstance(self.rows, slice):
            return self.rows[rows]
        first = self.rows.start
        return slice(first + rows.start, first + rows.stop) if isinstance(rows, slice) else first + rows


@dataclass(frozen=True, eq=False)
class Table:
    """Samples (N, d), the name of their file or data set and, if there are any, labels, ids and weights, (N,) each.

    weights : number of samples that each row stands for.
    """

    source: Source
    labels: np.ndarray | None = None
    ids: np.ndarray | None = None
    name: str = ""
    weights: np.ndarray | None = None

    @property
    def X(self) -> Samples:
        """All samples (n_samples, n_features), dense or CSR. A mapped file stays mapped; others are read completely."""
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
        columns = {"labels": self.labels, "ids": self.ids, "weights": self.weights}
        taken: dict[str, Any] = {name: None if values is None else values[rows] for name, values in columns.items()}
        return replace(self, source=Block(self.source, rows), **taken)


def _plain_rows(rows: Rows, total: int) -> Rows:
    """Rows within 0..total-1, as one of the two forms that every source accepts: slice(start, stop) or row numbers."""
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
