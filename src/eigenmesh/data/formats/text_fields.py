"""Tables whose fields are text until they are read as numbers: what is a number, a header, an unusable column."""

from __future__ import annotations

import array
import math
import re
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from itertools import islice
from typing import Any

import numpy as np

from eigenmesh.data.block import MISSING_WORDS
from eigenmesh.data.cures import Unusable, cure_of, in_python
from eigenmesh.data.source import MatrixSource
from eigenmesh.data.table_options import TableOptions, column_label
from eigenmesh.errors import DataError, UnreadableFileError, warn_user
from eigenmesh.words import listed

# Fewest numbers in a first line that may be names of columns, and the fewest that are not in order by chance.
FEWEST_NAMES, MANY_NAMES = 3, 8
# Most fields of the first line, and most columns, in a message.
SHOWN_FIELDS, SHOWN_COLUMNS = 3, 5
# What separates thousands in numbers, apart from a comma or a point: blanks of any width, and the Swiss apostrophe.
BLANKS = " \N{NO-BREAK SPACE}\N{NARROW NO-BREAK SPACE}"
APOSTROPHES = "'\N{RIGHT SINGLE QUOTATION MARK}"
SEPARATORS = {",": ",", ".": ".", " ": BLANKS, "'": APOSTROPHES}
WITH_COMMA = re.compile(r"[+-]?\d*,\d+([eE][+-]?\d+)?")
WITH_POINT = re.compile(r"[+-]?\d*\.\d+([eE][+-]?\d+)?")
# One comma and three digits: 1,234 is one thousand, or a little more than one.
DOUBTFUL = re.compile(r"[+-]?[1-9]\d{0,2},\d{3}")


@dataclass(frozen=True)
class Numbers:
    """How numbers are written: the decimal mark, what separates thousands, and what stands for a missing number."""

    decimal: str = "."
    thousands: str | None = None
    missing: frozenset[str] = MISSING_WORDS

    @classmethod
    def of(cls, options: TableOptions, rows: Sequence[Sequence[str]], where: str) -> Numbers:
        """As given; what is not given is detected in the fields of these rows."""
        missing = MISSING_WORDS | {word.strip().lower() for word in options.na_values}
        fields = [text.strip() for row in rows for text in row]
        thousands = options.thousands
        if thousands is None:
            found = (_separator(text, options.decimal) for text in fields)
            thousands = next((sign for sign in found if sign), None)
        if options.decimal is not None:
            return cls(options.decimal, thousands, missing)
        if thousands in (",", "."):
            return cls("." if thousands == "," else ",", thousands, missing)
        if thousands is not None:
            fields = ["".join(sign for sign in text if sign not in SEPARATORS[thousands]) for text in fields]
        commas = [text for text in fields if WITH_COMMA.fullmatch(text)]
        if not commas or any(WITH_POINT.fullmatch(text) for text in fields):
            return cls(".", thousands, missing)
        if all(map(DOUBTFUL.fullmatch, commas)):
            fix = 'give decimal="," if its comma is the decimal mark, and thousands="," if it separates thousands'
            raise DataError(f"{where} has numbers such as {commas[0]}, which may be read in two ways; {fix}.")
        return cls(",", thousands, missing)

    @property
    def is_plain(self) -> bool:
        """Whether Python's own float reads these numbers."""
        return self.decimal == "." and self.thousands is None

    def value(self, text: str) -> float | None:
        """Value of a field; NaN if it is missing, None if it is not a number."""
        text = text.strip()
        if text.lower() in self.missing:
            return math.nan
        if self.thousands is not None:
            text = _without_thousands(text, self.thousands, self.decimal)
        if self.decimal == ",":
            # With a decimal comma, a point could separate thousands or be a mistake: do not guess.
            text = text.replace(",", ".") if "." not in text else "?"
        try:
            # Python reads 12_34 as 1234; in a table it is an identifier.
            return None if "_" in text else float(text)
        except ValueError:
            return None

    @property
    def sentinels(self) -> list[float]:
        """Numbers that stand for missing ones, such as -999, however they are written."""
        found = []
        for word in self.missing - MISSING_WORDS:
            with suppress(ValueError):
                found.append(float(word))
        return found


def _grouped(separators: str, decimal: str) -> str:
    """A regular expression for numbers in groups of three digits."""
    return rf"[+-]?\d{{1,3}}([{re.escape(separators)}]\d{{3}})+(?P<rest>{re.escape(decimal)}\d*)?"


def _without_thousands(text: str, separator: str, decimal: str) -> str:
    """The number without its separators; unchanged if they are not where thousands end."""
    signs = SEPARATORS[separator]
    if re.fullmatch(_grouped(signs, decimal), text) is None:
        return text if separator not in ",." or separator not in text else "?"
    return text.translate({ord(sign): None for sign in signs})


