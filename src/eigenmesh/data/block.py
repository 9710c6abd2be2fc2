"""Rows of a source: the block of a node, and a table with labels, ids and weights."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any, Protocol

import numpy as np

from eigenmesh.arrays import Array, is_sparse, namespace
from eigenmesh.data.cures import in_python
from eigenmesh.data.source import CHUNK_BYTES, MatrixSource, Samples, Source, as_source, chunk_bytes, require_exact
from eigenmesh.data.split import Rows
from eigenmesh.data.table_options import TableOptions, column_label, listed_columns, row_label
from eigenmesh.errors import DataError, InputError

# Most columns that a message names for an option.
MOST_SHOWN = 20
# Bytes of a column index in CSR; scipy uses int32 up to 2^31 entries.
INDEX_BYTES = 4


@dataclass(frozen=True, eq=False)
class Block:
    """Rows and columns of one source. A block is itself a source; nothing is copied before it is read.

    Parameters
    ----------
    source : Source
        Where the rows are.
    rows : slice or array of int
        Rows that belong to the block, as ``slice(start, stop)`` or by number.
    names : tuple of str or None
        Names of the columns, if not those of the source.
    weights : array of shape (n,) or None
        Positive numbers of samples that the rows stand for; None if each row is one sample.
    chosen : array of int or None
        Numbers of the columns in the source, in this order; None for all.
    """

    source: Source
    rows: Rows = field(default_factory=lambda: slice(None))
    names: tuple[str, ...] | None = None
    weights: np.ndarray | None = None
    chosen: np.ndarray | None = None

    def __post_init__(self) -> None:
        object.__setattr__(self, "rows", _plain_rows(self.rows, self.source.shape[0]))

    @cached_property
    def n_rows(self) -> int:
        return _count(self.rows)

    @property
    def count(self) -> float:
        """Number of samples that the rows stand for."""
        return self.n_rows if self.weights is None else float(self.weights.sum())

    @cached_property
    def n_features(self) -> int:
        return int(self.source.shape[1]) if self.chosen is None else len(self.chosen)

    @property
    def shape(self) -> tuple[int, int]:
        return self.n_rows, self.n_features

    @cached_property
    def dtype(self) -> np.dtype:
        return np.dtype(self.source.dtype)

    @property
    def feature_names(self) -> tuple[str, ...] | None:
        names = self.source.feature_names
        if self.names is not None or names is None or self.chosen is None:
            return names if self.names is None else self.names
        return tuple(names[column] for column in self.chosen)

    @cached_property
    def is_sparse(self) -> bool:
        return self.source.n_stored is not None

    @property
    def in_memory(self) -> bool:
        return self.source.in_memory

    @cached_property
    def by_columns(self) -> bool:
        """Whether columns are read much faster than rows; then the source has ``read_columns``."""
        return bool(getattr(self.source, "by_columns", False))

    @cached_property
    def device(self) -> Any:
        """Device of the samples; None for NumPy."""
        return getattr(self.source, "device", None)

    @cached_property
    def n_stored(self) -> int | None:
        """Estimated number of stored entries, from the average of the source; None if it is dense."""
        whole, size = self.source.n_stored, self.source.shape[0] * self.source.shape[1]
        return None if whole is None else round(whole * self.n_rows * self.n_features / max(1, size))

    @property
    def n_bytes(self) -> int:
        """Size of these rows as they are stored."""
        stored, item = self.n_stored, self.dtype.itemsize
        return self.n_rows * self.n_features * item if stored is None else stored * (item + INDEX_BYTES)

    def read(self, rows: Rows, out: np.ndarray | None = None) -> Samples:
        """Some rows of the block, (len(rows), d), in the source's dtype; in ``out`` if they are gathered in memory."""
        rows = _plain_rows(rows, self.n_rows)
        source, chosen = self.source, self._in_source(rows)
        if isinstance(source, MatrixSource) and self.chosen is None:
            piece: Samples = source.read(chosen, out)
        else:
            piece = source.read(chosen)
        piece = piece if self.is_sparse or self.device is not None else np.asarray(piece)
        shape = _count(rows), self.source.shape[1]
        if tuple(piece.shape) != shape:
            reader = f"{type(self.source).__name__}.read"
            raise DataError(f"{reader} returned shape {piece.shape} instead of {shape}; return all rows and columns.")
        if self.chosen is not None:
            piece = piece[:, self.chosen]
            if self.is_sparse:
                piece.sort_indices()
        self._require_exact(piece, rows)
        return piece

    def _require_exact(self, piece: Samples, rows: Rows) -> None:
        """Raise if a whole number is too large for float64."""

        def place(at: int) -> str:
            row, column = position_of(piece, at)
            row = rows.start + row if isinstance(rows, slice) else int(rows[row])
            where = self.rows.start + row if isinstance(self.rows, slice) else self.rows[row]
            return self.place(row, column) or f"row {where} of the data, {column_label(self.feature_names, column)},"

        require_exact(piece.data if self.is_sparse else piece, place)

    def read_columns(self, columns: Rows) -> Samples:
        """All rows of the block in some columns, (n, columns), for sources that are read by columns."""
        source: Any = self.source
        return source.read_columns(columns if self.chosen is None else self.chosen[columns])[self.rows]

    def place(self, row: int, column: int) -> str | None:
        """Location of an entry in its file, for messages; None if there is no file."""
        place = getattr(self.source, "place", None)
        at = self.rows.start + row if isinstance(self.rows, slice) else int(self.rows[row])
        return None if place is None else place(at, column if self.chosen is None else int(self.chosen[column]))

    def gathered(self) -> Block:
        """The same rows as one contiguous tensor, if they are scattered over a tensor."""
        if self.device is None or isinstance(self.rows, slice):
            return self
        gathered = MatrixSource(self.source.read(self.rows), self.source.feature_names)
        return replace(self, source=gathered, rows=slice(None))

    def held(self) -> Block:
        """The same rows in memory; those of a file are read, in their own dtype, and made dense."""
        if self.in_memory:
            return self
        held = np.empty(self.shape, self.dtype)
        for rows, columns, piece in self.pieces():
            held[rows, columns] = piece.toarray() if self.is_sparse else piece
        return Block(MatrixSource(held, self.feature_names, self.place), weights=self.weights)

    def thinned(self, n_rows: int) -> Block:
        """``n_rows`` of these rows, evenly spread and without weights; all of them if there are no more."""
        if n_rows >= self.n_rows:
            return replace(self, weights=None)
        chosen = np.linspace(0, self.n_rows - 1, n_rows).round().astype(np.intp)
        return replace(self, rows=self._in_source(chosen), weights=None)

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
        if is_sparse(piece):
            return np.repeat(own, np.diff(piece.indptr))
        return namespace(piece).asarray(own[:, np.newaxis], device=piece.device)

    def rows_at_once(self, n_bytes: int, made_dense: bool = True) -> int:
        """Rows of a piece that takes at most n_bytes as dense float64 or, without ``made_dense``, as it is stored."""
        entries = self.n_rows * self.n_features if made_dense or self.n_stored is None else 2 * self.n_stored
        return min(self.n_rows, max(1, n_bytes * self.n_rows // (8 * max(1, entries))))

    def chunks(
        self, n_bytes: int | None = None, made_dense: bool = True, out: np.ndarray | None = None
    ) -> Iterator[tuple[int, Samples]]:
        """Pairs (first row, piece) that cover the block's rows in order; a piece takes at most n_bytes.

        Rows that are gathered in memory are written to ``out``, if given: such a piece is valid until the next one.
        """
        step = max(1, self.rows_at_once(n_bytes or chunk_bytes(self.device), made_dense))
        for start in range(0, self.n_rows, step):
            yield start, self.read(slice(start, start + step), out)

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
    """Samples with what a file or a data set says about them.

    Parameters
    ----------
    source : Source
        The samples, (N, d).
    labels : array of shape (N,) or None
        Label of each sample.
    ids : array of shape (N,) or None
        Id of each sample.
    name : str
        Name of the file or the data set.
    weights : array of shape (N,) or None
        Number of samples that each row stands for.
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


def position_of(piece: Samples, at: int) -> tuple[int, int]:
    """Row and column of the stored entry with this number, in an array or a csr_array."""
    if not is_sparse(piece):
        row, column = divmod(at, piece.shape[1])
        return row, column
    return int(np.searchsorted(piece.indptr, at, side="right")) - 1, int(piece.indices[at])


# Memory that is not in use.
_FREE: list[np.ndarray] = []


@contextmanager
def lent(shape: tuple[int, int]) -> Iterator[np.ndarray]:
    """Memory for an array of float64, which is used again and again.

    New pages of the system take longer than gathering rows.
    """
    n, memory = math.prod(shape), np.empty(0)
    with suppress(IndexError):
        memory = _FREE.pop()
    if len(memory) < n:
        memory = np.empty(n)
    try:
        yield memory[:n].reshape(shape)
    finally:
        if memory.nbytes <= 2 * CHUNK_BYTES:
            _FREE.append(memory)


def _count(rows: Rows) -> int:
    return int(rows.stop - rows.start) if isinstance(rows, slice) else len(rows)


# From the columns of any kind of table to samples with ids, labels and weights.


# Text for a missing value, in lower case.
MISSING_WORDS = frozenset({"", "na", "n/a", "#n/a", "nan", "null", "none", "<na>"})


class ColumnReader(Protocol):
    """A table before its columns have roles. To add a kind of table, write one such class."""

    @property
    def names(self) -> tuple[str, ...] | None: ...

    @property
    def n_columns(self) -> int: ...

    def features(self, positions: Sequence[int]) -> Source:
        """These columns as numbers; raises DataError for one that is not numeric."""

    def values(self, position: int) -> np.ndarray:
        """One column, text or numbers: (n,)."""

    def place(self, row: int, column: int) -> str:
        """Location of an entry in the table, for messages."""


def table_of(columns: ColumnReader, options: TableOptions, where: str) -> Table:
    """Samples with ids, labels and weights; a categorical column becomes one column of 0 and 1 per level."""
    roles = options.roles(columns.names, columns.n_columns, where)
    levels = _levels(columns, options, roles.features)
    source = _encoded(columns, roles.features, levels) if levels else columns.features(roles.features)
    if isinstance(source, MatrixSource):
        origin = [column for column in roles.features for _ in levels.get(column, " ")]
        source = replace(source, place=lambda row, column: columns.place(row, origin[column]))
    ids, labels = [None if column is None else columns.values(column) for column in (roles.id, roles.label)]
    if ids is not None and roles.id is not None:
        at = roles.id
        require_distinct_ids(ids.tolist(), lambda row: columns.place(row, at))
    weights = None
    if roles.weight is not None:
        position = roles.weight
        weights = as_weights(columns.values(position), lambda row: columns.place(row, position))
    return Table(as_source(source, where), labels=labels, ids=ids, weights=weights)


def require_distinct_ids(ids: Sequence[object], place: Callable[[int], str]) -> None:
    """Raise for the first duplicate id, with its location."""
    if len(set(ids)) == len(ids):
        return
    first: dict[object, int] = {}
    row = next(row for row, name in enumerate(ids) if first.setdefault(name, row) != row)
    fix = "give every sample its own id, or leave the column out"
    raise DataError(f"{place(row)} is {str(ids[row])!r:.40}, as {place(first[ids[row]])} is; {fix}.")


def as_weights(values: np.ndarray, place: Callable[[int], str]) -> np.ndarray:
    """A column as weights (n,); raises DataError for the first invalid entry, with its location."""
    weights = np.array([_number(value) for value in values.tolist()], dtype=np.float64)
    wrong = ~((weights >= 0) & np.isfinite(weights))
    if wrong.any():
        row = int(np.argmax(wrong))
        entry = f"{place(row)} is {values[row]!s:.20}"
        raise DataError(f"{entry}; a weight must be a number, finite and not negative. Correct it, or drop the row.")
    return weights


def _number(value: object) -> float:
    try:
        return float(value)  # type: ignore[arg-type]
    except (TypeError, ValueError):
        return float("nan")


def take_columns(source: Source, positions: Sequence[int]) -> Source:
    """These columns of a source in this order; copied if they are in memory, else read on request."""
    if list(positions) == list(range(source.shape[1])):
        return source
    columns = np.asarray(positions, dtype=np.intp)
    block = Block(source, chosen=columns)
    if not source.in_memory or block.device is not None or block.is_sparse:
        return block
    taken = source.read(slice(0, source.shape[0]))[:, columns]
    return MatrixSource(taken, block.feature_names, None if getattr(source, "place", None) is None else block.place)


@dataclass(frozen=True, eq=False)
class MatrixColumns:
    """Columns of a source of numbers."""

    source: Source
    where: str

    @property
    def names(self) -> tuple[str, ...] | None:
        return self.source.feature_names

    @property
    def n_columns(self) -> int:
        return int(self.source.shape[1])

    def features(self, positions: Sequence[int]) -> Source:
        return take_columns(self.source, positions)

    def values(self, position: int) -> np.ndarray:
        piece = self.source.read(slice(0, self.source.shape[0]))[:, [position]]
        return np.asarray(piece.toarray() if self.source.n_stored is not None else piece)[:, 0]

    def place(self, row: int, column: int) -> str:
        return row_label(self.where, self.names, row, column)


def aligned(
    source: Source, n_features: int, names: tuple[str, ...] | None, where: str, by: str, fix: str | None = None
) -> Source:
    """The source with its columns in the order of ``names``, those of ``by``; raises DataError if one is missing.

    If one of the two has no names, the numbers of columns must be equal. ``fix`` is what to do about other names.
    """
    found = source.feature_names
    if (found is None or names is None) and source.shape[1] != n_features:
        raise DataError(f"{where} has {source.shape[1]} columns, but {by} has {n_features}; make them equal.")
    if found is None or names is None or found == names:
        return source
    both = (names, set(found)), (found, set(names))
    lacking, more = [[name for name in ours if name not in theirs] for ours, theirs in both]
    if lacking:
        it = "it" if len(lacking) == 1 else "them"
        fix = fix or f"add {it} (a level such as sex=f by categories), or fit without {it}"
        raise DataError(f"{where} lacks {listed_columns(lacking)}, which {by} has; {fix}.")
    if more:
        drop = in_python({"drop": more[:MOST_SHOWN]})
        raise DataError(f"{where} has {listed_columns(more)}, which {by} lacks; {fix or f'leave it out, {drop}'}.")
    places = {name: place for place, name in enumerate(found)}
    return take_columns(source, [places[name] for name in names])


def all_aligned(sources: Sequence[Source], where: Sequence[object]) -> list[Source]:
    """The sources with their columns in the order of the first that has names."""
    named = zip(where, sources, strict=True)
    by, names = next(((place, source.feature_names) for place, source in named if source.feature_names), ("", None))
    held = [set(source.feature_names) for source in sources if source.feature_names]
    both = [name for name in names or () if all(name in own for own in held)]
    # A level of a category is no column of a file.
    short = 0 < len(both) <= MOST_SHOWN and not any("=" in name for name in both)
    fix = f"leave it out, {in_python({'columns': both})}, or add it where it lacks" if short else None
    # Numbers of columns without names are compared later, by node.
    return [
        source if source.feature_names is None else aligned(source, len(names or ()), names, str(place), str(by), fix)
        for place, source in zip(where, sources, strict=True)
    ]


def _levels(columns: ColumnReader, options: TableOptions, features: Sequence[int]) -> dict[int, tuple[str, ...]]:
    names = columns.names or ()
    return {
        names.index(column): levels for column, levels in options.categories.items() if names.index(column) in features
    }


def _encoded(columns: ColumnReader, features: Sequence[int], levels: dict[int, tuple[str, ...]]) -> MatrixSource:
    """Features in their order, with one column per level in place of a categorical column."""
    numeric = [column for column in features if column not in levels]
    plain = iter(Table(columns.features(numeric)).X.astype(np.float64).T if numeric else ())
    parts, names = [], []
    for column in features:
        name = (columns.names or ())[column]
        if column not in levels:
            parts.append(next(plain)[:, np.newaxis])
            names.append(name)
            continue
        parts.append(_one_hot(columns, column, levels[column]))
        names += [f"{name}={level}" for level in levels[column]]
    return MatrixSource(np.hstack(parts), tuple(names))


def _one_hot(columns: ColumnReader, column: int, levels: tuple[str, ...]) -> np.ndarray:
    """Indicator columns (n, levels) of 0 and 1; a row of NaN for a missing value."""
    text = [str(value).strip() for value in columns.values(column).tolist()]
    encoded = np.array(text)[:, np.newaxis] == np.array(levels)
    unknown = ~encoded.any(axis=1)
    for row in np.flatnonzero(unknown).tolist():
        if text[row].lower() not in MISSING_WORDS:
            fix = "add the level at all sites, or correct the entry"
            raise DataError(f"{columns.place(row, column)} is {text[row]!r}, not one of {', '.join(levels)}; {fix}.")
    return np.where(unknown[:, np.newaxis], np.nan, encoded)
