"""Text tables: any delimiter, decimal point or comma, with or without a header or empty fields."""

from __future__ import annotations

import array
import csv
import gzip
import math
import re
from collections.abc import Iterable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from itertools import chain, islice
from pathlib import Path
from typing import IO, Any

import numpy as np

from eigenmesh.data.block import MISSING_WORDS, Table, table_of
from eigenmesh.data.source import NOT_NUMERIC, MatrixSource, TableOptions, column_label
from eigenmesh.errors import DataError, UnreadableFileError, warn_user

# Format of a text table: encoding, delimiter, decimal mark and header, given or detected from its first lines.


DELIMITERS = (",", ";", "\t", "|", " ")
# Number of lines from which the format is detected.
SAMPLED_LINES = 50
# Fewest numbers in a first line that may be names of columns, and the fewest that are not in order by chance.
FEWEST_NAMES, MANY_NAMES = 3, 8
# Most fields of the first line in a message.
SHOWN_FIELDS = 3
UTF_8 = "utf-8-sig"  # with or without the byte-order mark that spreadsheets write
WITH_COMMA = re.compile(r"[+-]?\d*,\d+([eE][+-]?\d+)?")


def open_text(file: Path, encoding: str) -> IO[str]:
    """A text file for reading, unpacked if its name ends in .gz."""
    if file.suffix.lower() == ".gz":
        return gzip.open(file, "rt", newline="", encoding=encoding)
    return file.open(newline="", encoding=encoding)


def _fields(lines: Iterable[str], delimiter: str) -> Any:
    """An iterator over the fields of each line; with blanks as delimiter, any number of them counts as one."""
    if delimiter == " ":
        return csv.reader(map(str.strip, lines), delimiter=delimiter, skipinitialspace=True)
    return csv.reader(lines, delimiter=delimiter)


def number(text: str, decimal: str = ".") -> float | None:
    """Value of a field; NaN if it is missing, None if it is not a number."""
    text = text.strip()
    if text.lower() in MISSING_WORDS:
        return float("nan")
    if decimal == ",":
        # With a decimal comma, a point could separate thousands or be a mistake: do not guess.
        text = text.replace(",", ".") if "." not in text else "?"
    try:
        # Python reads 12_34 as 1234; in a table it is an identifier.
        return None if "_" in text else float(text)
    except ValueError:
        return None


def _fitness(lines: Sequence[str], delimiter: str) -> tuple[bool, float, int]:
    """Whether a delimiter splits all lines into equally many fields, at least two, and how many are numbers."""
    rows = list(_fields(lines, delimiter))
    counts = [len(fields) for fields in rows]
    fields = [text for row in rows[1:] or rows for text in row]
    numeric = sum(number(text) is not None or WITH_COMMA.fullmatch(text.strip()) is not None for text in fields)
    even = counts.count(counts[0]) / len(counts)
    # Names may contain blanks, but then the numbers of fields differ between lines.
    cuts = counts[0] > 1 and (delimiter != " " or even == 1)
    return cuts, even * numeric / len(fields), counts[0]


def _has_decimal_comma(rows: Sequence[Sequence[str]]) -> bool:
    """Whether numbers are written with a comma, and none with a point."""
    fields = [text.strip() for row in rows for text in row]
    commas = any(WITH_COMMA.fullmatch(text) for text in fields)
    return commas and not any(re.fullmatch(r"[+-]?\d*\.\d+([eE][+-]?\d+)?", text) for text in fields)


def _doubt(rows: Sequence[Sequence[str]], decimal: str) -> str | None:
    """Why the first of these rows may be a header of numbers, or a sample with words; None if neither seems so."""
    first, below = rows[0], [row for row in rows[1:] if len(row) == len(rows[0])]
    numbers = [number(text, decimal) for text in first]
    places = [place for place, value in enumerate(numbers) if value is not None and not math.isnan(value)]
    if not places or not below:
        return None
    named = _looks_like_names([[row[place] for place in places] for row in (first, *below)], decimal)
    words = [place for place, value in enumerate(numbers) if value is None]
    shown = ", ".join(first[place].strip() for place in places[:SHOWN_FIELDS]) + (", .." * (len(places) > SHOWN_FIELDS))
    if not words:
        fix = 'give header="yes" if they are names of columns, and header="no" if they are not'
        return f"has the numbers {shown}, and counts as a sample; {fix}." if named else None
    # Words that are above words, such as names of samples, do not show that the line is a header.
    above_words = all(any(number(row[place], decimal) is None for row in below) for place in words)
    if named or not above_words:
        return None
    fix = 'give header="no" if it is a sample, and header="yes" if it is not'
    return f"has the numbers {shown}, but counts as a header, because {first[words[0]]!r} is not a number; {fix}."


@np.errstate(invalid="ignore")  # differences of fields that are infinite
def _looks_like_names(rows: Sequence[Sequence[str]], decimal: str) -> bool:
    """Whether the numbers in the first row are names, as years and wavelengths are: no other row is like it.

    No two are equal; and they are whole, or rise or fall by equal steps, or are many and rise or fall.
    """
    values = np.array([[number(text, decimal) for text in row] for row in rows], dtype=np.float64)
    if values.shape[1] < FEWEST_NAMES or len(set(values[0])) < values.shape[1]:
        return False
    steps = np.diff(values, axis=1)
    even = (steps[:, 0] != 0) & np.isclose(steps, steps[:, :1], rtol=1e-6, atol=0).all(axis=1)
    ordered = ((steps > 0).all(axis=1) | (steps < 0).all(axis=1)) & (values.shape[1] >= MANY_NAMES)
    # For each property, whether each row has it; missing entries have none.
    looks = (values == np.floor(values)).all(axis=1), even, ordered
    return any(look[0] and not look[1:].any() for look in looks)


