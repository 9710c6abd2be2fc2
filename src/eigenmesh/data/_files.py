"""Tables from files: .npy, .npz (dense or scipy.sparse), .csv, .parquet."""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import scipy.sparse

from eigenmesh.data._csv_file import label_position, read_csv
from eigenmesh.data._splits import ContiguousSplit
from eigenmesh.data._table import Samples, Table
from eigenmesh.errors import DataError, EigenmeshError, InputError, UnreadableFileError, import_extra

_SAMPLES = ("X", "data", "images")
_LABELS = ("y", "labels", "label", "site", "target")


def read_table(
    path: str | os.PathLike[str], *, label_column: str | int | None = None, share: tuple[int, int] | None = None
) -> Table:
    """Samples, labels and names from one file, by its suffix.

    ``.npy`` is memory-mapped. ``.npz`` holds samples as ``X``, ``data`` or ``images`` (or as its only 2-D
    array), labels as ``y``, ``labels``, ``label``, ``site`` or ``target`` (looked up in ``site_names`` and
    the like if there is one) and ``feature_names``; or it is what ``scipy.sparse.save_npz`` writes. ``.csv``
    has a header if a field of its first line is not a number; empty fields and NA are missing.
    ``label_column`` (a name, or a number from 0) is for ``.csv`` and ``.parquet``.

    ``share = (i, n)`` gives the i-th of n runs of rows, equal in length to within one. Of ``.npy`` and ``.parquet`` no
    other rows are read; the other kinds are read whole first.
    """
    file = Path(path)
    read = READERS.get(file.suffix.lower())
    if not file.is_file():
        raise UnreadableFileError(f"{file} does not exist or is not a file; eigenmesh reads {_kinds()} files")
    if read is None:
        raise UnreadableFileError(f"{file} is of unknown kind {file.suffix!r}; eigenmesh reads {_kinds()} files")
    try:
        if share is not None and file.suffix.lower() == ".parquet":
            table = _read_parquet(file, label_column, share)
        else:
            table = read(file, label_column)
            table = table if share is None else consecutive_rows(table, share)
    except EigenmeshError:
        raise
    except Exception as error:  # broken files make NumPy, zipfile, csv and pyarrow raise a dozen kinds
        raise UnreadableFileError(
            f"{file} cannot be read as {file.suffix} ({error}); eigenmesh reads {_kinds()} files"
        ) from error
    return replace(table, name=file.stem)


def consecutive_rows(table: Table, share: tuple[int, int]) -> Table:
    """The i-th of n runs of rows of a table, ``share = (i, n)``; copies nothing of a dense one."""
    rows = _rows_of_share(int(table.X.shape[0]), share)
    labels = None if table.labels is None else table.labels[rows]
    return replace(table, X=table.X[rows], labels=labels)


def _rows_of_share(n_samples: int, share: tuple[int, int]) -> slice:
    which, n_shares = share
    rows = ContiguousSplit().rows(n_samples, n_shares)[which]
    return rows if isinstance(rows, slice) else slice(None)


def _kinds() -> str:
    return ", ".join(READERS)


def _no_label_column(file: Path, label_column: str | int | None) -> None:
    if label_column is not None:
        raise InputError(f"label_column = {label_column!r} is for .csv and .parquet files, not for {file}")


def _read_npy(file: Path, label_column: str | int | None) -> Table:
    _no_label_column(file, label_column)
    return Table(np.load(file, mmap_mode="r", allow_pickle=False))


def _read_npz(file: Path, label_column: str | int | None) -> Table:
    _no_label_column(file, label_column)
    with np.load(file, allow_pickle=False) as archive:
        if {"format", "shape", "data"} <= set(archive.files):
            return Table(scipy.sparse.csr_array(scipy.sparse.load_npz(file)))
        X = _find_samples(archive, file)
        names = archive["feature_names"] if "feature_names" in archive.files else np.empty(0)
        feature_names = tuple(str(name) for name in names) if names.shape == X.shape[1:] else None
        return Table(X, _find_labels(archive, len(X)), feature_names)


def _find_samples(archive: Any, file: Path) -> Samples:
    for name in _SAMPLES:
        if name in archive.files:
            return archive[name]
    matrices = [name for name in archive.files if archive[name].ndim == 2]
    if len(matrices) != 1:
        raise UnreadableFileError(
            f"{file} has no array named {', '.join(_SAMPLES)}, and {len(matrices)} 2-D arrays, not one; "
            f"it has {', '.join(archive.files) or 'none'}"
        )
    return archive[matrices[0]]


def _find_labels(archive: Any, n_samples: int) -> np.ndarray | None:
    for name in _LABELS:
        labels = archive[name] if name in archive.files else np.empty(())
        if labels.shape != (n_samples,):
            continue
        if f"{name}_names" in archive.files and labels.dtype.kind in "iu":
            return np.asarray(archive[f"{name}_names"][labels])
        return np.asarray(labels)
    return None


def _read_parquet(file: Path, label_column: str | int | None, share: tuple[int, int] | None = None) -> Table:
    parquet = import_extra("pyarrow.parquet", "parquet", "reading a .parquet file")
    arrow = import_extra("pyarrow", "parquet", "reading a .parquet file")
    frame = parquet.read_table(file) if share is None else _parquet_rows(parquet.ParquetFile(file), share)
    # pandas stores a nameless index as a column of this name; it is no feature.
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
            raise DataError(f"column {name!r} of {file} is not numeric ({kind}); drop it or make it label_column")
        X[:, column] = frame.column(name).cast(arrow.float64(), safe=False).to_numpy()
    return Table(X, labels, tuple(names))


def _parquet_rows(file: Any, share: tuple[int, int]) -> Any:
    """Only the row groups that a share of the rows lies in, cut to size."""
    rows = _rows_of_share(file.metadata.num_rows, share)
    ends = np.cumsum([file.metadata.row_group(group).num_rows for group in range(file.num_row_groups)])
    first, last = np.searchsorted(ends, [rows.start, rows.stop - 1], side="right")
    before = int(ends[first - 1]) if first else 0
    frame = file.read_row_groups(list(range(int(first), int(last) + 1)))
    return frame.slice(rows.start - before, rows.stop - rows.start)


# To add a kind of file: a function above, a row here.
READERS: dict[str, Callable[[Path, str | int | None], Table]] = {
    ".npy": _read_npy,
    ".npz": _read_npz,
    ".csv": read_csv,
    ".parquet": _read_parquet,
}
