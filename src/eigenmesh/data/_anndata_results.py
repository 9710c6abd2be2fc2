"""Results in the parts of AnnData that scanpy uses: ``obsm["X_pca"]``, ``varm["PCs"]`` and ``uns["pca"]``."""

from __future__ import annotations

import shutil
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from eigenmesh._atomic_write import replacing
from eigenmesh.data._anndata import index_of
from eigenmesh.data._hdf5 import open_hdf5
from eigenmesh.errors import DataError
from eigenmesh.model_file import Model

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
