"""Parquet files, and data sets that are folders of them, read a row group at a time."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any, ClassVar

import numpy as np

from eigenmesh.data.block import Table, table_of
from eigenmesh.data.source import FrameColumns, TableOptions, column_label, require_distinct
from eigenmesh.data.split import Rows
from eigenmesh.errors import DataError, UnreadableFileError, import_extra


def read_parquet(file: Path, options: TableOptions) -> Table:
    """Table of a .parquet file or folder, read on request; float32 if all columns are, otherwise float64."""
    return table_of(ParquetColumns.of(file), options, str(file))


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

    @classmethod
    def of(cls, file: Path) -> ParquetColumns:
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
        return cls(parts, file, names)

    @property
    def n_columns(self) -> int:
        return len(self.names)

    def features(self, positions: Sequence[int]) -> ParquetRows:
        names = tuple(self.names[column] for column in positions)
        # An empty table with the schema is enough to find columns that are not numeric, and the common dtype.
        empty = FrameColumns.of(self.parts[0].schema_arrow.empty_table().select(list(names)), str(self.file))
        kinds = {matrix.dtype for matrix in [empty.numbers([column]) for column in range(len(names))]}
        dtype = np.dtype(np.float32 if kinds == {np.dtype(np.float32)} else np.float64)
        return ParquetRows(self.parts, str(self.file), names, dtype)

    def values(self, position: int) -> np.ndarray:
        columns = [part.read(columns=[self.names[position]]) for part in self.parts]
        return np.concatenate([FrameColumns.of(column, str(self.file)).values(0) for column in columns])

    def place(self, row: int, column: int) -> str:
        return f"row {row} of {self.file}, {column_label(self.names, column)},"


@dataclass(frozen=True, eq=False)
class ParquetRows:
    """Rows of some columns; the last row group is kept in memory, so that reading it in pieces costs one read."""

    parts: tuple[Any, ...]
    where: str
    feature_names: tuple[str, ...]
    dtype: np.dtype
    n_stored: ClassVar[int | None] = None
    in_memory: ClassVar[bool] = False
    _kept: dict[int, np.ndarray] = field(default_factory=dict, init=False, repr=False)

    @cached_property
    def groups(self) -> list[tuple[Any, int]]:
        """Row groups of all files in their order: the file, and the number of the group in it."""
        return [(part, group) for part in self.parts for group in range(part.num_row_groups)]

    @property
    def shape(self) -> tuple[int, int]:
        return sum(part.metadata.num_rows for part in self.parts), len(self.feature_names)

    def place(self, row: int, column: int) -> str:
        return f"row {row} of {self.where}, {column_label(self.feature_names, column)},"

    def read(self, rows: Rows) -> np.ndarray:
        wanted = np.arange(rows.start, rows.stop) if isinstance(rows, slice) else np.asarray(rows)
        counts = [part.metadata.row_group(group).num_rows for part, group in self.groups]
        ends = np.cumsum(counts, dtype=np.intp)
        groups = np.searchsorted(ends, wanted, side="right")
        samples = np.empty((len(wanted), len(self.feature_names)), dtype=self.dtype)
        for group in np.unique(groups):
            chosen = groups == group
            samples[chosen] = self._group(int(group))[wanted[chosen] - (ends[group] - counts[group])]
        return samples

    def _group(self, group: int) -> np.ndarray:
        if group not in self._kept:
            self._kept.clear()
            part, number = self.groups[group]
            frame = part.read_row_groups([number], columns=list(self.feature_names))
            columns = FrameColumns.of(frame.select(list(self.feature_names)), self.where)
            self._kept[group] = columns.numbers(range(len(self.feature_names))).astype(self.dtype, copy=False)
        return self._kept[group]
