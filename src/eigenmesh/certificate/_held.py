"""What is to be certified: one answer that all nodes share, or each node's own and their average."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import numpy as np

from eigenmesh import arrays as ea
from eigenmesh.arrays import Array, column_norms, normalised
from eigenmesh.certificate._krylov import asymmetry
from eigenmesh.certificate._look import Look
from eigenmesh.certificate._signs import agree_on_signs, own_signs
from eigenmesh.data import Covariance
from eigenmesh.data._pooled import product_to_average
from eigenmesh.networks import Network


class Common(NamedTuple):
    """What a solver knows whose nodes all work with the same averages.

    Attributes
    ----------
    coordinates, product : arrays of shape (1, n, K)
        The components and C times them, in any orthonormal basis that holds both.
    size : array of shape (1, 1)
        How large a product ``C_i b`` with a unit vector was at the nodes held here; its rounding is what these lack.
    defect : array of shape (1, 1)
        Largest asymmetry of ``V^T C V``, or size of its negative eigenvalues.
    look : Look or None
        A look beyond the components.
    vectors : callable or None
        What has these coordinates: (1, n, k) -> (1, d, k). Only split columns ask for it.
    signed : bool
        True if the largest entry of each component is positive already, so that no copy of them is needed.
    """

    coordinates: Array
    product: Array
    size: Array
    defect: Array
    look: Look | None
    vectors: Callable[[Array], Array] | None = None
    signed: bool = False


class Held(NamedTuple):
    """What is to be certified, in signs and order that all nodes share.

    local : (nodes, d, K), each node's estimate; mean : (1, d, K), their average, the same array where they share one;
    apart : (1, K), sines of the largest angles between the two; beyond : (1, d, p), the average of what is known beyond
    them. The rest is as in ``Common``.
    """

    local: Array
    mean: Array
    apart: Array
    coordinates: Array
    product: Array
    size: Array
    defect: Array
    look: Look | None = None
    vectors: Callable[[Array], Array] | None = None
    beyond: Array | None = None


def held_in_common(X: Array, common: Common, beyond: Array | None) -> Held:
    """All nodes held here share one copy, which is measured once: their coordinates in whatever signs they have."""
    mean = X[:1, ...] if common.signed else X[:1, ...] * own_signs(X[:1, ...])
    apart, further = ea.namespace(X).zeros_like(mean[:, 0, :]), None if beyond is None else beyond[:1, ...]
    return Held(mean, mean, apart, *common[:-1], further)


def held_apart(covariance: Covariance, network: Network, X: Array, beyond: Array | None) -> Held:
    """By two averages: of the estimates, and of C times that."""
    xp, k = ea.namespace(X), X.shape[-1]
    local = agree_on_signs(network, normalised(X if beyond is None else xp.concat([X, beyond], axis=-1)))
    # Of unit vectors, so that the moduli of M nodes add up to M at most.
    mean = normalised(network.common_mean(local, float(network.n_nodes)))
    local, mean, further = local[..., :k], mean[..., :k], None if beyond is None else mean[..., k:]
    products = product_to_average(covariance, mean, X.shape[0])
    # `worst` gives every node the same bits, and so the same order.
    product, values = network.worst_after_mean(products, lambda product: (product, xp.sum(mean * product, axis=-2)))
    order = xp.asarray(np.argsort(-ea.to_numpy(values[0, ...]), kind="stable"), device=X.device)
    local, mean, product = (xp.take(array, order, axis=-1) for array in (local, mean, product))
    across = local - mean * xp.sum(local * mean, axis=-2, keepdims=True)
    apart = xp.max(column_norms(across)[:, 0, :], axis=0, keepdims=True)
    size = network.size_of_products(column_norms(products), column_norms(product))
    below_zero = -xp.min(xp.sum(mean * product, axis=-2), axis=-1, keepdims=True)
    defect = xp.maximum(asymmetry(mean.mT @ product), below_zero)
    return Held(local, mean, apart, mean, product, size, defect, beyond=further)
