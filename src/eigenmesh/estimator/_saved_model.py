"""Components that were saved by ``eigenmesh fit`` or by a peer, ready for use."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Literal

import numpy as np
from scipy import sparse

from eigenmesh.data._table import Table
from eigenmesh.errors import DataError, InputError, UnreadableFileError
from eigenmesh.estimator._projection import Projection

# Rows that are made dense and centred at a time.
CHUNK_BYTES = 32 * 2**20
# What a peer writes beside its components, and what it means where it is not true.
_RESERVATIONS = {
    "whole": "sites were lost on the way, so it is the model of the data that were left",
    "converged": "its run ended before the tolerance that was asked for",
}
_NEEDED = ("components", "explained_variance", "mean")


class SavedModel(Projection):
    """Components, variances, mean and perhaps scale and names from an .npz file.

    Has what ``Projection`` has, but for likelihoods, which need a noise variance that files do not hold.

    Attributes
    ----------
    reservations_ : what is to be said against it, each in words; of a model of peers that was not converged, or not of
        all sites.
    """

    def __init__(self, whiten: bool = False, missing: Literal["error", "mean"] = "error") -> None:
        self.whiten, self.missing = whiten, missing

    @classmethod
    def load(
        cls, path: str | os.PathLike[str], whiten: bool = False, missing: Literal["error", "mean"] = "error"
    ) -> SavedModel:
        """Read what ``eigenmesh fit --out`` or a peer has written."""
        arrays = _read(Path(path))
        model = cls(whiten, missing)
        model.components_, model.explained_variance_ = arrays["components"], arrays["explained_variance"]
        model.mean_, model.scale_ = arrays["mean"], arrays.get("scale")
        model.n_components_, model.n_features_in_ = model.components_.shape
        model.reservations_ = [words for name, words in _RESERVATIONS.items() if not arrays.get(name, True)]
        names = arrays.get("feature_names")
        if names is not None:
            model.feature_names_in_ = np.asarray(names, dtype=object)
        return model

    def fit(self, X: Any = None, y: Any = None) -> SavedModel:
        """Refuse: what was saved is not fitted again."""
        raise InputError("a saved model is fitted already; use DecentralizedPCA to fit another.")

    def require_columns(self, table: Table, where: str) -> None:
        """Raise unless the table has the columns of the model, in the same order where both have names."""
        n_features = int(table.X.shape[1])
        names = getattr(self, "feature_names_in_", None)
        if names is not None and table.feature_names is not None:
            require_order(table.feature_names, tuple(str(name) for name in names), where, "the model")
        if n_features != self.n_features_in_:
            raise DataError(f"{where} has {n_features} columns, the model {self.n_features_in_}; make them equal.")

    def scores(self, X: Any) -> np.ndarray:
        """Project samples of any size, a piece at a time: (n, d) -> (n, K)."""
        projected = np.empty((X.shape[0], self.n_components_))
        for start, piece in self._pieces(X):
            if self.missing == "error":
                _require_finite(piece, start, getattr(self, "feature_names_in_", None))
            projected[start : start + piece.shape[0]] = _nameless(self).transform(piece)
        return projected

    def _pieces(self, X: Any) -> Iterator[tuple[int, Any]]:
        rows = max(1, CHUNK_BYTES // (8 * self.n_features_in_))
        for start in range(0, X.shape[0], rows):
            piece = X[start : start + rows]
            yield start, piece if sparse.issparse(piece) else np.asarray(piece)


def require_order(found: tuple[str, ...], wanted: tuple[str, ...], where: str, by: str) -> None:
    """Raise unless columns are called as they should be, in the same order; the first that differs is named."""
    for column, (ours, theirs) in enumerate(zip(found, wanted, strict=False)):
        if ours != theirs:
            known = " (it is there, in another place)" if theirs in found else ""
            raise DataError(
                f"column {column} of {where} is {ours!r}, but {by} has {theirs!r} there{known}; put the columns in "
                "that order."
            )
    if len(found) != len(wanted):
        raise DataError(f"{where} has {len(found)} columns, but {by} has {len(wanted)}; make them equal.")


def _nameless(model: SavedModel) -> SavedModel:
    """The model without names: they have been compared, and scikit-learn would warn of samples without any."""
    bare = SavedModel(model.whiten, model.missing)
    bare.__dict__.update({key: value for key, value in vars(model).items() if key != "feature_names_in_"})
    return bare


def _require_finite(piece: Any, start: int, names: np.ndarray | None) -> None:
    values = piece.data if sparse.issparse(piece) else piece
    if values.dtype.kind not in "fc" or np.isfinite(values).all():
        return
    dense = piece.toarray() if sparse.issparse(piece) else piece
    row, column = (int(place) for place in np.argwhere(~np.isfinite(dense))[0])
    name = "" if names is None else f" ({names[column]!r})"
    raise DataError(
        f"row {start + row}, column {column}{name} is {dense[row, column]}; drop the row, or use --missing mean to put "
        "the pooled mean there."
    )


def _read(path: Path) -> dict[str, np.ndarray]:
    hint = "give a file that eigenmesh fit --out or eigenmesh peer has written."
    if not path.is_file():
        raise UnreadableFileError(f"{path} does not exist or is not a file; {hint}")
    try:
        with np.load(path, allow_pickle=False) as archive:
            wanted = {*_NEEDED, *_RESERVATIONS, "scale", "feature_names"} & set(archive.files)
            arrays = {name: archive[name] for name in wanted}
    except Exception as error:  # broken archives make NumPy and zipfile raise a dozen kinds
        raise UnreadableFileError(f"{path} cannot be read as .npz ({error}); {hint}") from error
    lacking = [name for name in _NEEDED if name not in arrays]
    if lacking:
        raise UnreadableFileError(f"{path} has no {' and no '.join(lacking)}; {hint}")
    _require_fitting(path, arrays)
    return arrays


def _require_fitting(path: Path, arrays: dict[str, np.ndarray]) -> None:
    if arrays["components"].ndim != 2:
        raise UnreadableFileError(f"components in {path} have shape {arrays['components'].shape}; they must be (K, d).")
    n_components, n_features = arrays["components"].shape
    due = {"explained_variance": n_components, "mean": n_features, "scale": n_features, "feature_names": n_features}
    for name, length in due.items():
        if name in arrays and arrays[name].shape != (length,):
            raise UnreadableFileError(f"{name} in {path} has shape {arrays[name].shape}; it must be ({length},).")
    for name in {*_NEEDED, "scale"} & set(arrays):
        if arrays[name].dtype.kind != "f" or not np.isfinite(arrays[name]).all():
            raise UnreadableFileError(f"{name} in {path} must be finite numbers; the file is damaged.")
