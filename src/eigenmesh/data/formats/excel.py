"""Sheets of Excel workbooks, .xlsx and .xlsm, whose cells are read as the fields of a text table are."""

from __future__ import annotations

import datetime
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import islice
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
    cells = Cells(file, _sheet(file, options), options.skip_rows, options.comment)
    where, found = f"sheet {cells.sheet!r} of {file}", list(islice(cells.filled(), SAMPLED_LINES))
    if not found:
        raise UnreadableFileError(f"{where} is empty; name another by sheet, or give a table with numbers.")
    # Numbers are numbers, whatever marks are usual where the workbook was made; only those in cells of text have marks.
    words = [[cell for cell in row if isinstance(cell, str)] for _, row in found]
    numbers = Numbers.of(options, words[1:] or words, where)
    cells = replace(cells, decimal=numbers.decimal)
    rows = list(islice(cells.rows(), SAMPLED_LINES))
    _require_table(where, rows)
    has_header = header_of([fields for _, fields in rows], numbers, options, f"row {rows[0][0]} of {where}")
    fields = tuple(field.strip() for field in rows[0][1])
    return table_of(FieldColumns(where, fields, has_header, numbers, cells.rows, "row", options), options, where)


def _require_table(where: str, found: Sequence[tuple[int, list[str]]]) -> None:
    """Raise if a title or notes seem to be above the table: rows that are half empty, above one that is full."""
    full = next((number for number, fields in found if all(map(str.strip, fields))), None)
    title = [text for text in found[0][1] if text.strip()]
    if full is not None and 2 * len(title) <= len(found[0][1]):
        said = f"the table in {where} seems to begin in row {full}, below {title[0]!r:.60}"
        raise UnreadableFileError(f"{said}; give skip_rows={full - 1}.")


def _open(file: Path) -> Any:
    """The open workbook; its formulas have the values that were last computed."""
    return import_extra("openpyxl", "excel", "reading a workbook").load_workbook(file, read_only=True, data_only=True)


def _sheet(file: Path, options: TableOptions) -> str:
    """Name of the sheet to read."""
    book = _open(file)
    try:
        names = [sheet.title for sheet in book.worksheets]
        if isinstance(options.sheet, int) and str(options.sheet) not in names:
            if not 0 <= options.sheet < len(names):
                raise DataError(f"{file} has no sheet {options.sheet}; give one of 0..{len(names) - 1}.")
            return str(names[options.sheet])
        if options.sheet is not None:
            if str(options.sheet) not in names:
                raise DataError(f"{file} has no sheet {options.sheet!r}; it has {listed(names)}.")
            return str(options.sheet)
        filled = [sheet.title for sheet in book.worksheets if any(map(_has_cells, sheet.iter_rows(values_only=True)))]
        if len(filled) > 1:
            raise DataError(
                f'{file} has {len(filled)} sheets: {listed(filled)}; give one, such as sheet="{filled[0]}".'
            )
        return str((filled or names)[0])
    finally:
        book.close()


def _has_cells(row: Sequence[object]) -> bool:
    return any(cell is not None for cell in row)


@dataclass(frozen=True)
class Cells:
    """The cells of one sheet.

    Attributes
    ----------
    file, sheet : the workbook, and the name of the sheet.
    skip : number of rows before the table.
    comment : how the first cell of a row begins that is no part of the table.
    decimal : mark with which numbers become text.
    """

    file: Path
    sheet: str
    skip: int
    comment: str | None
    decimal: str = "."

    def filled(self) -> Iterator[tuple[int, tuple[object, ...]]]:
        """Pairs (row of the sheet, from 1, and its cells), without empty rows and comments."""
        book = _open(self.file)
        try:
            for number, cells in enumerate(book[self.sheet].iter_rows(values_only=True), start=1):
                first = next((str(cell) for cell in cells if cell is not None and str(cell).strip()), None)
                if number > self.skip and first is not None and not (self.comment and first.startswith(self.comment)):
                    yield number, cells
        finally:
            book.close()

    def rows(self) -> Iterator[tuple[int, list[str]]]:
        """Pairs (row of the sheet, and its fields), as many as there are in the widest of the first rows, or more."""
        for number, cells in self.filled():
            fields = [text_of(cell, self.decimal) for cell in cells]
            # Some workbooks have empty cells behind the last column, and others no cells where the last are empty.
            beyond = filter(str.strip, fields[self.width :])
            yield number, [*fields[: self.width], *[""] * (self.width - len(fields)), *beyond]

    @cached_property
    def width(self) -> int:
        """Number of columns."""
        first = islice(self.filled(), SAMPLED_LINES)
        return max(at for _, row in first for at, cell in enumerate(row, start=1) if cell is not None)


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
