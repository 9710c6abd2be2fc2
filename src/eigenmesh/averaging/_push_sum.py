"""Push sums: averages on networks whose weights only keep sums, as accurate as random probes show."""

from __future__ import annotations

from dataclasses import dataclass
from math import factorial
from typing import NamedTuple

import numpy as np

from eigenmesh import arrays as ea
from eigenmesh.arrays import Array
from eigenmesh.averaging._base import LinearNetwork, LinearRound, MeasuredMixing, ToAccuracy
from eigenmesh.graphs import Weights, rounds_to_average

# Random numbers per node that show how far a push sum has come, and the chance that they mislead some node in one of
# them. A vector e of M weights has ``|e^T G|^2 / |e|^2`` of a chi-squared law with p = PROBES degrees of freedom: below
# x with a chance of ``(x / 2)^(p / 2) / (p / 2)!`` at most.
PROBES, CHANCE = 16, 1e-13


class Probes(NamedTuple):
    """Random numbers that all nodes know, mixed with what is averaged: their mean is known, so their error is.

    start : (M, 16) standard normal numbers, drawn from a number that is not used twice.
    """

    start: np.ndarray

    @classmethod
    def drawn(cls, n_nodes: int, number: int) -> Probes:
        rows = [np.random.default_rng([0xA11, number, node]).standard_normal(PROBES) for node in range(n_nodes)]
        return cls(np.stack(rows))

    def error(self, moved: np.ndarray, y: np.ndarray) -> np.ndarray:
        """Bound of ``|e_i|`` where node i holds ``mean + e_i^T (x - mean)``, but for CHANCE, for all nodes: (M,).

        The e_i are the same for all that goes through the same rounds, whatever was lost or late on the way.
        """
        away, half = moved / y - self.start.mean(axis=0), PROBES // 2
        smallest = 2 * (factorial(half) * CHANCE / len(self.start)) ** (1 / half)
        return np.asarray(np.linalg.norm(away, axis=1) / np.sqrt(smallest))


@dataclass(frozen=True)
class PushSum(ToAccuracy):
    """Mix sums and weights that began as ones, with columns that sum to one, and divide: ``x_i / y_i``.

    It needs nothing but what a node knows of itself, so it works where links go one way, change and lose messages.
    There it goes on until random numbers that are mixed alike have come to their mean, which all nodes know: that
    measures how accurate the average is, and all nodes agree on it.
    """

    def prepare(self, weights: Weights) -> StaticPushSum:
        """Choose the rounds for weights that stay the same."""
        average = StaticPushSum(LinearRound(weights.matrix), rounds_to_average(weights.spectrum, self.accuracy), 0.0)
        return average.lengthened(weights, self.accuracy)


@dataclass(frozen=True)
class StaticPushSum(MeasuredMixing):
    """A push sum prepared for one network that stays the same."""

    def __call__(self, network: LinearNetwork, array: Array) -> Array:
        xp = ea.namespace(array)
        y = xp.ones((array.shape[0], *[1] * (array.ndim - 1)), dtype=array.dtype, device=array.device)
        for _ in range(self.rounds):
            array, y = network.combine(self.mixing, array, y)
        return array / y


@dataclass(frozen=True)
class PushSumAverage:
    """What the last push sum on a changing network took."""

    rounds: int
    messages: int
    in_turn: float
    accuracy: float

    def __call__(self, network: LinearNetwork, array: Array) -> Array:
        return network.reduced_mean(array)