def _separator(text: str, decimal: str | None) -> str | None:
    """What separates thousands in this field beyond doubt: it has two groups, or a decimal mark of another kind."""
    for separator, signs in SEPARATORS.items():
        for mark in ".," if decimal is None else decimal:
            found = None if mark == separator else re.fullmatch(_grouped(signs, mark), text)
            if found and (separator in " '" or found["rest"] or sum(text.count(sign) for sign in signs) > 1):
                return separator
    return None


@dataclass(frozen=True)
class FieldColumns:
    """Columns of a table of text fields, each read on request.

    Attributes
    ----------
    where : name of the table in messages.
    fields : those of its first row that is not blank.
    has_header : whether these are the names of the columns.
    numbers : how numbers are written.
    rows : gives pairs (number of a line or row, its fields), from the first row that is not blank.
    unit : what has these numbers: "line" or "row".
    options : what the user said about the table, for advice.
    quick : a faster reader of columns: of numbers (n, columns) or, for one column, of text (n,). None if it cannot.
    """

    where: str
    fields: tuple[str, ...]
    has_header: bool
    numbers: Numbers
    rows: Callable[[], Iterator[tuple[int, list[str]]]]
    unit: str
    options: TableOptions
    quick: Callable[[FieldColumns, Sequence[int], bool], np.ndarray | None] | None = None

    @property
    def names(self) -> tuple[str, ...] | None:
        return self.fields if self.has_header else None

    @property
    def n_columns(self) -> int:
        return len(self.fields)

    def features(self, positions: Sequence[int]) -> MatrixSource:
        X = None if self.quick is None else self.quick(self, positions, False)
        X = self._numbers(positions) if X is None else X
        if self.numbers.sentinels:
            X[np.isin(X, self.numbers.sentinels)] = np.nan
        names = None if self.names is None else tuple(self.names[column] for column in positions)
        return MatrixSource(X, names)

    def values(self, position: int) -> np.ndarray:
        values = None if self.quick is None else self.quick(self, [position], True)
        if values is None:
            values = np.array([fields[position] for _, fields in self.samples()], dtype=np.str_)
        values = np.strings.strip(values)
        for dtype in (np.int64, np.float64):
            with suppress(ValueError):
                plain = values.astype(dtype)
                # Texts such as 007 are kept as text, because they are names rather than numbers.
                return plain if [str(value) for value in plain.tolist()] == values.tolist() else values
        return values

    def place(self, row: int, column: int) -> str:
        number = next(islice(self.samples(), row, None))[0]
        return f"{self.unit} {number} of {self.where}, {column_label(self.names, column)},"

    def samples(self) -> Iterator[tuple[int, list[str]]]:
        """Pairs (number of a line, its fields), without the header; raises for one that is too long or too short."""
        for number, fields in islice(self.rows(), int(self.has_header), None):
            if len(fields) != self.n_columns:
                found = f"{len(fields)} fields, expected {self.n_columns}"
                raise UnreadableFileError(f"{self.unit} {number} of {self.where} has {found}; repair the {self.unit}.")
            yield number, fields

    def _numbers(self, positions: Sequence[int]) -> np.ndarray:
        values, numbers = array.array("d"), self.numbers
        everything, plain = list(positions) == list(range(self.n_columns)), self.numbers.is_plain
        for _, fields in self.samples():
            chosen = fields if everything else [fields[column] for column in positions]
            if plain and "_" not in "".join(chosen):
                # The common case, many times as fast as one field after another.
                with suppress(ValueError):
                    values.extend(list(map(float, chosen)))
                    continue
            for text in chosen:
                value = numbers.value(text)
                if value is None:
                    raise self._unusable(positions)
                values.append(value)
        return np.array(values).reshape(-1, len(positions))

    def _unusable(self, positions: Sequence[int]) -> DataError:
        """All columns that are not numbers, and what to give so that the table can be read."""
        first: dict[int, tuple[int, str]] = {}
        wrong: dict[int, Counter[str]] = {column: Counter() for column in positions}
        missing: Counter[int] = Counter()
        n_rows, has_points = 0, False
        for number, fields in self.samples():
            n_rows += 1
            has_points = has_points or any(WITH_POINT.fullmatch(text.strip()) for text in fields)
            for column in positions:
                value = self.numbers.value(fields[column])
                if value is None:
                    first.setdefault(column, (number, fields[column]))
                    wrong[column][fields[column].strip()] += 1
                elif math.isnan(value):
                    missing[column] += 1
        for number, text in first.values():
            fix = self._other_numbers(text, has_points)
            if fix is not None:
                column = next(place for place, found in first.items() if found == (number, text))
                name = f"column {self._label(column)} of {self.where}"
                raise DataError(f"{name} is not numeric: {text!r} in {self.unit} {number}; {fix}.")
        described = [
            f"{self._label(column)} ({text!r} in {self.unit} {number})" for column, (number, text) in first.items()
        ]
        found = [Unusable(column, self._name(column), wrong[column], missing[column], n_rows) for column in first]
        cure = in_python(cure_of(found, self.options))
        begin = next(self.samples())[0]
        if not self.has_header and all(one.n_words == 1 and first[one.column][0] == begin for one in found):
            cure = f'header="yes" if {self.unit} {begin} has the names of the columns'
        if len(first) == 1:
            column, (number, text) = next(iter(first.items()))
            said = f"column {self._label(column)} of {self.where} is not numeric: {text!r} in {self.unit} {number}"
        else:
            said = f"{self.where} has {len(first)} columns that are not numeric: {listed(described, SHOWN_COLUMNS)}"
        return DataError(f"{said}; give {cure}.")

    def _name(self, column: int) -> str | None:
        return None if self.names is None else self.names[column]

    def _label(self, column: int) -> str:
        return str(column) if self.names is None else repr(self.names[column])

    def _other_numbers(self, text: str, has_points: bool) -> str | None:
        """What to give if the field is a number that is written in another way than those with decimal points."""
        own = self.numbers
        for separator, signs in SEPARATORS.items():
            if separator != own.decimal and re.fullmatch(_grouped(signs, own.decimal), text.strip()):
                if separator == "," and has_points:
                    return "its comma separates thousands, since others have a decimal point: give thousands=','"
                if separator == "," and DOUBTFUL.fullmatch(text.strip()):
                    break
                return f"give thousands={separator!r} if {separator!r} separates thousands"
        other = "," if own.decimal == "." else "."
        if replace(own, decimal=other, thousands=None).value(text) is not None:
            return f"its decimal mark is not {own.decimal!r}: give decimal={other!r}"
        return None


