"""Plain gossip: mix until the nodes agree."""

from __future__ import annotations

from dataclasses import dataclass

from eigenmesh.arrays import Array
from eigenmesh.averaging._base import DEFAULT_ACCURACY, LinearNetwork, LinearRound
from eigenmesh.errors import InputError
from eigenmesh.graphs import Weights, rounds_to_average


@dataclass(frozen=True)
class Gossip:
    """Apply W repeatedly: ``x <- W^L x`` with ``beta^L <= accuracy``.

    The simplest average and the slowest: a baseline for the others.
    """

    accuracy: float = DEFAULT_ACCURACY

    def __post_init__(self) -> None:
        require_accuracy(self.accuracy)

    def prepare(self, weights: Weights) -> GossipAverage:
        """Choose L from beta, the second largest modulus among the eigenvalues of W."""
        spectrum = weights.spectrum
        rounds = rounds_to_average(spectrum, self.accuracy)
        return GossipAverage(LinearRound(weights.matrix), rounds, spectrum.beta**rounds if rounds else 0.0)


@dataclass(frozen=True)
class GossipAverage:
    """Plain gossip prepared for one network."""

    mixing: LinearRound
    rounds: int
    accuracy: float

    @property
    def messages(self) -> int:
        """Over every link, both ways, each round."""
        return self.rounds * self.mixing.messages

    def __call__(self, network: LinearNetwork, array: Array) -> Array:
        """Mix ``rounds`` times: (nodes, ...) -> (nodes, ...)."""
        for _ in range(self.rounds):
            (array,) = network.combine(self.mixing, array)
        return array


def require_accuracy(accuracy: float) -> None:
    """Raise unless the accuracy is strictly between 0 and 1."""
    if not 0 < accuracy < 1:
        raise InputError(f"accuracy = {accuracy!r} must be strictly between 0 and 1, for example 1e-12.")
