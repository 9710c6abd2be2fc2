"""A Krylov space in the orthogonal complement of the components, for solvers that do not provide one."""

from __future__ import annotations

from collections.abc import Sequence
from math import hypot
from typing import NamedTuple

import numpy as np

from eigenmesh import arrays as ea
from eigenmesh.arrays import Array, orthonormal
from eigenmesh.certificate import krylov
from eigenmesh.certificate.krylov import Basis, Complement, ComplementSpace, KnownComponents
from eigenmesh.data import BlockProducts, Covariance
from eigenmesh.networks import Network

# Random directions, steps between two checks, and the largest number of steps.
COLUMNS, BATCH, LONGEST = 8, 4, 64


def probe_complement(
    covariance: Covariance,
    network: Network,
    basis: Array,
    n_nodes: int,
    known: KnownComponents,
    seed: int = 0,
    beyond: Array | None = None,
) -> Complement:
    """Block Lanczos on ``(I - Q Q^T) C (I - Q Q^T)`` from Gaussian directions, Q an orthonormal basis of X.

    Each step averages a (d, 8) matrix, with further columns for what is known ``beyond`` X, which makes the deflated
    Ritz vectors accurate sooner. Whatever X is, the largest eigenvalue of the deflated operator is at least l_{K+1}
    (Courant and Fischer), so a direction that X has missed shows up as a value above theta_K. The search ends when that
    happens, or when a missed direction is unlikely enough (``LARGEST_CHANCE``).

    Parameters
    ----------
    basis : (1, d, K), the same bits at every node.
    n_nodes : number of nodes in this process.
    beyond : (1, d, p), estimates of the eigenvectors after those of X, the same bits at every node.
    """
    d, k = basis.shape[-2:]
    if k >= d:
        return krylov.NOTHING_BEYOND
    space, complement = _Space.begun(basis, beyond, known.multiplicity, seed), krylov.NOTHING_BEYOND
    batch = 1 if network.flood_ends_average else BATCH
    for length in range(1, LONGEST + 1):
        product = network.shared_mean(BlockProducts(covariance, space.block.B, n_nodes).parts)
        space = space.grown(product, network.average.accuracy)
        # The widths depend only on d and K, so all nodes end at the same step.
        full = space.V.width >= d
        if not full and length % batch and length < LONGEST:
            continue
        complement = agreed_complement(network, [space.in_complement], known, basis)
        if full or complement.chance <= krylov.LARGEST_CHANCE or complement.lower > known.smallest + known.resolution:
            break
    return complement


class _Space(NamedTuple):
    """A Krylov space beyond the components after some products.

    Q : (1, d, K) basis of the components; V : Q and the blocks multiplied so far; block : the next one; start : the
    Gaussian columns in the basis of the first block; T : (1, w, w) ``V^T C V`` without Q; leak : the part of the last
    product along the next block; lost : norm of the parts of all products outside both V and the next block.
    """

    Q: Array
    V: Basis
    block: krylov.NextBlock
    start: Array
    T: Array
    leak: Array
    lost: float = 0.0
    products: int = 0

    @classmethod
    def begun(cls, basis: Array, beyond: Array | None, multiplicity: int, seed: int) -> _Space:
        """The first block: what is known beyond the components (1, d, K), and Gaussian directions."""
        xp, (d, k), Q = ea.namespace(basis), basis.shape[-2:], orthonormal(basis)
        # A different key than the solver's, so that these are not the directions the solver started from.
        columns, identity = min(COLUMNS + multiplicity, d - k), ea.like(np.eye(k)[np.newaxis], basis)
        drawn = np.random.default_rng([seed, 0x5EED]).standard_normal((1, d, columns))
        guesses = basis[..., :0] if beyond is None else beyond[..., : d - k - columns]
        first = _deflated(Q, xp.concat([guesses, ea.like(drawn, basis)], axis=-1))
        width = first.shape[-1]
        V = Basis.empty(basis, min(LONGEST * width, d) + k).grown(Q, identity)
        block = krylov.soft_polar(V, first, noise=0.0)
        start = block.leak[..., guesses.shape[-1] :]
        return cls(Q, V, block, start, start[:, :0, :0], start[:, :, :0])

    def grown(self, product: Array, noise: float) -> _Space:
        """Add C times the next block, (1, d, b), with a relative error of ``noise``."""
        whitening = self.block.whitening
        V = self.V.grown(self.block.B, whitening)
        following = krylov.soft_polar(V, _deflated(self.Q, product), noise)
        T = krylov.bordered(self.T, (following.along @ whitening)[:, self.Q.shape[-1] :, :], self.leak)
        lost = hypot(self.lost, float(np.linalg.norm(ea.to_numpy(following.faded @ whitening))))
        return _Space(self.Q, V, following, self.start, T, following.leak @ whitening, lost, self.products + 1)

    @property
    def in_complement(self) -> ComplementSpace:
        d, k = self.Q.shape[-2:]
        counts = {"n_components": 0, "dimension": d - k, "products": self.products}
        return krylov.complement_space(
            krylov.Projected(self.T, self.V.present[:, k:]), self.leak, self.lost, self.start, **counts
        )


def agreed_complement(
    network: Network, spaces: Sequence[ComplementSpace], known: KnownComponents, like: Array
) -> Complement:
    """Agree on the bounds from spaces that are the same at all nodes up to rounding, one for each copy."""
    shared: int | None = None
    while True:
        rows = np.stack([space.examine(known, shared).row for space in spaces])
        largest = ea.to_numpy(network.maximum(ea.like(rows, like))[0, ...])
        agreed = Complement.agreed(largest)
        if agreed is not None or shared is not None:
            return agreed or Complement(*largest[:5].tolist())
        # Near the resolution, some nodes may count a value as shared and others not: all take the largest count.
        shared = int(min(largest[2], *(len(space.values) for space in spaces)))


def _deflated(Q: Array, block: Array) -> Array:
    return block - Q @ (Q.mT @ block)
