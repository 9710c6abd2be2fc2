"""A fit as files: arrays in an .npz without pickle, numbers as JSON."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from eigenmesh.estimator._pca import DecentralizedPCA
from eigenmesh.iteration._result import Result


def fitted_arrays(pca: DecentralizedPCA, node_names: Sequence[str] | None = None) -> dict[str, np.ndarray]:
    """Arrays of a fit, without any that would need pickle."""
    arrays = {
        "components": pca.components_,
        "explained_variance": pca.explained_variance_,
        "explained_variance_ratio": pca.explained_variance_ratio_,
        "singular_values": pca.singular_values_,
        "mean": pca.mean_,
        "node_components": pca.node_components_,
    }
    if pca.scale_ is not None:
        arrays["scale"] = pca.scale_
    names = {"feature_names": getattr(pca, "feature_names_in_", None), "node_names": node_names}
    arrays.update({key: np.asarray(list(value), dtype=np.str_) for key, value in names.items() if value is not None})
    return arrays


def fitted_numbers(result: Result, total_variance: float, about: dict[str, Any]) -> dict[str, Any]:
    """Numbers of a fit for JSON: what was asked, what came out and what it cost."""
    shares = (result.explained_variance / total_variance).tolist()
    plain: dict[str, Any] = _without_nan({**about, **result.summary(), "explained_variance_ratio": shares})
    return plain


def _without_nan(value: Any) -> Any:
    """JSON has neither NaN nor infinity: null stands for them."""
    if isinstance(value, dict):
        return {key: _without_nan(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [_without_nan(item) for item in value]
    return None if isinstance(value, float) and not math.isfinite(value) else value
