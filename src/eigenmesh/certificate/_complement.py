"""A look of its own beyond the K components, for solvers that have none to offer."""

from __future__ import annotations

from math import hypot
from typing import NamedTuple

import numpy as np

from eigenmesh import arrays as ea
from eigenmesh.arrays import Array, orthonormal
from eigenmesh.certificate._basis import Basis
from eigenmesh.certificate._krylov import NextBlock, bordered, look_beyond, soft_polar
from eigenmesh.certificate._look import LARGEST_CHANCE, NOTHING_BEYOND, Complement, Found, Look
from eigenmesh.data import Covariance
from eigenmesh.data._pooled import product_to_average
from eigenmesh.networks import Network

# Random directions to look along, steps between two checks of what was found, and the most steps.
COLUMNS, BATCH, LONGEST = 8, 4, 64


def probe_complement(
    covariance: Covariance,
    network: Network,
    basis: Array,
    n_nodes: int,
    found: Found,
    seed: int = 0,
    beyond: Array | None = None,
) -> Complement:
    """Block Lanczos on ``(I - Q Q^T) C (I - Q Q^T)`` from Gaussian directions, Q an orthonormal basis of X.

    Each step averages a (d, 8) matrix, wider by what is known ``beyond`` X: the Ritz vectors that the look takes out
    are good the sooner. Whatever X is, the largest eigenvalue of the deflated operator is at least l_{K+1} (Courant and
    Fischer), so a direction that X has missed shows up here as a value above theta_K. The look ends when that has
    happened, or when it is as good as impossible (``LARGEST_CHANCE``).

    Parameters
    ----------
    basis : (1, d, K), the same at every node.
    n_nodes : nodes that this process holds.
    beyond : (1, d, p), guesses of the eigenvectors after those of X, the same at every node.
    """
    xp, (d, k) = ea.namespace(basis), basis.shape[-2:]
    if k >= d:
        return NOTHING_BEYOND
    Q = orthonormal(basis)
    # Keyed apart from the solver's own start so that the two are not the same directions.
    columns, identity = min(COLUMNS + found.multiplicity, d - k), ea.like(np.eye(k)[np.newaxis], basis)
    drawn = np.random.default_rng([seed, 0x5EED]).standard_normal((1, d, columns))
    known = basis[..., :0] if beyond is None else beyond[..., : d - k - columns]
    first = _deflated(Q, xp.concat([known, ea.like(drawn, basis)], axis=-1))
    width = first.shape[-1]
    V = Basis.empty(basis, min(LONGEST * width, d) + k + width).holding(Q).grown(identity).holding(first)
    block = soft_polar(V, width, noise=0.0)
    start = block.leak[..., known.shape[-1] :]
    space, complement = _Space(Q, V, block, start, start[:, :0, :0], start[:, :, :0]), NOTHING_BEYOND
    batch = 1 if network.flood_ends_average else BATCH

    def examined(product: Array) -> tuple[_Space, Array]:
        grown = space.grown(product, network.average.accuracy)
        return grown, ea.like(grown.look.examine(found).row[np.newaxis], basis)

    for length in range(1, LONGEST + 1):
        products = product_to_average(covariance, space.V.next_block(width), n_nodes)
        # The widths follow from d and K alone, so all nodes come to the same end.
        full = space.V.width + width >= d
        if not full and length % batch and length < LONGEST:
            space = space.grown(network.common_mean(products), network.average.accuracy)
            continue
        space, row = network.worst_after_mean(products, examined)
        complement = Complement.agreed(ea.to_numpy(row)[0]) or agreed_complement(network, space.look, found, basis)
        if full or complement.chance <= LARGEST_CHANCE or complement.lower > found.smallest + found.resolution:
            break
    return complement


class _Space(NamedTuple):
    """A Krylov space beyond the components after some products.

    Q : (1, d, K) basis of the components; V : Q and the blocks that were multiplied, and behind them the next one;
    block : what is known of that; start : the Gaussian columns in the first block; T : (1, w, w) ``V^T C V`` beyond Q;
    leak, lost : what the last product has outside of V, and the norm of what all of them have outside of V and the next
    block.
    """

    Q: Array
    V: Basis
    block: NextBlock
    start: Array
    T: Array
    leak: Array
    lost: float = 0.0
    products: int = 0

    def grown(self, product: Array, noise: float) -> _Space:
        """With C times the next block, as averages of this accuracy give it: (1, d, b)."""
        whitening = self.block.whitening
        V = self.V.grown(whitening).holding(_deflated(self.Q, product))
        following = soft_polar(V, whitening.shape[-1], noise)
        T = bordered(self.T, (following.along @ whitening)[:, self.Q.shape[-1] :, :], self.leak)
        lost = hypot(self.lost, float(np.linalg.norm(ea.to_numpy(following.faded @ whitening))))
        return _Space(self.Q, V, following, self.start, T, following.leak @ whitening, lost, self.products + 1)

    @property
    def look(self) -> Look:
        d, k = self.Q.shape[-2:]
        there, counts = self.V.present[:, k:], {"found": 0, "room": d - k, "products": self.products}
        return look_beyond(self.T, there, self.leak, self.lost, self.start, **counts)


def agreed_complement(network: Network, look: Look, found: Found, like: Array) -> Complement:
    """What all nodes take from a look that each of them has, the same up to rounding."""
    shared: int | None = None
    while True:
        own = look.examine(found, shared)
        largest = ea.to_numpy(network.worst(ea.like(own.row[np.newaxis], like))[0, ...])
        agreed = Complement.agreed(largest)
        if agreed is not None or shared is not None:
            return agreed or Complement(*largest[:5].tolist())
        # A value next to the resolution may be counted by some nodes and not by others.
        shared = int(min(largest[2], len(look.values)))


def _deflated(Q: Array, block: Array) -> Array:
    return block - Q @ (Q.mT @ block)
