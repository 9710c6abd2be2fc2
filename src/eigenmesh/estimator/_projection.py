"""What fitted components are for: scores, reconstructions and likelihoods, as scikit-learn's PCA has them."""

from __future__ import annotations

from typing import Any, Literal

import numpy as np
from scipy import sparse
from sklearn.base import BaseEstimator, ClassNamePrefixFeaturesOutMixin, TransformerMixin
from sklearn.utils.validation import check_is_fitted, validate_data

from eigenmesh.dask import is_dask
from eigenmesh.errors import InputError


class Projection(ClassNamePrefixFeaturesOutMixin, TransformerMixin, BaseEstimator):  # type: ignore[misc]
    """Use of components that a subclass has fitted; it sets the attributes below and the parameters whiten, missing."""

    whiten: bool
    missing: Literal["error", "mean"]
    components_: np.ndarray
    explained_variance_: np.ndarray
    mean_: np.ndarray
    scale_: np.ndarray | None
    noise_variance_: float
    n_components_: int

    def _checked(self, X: Any, reset: bool, fewest: int = 2) -> Any:
        """Let scikit-learn check shape, type and feature names; our own pass over the data finds NaN."""
        if is_dask(X):
            # scikit-learn would compute it whole.
            raise InputError("of dask data there are fit and transform alone; for the rest, compute() a part of them.")
        if isinstance(X, np.memmap) and reset:
            # scikit-learn would read a memory map whole.
            validate_data(self, X, reset=reset, skip_check_array=True)
            return X
        return validate_data(
            self,
            X,
            reset=reset,
            accept_sparse="csr",
            dtype=[np.float64, np.float32],
            ensure_min_samples=fewest if reset else 1,
            ensure_all_finite=False if reset else self.missing == "error",
        )

    def _standardised(self, X: Any) -> np.ndarray:
        """(X - mean) / scale, dense: (n, d)."""
        dense = X.toarray() if sparse.issparse(X) else np.asarray(X)
        centred = dense - self.mean_
        if self.missing == "mean":
            centred = np.where(np.isfinite(centred), centred, 0.0)
        return np.asarray(centred if self.scale_ is None else centred / self.scale_)

    def transform(self, X: Any) -> Any:
        """Project samples onto the components: (n, d) -> (n, K); dask data give a dask array."""
        check_is_fitted(self)
        if is_dask(X):
            from eigenmesh.dask._scores import lazy_scores

            return lazy_scores(self, X)
        X = self._checked(X, reset=False)
        if sparse.issparse(X) and self.missing == "error":
            # Never densified: centre after the product instead of before.
            loadings = self.components_ if self.scale_ is None else self.components_ / self.scale_
            scores = np.asarray(X @ loadings.T) - self.mean_ @ loadings.T
        else:
            scores = self._standardised(X) @ self.components_.T
        return np.asarray(scores / self._spread() if self.whiten else scores)

    def inverse_transform(self, X: Any) -> np.ndarray:
        """Map scores back to the features: (n, K) -> (n, d)."""
        check_is_fitted(self)
        scores = np.asarray(X)
        if scores.ndim != 2 or scores.shape[1] != self.n_components_:
            raise InputError(f"scores have shape {scores.shape}; they must be (n, {self.n_components_}).")
        rebuilt = (scores * self._spread() if self.whiten else scores) @ self.components_
        return np.asarray((rebuilt if self.scale_ is None else rebuilt * self.scale_) + self.mean_)

    def _spread(self) -> np.ndarray:
        """Standard deviations of the scores, kept off zero for components without variance."""
        values = self.explained_variance_
        smallest = np.finfo(float).eps * max(float(values[0]), np.finfo(float).tiny)
        return np.asarray(np.sqrt(np.maximum(values, smallest)))

    def get_covariance(self) -> np.ndarray:
        """Covariance of the features under the probabilistic PCA model: (d, d), in the units of the data."""
        check_is_fitted(self)
        excess = np.maximum(self.explained_variance_ - self.noise_variance_, 0)
        model = (self.components_.T * excess) @ self.components_
        model[np.diag_indices_from(model)] += self.noise_variance_
        return np.asarray(model if self.scale_ is None else model * np.outer(self.scale_, self.scale_))

    def score_samples(self, X: Any) -> np.ndarray:
        """Log-likelihood of each sample under the probabilistic PCA model: (n, d) -> (n,).

        With noise variance s the model covariance has eigenvalues l_1 .. l_K and d - K times s, so neither it nor
        its inverse is formed.
        """
        check_is_fitted(self)
        Z = self._standardised(self._checked(X, reset=False))
        scores = Z @ self.components_.T
        n_features, rest = Z.shape[1], Z.shape[1] - self.n_components_
        values = self._spread() ** 2
        distance = np.sum(scores**2 / values, axis=1)
        log_det = float(np.sum(np.log(values)))
        if rest:
            if self.noise_variance_ <= 0:
                raise InputError(
                    f"n_components = {self.n_components_} leaves no variance for noise, so the likelihood is not "
                    "defined; ask for fewer components."
                )
            outside = np.maximum(np.sum(Z**2, axis=1) - np.sum(scores**2, axis=1), 0)
            distance = distance + outside / self.noise_variance_
            log_det += rest * np.log(self.noise_variance_)
        if self.scale_ is not None:
            log_det += 2 * float(np.sum(np.log(self.scale_)))
        return np.asarray(-0.5 * (distance + log_det + n_features * np.log(2 * np.pi)))

    def score(self, X: Any, y: Any = None) -> float:
        """Average log-likelihood of the samples."""
        return float(np.mean(self.score_samples(X)))

    @property
    def _n_features_out(self) -> int:
        """For scikit-learn's names of output features."""
        return int(self.components_.shape[0])

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.input_tags.sparse = True
        tags.input_tags.allow_nan = self.missing == "mean"
        tags.transformer_tags.preserves_dtype = ["float64"]
        return tags
