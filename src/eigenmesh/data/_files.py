"""Tables from files: .npy, .npz (dense or scipy.sparse), .csv, .parquet."""

import os
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import scipy.sparse

from eigenmesh.data._block import Table, Unread
from eigenmesh.data._csv_file import label_position, read_csv
from eigenmesh.data._source import Samples, as_source
from eigenmesh.data._splits import ContiguousSplit
from eigenmesh.errors import DataError, EigenmeshError, InputError, UnreadableFileError, import_extra

_SAMPLES = ("X", "data", "images")
_LABELS = ("y", "labels", "label", "site", "target")


def read_table(
    path: str | os.PathLike[str], *, label_column: str | int | None = None, share: tuple[int, int] | None = None
) -> Table:
    """Samples, labels and names from one file, by its suffix.

    ``.npy`` is memory-mapped. ``.npz`` was written by ``scipy.sparse.save_npz``, or holds samples as ``X``, ``data`` or
    ``images`` (or as its only 2-D array), labels as ``y``, ``labels``, ``label``, ``site`` or ``target`` (looked up in
    ``site_names``, ``y_names`` etc. if present) and ``feature_names``. ``.csv`` has a header if a field of its first
    line is not a number; empty fields and NA are missing. ``label_column`` (a name, or a number from 0) is for ``.csv``
    and ``.parquet``. ``share = (i, n)`` gives the i-th of n runs of rows, equal in length to within one; ``.npy`` and
    ``.parquet`` files are then read only in part.
    """
    file = Path(path)
    open_file = READERS.get(file.suffix.lower())
    kinds = f"eigenmesh reads {', '.join(READERS)} files."
    if not file.is_file():
        raise UnreadableFileError(f"{file} does not exist or is not a file; {kinds}")
    if open_file is None:
        raise UnreadableFileError(f"{file} has the unknown suffix {file.suffix!r}; {kinds}")
    try:
        opened = open_file(file, label_column)
        table = opened.take(consecutive_rows(opened.n_samples, share))
    except EigenmeshError:
        raise
    except Exception as error:  # broken files make NumPy, zipfile, csv and pyarrow raise many kinds of exceptions
        raise UnreadableFileError(f"{file} cannot be read as {file.suffix} ({error}); {kinds}") from error
    return replace(table, name=file.stem)


def consecutive_rows(n_samples: int, share: tuple[int, int] | None) -> slice:
    """The i-th of n runs of rows, ``share = (i, n)``; all rows for None."""
    return slice(0, n_samples) if share is None else ContiguousSplit().rows(n_samples, share[1])[share[0]]


def _no_label_column(file: Path, label_column: str | int | None) -> None:
    if label_column is not None:
        raise InputError(f"label_column = {label_column!r} is for .csv and .parquet files, not for {file}.")


def _read_npy(file: Path, label_column: str | int | None) -> Table:
    _no_label_column(file, label_column)
    return Table(as_source(np.lib.format.open_memmap(file, mode="r"), str(file)))


def _read_npz(file: Path, label_column: str | int | None) -> Table:
    _no_label_column(file, label_column)
    # NumPy would leave a file open that it cannot read.
    with open(file, "rb") as content, np.load(content, allow_pickle=False) as archive:
        if {"format", "shape", "data"} <= set(archive.files):
            return Table(as_source(scipy.sparse.load_npz(file), str(file)))
        X = _find_samples(archive, file)
        names = archive["feature_names"] if "feature_names" in archive.files else np.empty(0)
        feature_names = tuple(str(name) for name in names) if names.shape == X.shape[1:] else None
        return Table(as_source(X, str(file), feature_names), _find_labels(archive, len(X)))


def _find_samples(archive: Any, file: Path) -> Samples:
    matrices = [name for name in _SAMPLES if name in archive.files][:1]
    matrices = matrices or [name for name in archive.files if archive[name].ndim == 2]
    if len(matrices) != 1:
        wanted, found = ", ".join(_SAMPLES), ", ".join(archive.files) or "nothing"
        raise UnreadableFileError(f"{file} needs one 2-D array, or one of the names {wanted}; it has {found}.")
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


def _open_parquet(file: Path, label_column: str | int | None) -> Unread:
    """A table in float32 if all columns are float32, else in float64; rows are read when they are taken."""
    rows = import_extra("pyarrow.parquet", "parquet", "reading a .parquet file").ParquetFile(file)
    return Unread(rows.metadata.num_rows, partial(_take_parquet, file, label_column, rows))


def _take_parquet(file: Path, label_column: str | int | None, parquet: Any, rows: slice) -> Table:
    arrow = import_extra("pyarrow", "parquet", "reading a .parquet file")
    # Only the row groups with these rows are read.
    groups = range(parquet.num_row_groups)
    ends = np.cumsum([parquet.metadata.row_group(group).num_rows for group in groups], dtype=np.intp)
    first, last = np.searchsorted(ends, [rows.start, rows.stop - 1], side="right")
    frame = parquet.read_row_groups(list(groups[first : last + 1]))
    frame = frame.slice(rows.start - (int(ends[first - 1]) if first else 0), rows.stop - rows.start)
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


# To add a format: a function (file, label_column) -> Table in a new module, and a row here.
READERS: dict[str, Callable[[Path, str | int | None], Table | Unread]] = {
    ".npy": _read_npy,
    ".npz": _read_npz,
    ".csv": read_csv,
    ".parquet": _open_parquet,
}
