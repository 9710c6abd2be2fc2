"""How tables are read: the roles of columns, the format of text, and the part of a file."""

from __future__ import annotations

import codecs
import dataclasses
import json
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple, TypeAlias

from eigenmesh.errors import DataError, InputError, UnknownNameError
from eigenmesh.words import listed

# A column by its name, or by its number from 0.
Column: TypeAlias = str | int
HEADERS = ("auto", "yes", "no")
# Options that a model remembers: they say what its features are or, as an encoding, cannot be detected and usually hold
# for the next file as well. The others are detected, or say where the table of one file begins.
REMEMBERED = (
    "columns", "drop", "id_column", "label_column", "weight_column", "categories", "na_values", "layer", "encoding"
)  # fmt: skip
THOUSANDS = (",", ".", " ", "'")


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
    thousands : what separates thousands in numbers: "," "." " " or "'".
    na_values : further texts or numbers that stand for a missing entry, such as -999.
    comment : how a line of a text file begins that is no part of the table, such as "#".
    skip_rows : number of lines or rows before the table.
    encoding : of a text file, such as "latin-1"; UTF-8 if None, or what the byte-order mark of the file says.
    sheet : of a workbook, by its name or its number from 0; the only one that is not empty if None.
    layer : dataset of a .h5 file, or layer of a .h5ad file; X of the latter if None.
    among : features that a model knows: of columns with names, all others are left out.
    recalled : which of these are those of a fit: columns that they name may be lacking.
    needs_labels : whether the table is to be split by its labels, so that advice about its columns names them.
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
    thousands: str | None = None
    na_values: tuple[str, ...] = ()
    comment: str | None = None
    skip_rows: int = 0
    encoding: str | None = None
    sheet: Column | None = None
    layer: str | None = None
    among: frozenset[str] | None = None
    recalled: frozenset[str] = frozenset()
    needs_labels: bool = field(default=False, compare=False)

    def __post_init__(self) -> None:
        if self.header not in HEADERS:
            raise InputError(f"header = {self.header!r} must be one of {', '.join(map(repr, HEADERS))}.")
        if self.delimiter is not None and len(self.delimiter) != 1:
            raise InputError(f"delimiter = {self.delimiter!r} must be one character, such as ';'.")
        if self.decimal not in (None, ".", ","):
            raise InputError(f"decimal = {self.decimal!r} must be '.' or ','.")
        if self.decimal == "," and self.delimiter == ",":
            raise InputError("delimiter and decimal are both ','; one of them must be another.")
        if self.thousands is not None and (self.thousands not in THOUSANDS or self.thousands == self.decimal):
            known = ", ".join(map(repr, THOUSANDS))
            raise InputError(f"thousands = {self.thousands!r} must be one of {known}, and not the decimal mark.")
        if self.comment is not None and not self.comment.strip():
            raise InputError(f"comment = {self.comment!r} must be how comments begin, such as '#'.")
        if isinstance(self.skip_rows, bool) or not isinstance(self.skip_rows, int) or self.skip_rows < 0:
            raise InputError(f"skip_rows = {self.skip_rows!r} must be a whole number of lines, 0 or more.")
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
        for name in ("columns", "drop", "na_values"):
            if given.get(name) is not None:
                given[name] = _as_tuple(given[name])
        if given.get("na_values"):
            given["na_values"] = tuple(map(str, given["na_values"]))
        if given.get("categories"):
            levels = given["categories"].items()
            given["categories"] = {str(column): tuple(map(str, _as_tuple(each))) for column, each in levels}
        return cls(**{name: value for name, value in given.items() if value is not None})

    @property
    def remembered(self) -> str | None:
        """What a model keeps of these options, as JSON; None if that is nothing."""
        usual = TableOptions()
        kept = {name: getattr(self, name) for name in REMEMBERED if getattr(self, name) != getattr(usual, name)}
        return json.dumps(kept) if kept else None

    def with_those_of(self, model: str | None, features: tuple[str, ...] | None) -> TableOptions:
        """These options, and where nothing is said those that a model remembers of its fit, for its features."""
        usual, own = TableOptions(), TableOptions.of(**json.loads(model or "{}"))
        recalled = {name for name in REMEMBERED if getattr(self, name) == getattr(usual, name) != getattr(own, name)}
        # Features with names are found by these, whatever else there is and in which order.
        taken = {name: getattr(own, name) for name in recalled if name != "columns" or features is None}
        among = None if features is None else frozenset(features)
        return dataclasses.replace(self, **taken, among=among, recalled=frozenset(taken))

    def found_in(self, name: str, names: Sequence[str] | None, n_columns: int) -> list[Column]:
        """The columns that an option names, without those of a model that a table of these columns lacks."""
        given = getattr(self, name)
        columns = [] if given is None else list(_as_tuple(given))
        if name not in self.recalled:
            return columns
        return [one for one in columns if (one < n_columns if isinstance(one, int) else one in (names or ()))]

    def roles(self, names: Sequence[str] | None, n_columns: int, where: str) -> Roles:
        """Role of each of n columns; raises DataError for a column that does not exist."""

        def position(column: Column) -> int:
            return column_position(column, names, n_columns, where)

        def positions(name: str) -> list[int]:
            return [position(column) for column in self.found_in(name, names, n_columns)]

        among = None if names is None else self.among
        known = {name.partition("=")[0] for name in among or ()} | (among or frozenset())
        found = [next(iter(positions(name)), None) for name in ("id_column", "label_column", "weight_column")]
        left_out = {*positions("drop"), *(place for place in found if place is not None)}
        chosen = range(n_columns) if self.columns is None else map(position, self.columns)
        features = [
            column for column in chosen if column not in left_out and (among is None or (names or ())[column] in known)
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
        raise DataError(f"{where} has no column {column!r}; its columns are {listed(names)}.")
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


def row_label(where: str, names: Sequence[str] | None, row: int, column: int) -> str:
    """Location of an entry, for the beginning of a message: ``row 3 of a.parquet, column 7 ('age'),``."""
    return f"row {row} of {where}, {column_label(names, column)},"


def listed_columns(names: Sequence[str]) -> str:
    """Names of columns for a message, at most ten: ``columns 'age', 'bmi' and 7 more``."""
    return f"{'column' if len(names) == 1 else 'columns'} {listed(list(map(repr, names)))}"


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
