"""Tables from files: .npy, .npz (dense or scipy.sparse), .csv, .parquet."""

import os
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import scipy.sparse

from eigenmesh.data._csv_file import read_csv
from eigenmesh.data._parquet_file import open_parquet
from eigenmesh.data._source import Samples, as_source
from eigenmesh.data._splits import ContiguousSplit
from eigenmesh.data._table import Table, Unread
from eigenmesh.errors import EigenmeshError, InputError, UnreadableFileError

_SAMPLES = ("X", "data", "images")
_LABELS = ("y", "labels", "label", "site", "target")


def read_table(
    path: str | os.PathLike[str], *, label_column: str | int | None = None, share: tuple[int, int] | None = None
) -> Table:
    """Samples, labels and names from one file, by its suffix.

    ``.npy`` is memory-mapped. ``.npz`` holds samples as ``X``, ``data`` or ``images`` (or as its only 2-D
    array), labels as ``y``, ``labels``, ``label``, ``site`` or ``target`` (looked up in ``site_names``, ``y_names``
    etc. if present) and ``feature_names``; or it was written by ``scipy.sparse.save_npz``. ``.csv``
    has a header if a field of its first line is not a number; empty fields and NA are missing.
    ``label_column`` (a name, or a number from 0) is for ``.csv`` and ``.parquet``.

    ``share = (i, n)`` gives the i-th of n runs of rows, equal in length to within one. ``.npy`` and ``.parquet`` files
    are then read only in part.
    """
    file = Path(path)
    open_file = READERS.get(file.suffix.lower())
    if not file.is_file():
        raise UnreadableFileError(f"{file} does not exist or is not a file; eigenmesh reads {_kinds()} files.")
    if open_file is None:
        raise UnreadableFileError(f"{file} has the unknown suffix {file.suffix!r}; eigenmesh reads {_kinds()} files.")
    try:
        opened = open_file(file, label_column)
        table = opened.take(consecutive_rows(opened.n_samples, share))
    except EigenmeshError:
        raise
    except Exception as error:  # broken files make NumPy, zipfile, csv and pyarrow raise many kinds of exceptions
        problem = f"{file} cannot be read as {file.suffix} ({error})"
        raise UnreadableFileError(f"{problem}; eigenmesh reads {_kinds()} files.") from error
    return replace(table, name=file.stem)


def consecutive_rows(n_samples: int, share: tuple[int, int] | None) -> slice:
    """The i-th of n runs of rows, ``share = (i, n)``; all rows for None."""
    if share is None:
        return slice(0, n_samples)
    which, n_shares = share
    return ContiguousSplit().rows(n_samples, n_shares)[which]


def _kinds() -> str:
    return ", ".join(READERS)


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
    for name in _SAMPLES:
        if name in archive.files:
            return archive[name]
    matrices = [name for name in archive.files if archive[name].ndim == 2]
    if len(matrices) != 1:
        raise UnreadableFileError(
            f"{file} has no array named {', '.join(_SAMPLES)}, and {len(matrices)} 2-D arrays instead of one; "
            f"its arrays are {', '.join(archive.files) or 'none'}."
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


# To add a format: a function (file, label_column) -> Table in a new module, and a row here.
READERS: dict[str, Callable[[Path, str | int | None], Table | Unread]] = {
    ".npy": _read_npy,
    ".npz": _read_npz,
    ".csv": read_csv,
    ".parquet": open_parquet,
}
