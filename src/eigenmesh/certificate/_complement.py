"""A look of its own beyond the K components, for solvers that have none to offer."""

from math import hypot

import numpy as np

from eigenmesh import arrays as ea
from eigenmesh.arrays import Array, orthonormal
from eigenmesh.certificate._basis import Basis
from eigenmesh.certificate._krylov import bordered, look_beyond, soft_polar
from eigenmesh.certificate._look import LARGEST_CHANCE, NOTHING_BEYOND, Complement, Found, Look
from eigenmesh.data import Covariance
from eigenmesh.data._pooled import product_to_average
from eigenmesh.networks import Network

# Random directions to look along, steps between two checks of what was found, and the most steps.
COLUMNS, BATCH, LONGEST = 8, 4, 64


def probe_complement(
    covariance: Covariance, network: Network, basis: Array, n_nodes: int, found: Found, seed: int = 0
) -> Complement:
    """Block Lanczos on ``(I - Q Q^T) C (I - Q Q^T)`` from Gaussian directions, Q an orthonormal basis of X.

    Each step averages a (d, 8) matrix. Whatever X is, the largest eigenvalue of the deflated operator is at least
    l_{K+1} (Courant and Fischer), so a direction that X has missed shows up here as a value above theta_K. The look
    ends when that has happened, or when it is as good as impossible (``LARGEST_CHANCE``).

    Parameters
    ----------
    basis : (1, d, K), the same at every node.
    n_nodes : nodes that this process holds.
    """
    d, k = basis.shape[-2:]
    if k >= d:
        return NOTHING_BEYOND
    Q = orthonormal(basis)
    # Keyed apart from the solver's own start so that the two are not the same directions.
    columns, identity = min(COLUMNS + found.multiplicity, d - k), ea.like(np.eye(k)[np.newaxis], basis)
    drawn = np.random.default_rng([seed, 0x5EED]).standard_normal((1, d, columns))
    G = _deflated(Q, ea.like(drawn, basis))
    V = Basis.empty(basis, min(LONGEST * columns, d) + k + columns).holding(Q).grown(identity)
    B, whitening, _, start, _ = soft_polar(G, V, noise=0.0)
    T, leak, lost = start[:, :0, :0], start[:, :, :0], 0.0
    complement = NOTHING_BEYOND
    for length in range(1, LONGEST + 1):
        V = V.holding(B).grown(whitening)
        Z = _deflated(Q, network.common_mean(product_to_average(covariance, B, n_nodes)))
        following = soft_polar(Z, V, noise=network.average.accuracy)
        T, leak = bordered(T, (following.along @ whitening)[:, k:, :], leak), following.leak @ whitening
        lost = hypot(lost, float(np.linalg.norm(ea.to_numpy(following.faded @ whitening))))
        # The widths follow from d and K alone, so all nodes come to the same end.
        full = V.width >= d
        if length % BATCH == 0 or full or length == LONGEST:
            seen = V.present[:, k:]
            look = look_beyond(T, seen, leak, lost, start, found=0, room=d - k, products=length)
            complement = agreed_complement(network, look, found, like=basis)
            if full or complement.chance <= LARGEST_CHANCE or complement.lower > found.smallest + found.resolution:
                break
        B, whitening = following.B, following.whitening
    return complement


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
