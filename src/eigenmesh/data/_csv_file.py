"""Comma-separated tables, with or without a header, with or without gaps."""

import array
import csv
from pathlib import Path
from typing import TypeAlias

import numpy as np

from eigenmesh.data._block import Table
from eigenmesh.data._source import as_source
from eigenmesh.errors import DataError, UnreadableFileError

_MISSING = frozenset({"", "na", "n/a", "nan", "null", "none"})
_Read: TypeAlias = tuple[np.ndarray, np.ndarray | None]  # samples and labels
_ENCODING = "utf-8-sig"  # UTF-8, with or without the byte-order mark that spreadsheets write


def read_csv(file: Path, label_column: str | int | None = None) -> Table:
    """Table of a CSV file: X (n_samples, n_features) float64 with NaN for empty fields and NA."""
    fields = _first_line(file)
    header = any(_number(field) is None for field in fields)
    label = None if label_column is None else label_position(file, label_column, fields, header)
    columns = [column for column in range(len(fields)) if column != label]
    try:
        X, labels = _read_complete(file, header, columns, label)
    except ValueError:
        # An empty field, a word or a short line: the slow reader fills the first and names the others.
        X, labels = _read_with_gaps(file, header, fields, label)
    names = tuple(fields[column] for column in columns) if header else None
    return Table(as_source(X, str(file), names), None if labels is None else _as_numbers(labels))


def label_position(file: Path, label: str | int, names: list[str], header: bool = True) -> int:
    """Position of the label column, given by name or by number from 0."""
    if isinstance(label, int):
        if not 0 <= label < len(names):
            raise DataError(f"{file} has no label column {label}; give one of 0..{len(names) - 1}.")
        return label
    if not header:
        raise DataError(f"{file} has no header, so no column {label!r}; give label_column as a number from 0.")
    if label not in names:
        raise DataError(f"{file} has no column {label!r}; its first columns are {', '.join(names[:10])}.")
    return names.index(label)


def _first_line(file: Path) -> list[str]:
    with file.open(newline="", encoding=_ENCODING) as lines:
        fields = next((line for line in csv.reader(lines) if line), None)
    if fields is None:
        raise UnreadableFileError(f"{file} is empty; a .csv file needs at least one line of numbers.")
    return [field.strip() for field in fields]


def _read_complete(file: Path, header: bool, columns: list[int], label: int | None) -> _Read:
    # Blank lines before the header would be counted by skiprows, so the header is skipped by hand.
    def load(dtype: type, usecols: list[int] | None) -> np.ndarray:
        with file.open(encoding=_ENCODING) as lines:
            if header:
                next(line for line in lines if line.strip())
            return np.loadtxt(lines, dtype=dtype, delimiter=",", comments=None, usecols=usecols, quotechar='"', ndmin=2)

    # Without usecols, loadtxt checks that all lines have the same length.
    X = load(np.float64, None if label is None else columns)
    return X.reshape(-1, len(columns)), None if label is None else load(str, [label])[:, 0]


def _read_with_gaps(file: Path, header: bool, fields: list[str], label: int | None) -> _Read:
    values = array.array("d")
    labels: list[str] = []
    with file.open(newline="", encoding=_ENCODING) as handle:
        reader = csv.reader(handle)
        lines = (line for line in reader if line)
        if header:
            next(lines)
        for line in lines:
            if len(line) != len(fields):
                found = f"{len(line)} fields, expected {len(fields)}"
                raise UnreadableFileError(f"line {reader.line_num} of {file} has {found}; repair the line.")
            for column, text in enumerate(line):
                if column == label:
                    labels.append(text.strip())
                    continue
                value = _number(text)
                if value is None:
                    name = repr(fields[column]) if header else str(column)
                    found = f"{text!r} in line {reader.line_num}"
                    raise DataError(f"column {name} of {file} is not numeric: {found}; drop it or use label_column.")
                values.append(value)
    X = np.array(values).reshape(-1, len(fields) - (label is not None))
    return X, None if label is None else np.array(labels)


def _number(text: str) -> float | None:
    """Value of a field; NaN if it is missing, None if it is not a number."""
    text = text.strip()
    if text.lower() in _MISSING:
        return float("nan")
    try:
        # Python reads 12_34 as 1234; in a table it is an identifier.
        return None if "_" in text else float(text)
    except ValueError:
        return None


def _as_numbers(labels: np.ndarray) -> np.ndarray:
    for dtype in (np.int64, np.float64):
        try:
            return labels.astype(dtype)
        except ValueError:
            continue
    return labels
