"""What every fitted model can do: scores, reconstructions, likelihoods and distances, as in scikit-learn's PCA."""

from __future__ import annotations

import inspect
import os
import textwrap
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any, ClassVar, NamedTuple, TypeVar, cast, dataclass_transform, get_args

import numpy as np
from sklearn.base import BaseEstimator, ClassNamePrefixFeaturesOutMixin, TransformerMixin
from sklearn.exceptions import ConvergenceWarning
from sklearn.utils.validation import check_array, check_is_fitted, validate_data

from eigenmesh import data
from eigenmesh.arrays import as_tensor, namespace_for, to_numpy
from eigenmesh.atomic_write import require_writable
from eigenmesh.coordinators import Coordinator, coordinator_of, is_asked
from eigenmesh.errors import InputError, warn_user
from eigenmesh.fitting import Fit, model_of
from eigenmesh.model import Model, model_file, read_model, write_model
from eigenmesh.settings import OF_REQUESTS, SETTINGS, OfEveryFit, Request, Setting, rows_of
from eigenmesh.words import canonical_name, find_name

# Stands in the docstring of an estimator where its parameters are filled in.
PARAMETERS = "(the settings of eigenmesh.settings)"
NO_MLE = "n_components = 'mle' is not supported: it needs all eigenvalues. Use a whole number, a share as 0.9 or None."

T = TypeVar("T", bound="FittedPCA")


class Distances(NamedTuple):
    """T2 and SPE of samples, (n,) each."""

    t2: np.ndarray
    spe: np.ndarray


