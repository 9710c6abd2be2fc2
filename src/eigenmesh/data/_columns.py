"""From the columns of any kind of table to samples with ids, labels and weights."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any, Protocol

import numpy as np

from eigenmesh.data._block import Table
from eigenmesh.data._source import MatrixSource, Samples, Source, as_source, reads_by_columns
from eigenmesh.data._splits import Rows
from eigenmesh.data._table_options import TableOptions, column_label, listed_columns
from eigenmesh.errors import DataError

# Text for a missing value, in lower case.
MISSING_WORDS = frozenset({"", "na", "n/a", "nan", "null", "none", "<na>"})


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
    numeric = [column for column in roles.features if column not in levels]
    source = columns.features(numeric) if numeric else None
    if levels:
        source = _encoded(columns, source, roles.features, levels)
    if source is None:
        raise DataError(f"{where} has no columns left to work with.")
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


def take_columns(source: Source, positions: Sequence[int], names: tuple[str, ...] | None = None) -> Source:
    """These columns of a source in this order; copied if they are in memory, else read on request."""
    if names is None and source.feature_names is not None:
        names = tuple(source.feature_names[column] for column in positions)
    if list(positions) == list(range(source.shape[1])) and names == source.feature_names:
        return source
    chosen = SomeColumns(source, np.asarray(positions, dtype=np.intp), names)
    held = source.in_memory and getattr(source, "device", None) is None and source.n_stored is None
    return MatrixSource(chosen.read(slice(0, source.shape[0])), names) if held else chosen


@dataclass(frozen=True, eq=False)
class SomeColumns:
    """Some columns of another source, by number, with their own names."""

    source: Source
    positions: np.ndarray
    feature_names: tuple[str, ...] | None = None

    @property
    def shape(self) -> tuple[int, int]:
        return self.source.shape[0], len(self.positions)

    @property
    def dtype(self) -> np.dtype:
        return np.dtype(self.source.dtype)

    @property
    def n_stored(self) -> int | None:
        """Estimated number of stored entries, from the average of the source; None if it is dense."""
        whole = self.source.n_stored
        return None if whole is None else round(whole * len(self.positions) / self.source.shape[1])

    @property
    def in_memory(self) -> bool:
        return self.source.in_memory

    @property
    def by_columns(self) -> bool:
        return reads_by_columns(self.source)

    def read(self, rows: Rows) -> Samples:
        piece = self.source.read(rows)[:, self.positions]
        if self.n_stored is not None:
            piece.sort_indices()
        return piece

    def read_columns(self, columns: Rows) -> Samples:
        source: Any = self.source
        return source.read_columns(self.positions[columns])


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
        piece = SomeColumns(self.source, np.array([position])).read(slice(0, self.source.shape[0]))
        return np.asarray(piece.toarray() if self.source.n_stored is not None else piece)[:, 0]

    def place(self, row: int, column: int) -> str:
        return f"row {row} of {self.where}, {column_label(self.names, column)},"


def aligned(source: Source, n_features: int, names: tuple[str, ...] | None, where: str, by: str) -> Source:
    """The source with its columns in the order of ``names``, those of ``by``; raises DataError if one is missing.

    If one of the two has no names, the numbers of columns must be equal.
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
        fix = _encode(lacking, found) or f"add {it}, or leave {it} out everywhere"
        raise DataError(f"{where} lacks {listed_columns(lacking)}, which {by} has; {fix}.")
    if more:
        raise DataError(f"{where} has {listed_columns(more)}, which {by} lacks; leave it out (drop).")
    places = {name: place for place, name in enumerate(found)}
    return take_columns(source, [places[name] for name in names])


def all_aligned(sources: Sequence[Source], where: Sequence[object]) -> list[Source]:
    """The sources with their columns in the order of the first that has names."""
    named = zip(where, sources, strict=True)
    by, names = next(((place, source.feature_names) for place, source in named if source.feature_names), ("", None))
    # Numbers of columns without names are compared later, by node.
    return [
        source if source.feature_names is None else aligned(source, len(names or ()), names, str(place), str(by))
        for place, source in zip(where, sources, strict=True)
    ]


def _encode(lacking: Sequence[str], found: Sequence[str]) -> str:
    """Advice if a missing column is a level of a categorical column in the table; empty if it is not."""
    parts = [name.partition("=") for name in lacking]
    there = next((column for column, equals, _ in parts if equals and column in found), None)
    levels = [level for column, _, level in parts if column == there]
    return "" if there is None else f"give the categories of {there!r}: {', '.join(levels)}"


def _levels(columns: ColumnReader, options: TableOptions, features: Sequence[int]) -> dict[int, tuple[str, ...]]:
    names = columns.names or ()
    return {
        names.index(column): levels for column, levels in options.categories.items() if names.index(column) in features
    }


def _encoded(
    columns: ColumnReader, numbers: Source | None, features: Sequence[int], levels: dict[int, tuple[str, ...]]
) -> MatrixSource:
    """Features in their order, with one column per level in place of a categorical column."""
    plain = iter(() if numbers is None else np.asarray(numbers.read(slice(0, numbers.shape[0])), dtype=np.float64).T)
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
