"""Cells by genes of AnnData, in .h5ad or .zarr; rows are read on request."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from eigenmesh.atomic_write import replacing
from eigenmesh.data.block import MatrixColumns, Table, as_weights, require_distinct_ids, table_of
from eigenmesh.data.formats.hdf5 import NamedArray, dense_rows, open_hdf5, sparse_rows
from eigenmesh.data.source import Source, as_source
from eigenmesh.data.table_options import TableOptions
from eigenmesh.errors import DataError, UnreadableFileError
from eigenmesh.model import Model
from eigenmesh.words import listed


def read_h5ad(file: Path, options: TableOptions) -> Table:
    """Table of a .h5ad file."""
    return read_anndata(open_hdf5(file), file, options)


def read_anndata(content: Any, file: Path, options: TableOptions) -> Table:
    """Cells by genes: X, or the named layer. Ids, labels and weights are columns of ``obs``.

    content: the file, opened with h5py or zarr.
    """
    layers = content.get("layers", {})
    if "obs" not in content or "var" not in content or (options.layer is None and "X" not in content):
        fix = "write it with adata.write_h5ad or adata.write_zarr"
        raise UnreadableFileError(f"{file} is not an AnnData file with obs, var and X; {fix}.")
    if options.layer is not None and options.layer not in layers:
        have = listed(sorted(layers)) or "none"
        raise UnreadableFileError(f"{file} has no layer {options.layer!r}; it has {have}.")
    ids, genes = index_of(content["obs"], file, "obs"), index_of(content["var"], file, "var")
    source = _matrix(content["X"] if options.layer is None else layers[options.layer], tuple(genes.tolist()), file)
    if source.shape != (len(ids), len(genes)):
        raise UnreadableFileError(f"{file} has {source.shape} numbers for {len(ids)} obs and {len(genes)} var.")
    obs = content["obs"]
    columns = {name: partial(_values, obs[name]) for name in obs if name != obs.attrs["_index"]}
    return _of_cells(source, ids, columns, options, str(file))


def cells_of(adata: Any, options: TableOptions, where: str) -> Table:
    """The same for an AnnData object; X of one that is backed by a file is read on request."""
    genes, obs = tuple(map(str, adata.var_names)), adata.obs
    if options.layer is not None and options.layer not in adata.layers:
        raise DataError(f"{where} has no layer {options.layer!r}; it has {listed(sorted(adata.layers)) or 'none'}.")
    matrix = adata.layers[options.layer] if options.layer is not None else None
    if matrix is not None:
        source = as_source(matrix, where, genes)
    elif getattr(adata, "isbacked", False):
        if adata.is_view:
            raise DataError(f"{where} is a view of a file; give adata.to_memory(), or the whole of it.")
        source = _matrix(open_hdf5(Path(adata.filename))["X"], genes, Path(adata.filename))
    elif adata.X is None:
        raise DataError(f"{where} has no X; give layer={(sorted(adata.layers) or ['..'])[0]!r}.")
    else:
        source = as_source(adata.X, where, genes)
    columns = {str(name): partial(_obs, obs, name) for name in obs.columns}
    ids = np.asarray(adata.obs_names.astype(str), dtype=np.str_)
    return _of_cells(source, ids, columns, options, where)


def _obs(obs: Any, name: str) -> np.ndarray:
    return np.asarray(obs[name].to_numpy())


def _of_cells(
    source: Source, ids: np.ndarray, obs: Mapping[str, Callable[[], np.ndarray]], options: TableOptions, where: str
) -> Table:
    """Table of cells by genes, whose ids, labels and weights are columns of ``obs``, each read on request."""
    if options.categories and "categories" not in options.recalled:
        raise DataError(f"{where} has numbers of genes; leave categories out.")
    plain = replace(options, id_column=None, label_column=None, weight_column=None, categories={})
    table = table_of(MatrixColumns(source, where), plain, where)
    found = dict.fromkeys(("id_column", "label_column", "weight_column"), None)
    for role in found:
        name = next(iter(options.found_in(role, list(obs), 0)), None)
        if name is not None and name not in obs:
            raise DataError(f"{where} has no column {name!r} in obs; it has {listed(sorted(obs)) or 'none'}.")
        found[role] = None if name is None else obs[str(name)]()

    def place(role: str) -> Callable[[int], str]:
        return lambda row: f"obs[{getattr(options, role)!r}] of {where}, row {row},"

    own, labels, weights = found.values()
    if own is not None:
        require_distinct_ids(own.tolist(), place("id_column"))
    if weights is not None:
        weights = as_weights(weights, place("weight_column"))
    return replace(table, ids=ids if own is None else own, labels=labels, weights=weights)


def _matrix(item: Any, genes: tuple[str, ...], file: Path) -> Source:
    kind = str(item.attrs.get("encoding-type", "array"))
    if kind == "csr_matrix":
        data, indices, pointers = (NamedArray(item[name], file) for name in ("data", "indices", "indptr"))
        starts = pointers[:].astype(np.int64)
        falling = np.flatnonzero(np.diff(starts, prepend=0) < 0)
        if len(falling):
            found = f"indptr falls from row {falling[0] - 1} to the next"
            raise UnreadableFileError(f"in {file} {found}: part of the file is lost; copy it again.")
        if not (starts[-1],) == data.shape == indices.shape:
            found = f"{data.shape[0]:,} numbers in {indices.shape[0]:,} columns, but indptr says {starts[-1]:,}"
            raise UnreadableFileError(f"{file} has {found}: it was not written completely; write it again.")
        return sparse_rows(data, indices, starts, int(item.attrs["shape"][1]), genes)
    if kind == "csc_matrix":
        fix = "adata.X = adata.X.tocsr(), and write it again"
        raise UnreadableFileError(f"{file} is sparse by columns (CSC), so its rows cannot be read in pieces; {fix}.")
    if len(getattr(item, "shape", ())) != 2:
        raise UnreadableFileError(f"{file} stores its numbers as {kind}; write a dense or CSR matrix.")
    return dense_rows(NamedArray(item, file), genes)


def index_of(frame: Any, file: Path, what: str) -> np.ndarray:
    """Names of the rows of ``obs`` or ``var``; raises if one occurs twice."""
    names = _values(frame[frame.attrs["_index"]]).astype(np.str_)
    seen, counts = np.unique(names, return_counts=True)
    if (counts > 1).any():
        twice = str(seen[np.argmax(counts > 1)])
        fix = f"make them unique with adata.{what}_names_make_unique()"
        raise DataError(f"{file} has {twice!r} twice in {what}; {fix}.")
    return names


def _values(item: Any) -> np.ndarray:
    """A column of AnnData: numbers, text, categories, or values with a mask of missing ones."""
    if "codes" in getattr(item, "keys", list)():
        codes, categories = item["codes"][:], _values(item["categories"])
        found = categories[codes]
        return np.asarray(np.where(codes < 0, "", found) if categories.dtype.kind in "OU" else found)
    data = item["values"] if "values" in getattr(item, "keys", list)() else item
    text = data.dtype.kind in "OTU"
    values = np.asarray(data.asstr()[:] if hasattr(data, "asstr") and text else data[:])
    values = values.astype(object) if text else values
    if data is not item and np.any(item["mask"][:]):
        values = np.where(item["mask"][:], "" if text else np.nan, values)
    return values


# Results in the parts of AnnData that scanpy uses: ``obsm["X_pca"]``, ``varm["PCs"]`` and ``uns["pca"]``.


H5AD = ".h5ad"


def results_of(model: Model, scores: np.ndarray, genes: Sequence[str], layer: str | None) -> dict[str, dict[str, Any]]:
    """Scores (n, K), loadings (genes, K) and variances (K,), by the part of AnnData that they belong in.

    Genes that are not in the model have loadings of 0, as in scanpy.
    """
    names = genes if model.feature_names is None else model.feature_names
    places = {gene: place for place, gene in enumerate(genes)}
    if len(names) != model.components.shape[1] or not places.keys() >= set(names):
        raise DataError(
            "the model does not have these genes; give one that was fitted to AnnData with the same var_names."
        )
    loadings = np.zeros((len(genes), len(model.components)))
    loadings[[places[name] for name in names]] = model.components.T
    params = {"zero_center": True, "use_highly_variable": False, **({} if layer is None else {"layer": layer})}
    about = {"params": params, "variance": model.explained_variance, "variance_ratio": model.explained_variance_ratio}
    return {"obsm": {"X_pca": scores}, "varm": {"PCs": loadings}, "uns": {"pca": about}}


def save_h5ad(path: Path, cells: Path, model: Model, scores: np.ndarray, layer: str | None = None) -> Path:
    """Write a copy of the cells' file with the results added, completely or not at all; returns its path."""
    with replacing(path) as copy:
        shutil.copyfile(cells, copy)
        with open_hdf5(copy, "r+") as file:
            results = results_of(model, scores, index_of(file["var"], cells, "var").tolist(), layer)
            for part, values in results.items():
                for name, value in values.items():
                    _put(file.require_group(part), name, value)
    return path


def _put(group: Any, name: str, value: Any) -> None:
    """Write a value, or replace one, as the specification of AnnData files requires."""
    group.attrs.update({"encoding-type": "dict", "encoding-version": "0.1.0"})
    if name in group:
        del group[name]
    if isinstance(value, Mapping):
        for key, each in value.items():
            _put(group.require_group(name), key, each)
        return
    group[name] = value
    kind = "array" if isinstance(value, np.ndarray) else "string" if isinstance(value, str) else "numeric-scalar"
    group[name].attrs.update({"encoding-type": kind, "encoding-version": "0.2.0"})
