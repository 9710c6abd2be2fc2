"""How nodes that track a subspace end: Rayleigh-Ritz in the average of their blocks."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from eigenmesh import arrays as ea
from eigenmesh.arrays import Array, column_norms
from eigenmesh.certificate import Common
from eigenmesh.certificate._bounds import gaps_from_ritz
from eigenmesh.certificate._krylov import asymmetry
from eigenmesh.data import Covariance
from eigenmesh.data._pooled import product_to_average
from eigenmesh.networks import Network


class Together(NamedTuple):
    """Rayleigh-Ritz in a block that all nodes share.

    Attributes
    ----------
    components, beyond : (1, d, K) and (1, d, p)
        Leading Ritz vectors, and the others.
    values, residuals : (1, b)
        Ritz values, largest first, and norms of ``C x - theta x``.
    common : Common
        What the certificate is made from.
    """

    components: Array
    beyond: Array
    values: Array
    residuals: Array
    common: Common

    @classmethod
    def of(cls, block: Array, product: Array, size: Array, k: int) -> Together:
        """From an orthonormal block and C times it, (1, d, b) both."""
        xp = ea.namespace(block)
        T = block.mT @ product
        values, vectors = xp.linalg.eigh((T + T.mT) / 2)
        values, vectors = xp.flip(values, axis=-1), xp.flip(vectors, axis=-1)
        found, image = block @ vectors, product @ vectors
        residuals = column_norms(image - found * values[:, None, :])[:, 0, :]
        defect = xp.maximum(asymmetry(T), -values[:, -1:])
        # Each column of the image is a sum over those of the product.
        common = Common(found[..., :k], image[..., :k], size * T.shape[-1] ** 0.5, defect, None)
        return cls(found[..., :k], found[..., k:], values, residuals, common)


class Meeting(NamedTuple):
    """What nodes found together, and what they agree on: residuals (K,) and gaps (K,) of its components."""

    together: Together
    residual: np.ndarray
    gaps: np.ndarray


def meet(covariance: Covariance, network: Network, X: Array, k: int) -> Meeting:
    """Average the blocks of all nodes, multiply that once, and take its Ritz vectors: by two averages.

    ::

        B = orth(mean_i X_i),   T = B^T (C B) = v Theta v^T,   components B v

    What a block holds is settled long before all nodes agree on where in it the components are, and the errors of
    single nodes cancel in the average.

    Parameters
    ----------
    X : array of shape (nodes, d, b)
        Each node's orthonormal block.
    k : int
        K, how many of its Ritz vectors are components.
    """
    block = ea.orthonormal(network.common_mean(X, float(network.n_nodes)))
    products = product_to_average(covariance, block, X.shape[0])

    def examined(product: Array) -> tuple[Together, Array]:
        size = network.size_of_products(column_norms(products), column_norms(product))
        found = Together.of(block, product, size, k)
        return found, ea.namespace(block).concat([found.residuals, found.values], axis=1)

    together, agreed = network.worst_after_mean(products, examined)
    residual, ritz = np.split(ea.to_numpy(agreed)[0], 2)
    return Meeting(together, residual[:k], gaps_from_ritz(ritz, k))
