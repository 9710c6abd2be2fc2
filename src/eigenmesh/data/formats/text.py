"""Text tables: any encoding and delimiter, decimal point or comma, with or without a header or empty fields."""

from __future__ import annotations

import codecs
import csv
import gzip
import mmap
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from importlib.util import find_spec
from itertools import islice
from pathlib import Path
from typing import IO

import numpy as np

from eigenmesh.data.block import Table, table_of
from eigenmesh.data.formats.text_fields import WITH_COMMA, FieldColumns, Numbers, header_of
from eigenmesh.data.table_options import TableOptions
from eigenmesh.errors import UnreadableFileError

DELIMITERS = (",", ";", "\t", "|", " ")
# Number of lines from which the format is detected, and the most that may come before the table.
SAMPLED_LINES, MOST_LINES_BEFORE = 50, 25
# Signs with which comments begin.
COMMENTS = "#%!"
UTF_8 = "utf-8-sig"  # with or without the byte-order mark that spreadsheets write
# UTF-32 first, because its mark begins like that of UTF-16.
MARKS = {
    codecs.BOM_UTF8: UTF_8,
    codecs.BOM_UTF32_LE: "utf-32",
    codecs.BOM_UTF32_BE: "utf-32",
    codecs.BOM_UTF16_LE: "utf-16",
    codecs.BOM_UTF16_BE: "utf-16",
}
# Importing pyarrow takes as long as reading so much text without it.
QUICK_BYTES, PACKING = 4 * 2**20, 4
# pyarrow's blocks of text: its own usual size, and so many lines of the file if these are long.
BLOCK_BYTES, LINES_PER_BLOCK, LARGEST_BLOCK = 2**20, 200, 2**30


def read_csv(file: Path, options: TableOptions) -> Table:
    """Table of a text file: X (n_samples, n_features) float64 with NaN for empty fields and NA."""
    return table_of(text_columns(file, options), options, str(file))


def open_text(file: Path, encoding: str) -> IO[str]:
    """A text file for reading, unpacked if its name ends in .gz."""
    if file.suffix.lower() == ".gz":
        return gzip.open(file, "rt", newline="", encoding=encoding)
    return file.open(newline="", encoding=encoding)


def marked_encoding(file: Path) -> str | None:
    """The encoding that the byte-order mark of the file shows; None without one."""
    with gzip.open(file) if file.suffix.lower() == ".gz" else file.open("rb") as raw:
        start = raw.read(4)
    return next((encoding for mark, encoding in MARKS.items() if start.startswith(mark)), None)


class Lines:
    """Lines of a text without the first ones and without comments; ``number`` is that of the last one read, from 1."""

    def __init__(self, text: Iterable[str], skip: int, comment: str | None) -> None:
        self.text, self.skip, self.comment = text, skip, comment
        self.number = 0

    def __iter__(self) -> Iterator[str]:
        for number, line in enumerate(self.text, start=1):
            self.number = number
            if number > self.skip and not (self.comment and line.lstrip().startswith(self.comment)):
                yield line


def fields_of(lines: Iterable[str], delimiter: str) -> Iterator[list[str]]:
    """The fields of each line; with blanks as delimiter, any number of them counts as one."""
    if delimiter == " ":
        return csv.reader(map(str.strip, lines), delimiter=delimiter, skipinitialspace=True)
    return csv.reader(lines, delimiter=delimiter)


@dataclass(frozen=True)
class TextFile:
    """A text file and its delimiter.

    Attributes
    ----------
    file : the file.
    encoding, delimiter : how it is written.
    skip : number of lines before the table.
    comment : how a line begins that is no part of the table.
    """

    file: Path
    encoding: str
    delimiter: str
    skip: int
    comment: str | None

    def rows(self) -> Iterator[tuple[int, list[str]]]:
        """Pairs (line of the file, from 1, and its fields), without blank lines."""
        with open_text(self.file, self.encoding) as text:
            lines = Lines(text, self.skip, self.comment)
            try:
                for fields in fields_of(lines, self.delimiter):
                    if len(fields) > 1 or any(map(str.strip, fields)):
                        yield lines.number, fields
            except UnicodeError as error:
                raise wrong_encoding(self.file, self.encoding, error) from error

    def quick(self, columns: FieldColumns, positions: Sequence[int], as_text: bool) -> np.ndarray | None:
        """Columns by pyarrow: numbers (n, columns), or the text of one column (n,).

        None for what pyarrow does not read, or reads in another way: then the fields are read one by one, which finds
        what is wrong as well.
        """
        n_bytes = self.file.stat().st_size * (PACKING if self.file.suffix.lower() == ".gz" else 1)
        numbers = columns.numbers
        plain = self.delimiter != " " and not numbers.thousands and not self.comment
        if n_bytes < QUICK_BYTES or not plain or find_spec("pyarrow") is None:
            return None
        import pyarrow
        from pyarrow import csv as reader

        first = next(self.rows())[0] if columns.has_header else self.skip
        names = [str(column) for column in range(columns.n_columns)]
        chosen = [names[column] for column in positions]
        longest = LINES_PER_BLOCK * sum(len(text) + 1 for text in next(columns.samples(), (0, [""]))[1])
        spellings = {form(word) for word in numbers.missing for form in (str, str.upper, str.title, str.capitalize)}

        try:
            table = reader.read_csv(
                self.file,
                reader.ReadOptions(
                    column_names=names,
                    skip_rows=first,
                    encoding="utf8" if self.encoding == UTF_8 else self.encoding,
                    block_size=min(max(BLOCK_BYTES, longest), LARGEST_BLOCK),
                ),
                reader.ParseOptions(delimiter=self.delimiter, newlines_in_values=self._has_quotes()),
                reader.ConvertOptions(
                    column_types=dict.fromkeys(chosen, pyarrow.string() if as_text else pyarrow.float64()),
                    include_columns=chosen,
                    null_values=sorted(spellings),
                    strings_can_be_null=False,
                    decimal_point=numbers.decimal,
                ),
            )
        except (pyarrow.ArrowInvalid, pyarrow.ArrowNotImplementedError, UnicodeError):
            return None
        if as_text:
            return np.array(table.column(0).to_pylist(), dtype=np.str_)
        X, start = np.empty((table.num_rows, len(chosen))), 0
        for batch in table.to_batches():
            X[start : start + batch.num_rows] = batch.to_tensor(null_to_nan=True).to_numpy()
            start += batch.num_rows
        return X

    def _has_quotes(self) -> bool:
        """Whether a line may end within quotes; that costs pyarrow a third of its speed."""
        if self.file.suffix.lower() == ".gz":
            return True
        with self.file.open("rb") as raw, mmap.mmap(raw.fileno(), 0, access=mmap.ACCESS_READ) as content:
            return content.find(b'"') >= 0


