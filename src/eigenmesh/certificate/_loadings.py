"""Error bounds of loadings when columns are split over the nodes: each node has the loadings of its own columns."""

from collections.abc import Sequence
from math import fsum, sqrt

import numpy as np

from eigenmesh import arrays as ea
from eigenmesh.arrays import column_norms
from eigenmesh.certificate._bounds import Clusters, residual_bounds
from eigenmesh.certificate._estimates import Estimates
from eigenmesh.data import Covariance
from eigenmesh.data._gram import Gram
from eigenmesh.networks import Network


def loading_residuals(covariance: Covariance, network: Network, estimates: Sequence[Estimates]) -> np.ndarray | None:
    """``|A^T r_k|`` by one average of K numbers, the same bits at all nodes: (K,); None unless columns are split."""
    if not isinstance(covariance, Gram):
        return None
    xp, sizes, units = ea.namespace(estimates[0].mean), [], []
    for one in estimates:
        along = xp.sum(one.coordinates * one.product, axis=-2, keepdims=True)
        residual = one.product - one.coordinates * along
        sizes.append(column_norms(residual))
        unit = residual / xp.where(sizes[-1] > 0, sizes[-1], xp.ones_like(sizes[-1]))
        units.append(unit if one.vectors is None else one.vectors(unit))
    squares = covariance.squares_across(xp.concat(units))
    # The residuals are scaled to unit vectors, so the squares add up to M times the trace of G at most.
    bound = None if network.scales is None else network.n_nodes * network.scales.size
    largest = network.worst(xp.concat(sizes)[:, 0, :] * xp.sqrt(network.common_mean(squares, bound)))
    return ea.to_numpy(largest[0, ...])


def loading_bounds(
    values: np.ndarray,
    projected: np.ndarray,
    gaps: np.ndarray,
    clusters: Clusters,
    floor: float,
    disagreement: np.ndarray,
) -> np.ndarray:
    """Bound on the angles of loadings ``v = A^T u / sqrt(theta)``, from ``|A^T r|`` of the residuals r of u: (K,).

    ``C v - theta v = A^T r / sqrt(theta)``, so the residual bound holds with this residual and the gaps of u. Errors of
    u grow by ``sqrt(theta_1 / theta)`` at most. A component without variance has no loadings.
    """
    has_variance = values > floor
    thetas = np.where(has_variance, values, 1.0)
    growth = np.sqrt(values[0] / thetas)
    residuals = projected / np.sqrt(thetas)
    for cluster in clusters:
        members = list(cluster)
        residuals[members] = sqrt(fsum(residuals[members] ** 2))
    bounds = residual_bounds(residuals + growth * floor, gaps) + growth * disagreement
    return np.where(has_variance, bounds, np.inf)
