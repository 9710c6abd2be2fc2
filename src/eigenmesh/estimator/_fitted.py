"""The fitted state of an estimator: its attributes, a warning if it did not converge, and saving to a file."""

import os
from dataclasses import replace
from typing import Any

from sklearn.exceptions import ConvergenceWarning
from sklearn.utils.validation import check_is_fitted

from eigenmesh._atomic_write import require_writable
from eigenmesh.errors import warn_user
from eigenmesh.estimator._projection import Projection
from eigenmesh.fitting import Fit, model_of
from eigenmesh.model_file import write_model


class Fitted(Projection):
    """A projection whose components come from a ``Fit``; a subclass has the parameters tol and scale."""

    tol: float
    scale: bool | str

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write the fitted model to one .npz file for ``eigenmesh.load_model`` and ``eigenmesh transform``."""
        check_is_fitted(self)
        # The current settings of transform, which may have changed since the fit.
        settings: Any = {"whiten": self.whiten, "missing": "mean" if self._fills_missing else "error"}
        if self._quiet_spe is not None:
            settings["spe_mean"], settings["spe_variance"] = self._quiet_spe
        model = replace(model_of(self.fitted_), feature_names=self._feature_names, **settings)
        write_model(require_writable(path), model)

    @property
    def _fills_missing(self) -> bool:
        return isinstance(self.scale, str) or super()._fills_missing

    def _set_fitted(self, fitted: Fit) -> None:
        result, moments = fitted.result, fitted.moments
        self.fitted_, self.result_ = fitted, result
        self.components_, self.node_components_ = fitted.components, fitted.node_components
        if fitted.scores is not None:
            self.scores_ = fitted.scores
        elif hasattr(self, "scores_"):
            # Left over from an earlier fit.
            del self.scores_
        self.explained_variance_ = result.explained_variance
        self.explained_variance_ratio_ = fitted.explained_variance_ratio
        self.singular_values_, self.noise_variance_ = fitted.singular_values, fitted.noise_variance
        self.mean_, self.scale_, self._all_features = moments.mean, moments.scale, moments.n_features
        self.n_components_, self.n_samples_ = len(result.explained_variance), moments.n_samples
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
