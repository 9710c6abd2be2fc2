"""The last step of nodes that track a subspace: Rayleigh-Ritz in the average of their blocks."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from eigenmesh import arrays as ea
from eigenmesh.arrays import Array, column_norms
from eigenmesh.certificate import Common
from eigenmesh.certificate._bounds import gaps_from_ritz
from eigenmesh.certificate._krylov import asymmetry
from eigenmesh.data import Covariance
from eigenmesh.data._covariance import BlockProducts
from eigenmesh.networks import Network


class SharedRitz(NamedTuple):
    """Ritz pairs of a block that all nodes share, for each copy of an average in this process.

    Attributes
    ----------
    components, beyond : (copies, d, K) and (copies, d, p)
        The K leading Ritz vectors, and the others.
    values, residuals : (copies, b)
        Ritz values, largest first, and norms of ``C x - theta x``.
    common : tuple of Common
        Input of the certificate.
    """

    components: Array
    beyond: Array
    values: Array
    residuals: Array
    common: tuple[Common, ...]

    @classmethod
    def of(cls, block: Array, product: Array, size: Array, k: int) -> SharedRitz:
        """From an orthonormal block and its product with C, both (copies, d, b)."""
        xp = ea.namespace(block)
        T = block.mT @ product
        values, vectors = ea.eigenpairs((T + T.mT) / 2)
        values, vectors = xp.flip(values, axis=-1), xp.flip(vectors, axis=-1)
        ritz, image = block @ vectors, product @ vectors
        residuals = column_norms(image - ritz * values[:, None, :])[:, 0, :]
        defect = xp.maximum(asymmetry(T), -values[:, -1:])
        # A column of the image combines b columns of the product by a unit vector: its norm is at most sqrt(b) size.
        size = size * T.shape[-1] ** 0.5
        places = (slice(at, at + 1) for at in range(T.shape[0]))
        common = (Common(ritz[at, :, :k], image[at, :, :k], size[at, :], defect[at, :], None) for at in places)
        return cls(ritz[..., :k], ritz[..., k:], values, residuals, tuple(common))


class AgreedRitz(NamedTuple):
    """Shared Ritz pairs, and the residuals (K,) and gaps (K,) of the components that all nodes agree on."""

    shared: SharedRitz
    residual: np.ndarray
    gaps: np.ndarray


def ritz_of_average(covariance: Covariance, network: Network, X: Array, k: int) -> AgreedRitz:
    """Average the blocks of all nodes, multiply the average once, and take its Ritz vectors: two averages in all.

    ::

        B = orth(mean_i X_i),   T = B^T (C B) = v Theta v^T,   components B v

    The span of a block converges long before all nodes agree on the components within it, and errors of single nodes
    cancel in the average.

    Parameters
    ----------
    X : array of shape (nodes, d, b)
        Each node's orthonormal block.
    k : int
        K, the number of Ritz vectors that are components.
    """
    block = ea.orthonormal(network.shared_mean(X, float(network.n_nodes)))
    products = BlockProducts(covariance, block, X.shape[0])

    def ritz_and_report(product: Array) -> tuple[SharedRitz, Array]:
        size = network.size_of_products(products.norms, column_norms(product))
        ritz = SharedRitz.of(block, product, size, k)
        return ritz, ea.namespace(block).concat([ritz.residuals, ritz.values], axis=1)

    shared, agreed = network.worst_after_mean(products.parts, ritz_and_report)
    residual, values = np.split(ea.to_numpy(agreed)[0], 2)
    return AgreedRitz(shared, residual[:k], gaps_from_ritz(values, k))
