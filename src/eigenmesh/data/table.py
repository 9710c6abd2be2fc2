"""Tables from files: NumPy and scipy.sparse, text, workbooks, parquet, HDF5, AnnData, zarr, PLINK."""

from __future__ import annotations

import filecmp
import glob
import itertools
import os
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from eigenmesh.data.block import Block, Table, table_of
from eigenmesh.data.formats.anndata import cells_of, read_h5ad
from eigenmesh.data.formats.excel import read_excel
from eigenmesh.data.formats.hdf5 import read_hdf5
from eigenmesh.data.formats.numpy import read_npy, read_npz
from eigenmesh.data.formats.parquet import parquet_files, read_parquet
from eigenmesh.data.formats.plink import COMPANIONS, read_bed, read_pgen
from eigenmesh.data.formats.text import read_csv
from eigenmesh.data.formats.zarr import read_zarr
from eigenmesh.data.source import FrameColumns, MatrixSource, is_anndata, is_frame, suspicious_codes, suspicious_columns
from eigenmesh.data.split import ContiguousSplit
from eigenmesh.data.table_options import TableOptions
from eigenmesh.errors import EigenmeshError, InputError, UnreadableFileError, warn_user

PACKED = ".gz"
# Larger files are read on request.
HELD_BYTES = 512 * 2**20


def read_table(path: str | os.PathLike[str] | Any, *, share: tuple[int, int] | None = None, **options: Any) -> Table:
    """Samples with names, ids, labels and weights, from a file, whose suffix shows its format, or in memory.

    ``.csv``, ``.tsv`` and ``.txt`` may end in ``.gz``. The delimiter and the decimal mark are detected, there is a
    header if a field of the first line is not a number, unless ``header`` says "yes" or "no", and empty fields and NA
    are missing entries. ``.npy`` is memory-mapped. ``.npz`` was written by ``scipy.sparse.save_npz``, or has the
    samples as ``X``, ``data`` or ``images`` (or as its only 2-D array), labels as ``y``, ``labels``, ``label``,
    ``site`` or ``target`` (looked up in ``site_names``, ``y_names`` etc. if present) and ``feature_names``.

    Parameters
    ----------
    path : path, data frame or AnnData
        The file, or what has the samples in memory.
    share : (i, n) for the i-th of n runs of rows, equal in length to within one.
    options : fields of ``TableOptions``: columns, drop, id_column, label_column, weight_column, categories, header,
        delimiter, decimal, thousands, na_values, comment, skip_rows, encoding, sheet, layer.
    """
    how = TableOptions.of(**options)
    if is_frame(path) or is_anndata(path):
        return table_in_memory(path, how, "the frame" if is_frame(path) else "the AnnData object")
    if not isinstance(path, str | os.PathLike):
        fix = "give its matrix to as_source, to Shards or to fit"
        raise InputError(
            f"read_table reads a file, a data frame or AnnData, not a {type(path).__name__} in memory; {fix}."
        )
    file = Path(path)
    open_file = READERS.get(kind_of(file))
    kinds = f"eigenmesh reads {', '.join(READERS)} files."
    if not file.is_file() and not (kind_of(file) in FOLDERS and file.is_dir()):
        what = "is a folder, not a file" if file.is_dir() else "does not exist"
        raise UnreadableFileError(f"{file} {what}; {kinds}")
    if open_file is None:
        raise UnreadableFileError(f"{file} has the unknown suffix {file.suffix!r}; {kinds}")
    if kind_of(file) not in OF_FIELDS:
        _require_fields(how, f"a {kind_of(file)} file")
    try:
        table = open_file(file, how)
        table = table.take(consecutive_rows(table.n_samples, share))
        if kind_of(file) in READ_ONCE and table.source.shape[0] * table.source.shape[1] * 8 <= HELD_BYTES:
            table = replace(table, source=MatrixSource(table.X, table.feature_names, Block(table.source).place))
    except EigenmeshError:
        raise
    except Exception as error:  # broken files make NumPy, zipfile, csv and pyarrow raise many kinds of exceptions
        raise UnreadableFileError(f"{file} cannot be read as {kind_of(file)} ({error}); {kinds}") from error
    codes = suspicious_codes(table.source, str(file), kind_of(file) in OF_FIELDS)
    for finding in (*suspicious_columns(table.source, str(file)), *codes):
        warn_user(finding)
    return replace(table, name=name_of(file))


