"""Parquet tables; only the row groups with the requested rows are read."""

from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from eigenmesh.data._csv_file import label_position
from eigenmesh.data._source import as_source
from eigenmesh.data._table import Table, Unread
from eigenmesh.errors import DataError, import_extra


def open_parquet(file: Path, label_column: str | int | None) -> Unread:
    """A table in float32 if all columns are float32, else in float64; rows are read when they are taken."""
    rows = import_extra("pyarrow.parquet", "parquet", "reading a .parquet file").ParquetFile(file)
    return Unread(rows.metadata.num_rows, partial(_take, file, label_column, rows))


def _take(file: Path, label_column: str | int | None, parquet: Any, rows: slice) -> Table:
    arrow = import_extra("pyarrow", "parquet", "reading a .parquet file")
    frame = _read(parquet, rows)
    # pandas stores an index without a name as such a column; it is not a feature.
    names = [name for name in frame.column_names if not name.startswith("__index_level_")]
    labels = None
    if label_column is not None:
        label = names.pop(label_position(file, label_column, names))
        labels = np.asarray(frame.column(label).to_numpy())
    kinds = [frame.schema.field(name).type for name in names]
    single = all(arrow.types.is_float32(kind) for kind in kinds)
    X = np.empty((frame.num_rows, len(names)), dtype=np.float32 if single else np.float64)
    for column, (name, kind) in enumerate(zip(names, kinds, strict=True)):
        if not (arrow.types.is_integer(kind) or arrow.types.is_floating(kind) or arrow.types.is_boolean(kind)):
            raise DataError(f"column {name!r} of {file} is not numeric ({kind}); drop it or make it label_column.")
        X[:, column] = frame.column(name).cast(arrow.float64(), safe=False).to_numpy()
    return Table(as_source(X, str(file), tuple(names)), labels)


def _read(parquet: Any, rows: slice) -> Any:
    """These rows, from the row groups that contain them."""
    groups = range(parquet.num_row_groups)
    ends = np.cumsum([parquet.metadata.row_group(group).num_rows for group in groups], dtype=np.intp)
    first, last = np.searchsorted(ends, [rows.start, rows.stop - 1], side="right")
    frame = parquet.read_row_groups(list(groups[first : last + 1]))
    return frame.slice(rows.start - (int(ends[first - 1]) if first else 0), rows.stop - rows.start)
