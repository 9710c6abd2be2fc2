"""Text tables: any delimiter, decimal point or comma, with or without a header or empty fields."""

from __future__ import annotations

import array
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import chain, islice
from pathlib import Path

import numpy as np

from eigenmesh.data._block import Table
from eigenmesh.data._columns import table_of
from eigenmesh.data._dialect import Dialect, number, open_text
from eigenmesh.data._source import MatrixSource
from eigenmesh.data._table_options import NOT_NUMERIC, TableOptions, column_label
from eigenmesh.errors import DataError, UnreadableFileError, warn_user


def read_csv(file: Path, options: TableOptions) -> Table:
    """Table of a text file: X (n_samples, n_features) float64 with NaN for empty fields and NA."""
    dialect = Dialect.of(file, options)
    if dialect.doubt is not None:
        warn_user(f"line 1 of {file} {dialect.doubt}")
    return table_of(TextColumns(dialect), options, str(file))


@dataclass(frozen=True)
class TextColumns:
    """Columns of a text file, each read on request."""

    dialect: Dialect

    @property
    def names(self) -> tuple[str, ...] | None:
        return self.dialect.fields if self.dialect.has_header else None

    @property
    def n_columns(self) -> int:
        return len(self.dialect.fields)

    def features(self, positions: Sequence[int]) -> MatrixSource:
        try:
            X = self._load(positions)
            if len(X) and X.shape[1] != len(positions):
                raise ValueError("lines of one length, but not that of the first")
        except ValueError:
            # An empty field, a word or a short line: the slow reader fills the first and names the others.
            X = self._with_gaps(positions)
        names = None if self.names is None else tuple(self.names[column] for column in positions)
        return MatrixSource(X.reshape(-1, len(positions)), names)

    def values(self, position: int) -> np.ndarray:
        values = np.array([fields[position].strip() for _, fields in self._rows()])
        for dtype in (np.int64, np.float64):
            try:
                plain = values.astype(dtype)
            except ValueError:
                continue
            # Texts such as 007 are kept as text, because they are names rather than numbers.
            return plain if [str(value) for value in plain.tolist()] == values.tolist() else values
        return values

    def place(self, row: int, column: int) -> str:
        line = next(islice(self.dialect.rows(), row, None))[0]
        return f"line {line} of {self.dialect.file}, {column_label(self.names, column)},"

    def _load(self, positions: Sequence[int]) -> np.ndarray:
        everything = list(positions) == list(range(self.n_columns))
        with open_text(self.dialect.file, self.dialect.encoding) as text:
            # Blank lines before the header would be counted by skiprows, so the header is skipped by hand.
            lines: Iterator[str] = islice((line for line in text if line.strip()), int(self.dialect.has_header), None)
            first = next(lines, None)
            if first is None:
                # Only a header, of which loadtxt would warn in its own words.
                return np.empty((0, len(positions)))
            lines = chain([first], lines)
            return np.loadtxt(
                self._with_points(lines) if self.dialect.decimal == "," else lines,
                dtype=np.float64,
                # For loadtxt, None means any number of blanks.
                delimiter=None if self.dialect.delimiter == " " else self.dialect.delimiter,
                comments=None,
                # Without usecols, loadtxt checks that all lines have the same length.
                usecols=None if everything else list(positions),
                quotechar='"',
                ndmin=2,
            )

    def _with_points(self, lines: Iterator[str]) -> Iterator[str]:
        for line in lines:
            if "." in line:
                raise ValueError("a decimal point in a file with decimal commas")
            yield line.replace(",", ".")

    def _rows(self) -> Iterator[tuple[int, list[str]]]:
        for line, fields in self.dialect.rows():
            if len(fields) != self.n_columns:
                found = f"{len(fields)} fields, expected {self.n_columns}"
                raise UnreadableFileError(f"line {line} of {self.dialect.file} has {found}; repair the line.")
            yield line, fields

    def _with_gaps(self, positions: Sequence[int]) -> np.ndarray:
        values, decimal = array.array("d"), self.dialect.decimal
        for line, fields in self._rows():
            for column in positions:
                value = number(fields[column], decimal)
                if value is None:
                    raise self._not_numeric(line, column, fields[column])
                values.append(value)
        return np.array(values)

    def _not_numeric(self, line: int, column: int, text: str) -> DataError:
        name = str(column) if self.names is None else repr(self.names[column])
        other = "," if self.dialect.decimal == "." else "."
        fix = (
            NOT_NUMERIC
            if number(text, other) is None
            else f"its decimal mark is not {self.dialect.decimal!r}: give decimal={other!r}"
        )
        return DataError(f"column {name} of {self.dialect.file} is not numeric: {text!r} in line {line}; {fix}.")
