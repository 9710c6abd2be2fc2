"""Rows of dense or sparse arrays in a file, read on request; and the datasets of .h5."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import scipy

from eigenmesh.data.block import MatrixColumns, Table, table_of
from eigenmesh.data.source import Samples, StoredRows
from eigenmesh.data.table_options import TableOptions
from eigenmesh.errors import UnreadableFileError, import_extra
from eigenmesh.words import listed


@dataclass(frozen=True, eq=False)
class NamedArray:
    """An array in a file; errors while reading it name the file."""

    array: Any
    file: Path

    @property
    def shape(self) -> tuple[int, ...]:
        return tuple(self.array.shape)

    @property
    def dtype(self) -> np.dtype:
        dtype: np.dtype = self.array.dtype
        return dtype

    @property
    def lacks_parts(self) -> bool:
        """Whether chunks of a zarr array are not in its store; they read as zeros, and are lost or were all zeros."""
        return bool(getattr(self.array, "nchunks_initialized", 0) < getattr(self.array, "nchunks", 0))

    def __getitem__(self, chosen: Any) -> np.ndarray:
        try:
            # Orthogonal indexing of rows and columns, which zarr does only on request.
            several = isinstance(chosen, tuple)
            return np.asarray(self.array.oindex[chosen] if several else self.array[chosen])
        except Exception as error:  # with damaged bytes, a codec may raise anything
            fix = "it is damaged, or was not copied completely: copy it again"
            raise UnreadableFileError(f"{self.array.name} of {self.file} cannot be read ({error}); {fix}.") from error


def dense_rows(data: NamedArray, feature_names: tuple[str, ...] | None = None) -> StoredRows:
    """Rows of a dataset (n, d)."""
    n, d = data.shape
    return StoredRows((n, d), data.dtype, lambda start, stop: data[start:stop], feature_names)


def sparse_rows(
    data: NamedArray, indices: NamedArray, starts: np.ndarray, n_features: int, feature_names: tuple[str, ...]
) -> StoredRows:
    """Rows of a matrix (n, d) that is sparse by rows: row i has the entries ``starts[i]`` to ``starts[i + 1]``."""

    def between(start: int, stop: int) -> Samples:
        ends = starts[start : stop + 1]
        stored = slice(ends[0], ends[-1])
        parts = data[stored], indices[stored], ends - ends[0]
        piece = scipy.sparse.csr_array(parts, shape=(stop - start, n_features))
        piece.sum_duplicates()
        if piece.nnz < len(parts[0]):
            _require_whole(indices, parts[1], parts[2], start)
        return piece

    shape = len(starts) - 1, n_features
    return StoredRows(shape, data.dtype, between, feature_names, n_stored=int(starts[-1]))


def _require_whole(indices: NamedArray, found: np.ndarray, starts: np.ndarray, first_row: int) -> None:
    """Raise if a row has the first column twice and the store lacks a part, which reads as zeros."""
    counts = np.diff(np.searchsorted(np.flatnonzero(found == 0), starts))
    if (counts > 1).any() and indices.lacks_parts:
        row = int(np.argmax(counts > 1))
        lost = f"the first column {counts[row]} times in row {first_row + row}, and part of it is lost"
        fix = "copy it again, or write it after adata.X.sum_duplicates()"
        raise UnreadableFileError(f"{indices.array.name} of {indices.file} has {lost}; {fix}.")


def read_hdf5(file: Path, options: TableOptions) -> Table:
    """Table of one dataset (n, d): the one named by ``layer``, or the only one."""
    found: dict[str, Any] = {}
    content = open_hdf5(file)
    content.visititems(lambda name, item: found.update({name: item} if len(getattr(item, "shape", ())) == 2 else {}))
    name = options.layer or (next(iter(found)) if len(found) == 1 else None)
    if name is None or name.strip("/") not in found:
        have = listed(sorted(found)) or "none"
        asked = "several datasets, or none" if name is None else f"no dataset {name!r}"
        raise UnreadableFileError(f"{file} has {asked} of samples and features; name one by layer. It has {have}.")
    return table_of(MatrixColumns(dense_rows(NamedArray(found[name.strip("/")], file)), str(file)), options, str(file))


def open_hdf5(file: Path, mode: str = "r") -> Any:
    """The open h5py file."""
    return import_extra("h5py", "hdf5", "files of HDF5").File(file, mode)
