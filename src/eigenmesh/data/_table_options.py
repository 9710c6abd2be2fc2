"""Options for tables: the roles of columns, and the format of text."""

from __future__ import annotations

import codecs
import dataclasses
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple, TypeAlias

from eigenmesh.errors import DataError, InputError, UnknownNameError

# A column by its name, or by its number from 0.
Column: TypeAlias = str | int
SHOWN_NAMES = 10
HEADERS = ("auto", "yes", "no")
NOT_NUMERIC = "leave it out (drop), name it as id_column or label_column, or give its categories"


class Roles(NamedTuple):
    """Numbers of the columns of a file: the features in their order, and the columns of ids, labels and weights."""

    features: list[int]
    id: int | None
    label: int | None
    weight: int | None


@dataclass(frozen=True)
class TableOptions:
    """How a table is read; options that are left out are detected.

    Attributes
    ----------
    columns : names or numbers of the features, in this order; None for all that are left.
    drop : columns to leave out.
    id_column : names the samples, and is carried into scores.
    label_column : labels to split by, or to write next to the scores.
    weight_column : how many samples each row stands for.
    categories : {column: levels}; each level becomes a column of 0 and 1 named ``column=level``.
    header : whether the first line of a text file has the names of the columns: "yes", "no", or "auto": yes if one of
        its fields is not a number.
    delimiter, decimal : of a text file: "," ";" "|", a tab or " " for blanks, and "." or ",".
    encoding : of a text file, such as "latin-1"; UTF-8, with or without its mark, if None.
    layer : dataset of a .h5 file, or layer of a .h5ad file; X of the latter if None.
    among : features that a model knows: of columns with names, all others are left out.
    """

    columns: tuple[Column, ...] | None = None
    drop: tuple[Column, ...] = ()
    id_column: Column | None = None
    label_column: Column | None = None
    weight_column: Column | None = None
    categories: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    header: str = "auto"
    delimiter: str | None = None
    decimal: str | None = None
    encoding: str | None = None
    layer: str | None = None
    among: frozenset[str] | None = None

    def __post_init__(self) -> None:
        if self.header not in HEADERS:
            raise InputError(f"header = {self.header!r} must be one of {', '.join(map(repr, HEADERS))}.")
        if self.delimiter is not None and len(self.delimiter) != 1:
            raise InputError(f"delimiter = {self.delimiter!r} must be one character, such as ';'.")
        if self.decimal not in (None, ".", ","):
            raise InputError(f"decimal = {self.decimal!r} must be '.' or ','.")
        if self.decimal == "," and self.delimiter == ",":
            raise InputError("delimiter and decimal are both ','; one of them must be another.")
        try:
            codecs.lookup(self.encoding or "utf-8")
        except LookupError as error:
            raise InputError(f"encoding = {self.encoding!r} is not known; utf-8 and latin-1 are.") from error
        for column, levels in self.categories.items():
            if len(levels) < 2 or len(set(levels)) < len(levels):
                raise InputError(f"categories of {column!r} must be two levels or more, each once; got {list(levels)}.")

    @classmethod
    def of(cls, **given: Any) -> TableOptions:
        """From user input: one name or a list of names, levels of any type."""
        known = [one.name for one in dataclasses.fields(cls)]
        for name in given:
            if name not in known:
                raise UnknownNameError("option of a table", name, known)
        for name in ("columns", "drop"):
            if given.get(name) is not None:
                given[name] = _as_tuple(given[name])
        if given.get("categories"):
            levels = given["categories"].items()
            given["categories"] = {str(column): tuple(map(str, _as_tuple(each))) for column, each in levels}
        return cls(**{name: value for name, value in given.items() if value is not None})

    @property
    def _beside(self) -> tuple[Column | None, ...]:
        return self.id_column, self.label_column, self.weight_column

    def roles(self, names: Sequence[str] | None, n_columns: int, where: str) -> Roles:
        """Role of each of n columns; raises DataError for a column that does not exist."""

        def position(column: Column) -> int:
            return column_position(column, names, n_columns, where)

        known = (
            None
            if self.among is None or names is None
            else {name.partition("=")[0] for name in self.among} | self.among
        )
        found = [None if column is None else position(column) for column in self._beside]
        left_out = {*map(position, self.drop), *(place for place in found if place is not None)}
        chosen = range(n_columns) if self.columns is None else map(position, self.columns)
        features = [
            column for column in chosen if column not in left_out and (known is None or (names or ())[column] in known)
        ]
        if not features:
            raise DataError(f"{where} has no columns left to work with; drop fewer of its {n_columns}.")
        for column in self.categories:
            if position(column) not in features:
                raise DataError(f"column {column!r} of {where} is left out, and cannot be a category as well.")
        return Roles(features, *found)


def column_position(column: Column, names: Sequence[str] | None, n_columns: int, where: str) -> int:
    """Number from 0 of a column that is given by name or by number."""
    if isinstance(column, int):
        return _numbered(column, names, n_columns, where)
    if names is None:
        raise DataError(f"{where} has no names of columns, so no column {column!r}; give its number from 0.")
    found = [place for place, name in enumerate(names) if name == column]
    if not found:
        listed = ", ".join(names[:SHOWN_NAMES]) + (" .." if len(names) > SHOWN_NAMES else "")
        raise DataError(f"{where} has no column {column!r}; its first columns are {listed}.")
    if len(found) > 1:
        raise DataError(
            f"{where} has {len(found)} columns {column!r} ({', '.join(map(str, found))}); rename all but one."
        )
    return found[0]


def _numbered(column: int, names: Sequence[str] | None, n_columns: int, where: str) -> int:
    """Number of a column that is given by a number, which may also be its name: years, wavelengths."""
    called = [place for place, name in enumerate(names or ()) if name == str(column)]
    if len(called) == 1 and column not in (called[0], *range(n_columns)):
        return called[0]
    if not 0 <= column < n_columns:
        raise DataError(f"{where} has no column {column}; give one of 0..{n_columns - 1}.")
    if called not in ([], [column]):
        other = column_label(names, column)
        raise DataError(f"{where} has {other}, but also a column called {column}; give names that are not numbers.")
    return column


def column_label(names: Sequence[str] | None, column: int) -> str:
    """Number and name of a column, for messages: ``column 7 ('age')``."""
    return f"column {column}" if names is None else f"column {column} ({names[column]!r})"


def listed_columns(names: Sequence[str]) -> str:
    """Names of columns for a message, at most ten: ``columns 'age', 'bmi' and 7 more``."""
    more = f" and {len(names) - SHOWN_NAMES} more" if len(names) > SHOWN_NAMES else ""
    return f"{'column' if len(names) == 1 else 'columns'} {', '.join(map(repr, names[:SHOWN_NAMES]))}{more}"


def require_distinct(names: Sequence[str], where: str) -> None:
    """Raise if two columns have the same name: models, loadings and scores could not tell them apart.

    Parameters
    ----------
    names : names of all features, in their order.
    where : what has these columns, for the message.
    """
    if len(set(names)) < len(names):
        twice = [name for name, count in Counter(names).items() if count > 1]
        raise DataError(f"{where} has {listed_columns(twice)} more than once; rename all but one.")


def _as_tuple(value: Any) -> tuple[Any, ...]:
    return tuple(value) if isinstance(value, Iterable) and not isinstance(value, str) else (value,)