class Projection(ClassNamePrefixFeaturesOutMixin, TransformerMixin, BaseEstimator):  # type: ignore[misc]
    """Methods of fitted components; a subclass sets the attributes below and the parameters whiten and missing."""

    whiten: bool
    missing: Any
    components_: np.ndarray
    explained_variance_: np.ndarray
    explained_variance_ratio_: np.ndarray
    mean_: np.ndarray
    scale_: np.ndarray | None
    singular_values_: np.ndarray
    noise_variance_: float | None
    n_components_: int
    n_samples_: float | None
    # How the samples of the fit were read, as a model remembers it.
    _read_with: str | None = None
    # d over all nodes. If columns are split over sites, a model may have only the columns of one site.
    _all_features: int | None

    def _checked(self, X: Any, reset: bool, fewest: int = 2) -> Any:
        """Samples with shape, type and feature names checked by scikit-learn; our own pass over the data finds NaN."""
        if is_asked(X):
            # scikit-learn would collect all of it.
            raise InputError("data of an engine support only fit and transform; for the rest, collect a part of them.")
        if isinstance(X, data.Source) and not reset:
            raise InputError("a Source supports only fit and transform; for the rest, read() a part of it.")
        least, finite = (fewest, False) if reset else (1, not self._fills_missing)
        checks: Any = {"accept_sparse": "csr", "ensure_min_samples": least, "ensure_all_finite": finite}
        if not reset and (data.is_anndata(X) or (data.is_frame(X) and self._feature_names is not None)):
            return check_array(self._by_name(X), **checks)
        if not isinstance(X, data.Source):
            X = data.checkable(X if reset else self._without_nodes(X))
        if data.is_device_array(X) and not reset:
            # Scores are NumPy arrays, as components are.
            X = to_numpy(as_tensor(X))
        if isinstance(X, data.Source) or data.is_device_array(X) or (data.is_mapped(X) and reset):
            # scikit-learn would read all of it, and can only read CPU memory.
            source = data.as_source(X)
            self._set_features(source.shape[1], source.feature_names)
            return source
        return validate_data(self, X, reset=reset, **checks)

    def _by_name(self, X: Any) -> Any:
        """The features of the model in a frame or an AnnData object, whatever other columns and what order it has."""
        names, where = self._feature_names, "X"
        read = data.table_in_memory(X, data.TableOptions().with_those_of(self._read_with, names), where).source
        source = data.aligned(read, self.n_features_in_, names, where, "the model")
        return source.read(slice(0, source.shape[0]))

    def _set_features(self, n_features: int, names: tuple[str, ...] | None) -> None:
        """Set the number and names of columns as scikit-learn does, for data that it has not checked."""
        self.n_features_in_ = n_features
        if names is not None:
            self.feature_names_in_ = np.asarray(names, dtype=object)
        elif hasattr(self, "feature_names_in_"):
            # Left over from an earlier fit.
            del self.feature_names_in_

    def _take(self, model: Model) -> None:
        """Set the attributes that every model has."""
        self.components_, self.mean_, self.scale_ = model.components, model.mean, model.scale
        self.explained_variance_ = model.explained_variance
        self.explained_variance_ratio_ = model.explained_variance_ratio
        self.singular_values_ = model.singular_values
        self.noise_variance_, self.n_samples_ = model.noise_variance, model.n_samples
        self.n_components_, self._all_features = len(model.components), model.all_features

    def _without_nodes(self, X: Any) -> Any:
        """A data frame without the column of nodes that ``fit`` used, if it still has one."""
        column = getattr(self, "_nodes_column", None)
        if column is None or not data.is_frame(X):
            return X
        return data.as_narwhals(X, "X").drop(column, strict=False).to_native()

    def _repr_html_inner(self) -> str:
        return f"{super()._repr_html_inner()}{self._result_html()}"

    def _repr_mimebundle_(self, **settings: Any) -> dict[str, str]:
        bundle: dict[str, str] = super()._repr_mimebundle_(**settings)
        if "text/html" in bundle:
            bundle["text/html"] += self._result_html()
        return bundle

    def _result_html(self) -> str:
        """What was fitted, for notebooks."""
        return ""

    @property
    def _projector(self) -> data.Projector:
        spread = self._spread() if self.whiten else None
        solves = self._missing_is(data.LEAST_SQUARES)
        return data.Projector(self.components_, self.mean_, self.scale_, self._fills_missing, spread, solves)

    @property
    def loadings_(self) -> Any:
        """Weight of each feature in each component: a data frame with columns feature, pc1, .., pcK, and d rows.

        A component is a unit vector, and these are its entries. The frame is of pandas, polars or pyarrow, the first
        of them that is installed.
        """
        check_is_fitted(self)
        names = self._feature_names or tuple(f"x{feature}" for feature in range(self.n_features_in_))
        columns = {f"pc{k}": component for k, component in enumerate(self.components_, start=1)}
        return data.make_frame({"feature": list(names), **columns})

    def transform(self, X: Any) -> Any:
        """Project samples onto the components: (n, d) -> (n, K).

        Data of an engine give scores in that engine, such as a dask array, computed when they are asked for. float32
        gives float32, though the work is done in float64.
        """
        check_is_fitted(self)
        if is_asked(X):
            return self._asked_scores(coordinator_of(X))
        if isinstance(X, data.Source):
            return self.project_source(X)
        return self._projector.scores(self._checked(X, reset=False))

    def _asked_scores(self, engine: Coordinator) -> Any:
        """Scores of the data of an engine, block by block where they are."""
        names = engine.feature_names
        empty = np.empty((0, engine.n_features or self.n_features_in_))
        like = empty if names is None else data.make_frame(dict.fromkeys(names, empty[:, 0]))
        validate_data(self, like, reset=False, skip_check_array=True)
        return engine.scores(self._projector.scores_of_rows, self.get_feature_names_out())

    def project_source(self, source: data.Source, where: str = "the source") -> np.ndarray:
        """Scores of a source of any size, read in pieces: (n, d) -> (n, K). Errors name it as ``where``."""
        return self._projector.scores_of(source, self._feature_names, where)

    def to_anndata(self, adata: Any, layer: str | None = None) -> None:
        """Store scores, loadings and variances in an AnnData object in memory, where scanpy expects them.

        ``obsm["X_pca"]`` (n, K) are the scores, ``varm["PCs"]`` (genes, K) the loadings, 0 for genes that the model
        does not have, and ``uns["pca"]`` has variances and their ratios, (K,) each. Genes are matched by name. For a
        file, see ``eigenmesh transform``.

        Parameters
        ----------
        adata : AnnData
            The cells, which get the results.
        layer : str or None
            The layer to project; by default the one that was fitted, or X.
        """
        check_is_fitted(self)
        genes, known = tuple(map(str, adata.var_names)), self._feature_names
        how = data.TableOptions.of(layer=layer).with_those_of(self._read_with, known)
        table, layer = data.table_in_memory(adata, how, "adata"), how.layer
        variances = (self.explained_variance_, self.explained_variance_ratio_, self.singular_values_)
        model = Model(self.components_, *variances, self.mean_, feature_names=known)
        for part, values in data.results_of(model, self.project_source(table.source, "adata"), genes, layer).items():
            getattr(adata, part).update(values)

    def inverse_transform(self, X: Any) -> np.ndarray:
        """Map scores back to the features: (n, K) -> (n, d); float32 gives float32."""
        check_is_fitted(self)
        scores = np.asarray(X)
        if scores.ndim != 2 or scores.shape[1] != self.n_components_:
            raise InputError(f"scores have shape {scores.shape}; they must be (n, {self.n_components_}).")
        rebuilt = (scores * self._spread() if self.whiten else scores) @ self.components_
        features = (rebuilt if self.scale_ is None else rebuilt * self.scale_) + self.mean_
        return np.asarray(features, dtype=data.kept_dtype(scores.dtype))

    def _spread(self) -> np.ndarray:
        """Standard deviations of the scores, (K,), bounded away from zero for components without variance."""
        values = self.explained_variance_
        smallest = np.finfo(float).eps * max(float(values[0]), np.finfo(float).tiny)
        return np.asarray(np.sqrt(np.maximum(values, smallest)))

    def _known_noise(self) -> float:
        if self.noise_variance_ is None:
            raise InputError("this model has no noise variance; fit again.")
        return float(self.noise_variance_)

    def _positive_noise(self) -> float:
        """Noise variance s > 0; raises if it is only rounding of the total variance."""
        noise = self._known_noise()
        if noise <= np.finfo(float).eps * float(self.explained_variance_[0]):
            raise InputError(f"n_components = {self.n_components_} leaves no variance for noise; ask for fewer.")
        return noise

    def get_covariance(self) -> np.ndarray:
        """Covariance of the features under the probabilistic PCA model, in the units of the data: (d, d).

            C = V^T diag(max(l - s, 0)) V + s I

        for components V (K, d), explained variances l and noise variance s; D C D for scaled data, D = diag(scale).
        Unlike in scikit-learn, ``whiten`` does not change it.
        """
        check_is_fitted(self)
        noise, factor = self._known_noise(), self._excess_factor()
        model = np.asarray(factor @ factor.T)
        model[np.diag_indices_from(model)] += noise
        return model if self.scale_ is None else np.asarray(model * np.outer(self.scale_, self.scale_))

    def get_precision(self) -> np.ndarray:
        """Inverse of ``get_covariance()``: (d, d), by the matrix inversion lemma.

            (F F^T + s I)^-1 = (I - F (s I + F^T F)^-1 F^T) / s

        with F = V^T diag(max(l - s, 0))^(1/2), so that only a K x K matrix is inverted unless K = d.
        """
        check_is_fitted(self)
        n_components, n_features = self.components_.shape
        if n_components == n_features:
            values = self.explained_variance_
            rank = int(np.sum(values > np.finfo(float).eps * n_features * values[0]))
            if rank < n_features:
                raise InputError(f"the covariance has rank {rank} of {n_features}; ask for fewer than {rank}.")
            return np.asarray(np.linalg.inv(self.get_covariance()))
        noise, factor = self._positive_noise(), self._excess_factor()
        small = factor.T @ factor
        small[np.diag_indices_from(small)] += noise
        precision = np.asarray(-factor @ np.linalg.solve(small, factor.T))
        precision[np.diag_indices_from(precision)] += 1.0
        precision /= noise
        return precision if self.scale_ is None else np.asarray(precision / np.outer(self.scale_, self.scale_))

    def _excess_factor(self) -> np.ndarray:
        """F (d, K) with F F^T the part of the model covariance that is above the noise."""
        excess = np.maximum(self.explained_variance_ - self._known_noise(), 0.0)
        return np.asarray(self.components_.T * np.sqrt(excess), dtype=np.float64)

    def score_samples(self, X: Any) -> np.ndarray:
        """Log-likelihood of each sample under the probabilistic PCA model: (n, d) -> (n,).

        With noise variance s the model covariance has eigenvalues l_1 .. l_K and d - K times s, so neither it nor
        its inverse is formed.
        """
        check_is_fitted(self)
        self._known_noise()
        Z = self._projector.standardised(self._checked(X, reset=False))
        scores = Z @ self.components_.T
        n_features, rest = Z.shape[1], Z.shape[1] - self.n_components_
        values = self._spread() ** 2
        distance = np.sum(scores**2 / values, axis=1)
        log_det = float(np.sum(np.log(values)))
        if rest:
            noise = self._positive_noise()
            outside = np.maximum(np.sum(Z**2, axis=1) - np.sum(scores**2, axis=1), 0)
            distance = distance + outside / noise
            log_det += rest * np.log(noise)
        if self.scale_ is not None:
            log_det += 2 * float(np.sum(np.log(self.scale_)))
        return np.asarray(-0.5 * (distance + log_det + n_features * np.log(2 * np.pi)))

    def score(self, X: Any, y: Any = None) -> float:
        """Average log-likelihood of the samples."""
        return float(np.mean(self.score_samples(X)))

    def distances(self, X: Any, where: str = "X") -> Distances:
        """Hotelling's T2 and the squared prediction error of samples: (n, d) -> (n,), (n,)::

            T2 = sum_k t_k^2 / l_k,    SPE = |z - V^T t|^2

        for the scores t of a centred and scaled sample z, and the explained variances l. T2 measures how unusual a
        sample is within the components, SPE how much of it is outside them.
        """
        t2, spe, _ = self._read(X, where)
        return Distances(t2, spe)

    @property
    def t2_limit_(self) -> float | None:
        """Limit that T2 of 1 % of new samples exceeds, by the F distribution; None if N is not known."""
        check_is_fitted(self)
        return None if self.n_samples_ is None else data.t2_limit(self.n_samples_, self.n_components_)

    @property
    def spe_limit_(self) -> float | None:
        """Limit that SPE of 1 % of normal samples exceeds; None unless a stream has measured it."""
        check_is_fitted(self)
        return None if self._quiet_spe is None else data.spe_limit(*self._quiet_spe)

    def transform_new(self, X: Any, where: str = "X") -> np.ndarray:
        """Scores of samples that were not in the fit, comparable with those of samples that were: (n, d) -> (n, K).

        ``transform`` shrinks such scores towards zero, more strongly the more features there are per sample. Here each
        sample is added to the fitted ones, and the result is rotated back to their scores. For samples that were in the
        fit, use ``transform``.
        """
        _, spe, scores = self._read(X, where)
        corrected = data.unshrunk(scores, np.sqrt(spe), self.singular_values_)
        spread = self._projector.spread
        return corrected if spread is None else corrected / spread

    def _read(self, X: Any, where: str) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """T2, SPE and plain scores, in float64: (n, d) -> (n,), (n,), (n, K)."""
        check_is_fitted(self)
        if self._all_features not in (None, self.components_.shape[1]):
            raise InputError("this model has the loadings of one site's columns, but this needs those of all sites.")
        source = X if isinstance(X, data.Source) else data.as_source(self._checked(X, reset=False))
        return self._projector.distances_of(source, self.explained_variance_, self._feature_names, where)

    @property
    def _quiet_spe(self) -> tuple[float, float] | None:
        """Mean and variance of SPE of samples that were not in the fit, if a stream has measured them."""
        return None

    @property
    def _fills_missing(self) -> bool:
        """Whether entries may be missing; ``fit`` raises for an invalid policy."""
        return self._missing_is("mean", data.LEAST_SQUARES)

    def _missing_is(self, *names: str) -> bool:
        return isinstance(self.missing, str) and find_name(self.missing, names) is not None

    @property
    def _feature_names(self) -> tuple[str, ...] | None:
        return tuple(str(name) for name in getattr(self, "feature_names_in_", ())) or None

    @property
    def _n_features_out(self) -> int:
        """Number of output features, for scikit-learn."""
        return int(self.components_.shape[0])

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.input_tags.sparse = True
        tags.input_tags.allow_nan = self._fills_missing
        tags.transformer_tags.preserves_dtype = ["float64", "float32"]
        return tags