def read_csv(file: Path, options: TableOptions) -> Table:
    """Table of a text file: X (n_samples, n_features) float64 with NaN for empty fields and NA."""
    return table_of(TextColumns.of(file, options), options, str(file))


@dataclass(frozen=True)
class TextColumns:
    """Columns of a text file, each read on request; ``fields`` are those of its first line that is not blank."""

    file: Path
    encoding: str
    delimiter: str
    decimal: str
    fields: tuple[str, ...]
    has_header: bool

    @classmethod
    def of(cls, file: Path, options: TableOptions) -> TextColumns:
        """In the given format; what is not given is detected from the first lines."""
        encoding = options.encoding or UTF_8
        try:
            with open_text(file, encoding) as lines:
                first = list(islice((line for line in lines if line.strip()), SAMPLED_LINES))
        except UnicodeDecodeError as error:
            fix = "save it as UTF-8, or give its encoding, such as encoding='latin-1'"
            raise UnreadableFileError(
                f"{file} is not UTF-8 text (byte {error.object[error.start]:#04x}); {fix}."
            ) from error
        if not first:
            raise UnreadableFileError(f"{file} is empty; a text table needs at least one line of numbers.")
        choices = [options.delimiter] if options.delimiter else [sign for sign in DELIMITERS if sign != options.decimal]
        delimiter = max(choices, key=lambda sign: _fitness(first, sign))
        rows = list(_fields(first, delimiter))
        decimal = options.decimal or ("," if _has_decimal_comma(rows[1:] or rows) else ".")
        fields = tuple(field.strip() for field in rows[0])
        has_words = any(number(text, decimal) is None for text in fields)
        if options.header == "auto" and (doubt := _doubt(rows, decimal)):
            warn_user(f"line 1 of {file} {doubt}")
        has_header = has_words if options.header == "auto" else options.header == "yes"
        return cls(file, encoding, delimiter, decimal, fields, has_header)

    @property
    def names(self) -> tuple[str, ...] | None:
        return self.fields if self.has_header else None

    @property
    def n_columns(self) -> int:
        return len(self.fields)

    def features(self, positions: Sequence[int]) -> MatrixSource:
        try:
            X = self._load(positions)
            if self.decimal == "," or (len(X) and X.shape[1] != len(positions)):
                raise ValueError("a point beside decimal commas, or lines of one length, but not that of the first")
        except ValueError:
            # A decimal comma, an empty field, a word or a short line: the slow reader names the last two.
            X = self._with_gaps(positions)
        names = None if self.names is None else tuple(self.names[column] for column in positions)
        return MatrixSource(X.reshape(-1, len(positions)), names)

    def values(self, position: int) -> np.ndarray:
        values = np.array([fields[position].strip() for _, fields in self._rows()])
        for dtype in (np.int64, np.float64):
            with suppress(ValueError):
                plain = values.astype(dtype)
                # Texts such as 007 are kept as text, because they are names rather than numbers.
                return plain if [str(value) for value in plain.tolist()] == values.tolist() else values
        return values

    def place(self, row: int, column: int) -> str:
        line = next(islice(self._rows(), row, None))[0]
        return f"line {line} of {self.file}, {column_label(self.names, column)},"

    def _load(self, positions: Sequence[int]) -> np.ndarray:
        everything = list(positions) == list(range(self.n_columns))
        with open_text(self.file, self.encoding) as text:
            # Blank lines before the header would be counted by skiprows, so the header is skipped by hand.
            lines: Iterator[str] = islice((line for line in text if line.strip()), int(self.has_header), None)
            first = next(lines, None)
            if first is None:
                # Only a header, of which loadtxt would warn in its own words.
                return np.empty((0, len(positions)))
            return np.loadtxt(
                chain([first], lines),
                dtype=np.float64,
                # For loadtxt, None means any number of blanks.
                delimiter=None if self.delimiter == " " else self.delimiter,
                comments=None,
                # Without usecols, loadtxt checks that all lines have the same length.
                usecols=None if everything else list(positions),
                quotechar='"',
                ndmin=2,
            )

    def _rows(self) -> Iterator[tuple[int, list[str]]]:
        """Pairs (line of the file, from 1, and its fields), without blank lines and the header."""
        with open_text(self.file, self.encoding) as text:
            reader = _fields(text, self.delimiter)
            filled = (fields for fields in reader if any(map(str.strip, fields)) or len(fields) > 1)
            for fields in islice(filled, int(self.has_header), None):
                if len(fields) != self.n_columns:
                    found = f"{len(fields)} fields, expected {self.n_columns}"
                    raise UnreadableFileError(f"line {reader.line_num} of {self.file} has {found}; repair the line.")
                yield reader.line_num, fields

    def _with_gaps(self, positions: Sequence[int]) -> np.ndarray:
        values = array.array("d")
        for line, fields in self._rows():
            for column in positions:
                value = number(fields[column], self.decimal)
                if value is None:
                    raise self._not_numeric(line, column, fields[column])
                values.append(value)
        return np.array(values)

    def _not_numeric(self, line: int, column: int, text: str) -> DataError:
        name = str(column) if self.names is None else repr(self.names[column])
        other = "," if self.decimal == "." else "."
        fix = NOT_NUMERIC
        if number(text, other) is not None:
            fix = f"its decimal mark is not {self.decimal!r}: give decimal={other!r}"
        return DataError(f"column {name} of {self.file} is not numeric: {text!r} in line {line}; {fix}.")
