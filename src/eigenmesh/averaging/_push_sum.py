"""Push sums: averages with weights that only conserve sums; random probes measure their accuracy."""

from __future__ import annotations

from dataclasses import dataclass
from math import factorial
from typing import NamedTuple

import numpy as np

from eigenmesh import arrays as ea
from eigenmesh.arrays import Array
from eigenmesh.averaging._base import LinearNetwork, LinearRound, Mixing, ToAccuracy
from eigenmesh.graphs import Weights, rounds_to_average

# Random numbers per node that show the error of a push sum, and the chance that they understate it at any node. For a
# vector e of M weights, ``|e^T G|^2 / |e|^2`` is chi-squared with p = PROBES degrees of freedom: it is below x with a
# probability of at most ``(x / 2)^(p / 2) / (p / 2)!``.
PROBES, CHANCE = 16, 1e-13


class Probes(NamedTuple):
    """Random numbers known to all nodes and mixed with the data: their mean is known, and so is their error.

    start : (M, 16) standard normal numbers, from a seed that is not used twice.
    """

    start: np.ndarray

    @classmethod
    def drawn(cls, n_nodes: int, number: int) -> Probes:
        rows = [np.random.default_rng([0xA11, number, node]).standard_normal(PROBES) for node in range(n_nodes)]
        return cls(np.stack(rows))

    def error(self, mixed: np.ndarray, y: np.ndarray) -> np.ndarray:
        """Bound of ``|e_i|``, where node i has ``mean + e_i^T (x - mean)``: (M,). It fails with chance CHANCE at most.

        The e_i are the same for everything that is mixed in the same rounds, whatever was lost or late.
        """
        deviation, half = mixed / y - self.start.mean(axis=0), PROBES // 2
        smallest = 2 * (factorial(half) * CHANCE / len(self.start)) ** (1 / half)
        return np.asarray(np.linalg.norm(deviation, axis=1) / np.sqrt(smallest))


@dataclass(frozen=True)
class PushSum(ToAccuracy):
    """Mix sums x and weights y, which start as ones, with columns that sum to one, and divide: ``x_i / y_i``.

    A node needs to know only its own links, so it works over links that are one-way, change or lose messages. On
    networks that change it continues until random numbers that are mixed in the same way have reached their mean, which
    all nodes know: this measures the accuracy of the average, and all nodes agree on it.
    """

    def prepare(self, weights: Weights) -> StaticPushSum:
        """Choose the number of rounds for fixed weights."""
        average = StaticPushSum(LinearRound(weights.matrix), rounds_to_average(weights.spectrum, self.accuracy))
        return average.lengthened(self.accuracy)


@dataclass(frozen=True)
class StaticPushSum(Mixing):
    """A push sum prepared for one network with fixed weights."""

    def __call__(self, network: LinearNetwork, array: Array) -> Array:
        xp = ea.namespace(array)
        y = xp.ones((array.shape[0], *[1] * (array.ndim - 1)), dtype=array.dtype, device=array.device)
        for _ in range(self.rounds):
            array, y = network.combine(self.mixing, array, y)
        return array / y

    def transposed_error(self, array: np.ndarray) -> np.ndarray:
        W, y = self.mixing.matrix, np.ones((len(array), 1))
        for _ in range(self.rounds):
            y = W @ y
        shares = array / y
        for _ in range(self.rounds):
            shares = W.T @ shares
        return np.asarray(shares - array.mean(axis=0))


@dataclass(frozen=True)
class PushSumAverage:
    """Cost of the last push sum on a changing network."""

    rounds: int
    messages: int
    in_turn: float
    accuracy: float

    def __call__(self, network: LinearNetwork, array: Array) -> Array:
        return network.reduced_mean(array)