def table_in_memory(X: Any, options: TableOptions, where: str) -> Table:
    """The same for a data frame, or for cells in an AnnData object; ``where`` is its name in messages."""
    _require_fields(options, "a data frame" if is_frame(X) else "an AnnData object")
    if is_frame(X):
        return table_of(FrameColumns.of(X, where, options), options, where)
    return cells_of(X, options, where)


def _require_fields(options: TableOptions, what: str) -> None:
    """Raise for options that would change the numbers, and that only tables of text and of cells have."""
    if options.na_values and "na_values" not in options.recalled:
        kinds = f"{', '.join(OF_FIELDS)} files, and this is {what}"
        raise InputError(f"na_values are for {kinds}: leave them out, and write such entries as NaN.")


def kind_of(file: Path) -> str:
    """The suffix that shows the format of a file, without the suffix of compression."""
    return _unpacked(file).suffix.lower()


def all_files_of(file: Path) -> list[Path]:
    """All files that are read for a table: those of a folder, or a file and its companions."""
    if file.is_dir():
        return parquet_files(file) if kind_of(file) == ".parquet" else sorted(filter(Path.is_file, file.rglob("*")))
    return [file, *(file.with_suffix(suffix) for suffix in COMPANIONS.get(kind_of(file), ()))]


def name_of(file: Path) -> str:
    """Name of a file without its suffixes."""
    return _unpacked(file).stem


def _unpacked(file: Path) -> Path:
    return file.with_suffix("") if file.suffix.lower() == PACKED else file


def expand(paths: Sequence[str | os.PathLike[str]]) -> list[Path]:
    """The files of paths and patterns such as ``site-*.csv``, those of a pattern sorted by name."""
    files: list[Path] = []
    for path in map(str, paths):
        is_pattern = glob.has_magic(path) and not os.path.exists(path)
        found = sorted(glob.glob(path)) if is_pattern else [path]
        if not found:
            raise UnreadableFileError(f"no file is called {path}; correct the pattern, or name the files.")
        files += map(Path, found)
    return files


def warn_of_same(files: Sequence[Path]) -> None:
    """Warn about files with the same content: their samples would count twice."""
    for first, file in itertools.combinations(filter(Path.is_file, files), 2):
        if filecmp.cmp(first, file, shallow=False):
            same = f"{file} and {first} are the same file" if file == first else f"{file} is a copy of {first}"
            warn_user(f"{same}: its samples count twice; leave one out.")


def consecutive_rows(n_samples: int, share: tuple[int, int] | None) -> slice:
    """The i-th of n runs of rows, ``share = (i, n)``; all rows for None."""
    return slice(0, n_samples) if share is None else ContiguousSplit().rows(n_samples, share[1])[share[0]]


# To add a format: a function (file, options) -> Table in a new module, and a row here.
READERS: dict[str, Callable[[Path, TableOptions], Table]] = {
    ".npy": read_npy,
    ".npz": read_npz,
    **dict.fromkeys((".csv", ".tsv", ".txt"), read_csv),
    **dict.fromkeys((".xlsx", ".xlsm"), read_excel),
    ".parquet": read_parquet,
    ".bed": read_bed,
    ".pgen": read_pgen,
    **dict.fromkeys((".h5", ".hdf5"), read_hdf5),
    ".h5ad": read_h5ad,
    **dict.fromkeys((".zarr", ".vcz"), read_zarr),
}
# Formats whose fields are text, or may be.
OF_FIELDS = (".csv", ".tsv", ".txt", ".xlsx", ".xlsm")
# Formats that are slow to decompress: files that fit into memory are read once.
READ_ONCE = (".parquet",)
# Formats that may be a folder of files.
FOLDERS = (".parquet", ".zarr", ".vcz")
