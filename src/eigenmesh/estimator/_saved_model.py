"""Models read from files, ready to use."""

from __future__ import annotations

import os
from collections.abc import Iterator
from typing import Any, Literal, cast

import numpy as np
from scipy import sparse
from sklearn.utils.validation import check_is_fitted

from eigenmesh.data import missing_policy
from eigenmesh.data._table import Table, require_columns
from eigenmesh.errors import DataError, InputError
from eigenmesh.estimator._projection import Projection, kept_dtype
from eigenmesh.model_file import Model, read_model

# Rows that are made dense and centred at a time.
CHUNK_BYTES = 32 * 2**20


def load_model(
    path: str | os.PathLike[str], *, whiten: bool | None = None, missing: Literal["error", "mean"] | None = None
) -> SavedModel:
    """Read a model that ``DecentralizedPCA.save``, ``eigenmesh fit --out`` or ``eigenmesh peer`` has written.

    Parameters
    ----------
    path : str or path
        The .npz file. One that is damaged, edited or written by a newer eigenmesh is refused.
    whiten : bool or None
        Give ``transform`` outputs unit variance; None for what the model was saved with.
    missing : "error", "mean" or None
        What to do with NaN and infinite entries: name the first, or put the pooled mean there; None as saved.

    Returns
    -------
    SavedModel
        Ready for ``transform``, ``score`` and the rest.
    """
    policy = None if missing is None else missing_policy(missing)
    if whiten not in (None, True, False):
        raise InputError(f"whiten = {whiten!r} must be True, False or None.")
    model = read_model(path)
    kept = cast(Literal["error", "mean"], model.missing)
    return SavedModel.of(model, model.whiten if whiten is None else whiten, policy or kept)


class SavedModel(Projection):
    """A fitted model from a file. ``eigenmesh.load_model`` gives one; it is used as a fitted DecentralizedPCA is.

    Attributes
    ----------
    components_, explained_variance_, explained_variance_ratio_, singular_values_, mean_, scale_ : arrays
        As those of the estimator that was saved.
    noise_variance_, n_samples_ : float, int
        The same; None in files of version 0.1, which did not hold them.
    n_components_, n_features_in_ : int
        K and d.
    feature_names_in_ : array of shape (d,)
        Only if the model has names.
    model_ : Model
        The whole contents of the file.
    warnings_ : tuple of str
        Sentences about a model that did not converge or lacks sites; empty otherwise.
    """

    def __init__(self, whiten: bool = False, missing: Literal["error", "mean"] = "error") -> None:
        self.whiten, self.missing = whiten, missing

    @classmethod
    def of(cls, model: Model, whiten: bool = False, missing: Literal["error", "mean"] = "error") -> SavedModel:
        """A model that was read, or made of plain arrays."""
        saved = cls(whiten, missing)
        saved.model_, saved.warnings_ = model, model.warnings
        saved.components_, saved.mean_, saved.scale_ = model.components, model.mean, model.scale
        saved.explained_variance_ = model.explained_variance
        saved.explained_variance_ratio_ = model.explained_variance_ratio
        saved.singular_values_ = model.singular_values
        saved.noise_variance_, saved.n_samples_ = model.noise_variance, model.n_samples
        saved.n_components_, saved.n_features_in_ = model.components.shape
        if model.feature_names is not None:
            saved.feature_names_in_ = np.asarray(model.feature_names, dtype=object)
        return saved

    def fit(self, X: Any = None, y: Any = None) -> SavedModel:
        """Refuse: a saved model is not fitted again."""
        raise InputError(
            "a saved model is fitted already. Use DecentralizedPCA to fit another, or, in a pipeline that is to be "
            "fitted, sklearn.frozen.FrozenEstimator(model)."
        )

    def get_feature_names_out(self, input_features: Any = None) -> np.ndarray:
        """Names of the output columns: those of the estimator that was saved."""
        check_is_fitted(self)
        return np.asarray([f"decentralizedpca{k}" for k in range(self.n_components_)], dtype=object)

    def project_table(self, table: Table, where: str) -> np.ndarray:
        """Scores of a table of any size, a piece at a time: (n, d) -> (n, K). Errors name the file and the entry."""
        names = getattr(self, "feature_names_in_", None)
        require_columns(table, self.n_features_in_, None if names is None else tuple(names), where, "the model")
        projected = np.empty((table.X.shape[0], self.n_components_), dtype=kept_dtype(table.X.dtype))
        for start, piece in self._pieces(table.X):
            if not self._fills_missing:
                _require_finite(piece, start, names, where)
            projected[start : start + piece.shape[0]] = self._project(piece)
        return projected

    def _pieces(self, X: Any) -> Iterator[tuple[int, Any]]:
        rows = max(1, CHUNK_BYTES // (8 * self.n_features_in_))
        for start in range(0, X.shape[0], rows):
            piece = X[start : start + rows]
            yield start, piece if sparse.issparse(piece) else np.asarray(piece)

    def __repr__(self, N_CHAR_MAX: int = 700) -> str:
        if not hasattr(self, "model_"):
            return str(super().__repr__(N_CHAR_MAX))
        facts = {
            "n_components": self.n_components_,
            "n_features": self.n_features_in_,
            "n_samples": self.n_samples_,
            "error_bound": self.model_.error_bound,
        }
        shown = [
            f"{name}={value:.3g}" if isinstance(value, float) else f"{name}={value}"
            for name, value in facts.items()
            if value is not None
        ]
        settings = [f"whiten={self.whiten}", f"missing={self.missing!r}"]
        return f"SavedModel({', '.join([*shown, *settings])})"


def _require_finite(piece: Any, start: int, names: np.ndarray | None, where: str) -> None:
    values = piece.data if sparse.issparse(piece) else piece
    if values.dtype.kind not in "fc" or np.isfinite(values).all():
        return
    dense = piece.toarray() if sparse.issparse(piece) else piece
    row, column = (int(place) for place in np.argwhere(~np.isfinite(dense))[0])
    name = "" if names is None else f" ({names[column]!r})"
    raise DataError(
        f"{where}: row {start + row}, column {column}{name} is {dense[row, column]}; drop the row, or put the pooled "
        'mean there with missing="mean" (--missing mean).'
    )
