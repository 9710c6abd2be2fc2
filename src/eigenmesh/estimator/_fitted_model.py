"""The model that a fitted estimator holds."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from eigenmesh.model_file import Model

if TYPE_CHECKING:
    from eigenmesh.estimator._pca import DecentralizedPCA


def model_of(
    pca: DecentralizedPCA, node_names: Sequence[str] | None = None, run_id: str | None = None, whole: bool = True
) -> Model:
    """Everything of a fit that is needed to use it; what a run of peers adds is given beside it."""
    feature_names = getattr(pca, "feature_names_in_", None)
    return Model(
        components=pca.components_,
        explained_variance=pca.explained_variance_,
        explained_variance_ratio=pca.explained_variance_ratio_,
        singular_values=pca.singular_values_,
        mean=pca.mean_,
        scale=pca.scale_,
        noise_variance=pca.noise_variance_,
        n_samples=pca.n_samples_,
        node_components=pca.node_components_,
        feature_names=None if feature_names is None else tuple(str(name) for name in feature_names),
        node_names=None if node_names is None else tuple(node_names),
        run_id=run_id,
        whole=whole,
        converged=pca.result_.converged,
        tol=pca.tol,
        error_bound=pca.certificate_.error_bound,
        whiten=pca.whiten,
        missing=pca.missing,
    )
