"""From directions of scores, which all nodes share, to loadings of each node's own columns."""

from dataclasses import replace

import numpy as np

from eigenmesh import arrays as ea
from eigenmesh.data import Covariance
from eigenmesh.data._gram import Gram, lifted
from eigenmesh.iteration import Result

# The first entry of at least this share of the largest one determines the sign, so that rounding does not.
AS_LARGE = 0.999


def in_columns(
    covariance: Covariance, result: Result, n_samples: float
) -> tuple[Result, np.ndarray, np.ndarray | None]:
    """The result, components (K, d) of the columns in this process and, if columns are split, all scores (N, K).

    With split columns the result contains ``u``, (K, N), with its largest entry positive; loadings are
    ``v_j = A_j^T u / sqrt(theta)`` of each node in this process, and scores ``u sqrt(theta (N - 1))``.
    """
    if not isinstance(covariance, Gram):
        return result, result.components, None
    # A component without variance has no loadings; its bound in the certificate says so.
    deviations = np.sqrt(np.maximum(result.explained_variance, np.finfo(float).tiny))[:, np.newaxis]
    directions = lifted(result.components.T).T
    signs = _signs(directions)
    placed = covariance.place(np.ascontiguousarray(result.components.T)[np.newaxis])
    # The operators have a factor of M, so that their average is the sum.
    products = np.concatenate([ea.to_numpy(part).T for part in covariance.across(placed)], axis=1)
    loadings = signs * products[:, covariance.order] / (covariance.n_nodes**0.5 * deviations)
    local = signs * _lifted_rows(ea.held(result.node_components))
    everyone = np.broadcast_to(local, (len(result.node_components), *local.shape[1:]))
    scores = (signs * directions * deviations).T * (n_samples - 1) ** 0.5
    disclosure = replace(result.certificate.disclosure, by_columns=True)
    certificate = replace(result.certificate, disclosure=disclosure)
    shared = replace(result, components=signs * directions, node_components=everyone, certificate=certificate)
    return shared, loadings, scores


def _lifted_rows(X: np.ndarray) -> np.ndarray:
    return np.asarray(np.swapaxes(lifted(np.swapaxes(X, -1, -2)), -1, -2))


def _signs(directions: np.ndarray) -> np.ndarray:
    """Signs that make the largest entry of each row positive: (K, N) -> (K, 1)."""
    sizes = np.abs(directions)
    first = np.argmax(sizes >= AS_LARGE * sizes.max(axis=1, keepdims=True), axis=1)
    return np.where(np.take_along_axis(directions, first[:, np.newaxis], axis=1) < 0, -1.0, 1.0)
