"""Samples in HDF5: a dataset of .h5, or the cells of .h5ad (AnnData), dense or sparse, read as rows are asked for."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import scipy.sparse

from eigenmesh.data._block import Table
from eigenmesh.data._columns import MatrixColumns, as_weights, table_of
from eigenmesh.data._source import Samples, Source
from eigenmesh.data._splits import Rows
from eigenmesh.data._table_options import Column, TableOptions
from eigenmesh.errors import DataError, UnreadableFileError, import_extra

# Rows that are read at a time where only some of them are wanted.
WINDOW = 4096
SHOWN = 10


@dataclass(frozen=True, eq=False)
class DenseRows:
    """Rows of a dataset (n, d)."""

    data: Any
    feature_names: tuple[str, ...] | None = None
    n_stored: ClassVar[int | None] = None
    in_memory: ClassVar[bool] = False

    @property
    def shape(self) -> tuple[int, int]:
        return tuple(self.data.shape)

    @property
    def dtype(self) -> np.dtype:
        dtype: np.dtype = self.data.dtype
        return dtype

    def read(self, rows: Rows) -> np.ndarray:
        if isinstance(rows, slice):
            return np.asarray(self.data[rows.start : rows.stop])
        found = np.empty((len(rows), self.shape[1]), dtype=self.dtype)
        for start, places in _windows(rows):
            found[places] = self.data[start : start + WINDOW][rows[places] - start]
        return found


@dataclass(frozen=True, eq=False)
class SparseRows:
    """Rows of a group with ``data``, ``indices`` and ``indptr``: a matrix (n, d) that is sparse by rows."""

    group: Any
    starts: np.ndarray
    n_features: int
    feature_names: tuple[str, ...] | None = None
    in_memory: ClassVar[bool] = False

    @property
    def shape(self) -> tuple[int, int]:
        return len(self.starts) - 1, self.n_features

    @property
    def dtype(self) -> np.dtype:
        dtype: np.dtype = self.group["data"].dtype
        return dtype

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
        parts = self.group["data"][stored], self.group["indices"][stored], starts - starts[0]
        piece = scipy.sparse.csr_array(parts, shape=(stop - start, self.n_features))
        piece.sum_duplicates()
        return piece


def _windows(rows: np.ndarray) -> Iterator[tuple[int, np.ndarray]]:
    """Pairs (first row of a window, places in ``rows`` that are in it), so that each window is read once."""
    order = np.argsort(rows, kind="stable")
    windows = rows[order] // WINDOW
    for places in np.split(order, np.flatnonzero(np.diff(windows)) + 1):
        if len(places):
            yield int(rows[places[0]] // WINDOW) * WINDOW, places


def read_hdf5(file: Path, options: TableOptions) -> Table:
    """Table of one dataset (n, d): the one that ``layer`` names, or the only one that there is."""
    found: dict[str, Any] = {}
    content = _opened(file)
    content.visititems(lambda name, item: found.update({name: item} if len(getattr(item, "shape", ())) == 2 else {}))
    name = options.layer or (next(iter(found)) if len(found) == 1 else None)
    if name is None or name.strip("/") not in found:
        have = ", ".join(sorted(found)[:SHOWN]) or "none"
        asked = "several datasets, or none" if name is None else f"no dataset {name!r}"
        raise UnreadableFileError(f"{file} has {asked} of samples and features; name one by layer. It has {have}.")
    return table_of(MatrixColumns(DenseRows(found[name.strip("/")]), str(file)), options, str(file))


def read_h5ad(file: Path, options: TableOptions) -> Table:
    """Cells by genes: X, or the layer that is named. Ids, labels and weights are columns of ``obs``."""
    content = _opened(file)
    layers = content.get("layers", {})
    if "obs" not in content or "var" not in content or (options.layer is None and "X" not in content):
        raise UnreadableFileError(f"{file} is no AnnData file with obs, var and X; write it with adata.write_h5ad.")
    if options.layer is not None and options.layer not in layers:
        have = ", ".join(sorted(layers)[:SHOWN]) or "none"
        raise UnreadableFileError(f"{file} has no layer {options.layer!r}; it has {have}.")
    ids, genes = _index(content["obs"], file, "obs"), _index(content["var"], file, "var")
    source = _matrix(content["X"] if options.layer is None else layers[options.layer], tuple(genes.tolist()), file)
    if source.shape != (len(ids), len(genes)):
        raise UnreadableFileError(f"{file} has {source.shape} numbers for {len(ids)} obs and {len(genes)} var.")
    plain = replace(options, id_column=None, label_column=None, weight_column=None)
    table = table_of(MatrixColumns(source, str(file)), plain, str(file))
    own, labels, weights = [
        None if name is None else _column(content["obs"], name, file)
        for name in (options.id_column, options.label_column, options.weight_column)
    ]
    if weights is not None:
        weights = as_weights(weights, lambda row: f"obs[{options.weight_column!r}] of {file}, row {row},")
    return replace(table, ids=ids if own is None else own, labels=labels, weights=weights)


def _opened(file: Path) -> Any:
    return import_extra("h5py", "hdf5", f"reading {file.suffix} files").File(file, "r")


def _matrix(item: Any, genes: tuple[str, ...], file: Path) -> Source:
    kind = str(item.attrs.get("encoding-type", "array"))
    if kind == "csr_matrix":
        return SparseRows(item, item["indptr"][:].astype(np.int64), int(item.attrs["shape"][1]), genes)
    if kind == "csc_matrix":
        fix = "adata.X = adata.X.tocsr(), and write it again"
        raise UnreadableFileError(f"{file} is sparse by columns (CSC), so that rows cannot be read in pieces; {fix}.")
    if len(getattr(item, "shape", ())) != 2:
        raise UnreadableFileError(f"{file} holds its numbers as {kind}; write a dense or CSR matrix.")
    return DenseRows(item, genes)


def _index(frame: Any, file: Path, what: str) -> np.ndarray:
    """Names of the rows of ``obs`` or ``var``, each once."""
    names = _values(frame[frame.attrs["_index"]]).astype(np.str_)
    seen, counts = np.unique(names, return_counts=True)
    if (counts > 1).any():
        twice = str(seen[np.argmax(counts > 1)])
        fix = f"make them unique with adata.{what}_names_make_unique()"
        raise DataError(f"{file} has {twice!r} twice in {what}; {fix}.")
    return names


def _column(obs: Any, name: Column, file: Path) -> np.ndarray:
    columns = [column for column in obs if column != obs.attrs["_index"]]
    if name not in columns:
        raise DataError(f"{file} has no column {name!r} in obs; it has {', '.join(columns[:SHOWN]) or 'none'}.")
    return _values(obs[name])


def _values(item: Any) -> np.ndarray:
    """A column of AnnData: numbers, text, categories, or values with a mask of those that are missing."""
    if "codes" in getattr(item, "keys", list)():
        codes, categories = item["codes"][:], _values(item["categories"])
        found = categories[codes]
        return np.asarray(np.where(codes < 0, "", found) if categories.dtype.kind in "OU" else found)
    data = item["values"] if "values" in getattr(item, "keys", list)() else item
    text = data.dtype.kind == "O"
    values = np.asarray(data.asstr()[:] if text else data[:])
    if data is not item and np.any(item["mask"][:]):
        values = np.where(item["mask"][:], "" if text else np.nan, values)
    return values