@dataclass_transform(kw_only_default=True)
def takes_settings(kind: type[T]) -> type[T]:
    """Give an estimator a constructor with the settings of its table, and its docstring their descriptions."""
    kind._rows = rows_of(kind)
    itself = inspect.Parameter("self", inspect.Parameter.POSITIONAL_ONLY)
    parameters = [
        inspect.Parameter(name, inspect.Parameter.KEYWORD_ONLY, default=row.default) for name, row in kind._rows.items()
    ]
    parameters[0] = parameters[0].replace(kind=inspect.Parameter.POSITIONAL_OR_KEYWORD)
    signature, defaults = inspect.Signature([itself, *parameters]), {each.name: each.default for each in parameters}

    def constructor(*values: Any, **given: Any) -> None:
        # What is bound here raises the error of Python for parameters that there are not.
        bound = signature.bind(*values, **given).arguments
        vars(bound.pop("self")).update(defaults | bound)

    # scikit-learn, help() and notebooks read the signature; type checkers read the table, which the class inherits.
    constructor.__signature__ = signature  # type: ignore[attr-defined]
    kind.__init__ = constructor  # type: ignore[method-assign]
    text = textwrap.TextWrapper(112, initial_indent=" " * 8, subsequent_indent=" " * 8)
    described = "\n".join(
        f"    {name} : {row.type_words}\n{text.fill(f'{row.text} {row.more}'.strip())}"
        for name, row in kind._rows.items()
    )
    # Python leaves docstrings out with -OO.
    kind.__doc__ = kind.__doc__ and kind.__doc__.replace(PARAMETERS, described.lstrip())
    return kind