def wrong_encoding(file: Path, encoding: str, error: UnicodeError) -> UnreadableFileError:
    """The error for text that is in another encoding."""
    if encoding != UTF_8 or not isinstance(error, UnicodeDecodeError):
        return UnreadableFileError(f"{file} is not {encoding} text ({error}); give its encoding.")
    fix = 'save it as UTF-8, or give its encoding, such as encoding="latin-1"'
    return UnreadableFileError(f"{file} is not UTF-8 text (byte {error.object[error.start]:#04x}); {fix}.")


def text_columns(file: Path, options: TableOptions) -> FieldColumns:
    """Columns of a text file in the given format; what is not given is detected from its first lines."""
    marked = marked_encoding(file)
    # A model remembers the encoding of the fit, but the next file may say its own.
    encoding = ("encoding" in options.recalled and marked) or options.encoding or marked or UTF_8
    try:
        with open_text(file, encoding) as text:
            numbered = Lines(text, options.skip_rows, options.comment)
            found = [(numbered.number, line) for line in islice(filter(str.strip, numbered), SAMPLED_LINES)]
    except UnicodeError as error:
        raise wrong_encoding(file, encoding, error) from error
    if not found:
        raise UnreadableFileError(f"{file} is empty; a text table needs at least one line of numbers.")
    first = [line for _, line in found]
    choices = [options.delimiter] if options.delimiter else [sign for sign in DELIMITERS if sign != options.decimal]
    delimiter = max(choices, key=lambda sign: _fitness(first, sign))
    _require_table(file, found, delimiter, choices)
    rows = list(fields_of(first, delimiter))
    numbers = Numbers.of(options, rows[1:] or rows, str(file))
    has_header = header_of(rows, numbers, options, f"line {found[0][0]} of {file}")
    content = TextFile(file, encoding, delimiter, options.skip_rows, options.comment)
    fields = tuple(field.strip() for field in rows[0])
    return FieldColumns(str(file), fields, has_header, numbers, content.rows, "line", options, content.quick)


def _fitness(lines: Sequence[str], delimiter: str) -> tuple[bool, float, int]:
    """Whether a delimiter splits all lines into equally many fields, at least two, and how many are numbers."""
    rows = list(fields_of(lines, delimiter))
    counts = [len(fields) for fields in rows]
    fields = [text.strip() for row in rows[1:] or rows for text in row]
    plain = Numbers()
    numeric = sum(plain.value(text) is not None or WITH_COMMA.fullmatch(text) is not None for text in fields)
    even = counts.count(counts[0]) / len(counts)
    # Names may contain blanks, but then the numbers of fields differ between lines.
    cuts = counts[0] > 1 and (delimiter != " " or even == 1)
    return cuts, even * numeric / len(fields), counts[0]


def _require_table(file: Path, found: Sequence[tuple[int, str]], delimiter: str, choices: Sequence[str]) -> None:
    """Raise if the table seems to begin below the first of these lines, with their numbers."""
    lines = [line for _, line in found]
    counts = list(map(len, fields_of(lines, delimiter)))
    below = Counter(counts[1:]).most_common(1)
    if not below or (counts[0] > 1 and counts[0] == below[0][0]):
        return
    if counts[0] == below[0][0] - 1 > 0 and len(set(counts[1:])) == 1:
        said = f"line {found[0][0]} of {file} names {counts[0]} of {below[0][0]} columns, as write.table of R does"
        raise UnreadableFileError(
            f'{said}; write it with col.names=NA, or give skip_rows={found[0][0]} and header="no".'
        )
    for start in range(1, min(MOST_LINES_BEFORE, len(lines) - 1)):
        fits = [_fitness(lines[start:], sign) for sign in choices]
        best = max(range(len(choices)), key=fits.__getitem__)
        widths = set(map(len, fields_of(lines[start:], choices[best])))
        if fits[best][0] and fits[best][1] > 0 and len(widths) == 1:
            break
    else:
        return
    before = lines[:start]
    sign = before[0].lstrip()[:1]
    fix = f"skip_rows={found[start][0] - 1}"
    with suppress(IndexError):
        if sign in COMMENTS and all(line.lstrip().startswith(sign) for line in before):
            fix = f'comment="{sign}"'
    raise UnreadableFileError(
        f"the table in {file} seems to begin in line {found[start][0]}, below {before[0].strip()!r:.60}; give {fix}."
    )