def header_of(rows: Sequence[Sequence[str]], numbers: Numbers, options: TableOptions, line: str) -> bool:
    """Whether the first of these rows has the names of the columns; warns if that is doubtful."""
    if options.header != "auto":
        return options.header == "yes"
    if doubt := _doubt(rows, numbers):
        warn_user(f"{line} {doubt}")
    return any(numbers.value(text) is None for text in rows[0])


def _doubt(rows: Sequence[Sequence[str]], numbers: Numbers) -> str | None:
    """Why the first of these rows may be a header of numbers, or a sample with words; None if neither seems so."""
    first, below = rows[0], [row for row in rows[1:] if len(row) == len(rows[0])]
    values = [numbers.value(text) for text in first]
    places = [place for place, value in enumerate(values) if value is not None and not math.isnan(value)]
    if not places or not below:
        return None
    named = _looks_like_names([[row[place] for place in places] for row in (first, *below)], numbers)
    words = [place for place, value in enumerate(values) if value is None]
    shown = ", ".join(first[place].strip() for place in places[:SHOWN_FIELDS]) + (", .." * (len(places) > SHOWN_FIELDS))
    if not words:
        fix = 'give header="yes" if they are names of columns, and header="no" if they are not'
        return f"has the numbers {shown}, and counts as a sample; {fix}." if named else None
    # Words that are above words, such as names of samples, do not show that the line is a header.
    above_words = all(any(numbers.value(row[place]) is None for row in below) for place in words)
    if named or not above_words:
        return None
    fix = 'give header="no" if it is a sample, and header="yes" if it is not'
    return f"has the numbers {shown}, but counts as a header, because {first[words[0]]!r} is not a number; {fix}."


@np.errstate(invalid="ignore")  # differences of fields that are infinite
def _looks_like_names(rows: Sequence[Sequence[str]], numbers: Numbers) -> bool:
    """Whether the numbers in the first row are names, as years and wavelengths are: no other row is like it.

    No two are equal; and they are whole, or rise or fall by equal steps, or are many and rise or fall.
    """
    values: Any = np.array([[numbers.value(text) for text in row] for row in rows], dtype=np.float64)
    if values.shape[1] < FEWEST_NAMES or len(set(values[0])) < values.shape[1]:
        return False
    steps = np.diff(values, axis=1)
    even = (steps[:, 0] != 0) & np.isclose(steps, steps[:, :1], rtol=1e-6, atol=0).all(axis=1)
    ordered = ((steps > 0).all(axis=1) | (steps < 0).all(axis=1)) & (values.shape[1] >= MANY_NAMES)
    # For each property, whether each row has it; missing entries have none.
    looks = (values == np.floor(values)).all(axis=1), even, ordered
    return any(look[0] and not look[1:].any() for look in looks)