class FittedPCA(Projection, OfEveryFit):
    """A projection whose components come from a fit in this process; a subclass has settings as its parameters."""

    # What the nodes split; a parameter only of some estimators.
    partition: Any = "samples"
    # The settings that are its parameters. A subclass of a user may have others, which it checks itself.
    _rows: ClassVar[Mapping[str, Setting]]

    def _request(self) -> Request:
        """The request for a fit; raises InputError for the first invalid parameter, without looking at data."""
        if isinstance(self.n_components, str) and self.n_components == "mle":
            raise InputError(NO_MLE)
        for name, row in self._rows.items():
            if name not in OF_REQUESTS:
                row.require(name, getattr(self, name))
        data.split_by_name(self.split)
        namespace_for(self.device)
        return Request.parse(**{name: getattr(self, name) for name in self._rows if name in OF_REQUESTS})

    def save(self, path: str | os.PathLike[str]) -> Path:
        """Write the fitted model to one .npz file for ``eigenmesh.load_model`` and ``eigenmesh transform``.

        Parameters
        ----------
        path : path
            The file; a name without a suffix gets ``.eigenmesh.npz``.

        Returns
        -------
        Path
            The file that was written.
        """
        check_is_fitted(self)
        file = require_writable(model_file(path))
        # The current settings of transform, which may have changed since the fit.
        settings: Any = {"whiten": self.whiten, "missing": "mean" if self._fills_missing else "error"}
        settings["read_with"] = self._read_with
        if self._quiet_spe is not None:
            settings["spe_mean"], settings["spe_variance"] = self._quiet_spe
        model = replace(model_of(self.fitted_), feature_names=self._feature_names, **settings)
        write_model(file, model)
        return file

    @property
    def _fills_missing(self) -> bool:
        return isinstance(self.scale, str) or super()._fills_missing

    def _set_fitted(self, fitted: Fit) -> None:
        result = fitted.result
        self._take(model_of(fitted))
        self.fitted_, self.result_, self.node_components_ = fitted, result, fitted.node_components
        if fitted.scores is not None:
            self.scores_ = fitted.scores
        elif hasattr(self, "scores_"):
            # Left over from an earlier fit.
            del self.scores_
        self.n_nodes_, self.weights_ = fitted.facts.n_nodes, fitted.weights
        self.node_names_ = fitted.facts.node_names or tuple(str(node) for node in range(self.n_nodes_))
        self.certificate_, self.history_ = result.certificate, result.history
        self.stop_reason_, self.n_iter_, self.traffic_ = result.stop_reason, result.iterations, result.traffic

    def _warn_unless_converged(self) -> None:
        if not self.result_.converged:
            reason, bound = self.stop_reason_, self.certificate_.error_bound
            angles = f"the sines of the angles to the true components are bounded by {bound:.2g}"
            message = (
                f"stopped after {self.traffic_.rounds} rounds ({reason.label}): {angles}, above tol = {self.tol:g}."
            )
            warn_user(f"{message} {reason.advice}", ConvergenceWarning)

    def _result_html(self) -> str:
        result = getattr(self, "result_", None)
        return "" if result is None else str(result._repr_html_())


