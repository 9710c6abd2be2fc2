"""How true loadings are where columns are split over nodes, each of which has those of its own columns alone."""

from collections.abc import Callable
from math import fsum, sqrt

import numpy as np

from eigenmesh import arrays as ea
from eigenmesh.arrays import Array, column_norms
from eigenmesh.certificate._bounds import Clusters, residual_bounds
from eigenmesh.data import Covariance
from eigenmesh.data._gram import Gram
from eigenmesh.networks import Network


def loading_residuals(
    covariance: Covariance,
    network: Network,
    coordinates: Array,
    product: Array,
    vectors: Callable[[Array], Array] | None,
) -> np.ndarray | None:
    """``|A^T r_k|`` where columns are split, by one average of K numbers, the same bits at all nodes; else None.

    Coordinates of the components and of C times them, (1, n, K) both -> (K,).
    """
    if not isinstance(covariance, Gram):
        return None
    xp = ea.namespace(product)
    residual = product - coordinates * xp.sum(coordinates * product, axis=-2, keepdims=True)
    sizes = column_norms(residual)
    units = residual / xp.where(sizes > 0, sizes, xp.ones_like(sizes))
    squares = covariance.squares_across(units if vectors is None else vectors(units))
    # Of unit vectors, so that the squares add up to M times the trace of G at most.
    bound = None if network.scales is None else network.n_nodes * network.scales.size
    largest = network.worst(sizes[:, 0, :] * xp.sqrt(network.common_mean(squares, bound)))
    return ea.to_numpy(largest[0, ...]).astype(np.float64)


def loading_bounds(
    values: np.ndarray, shown: np.ndarray, gaps: np.ndarray, clusters: Clusters, floor: float, disagreement: np.ndarray
) -> np.ndarray:
    """Bound on the angles of loadings ``v = A^T u / sqrt(theta)``, from ``|A^T r|`` of the residuals r of u: (K,).

    ``C v - theta v = A^T r / sqrt(theta)``, so the residual bound holds with that and the gaps of u. What is not known
    of u grows by ``sqrt(theta_1 / theta)`` at most. A component without variance has no loadings.
    """
    sound = values > floor
    thetas = np.where(sound, values, 1.0)
    growth = np.sqrt(values[0] / thetas)
    residuals = shown / np.sqrt(thetas)
    for cluster in clusters:
        members = list(cluster)
        residuals[members] = sqrt(fsum(residuals[members] ** 2))
    bounds = residual_bounds(residuals + growth * floor, gaps) + growth * disagreement
    return np.where(sound, bounds, np.inf)
