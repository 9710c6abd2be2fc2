"""Models loaded from files."""

from __future__ import annotations

import os
from typing import Any, cast, get_args

import numpy as np
from sklearn.utils.validation import check_is_fitted

from eigenmesh._lookup import canonical_name
from eigenmesh.data._scores import Filling
from eigenmesh.errors import InputError
from eigenmesh.estimator._projection import Projection
from eigenmesh.model_file import Model, read_model
from eigenmesh.settings import SETTINGS


def load_model(
    path: str | os.PathLike[str], *, whiten: bool | None = None, missing: Filling | None = None
) -> SavedModel:
    """Read a model that ``save`` of an estimator, ``eigenmesh fit --out`` or ``eigenmesh site run`` has written.

    Parameters
    ----------
    path : str or path
        The .npz file. A file that is damaged, edited or from a newer eigenmesh raises an error.
    whiten : bool or None
        Give ``transform`` outputs unit variance; None for what the model was saved with.
    missing : "error", "mean", "least-squares" or None
        What to do with NaN and infinite entries: raise an error that names the first, use the pooled mean instead, or
        use the scores that fit the other entries of the sample best; None as saved.

    Returns
    -------
    SavedModel
        Ready for ``transform``, ``score`` and the rest.
    """
    known = get_args(Filling)
    policy = None if missing is None else canonical_name("policy for missing entries", missing, known)
    if whiten is not None:
        SETTINGS["whiten"].require("whiten", whiten)
    model = read_model(path)
    return SavedModel.of(model, model.whiten if whiten is None else whiten, cast(Filling, policy or model.missing))


class SavedModel(Projection):
    """A fitted model from a file, as returned by ``eigenmesh.load_model``; use it like a fitted DecentralizedPCA.

    Attributes
    ----------
    components_, explained_variance_, explained_variance_ratio_, singular_values_, mean_, scale_ : arrays
        As those of the estimator that was saved.
    noise_variance_, n_samples_ : float, int
        The same; None in files of version 0.1, which did not contain them.
    n_components_, n_features_in_ : int
        K and d.
    feature_names_in_ : array of shape (d,)
        Only if the model has feature names.
    model_ : Model
        The whole contents of the file.
    warnings_ : tuple of str
        Sentences about a model that did not converge or lacks sites; empty otherwise.
    """

    def __init__(self, whiten: bool = False, missing: Filling = "error") -> None:
        self.whiten, self.missing = whiten, missing

    @classmethod
    def of(cls, model: Model, whiten: bool = False, missing: Filling = "error") -> SavedModel:
        """From a model that was read from a file, or built from arrays."""
        saved = cls(whiten, missing)
        saved.model_, saved.warnings_ = model, model.warnings
        saved.components_, saved.mean_, saved.scale_ = model.components, model.mean, model.scale
        saved.explained_variance_ = model.explained_variance
        saved.explained_variance_ratio_ = model.explained_variance_ratio
        saved.singular_values_ = model.singular_values
        saved.noise_variance_, saved.n_samples_ = model.noise_variance, model.n_samples
        saved._all_features = model.all_features
        saved.n_components_, saved.n_features_in_ = model.components.shape
        if model.feature_names is not None:
            saved.feature_names_in_ = np.asarray(model.feature_names, dtype=object)
        return saved

    @property
    def _quiet_spe(self) -> tuple[float, float] | None:
        mean, variance = self.model_.spe_mean, self.model_.spe_variance
        return None if mean is None or variance is None else (mean, variance)

    def fit(self, X: Any = None, y: Any = None) -> SavedModel:
        """Raise: a saved model cannot be fitted again."""
        fix = "Fit a DecentralizedPCA; in a pipeline, use sklearn.frozen.FrozenEstimator(model)."
        raise InputError(f"a saved model is fitted already. {fix}")

    def get_feature_names_out(self, input_features: Any = None) -> np.ndarray:
        """Names of the output columns: those of DecentralizedPCA."""
        check_is_fitted(self)
        return np.asarray([f"decentralizedpca{k}" for k in range(self.n_components_)], dtype=object)

    def __repr__(self, N_CHAR_MAX: int = 700) -> str:
        if not hasattr(self, "model_"):
            return str(super().__repr__(N_CHAR_MAX))
        shown = [f"n_components={self.n_components_}", f"n_features={self.n_features_in_}"]
        if self.n_samples_ is not None:
            shown.append(f"n_samples={self.n_samples_}")
        if self.model_.error_bound is not None:
            shown.append(f"error_bound={self.model_.error_bound:.3g}")
        return f"SavedModel({', '.join(shown)}, whiten={self.whiten}, missing={self.missing!r})"
