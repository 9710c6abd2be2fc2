"""Sheets of Excel workbooks, .xlsx and .xlsm, whose cells are read as the fields of a text table are."""

from __future__ import annotations

import datetime
from collections.abc import Iterable, Iterator, Sequence
from contextlib import closing
from pathlib import Path
from typing import Any

from eigenmesh.data.block import Table, table_of
from eigenmesh.data.formats.text import SAMPLED_LINES
from eigenmesh.data.formats.text_fields import FieldColumns, Numbers, header_of
from eigenmesh.data.table_options import TableOptions
from eigenmesh.errors import DataError, UnreadableFileError, import_extra
from eigenmesh.words import listed


def read_excel(file: Path, options: TableOptions) -> Table:
    """Table of one sheet: the one named by ``sheet``, or the only one that is not empty."""
    books = import_extra("openpyxl", "excel", "reading a workbook")
    # Formulas have the values that were last computed.
    with closing(books.load_workbook(file, read_only=True, data_only=True)) as book:
        sheet = _sheet(book, file, options)
        cells = list(_filled(book[sheet].iter_rows(values_only=True), options))
    where, first = f"sheet {sheet!r} of {file}", [row for _, row in cells[:SAMPLED_LINES]]
    if not cells:
        raise UnreadableFileError(f"{where} is empty; name another by sheet, or give a table with numbers.")
    # Numbers are numbers, whatever marks are usual where the workbook was made; only those in cells of text have marks.
    words = [[cell for cell in row if isinstance(cell, str)] for row in first]
    numbers = Numbers.of(options, words[1:] or words, where)
    width = max(at for row in first for at, cell in enumerate(row, start=1) if cell is not None)
    rows = [(number, _fields(row, width, numbers.decimal)) for number, row in cells]
    _require_table(where, rows[:SAMPLED_LINES])
    has_header = header_of([row for _, row in rows[:SAMPLED_LINES]], numbers, options, f"row {rows[0][0]} of {where}")
    names = tuple(field.strip() for field in rows[0][1])
    return table_of(FieldColumns(where, names, has_header, numbers, lambda: iter(rows), "row", options), options, where)


def _sheet(book: Any, file: Path, options: TableOptions) -> str:
    """Name of the sheet to read."""
    names = [str(sheet.title) for sheet in book.worksheets]
    if isinstance(options.sheet, int) and str(options.sheet) not in names:
        if not 0 <= options.sheet < len(names):
            raise DataError(f"{file} has no sheet {options.sheet}; give one of 0..{len(names) - 1}.")
        return names[options.sheet]
    if options.sheet is not None:
        if str(options.sheet) not in names:
            raise DataError(f"{file} has no sheet {options.sheet!r}; it has {listed(names)}.")
        return str(options.sheet)
    filled = [name for name in names if any(map(_has_cells, book[name].iter_rows(values_only=True)))]
    if len(filled) > 1:
        raise DataError(f'{file} has {len(filled)} sheets: {listed(filled)}; give one, such as sheet="{filled[0]}".')
    return (filled or names)[0]


def _has_cells(row: Sequence[object]) -> bool:
    return any(cell is not None for cell in row)


def _filled(rows: Iterable[Sequence[object]], options: TableOptions) -> Iterator[tuple[int, Sequence[object]]]:
    """Pairs (row of the sheet, from 1, and its cells) of the table, without empty rows and comments."""
    for number, cells in enumerate(rows, start=1):
        first = next((str(cell) for cell in cells if cell is not None and str(cell).strip()), None)
        is_comment = first is not None and options.comment is not None and first.startswith(options.comment)
        if number > options.skip_rows and first is not None and not is_comment:
            yield number, cells


def _fields(cells: Sequence[object], width: int, decimal: str) -> list[str]:
    """Cells as fields, as many as there are in the widest of the first rows, or more.

    Some workbooks have empty cells behind the last column, and others no cells where the last are empty.
    """
    fields = [text_of(cell, decimal) for cell in cells]
    return [*fields[:width], *[""] * (width - len(fields)), *filter(str.strip, fields[width:])]


def _require_table(where: str, found: Sequence[tuple[int, list[str]]]) -> None:
    """Raise if a title or notes seem to be above the table: rows that are half empty, above one that is full."""
    full = next((number for number, fields in found if all(map(str.strip, fields))), None)
    title = [text for text in found[0][1] if text.strip()]
    if full is not None and 2 * len(title) <= len(found[0][1]):
        said = f"the table in {where} seems to begin in row {full}, below {title[0]!r:.60}"
        raise UnreadableFileError(f"{said}; give skip_rows={full - 1}.")


def text_of(cell: object, decimal: str) -> str:
    """A cell as the field of a text table: numbers with all their digits, dates as ISO 8601 has them."""
    if cell is None:
        return ""
    if isinstance(cell, bool):
        return str(int(cell))
    if isinstance(cell, int | float):
        return str(cell).replace(".", decimal)
    if isinstance(cell, datetime.datetime):
        return cell.date().isoformat() if cell.time() == datetime.time() else cell.isoformat(" ")
    return cell.isoformat() if isinstance(cell, datetime.date | datetime.time) else str(cell)
