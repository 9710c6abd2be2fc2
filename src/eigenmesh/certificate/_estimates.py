"""The estimates to certify: one answer shared by all nodes, or each node's own answer and their average."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import NamedTuple

import numpy as np

from eigenmesh import arrays as ea
from eigenmesh.arrays import Array, column_norms, normalised
from eigenmesh.certificate._krylov import asymmetry
from eigenmesh.certificate._look import Look
from eigenmesh.certificate._signs import agree_on_signs, own_signs
from eigenmesh.data import Covariance
from eigenmesh.data._covariance import BlockProducts
from eigenmesh.networks import Network


class Common(NamedTuple):
    """What a solver knows about its components if all its nodes work with the same averages.

    Attributes
    ----------
    coordinates, product : arrays of shape (1, n, K)
        The components and C times them, in any orthonormal basis that holds both.
    size : array of shape (1, 1)
        Largest norm of a product ``C_i b`` with a unit vector, over the nodes in this process; it sets the rounding
        error.
    defect : array of shape (1, 1)
        Largest asymmetry of ``V^T C V`` or size of its negative eigenvalues; both are rounding if C is a covariance.
    look : Look or None
        A look beyond the components.
    vectors : callable or None
        Vectors from coordinates: (1, n, k) -> (1, d, k). Needed only if columns are split over the nodes.
    signed : bool
        True if the largest entry of each component is already positive, so that no copy is needed.
    """

    coordinates: Array
    product: Array
    size: Array
    defect: Array
    look: Look | None
    vectors: Callable[[Array], Array] | None = None
    signed: bool = False


class Estimates(NamedTuple):
    """The estimates to certify from one copy of an average, in signs and order that all nodes share.

    local : (nodes, d, K), estimates of the nodes with this copy; mean : (1, d, K), the average of all nodes, the same
    array if they share one;
    disagreement : (1, K), sines of the largest angles between the two; beyond : (1, d, p), average estimates of further
    eigenvectors. The other fields are as in ``Common``.
    """

    local: Array
    mean: Array
    disagreement: Array
    coordinates: Array
    product: Array
    size: Array
    defect: Array
    look: Look | None = None
    vectors: Callable[[Array], Array] | None = None
    beyond: Array | None = None


def estimates_in_common(X: Array, common: Sequence[Common], beyond: Array | None) -> list[Estimates]:
    """What all nodes share, measured once for each copy; the signs of coordinates do not matter."""
    estimates = []
    for at, known in enumerate(common):
        own = X[at : at + 1, ...]
        mean = own if known.signed else own * own_signs(own)
        agree, further = ea.namespace(X).zeros_like(mean[:, 0, :]), None if beyond is None else beyond[at : at + 1, ...]
        estimates.append(Estimates(mean, mean, agree, *known[:-1], further))
    return estimates


def estimates_apart(covariance: Covariance, network: Network, X: Array, beyond: Array | None) -> list[Estimates]:
    """Each node's own estimates and their average, by two averages: of X, and of C times the first average."""
    xp, k = ea.namespace(X), X.shape[-1]
    local = agree_on_signs(network, normalised(X if beyond is None else xp.concat([X, beyond], axis=-1)))
    # The columns are unit vectors, so the entries of M nodes add up to M at most.
    mean = normalised(network.shared_mean(local, float(network.n_nodes)))
    local, mean, further = local[..., :k], mean[..., :k], None if beyond is None else mean[..., k:]
    products = BlockProducts(covariance, mean, X.shape[0])
    # `worst` gives every node the same bits, hence the same order.
    product, values = network.worst_after_mean(
        products.parts, lambda product: (product, xp.sum(mean * product, axis=-2))
    )
    order = xp.asarray(np.argsort(-ea.to_numpy(values[0, ...]), kind="stable"), device=X.device)
    local, mean, product = (xp.take(array, order, axis=-1) for array in (local, mean, product))
    size = network.size_of_products(products.norms, column_norms(product))
    estimates = []
    for at in range(mean.shape[0]):
        own, image = mean[at : at + 1, ...], product[at : at + 1, ...]
        held = local if mean.shape[0] == 1 else local[at : at + 1, ...]
        across = held - own * xp.sum(held * own, axis=-2, keepdims=True)
        disagreement = xp.max(column_norms(across)[:, 0, :], axis=0, keepdims=True)
        below_zero = -xp.min(xp.sum(own * image, axis=-2), axis=-1, keepdims=True)
        defect = xp.maximum(asymmetry(own.mT @ image), below_zero)
        more = None if further is None else further[at : at + 1, ...]
        estimates.append(Estimates(held, own, disagreement, own, image, size[at : at + 1, :], defect, beyond=more))
    return estimates
