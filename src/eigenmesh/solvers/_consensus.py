"""Inner consensus loops: a fixed number of rounds after which the nodes nearly agree."""

import math
from typing import NamedTuple

from eigenmesh import arrays as ea
from eigenmesh.arrays import Array, squared_norms
from eigenmesh.networks import Network


class Mixed(NamedTuple):
    """What plain mixing leaves.

    Attributes
    ----------
    values : (nodes, d, k) ``W^L Z``.
    disagreement : (nodes, k) estimate of each column's distance from the mean of all nodes.
    """

    values: Array
    disagreement: Array


def plain_mix(network: Network, Z: Array, rounds: int) -> Mixed:
    """Mix a matrix ``rounds`` times (at least once) and judge from the last round how far the nodes are apart.

    The last round changes the distance e from the mean by ``(W - I) W^-1 e``, so e is at most
    ``max |w / (1 - w)|`` times that change, over the eigenvalues w of W besides 1.
    """
    before = Z
    for _ in range(rounds):
        before, Z = Z, network.mix(Z)
    spectrum = network.weights.spectrum
    factor = max(abs(w) / (1 - w) for w in (spectrum.second, spectrum.smallest))
    return Mixed(Z, factor * ea.namespace(Z).sqrt(squared_norms(Z - before)))


def fast_mix(network: Network, Z: Array, rounds: int) -> Array:
    """FastMix, accelerated mixing that keeps the mean: (nodes, d, k) -> (nodes, d, k).

        Z+ = (1 + eta) W Z - eta Z_prev,  Z_prev = Z at the start,
        eta = (1 - sqrt(1 - beta^2)) / (1 + sqrt(1 - beta^2))

    Disagreement shrinks by about ``1 - sqrt(1 - beta)`` a round, where plain mixing has beta. Where W has negative
    eigenvalues the first round may enlarge what belongs to them, so that a single round need not shrink anything.
    """
    root = math.sqrt(1 - network.weights.spectrum.beta**2)
    eta = (1 - root) / (1 + root)
    before = Z
    for _ in range(rounds):
        before, Z = Z, (1 + eta) * network.mix(Z) - eta * before
    return Z
