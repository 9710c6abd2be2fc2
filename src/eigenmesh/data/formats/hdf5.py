"""Rows of dense or sparse arrays in a file, read on request; and the datasets of .h5."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import scipy.sparse

from eigenmesh.data.block import MatrixColumns, Table, table_of
from eigenmesh.data.source import Samples, TableOptions
from eigenmesh.data.split import Rows
from eigenmesh.errors import UnreadableFileError, import_extra

# Rows to read at a time if only some of them are needed.
WINDOW = 4096
SHOWN = 10


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


@dataclass(frozen=True, eq=False)
class DenseRows:
    """Rows of a dataset (n, d)."""

    data: NamedArray
    feature_names: tuple[str, ...] | None = None
    n_stored: ClassVar[int | None] = None
    in_memory: ClassVar[bool] = False

    @property
    def shape(self) -> tuple[int, int]:
        n, d = self.data.shape
        return n, d

    @property
    def dtype(self) -> np.dtype:
        return self.data.dtype

    def read(self, rows: Rows) -> np.ndarray:
        if isinstance(rows, slice):
            return self.data[rows.start : rows.stop]
        found = np.empty((len(rows), self.shape[1]), dtype=self.dtype)
        for start, places in _windows(rows):
            found[places] = self.data[start : start + WINDOW][rows[places] - start]
        return found


@dataclass(frozen=True, eq=False)
class SparseRows:
    """A matrix (n, d) that is sparse by rows: row i has the entries ``starts[i]`` to ``starts[i + 1]``."""

    data: NamedArray
    indices: NamedArray
    starts: np.ndarray
    n_features: int
    feature_names: tuple[str, ...] | None = None
    in_memory: ClassVar[bool] = False

    @property
    def shape(self) -> tuple[int, int]:
        return len(self.starts) - 1, self.n_features

    @property
    def dtype(self) -> np.dtype:
        return self.data.dtype

    @property
    def n_stored(self) -> int | None:
        return int(self.starts[-1])

    def read(self, rows: Rows) -> Samples:
        if isinstance(rows, slice):
            return self._between(rows.start, rows.stop)
        pieces, order = [], []
        for start, places in _windows(rows):
            pieces.append(self._between(start, min(start + WINDOW, self.shape[0]))[rows[places] - start])
            order.append(places)
        if not pieces:
            return self._between(0, 0)
        return scipy.sparse.csr_array(scipy.sparse.vstack(pieces, format="csr")[np.argsort(np.concatenate(order))])

    def _between(self, start: int, stop: int) -> Samples:
        starts = self.starts[start : stop + 1]
        stored = slice(starts[0], starts[-1])
        parts = self.data[stored], self.indices[stored], starts - starts[0]
        piece = scipy.sparse.csr_array(parts, shape=(stop - start, self.n_features))
        piece.sum_duplicates()
        if piece.nnz < len(parts[0]):
            self._require_whole(start, stop)
        return piece

    def _require_whole(self, start: int, stop: int) -> None:
        """Raise if a row has the first column twice and the store lacks a part, which reads as zeros."""
        starts = self.starts[start : stop + 1]
        first = np.flatnonzero(self.indices[starts[0] : starts[-1]] == 0)
        counts = np.diff(np.searchsorted(first, starts - starts[0]))
        if (counts > 1).any() and self.indices.lacks_parts:
            row = int(np.argmax(counts > 1))
            found = f"the first column {counts[row]} times in row {start + row}, and part of it is lost"
            fix = "copy it again, or write it after adata.X.sum_duplicates()"
            raise UnreadableFileError(f"{self.indices.array.name} of {self.indices.file} has {found}; {fix}.")


def _windows(rows: np.ndarray) -> Iterator[tuple[int, np.ndarray]]:
    """Pairs (first row of a window, positions in ``rows`` that fall into it), so that each window is read once."""
    order = np.argsort(rows, kind="stable")
    windows = rows[order] // WINDOW
    for places in np.split(order, np.flatnonzero(np.diff(windows)) + 1):
        if len(places):
            yield int(rows[places[0]] // WINDOW) * WINDOW, places


def read_hdf5(file: Path, options: TableOptions) -> Table:
    """Table of one dataset (n, d): the one named by ``layer``, or the only one."""
    found: dict[str, Any] = {}
    content = open_hdf5(file)
    content.visititems(lambda name, item: found.update({name: item} if len(getattr(item, "shape", ())) == 2 else {}))
    name = options.layer or (next(iter(found)) if len(found) == 1 else None)
    if name is None or name.strip("/") not in found:
        have = ", ".join(sorted(found)[:SHOWN]) or "none"
        asked = "several datasets, or none" if name is None else f"no dataset {name!r}"
        raise UnreadableFileError(f"{file} has {asked} of samples and features; name one by layer. It has {have}.")
    return table_of(MatrixColumns(DenseRows(NamedArray(found[name.strip("/")], file)), str(file)), options, str(file))


def open_hdf5(file: Path, mode: str = "r") -> Any:
    """The open h5py file."""
    return import_extra("h5py", "hdf5", "files of HDF5").File(file, mode)
