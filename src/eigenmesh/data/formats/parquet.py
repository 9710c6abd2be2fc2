"""Parquet files, and data sets that are folders of them, read a row group at a time."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from eigenmesh.data.block import Table, table_of
from eigenmesh.data.source import FrameColumns, StoredRows
from eigenmesh.data.table_options import TableOptions, require_distinct, row_label
from eigenmesh.errors import DataError, UnreadableFileError, import_extra


def read_parquet(file: Path, options: TableOptions) -> Table:
    """Table of a .parquet file or folder, read on request; float32 if all columns are, otherwise float64."""
    return table_of(ParquetColumns.of(file, options), options, str(file))


def parquet_files(path: Path) -> list[Path]:
    """The file, or all .parquet files in a folder, sorted by name, except those that start with a dot or _."""
    if path.is_file():
        return [path]
    inside = [file.relative_to(path) for file in path.rglob("*.parquet") if file.is_file()]
    found = sorted(file for file in inside if not any(part.startswith((".", "_")) for part in file.parts))
    if not found:
        raise UnreadableFileError(f"{path} is a folder without .parquet files; name another, or write some.")
    return [path / file for file in found]


@dataclass(frozen=True, eq=False)
class ParquetColumns:
    """Columns of a file, or of all files of a folder, named by their schema."""

    parts: tuple[Any, ...]
    file: Path
    names: tuple[str, ...]
    options: TableOptions

    @classmethod
    def of(cls, file: Path, options: TableOptions) -> ParquetColumns:
        pyarrow = import_extra("pyarrow.parquet", "parquet", "reading a .parquet file")
        files = parquet_files(file)
        parts = tuple(pyarrow.ParquetFile(one) for one in files)
        for one, part in zip(files, parts, strict=True):
            if not part.schema_arrow.equals(parts[0].schema_arrow):
                raise DataError(
                    f"{one} has other columns, or types of columns, than {files[0]}; write the same in all files."
                )
        # pandas stores an index without a name as such a column; it is not a feature.
        names = tuple(name for name in parts[0].schema_arrow.names if not name.startswith("__index_level_"))
        # Columns are read by name, so that also one that is left out must not have the name of another.
        require_distinct(names, str(file))
        return cls(parts, file, names, options)

    @property
    def n_columns(self) -> int:
        return len(self.names)

    def features(self, positions: Sequence[int]) -> StoredRows:
        """These columns, read a row group at a time."""
        names, where = [self.names[column] for column in positions], str(self.file)
        # An empty table with the schema is enough to find columns that are not numeric, and the common dtype.
        empty = FrameColumns.of(self.parts[0].schema_arrow.empty_table().select(list(self.names)), where)
        wrong = [column for column in positions if not empty.is_numeric(column)]
        if wrong:
            raise self._first_rows().refusal(wrong)
        kinds = {matrix.dtype for matrix in [empty.numbers([column]) for column in positions]}
        dtype = np.dtype(np.float32 if kinds == {np.dtype(np.float32)} else np.float64)
        groups = [(part, group) for part in self.parts for group in range(part.num_row_groups)]
        counts = [part.metadata.row_group(group).num_rows for part, group in groups]
        ends = np.cumsum(counts, dtype=np.intp)
        # The last row group stays in memory, so that reading it in pieces costs one read.
        kept: dict[int, np.ndarray] = {}

        def numbers_of(group: int) -> np.ndarray:
            if group not in kept:
                kept.clear()
                part, number = groups[group]
                frame = part.read_row_groups([number], columns=names).select(names)
                kept[group] = FrameColumns.of(frame, where).numbers(range(len(names))).astype(dtype, copy=False)
            return kept[group]

        def between(start: int, stop: int) -> np.ndarray:
            rows = np.empty((stop - start, len(names)), dtype=dtype)
            for group in np.flatnonzero((ends > start) & (ends - counts < stop)).tolist():
                first = ends[group] - counts[group] - start
                rows[max(first, 0) : first + counts[group]] = numbers_of(group)[max(-first, 0) : stop - start - first]
            return rows

        shape = sum(counts), len(names)
        return StoredRows(shape, dtype, between, tuple(names), place=partial(row_label, where, names))

    def _first_rows(self) -> FrameColumns:
        """The first row group, or no rows if there is none."""
        part = self.parts[0]
        head = part.read_row_group(0) if part.num_row_groups else part.schema_arrow.empty_table()
        return FrameColumns.of(head.select(list(self.names)), str(self.file), self.options)

    def values(self, position: int) -> np.ndarray:
        columns = [part.read(columns=[self.names[position]]) for part in self.parts]
        return np.concatenate([FrameColumns.of(column, str(self.file)).values(0) for column in columns])

    def place(self, row: int, column: int) -> str:
        return row_label(str(self.file), self.names, row, column)
