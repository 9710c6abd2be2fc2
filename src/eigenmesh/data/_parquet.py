"""Parquet files, read a row group at a time."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, ClassVar

import numpy as np

from eigenmesh.data._block import Table
from eigenmesh.data._columns import table_of
from eigenmesh.data._frames import FrameColumns
from eigenmesh.data._splits import Rows
from eigenmesh.data._table_options import TableOptions, column_label
from eigenmesh.errors import import_extra


def read_parquet(file: Path, options: TableOptions) -> Table:
    """Table of a .parquet file, in float32 if all columns are, else in float64; rows are read as they are asked for."""
    return table_of(ParquetColumns.of(file), options, str(file))


@dataclass(frozen=True, eq=False)
class ParquetColumns:
    """Columns of a file, named by its schema."""

    parquet: Any
    file: Path
    names: tuple[str, ...]

    @classmethod
    def of(cls, file: Path) -> ParquetColumns:
        parquet = import_extra("pyarrow.parquet", "parquet", "reading a .parquet file").ParquetFile(file)
        # pandas stores an index without a name as such a column; it is not a feature.
        names = tuple(name for name in parquet.schema_arrow.names if not name.startswith("__index_level_"))
        return cls(parquet, file, names)

    @property
    def n_columns(self) -> int:
        return len(self.names)

    def features(self, positions: Sequence[int]) -> ParquetRows:
        names = tuple(self.names[column] for column in positions)
        # Without rows, the schema shows what is not numeric, and the common dtype.
        empty = FrameColumns.of(self.parquet.schema_arrow.empty_table().select(list(names)), str(self.file))
        kinds = {matrix.dtype for matrix in [empty.numbers([column]) for column in range(len(names))]}
        dtype = np.dtype(np.float32 if kinds == {np.dtype(np.float32)} else np.float64)
        return ParquetRows(self.parquet, str(self.file), names, dtype)

    def values(self, position: int) -> np.ndarray:
        column = self.parquet.read(columns=[self.names[position]])
        return FrameColumns.of(column, str(self.file)).values(0)

    def place(self, row: int, column: int) -> str:
        return f"row {row} of {self.file}, {column_label(self.names, column)},"


@dataclass(frozen=True, eq=False)
class ParquetRows:
    """Rows of some columns; the row group that was read last is kept, so that pieces of it are read once."""

    parquet: Any
    where: str
    feature_names: tuple[str, ...]
    dtype: np.dtype
    n_stored: ClassVar[int | None] = None
    in_memory: ClassVar[bool] = False
    _kept: dict[int, np.ndarray] = field(default_factory=dict, init=False, repr=False)

    @property
    def shape(self) -> tuple[int, int]:
        return self.parquet.metadata.num_rows, len(self.feature_names)

    def place(self, row: int, column: int) -> str:
        return f"row {row} of {self.where}, {column_label(self.feature_names, column)},"

    def read(self, rows: Rows) -> np.ndarray:
        wanted = np.arange(rows.start, rows.stop) if isinstance(rows, slice) else np.asarray(rows)
        counts = [self.parquet.metadata.row_group(group).num_rows for group in range(self.parquet.num_row_groups)]
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
            frame = self.parquet.read_row_groups([group], columns=list(self.feature_names))
            columns = FrameColumns.of(frame.select(list(self.feature_names)), self.where)
            self._kept[group] = columns.numbers(range(len(self.feature_names))).astype(self.dtype, copy=False)
        return self._kept[group]
