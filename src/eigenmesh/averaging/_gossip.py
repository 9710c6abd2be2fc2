"""Gossip, plain or with Chebyshev acceleration; the number of rounds follows from the ends of the spectrum."""

from __future__ import annotations

import math
from dataclasses import dataclass

from eigenmesh.arrays import Array
from eigenmesh.averaging._base import LinearNetwork, LinearRound, Mixing, ToAccuracy, require_averaging
from eigenmesh.graphs import Weights, rounds_to_average


@dataclass(frozen=True)
class Gossip(ToAccuracy):
    """Apply W repeatedly: ``x <- W^L x`` with ``beta^L <= accuracy``.

    The simplest and slowest method: a baseline for the others.
    """

    def prepare(self, weights: Weights) -> GossipAverage:
        """Choose L from beta, the second largest modulus of an eigenvalue of W; if W is not symmetric, by measuring."""
        require_averaging(weights, "gossip")
        average = GossipAverage(LinearRound(weights.matrix), rounds_to_average(weights.spectrum, self.accuracy))
        return average if weights.symmetric else average.lengthened(self.accuracy)


@dataclass(frozen=True)
class GossipAverage(Mixing):
    """Plain gossip prepared for one network."""

    def __call__(self, network: LinearNetwork, array: Array) -> Array:
        for _ in range(self.rounds):
            (array,) = network.combine(self.mixing, array)
        return array


@dataclass(frozen=True)
class Chebyshev(ToAccuracy):
    """Apply the polynomial ``p_L(W)`` with ``p_L(1) = 1`` that is smallest on ``[lambda_M, lambda_2]``.

    With ``c`` and ``e`` the centre and half width of that interval and ``T_l`` the Chebyshev polynomials,

    ::

        p_L(w) = T_L((w - c) / e) / T_L((1 - c) / e).

    Both ends of the interval are used; the symmetric interval [-beta, beta] would cost more rounds. If W is not
    symmetric, its eigenvalues do not lie on an interval, and plain gossip is used instead.
    """

    def prepare(self, weights: Weights) -> ChebyshevAverage | GossipAverage:
        """Choose L so that ``1 / T_L((1 - c) / e) <= accuracy``."""
        if not weights.symmetric:
            return Gossip(self.accuracy).prepare(weights)
        if weights.n_nodes == 1:
            return ChebyshevAverage.of_rounds(weights, 0)
        growth = ChebyshevAverage.of_rounds(weights, 1).growth
        return ChebyshevAverage.of_rounds(weights, max(1, math.ceil(math.acosh(1 / self.accuracy) / growth)))


@dataclass(frozen=True)
class ChebyshevAverage(Mixing):
    """Chebyshev averaging prepared for one network."""

    centre: float
    half_width: float

    @classmethod
    def of_rounds(cls, weights: Weights, rounds: int) -> ChebyshevAverage:
        """The polynomial of this many rounds, whatever its accuracy."""
        spectrum = weights.spectrum
        # On a complete graph all eigenvalues but the first are equal: the interval has width zero, and one round is
        # enough.
        half_width = max((spectrum.second - spectrum.smallest) / 2, 1e-15)
        return cls(LinearRound(weights.matrix), rounds, (spectrum.second + spectrum.smallest) / 2, half_width)

    @property
    def growth(self) -> float:
        """Increase of ``acosh(1 / accuracy)`` per round, without rounding errors."""
        return math.acosh((1 - self.centre) / self.half_width)

    def __call__(self, network: LinearNetwork, array: Array) -> Array:
        """Run the scaled recurrence: (nodes, ...) -> (nodes, ...).

        ``ratio_l = T_{l-1}(z) / T_l(z)`` at ``z = (1 - c) / e`` keeps every iterate an average of the input:
        ``x_{l+1} = 2 ratio_{l+1} / e (W - c) x_l - ratio_l ratio_{l+1} x_{l-1}``.
        """
        if self.rounds == 0:
            return array
        at_one = (1 - self.centre) / self.half_width
        (mixed,) = network.combine(self.mixing, array)
        previous, current = array, (mixed - self.centre * array) * (1 / (1 - self.centre))
        ratio = 1 / at_one
        for _ in range(self.rounds - 1):
            (mixed,) = network.combine(self.mixing, current)
            next_ratio = 1 / (2 * at_one - ratio)
            step = (2 * next_ratio / self.half_width) * (mixed - self.centre * current)
            previous, current = current, step - (ratio * next_ratio) * previous
            ratio = next_ratio
        return current