# Models loaded from files.


def load_model(
    path: str | os.PathLike[str], *, whiten: bool | None = None, missing: data.Filling | None = None
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
    known = get_args(data.Filling)
    policy = None if missing is None else canonical_name("policy for missing entries", missing, known)
    if whiten is not None:
        SETTINGS["whiten"].require("whiten", whiten)
    model = read_model(path)
    return SavedModel.of(model, model.whiten if whiten is None else whiten, cast(data.Filling, policy or model.missing))


class SavedModel(Projection):
    """A fitted model from a file, as returned by ``eigenmesh.load_model``; use it like a fitted DecentralizedPCA.

    Attributes
    ----------
    components_, explained_variance_, explained_variance_ratio_, singular_values_, mean_, scale_ : arrays
        As those of the estimator that was saved.
    noise_variance_, n_samples_ : float, int
        The same; None if the model was saved without them.
    n_components_, n_features_in_ : int
        K and d.
    feature_names_in_ : array of shape (d,)
        Only if the model has feature names.
    model_ : Model
        The whole contents of the file.
    warnings_ : tuple of str
        Sentences about a model that did not converge or lacks sites; empty otherwise.
    """

    def __init__(self, whiten: bool = False, missing: data.Filling = "error") -> None:
        self.whiten, self.missing = whiten, missing

    @classmethod
    def of(cls, model: Model, whiten: bool = False, missing: data.Filling = "error") -> SavedModel:
        """From a model that was read from a file, or built from arrays."""
        saved = cls(whiten, missing)
        saved._take(model)
        saved._set_features(model.components.shape[1], model.feature_names)
        saved.model_, saved.warnings_, saved._read_with = model, model.warnings, model.read_with
        return saved

    @property
    def _quiet_spe(self) -> tuple[float, float] | None:
        mean, variance = self.model_.spe_mean, self.model_.spe_variance
        return None if mean is None or variance is None else (mean, variance)

    def fit(self, X: Any = None, y: Any = None) -> SavedModel:
        """Raise: a saved model cannot be fitted again."""
        fix = "Fit a DecentralizedPCA; in a pipeline, use sklearn.frozen.FrozenEstimator(model)."
        raise InputError(f"a saved model is fitted already. {fix}")

    def _result_html(self) -> str:
        return "" if not hasattr(self, "model_") else self.model_._repr_html_()

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
