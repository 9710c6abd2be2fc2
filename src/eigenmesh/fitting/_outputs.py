"""Outputs of a fit: a model to use, and numbers to read."""

import math
from typing import Any

import numpy as np

from eigenmesh.fitting._fit import Fit
from eigenmesh.model_file import Model

# Features to list per component.
MOST_FEATURES = 20


def model_of(fit: Fit, *, run_id: str | None = None, whole: bool = True) -> Model:
    """The model of a fit; a run of peers adds its id, and whole=False if sites were lost."""
    result, moments = fit.result, fit.moments
    return Model(
        components=fit.components,
        explained_variance=result.explained_variance,
        explained_variance_ratio=fit.explained_variance_ratio,
        singular_values=fit.singular_values,
        mean=moments.mean,
        scale=moments.scale,
        noise_variance=fit.noise_variance,
        n_samples=moments.n_samples,
        node_components=fit.node_components,
        scores=fit.scores,
        all_features=None if fit.scores is None else moments.n_features,
        feature_names=fit.facts.feature_names,
        node_names=fit.facts.node_names,
        run_id=run_id,
        whole=whole,
        converged=result.converged,
        tol=fit.request.tol,
        error_bound=result.certificate.error_bound,
        missing=fit.request.missing,
    )


def largest_loadings(fit: Fit, most: int = MOST_FEATURES) -> list[dict[str, float]]:
    """For each component the features with the largest loadings, by name, largest first; empty without feature names.

    A component is a unit vector; the loading of a feature is its entry.
    """
    names = fit.facts.feature_names
    if names is None:
        return []
    orders = np.argsort(-np.abs(fit.components), axis=1, kind="stable")[:, :most]
    pairs = zip(fit.components, orders, strict=True)
    return [{names[feature]: float(component[feature]) for feature in order} for component, order in pairs]


def fit_numbers(fit: Fit, about: dict[str, Any]) -> dict[str, Any]:
    """Numbers of a fit for JSON: settings, results and costs."""
    shares = fit.explained_variance_ratio.tolist()
    plain: dict[str, Any] = _without_nan(
        {**about, **fit.result.summary(), "explained_variance_ratio": shares, "loadings": largest_loadings(fit)}
    )
    return plain


def _without_nan(value: Any) -> Any:
    """Replace NaN and infinity, which JSON does not have, by None."""
    if isinstance(value, dict):
        return {key: _without_nan(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [_without_nan(item) for item in value]
    return None if isinstance(value, float) and not math.isfinite(value) else value
