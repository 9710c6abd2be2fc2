"""Scores of dask data: a dask array, computed lazily block by block."""

from typing import Any

import numpy as np
from sklearn.utils.validation import validate_data

from eigenmesh.dask._blocks import Blocks, is_frame, scipy_or_dense
from eigenmesh.networks import Traffic

# Attributes of a fitted estimator that transform needs; only these are sent to the workers.
NEEDED = ("components_", "explained_variance_", "mean_", "scale_", "n_components_")


def check_features(pca: Any, X: Any, reset: bool) -> None:
    """Let scikit-learn store (reset) or check the number and the names of the features; reads nothing."""
    # An empty array like X: scikit-learn would compute X itself.
    empty = X._meta if is_frame(X) else np.empty((0, X.shape[1]))
    validate_data(pca, empty, reset=reset, skip_check_array=True)


def lazy_scores(pca: Any, X: Any) -> Any:
    """Scores of dask data (n, d) as a dask array (n, K), float32 if they are; nothing is computed yet."""
    blocks = Blocks.of(X, Traffic())
    array, meta = blocks.array, np.empty((0, 0), dtype=blocks.dtype)
    check_features(pca, X, reset=False)
    light = type(pca)(whiten=pca.whiten, missing=pca.missing)
    for name in NEEDED:
        setattr(light, name, getattr(pca, name))
    light.n_features_in_ = array.shape[1]
    chunks = (array.chunks[0], (pca.n_components_,))
    return array.map_blocks(
        _scores, projection=light, kept=blocks.dtype, chunks=chunks, meta=meta, token="eigenmesh-scores"
    )


def _scores(block: Any, projection: Any, kept: np.dtype) -> np.ndarray:
    if block.shape[0] == 0:
        return np.empty((0, projection.n_components_), dtype=kept)
    return np.asarray(projection.transform(scipy_or_dense(block)), dtype=kept)
