"""Rounds of mixing that bring nodes nearer to each other, and keep what all of them hold together."""

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Protocol

from eigenmesh.arrays import Array
from eigenmesh.averaging import Average, LinearRound
from eigenmesh.averaging._base import LinearNetwork
from eigenmesh.graphs import Weights, pull, push
from eigenmesh.graphs._weights import half_way


class Mixes(Protocol):
    """Some rounds of mixing of sums S and their push weights y, both with a leading axis over nodes.

    S and y go through the same linear map, whose columns sum to one: the sum over nodes stays, of S and of y (and of
    what is on its way), so ``S_i / y_i`` tends to the mean of all S if y began as ones. ``accuracy`` is the factor by
    which disagreement shrinks.
    """

    @property
    def rounds(self) -> int: ...
    @property
    def accuracy(self) -> float: ...
    def __call__(self, network: LinearNetwork, S: Array, y: Array) -> tuple[Array, Array]: ...


@dataclass(frozen=True)
class AveragingMixes:
    """Mixes by an averaging kernel that is not carried to its end; it keeps ones, so y stays as it is."""

    average: Average

    @property
    def rounds(self) -> int:
        return self.average.rounds

    @property
    def accuracy(self) -> float:
        return self.average.accuracy

    def __call__(self, network: LinearNetwork, S: Array, y: Array) -> tuple[Array, Array]:
        return self.average(network, S), y


@dataclass(frozen=True)
class PushMixes:
    """Plain rounds with weights whose columns sum to one; ``mix`` is one round on several arrays."""

    rounds: int
    accuracy: float
    mix: Callable[..., Any]

    def __call__(self, network: LinearNetwork, S: Array, y: Array) -> tuple[Array, Array]:
        for _ in range(self.rounds):
            S, y = self.mix(S, y)
        return S, y


def rounds_to_contract(wanted: float, contraction: float) -> int:
    """Least m >= 1 with ``contraction^m <= wanted``."""
    return 1 if contraction <= wanted else math.ceil(math.log(wanted) / math.log(contraction))


def pull_and_push(weights: Weights) -> tuple[LinearRound, LinearRound]:
    """Rounds half way whose rows, and whose columns, sum to one; the weights themselves are one of the two."""
    rows, columns = (pull(weights.graph), weights) if weights.keeps_mean else (weights, push(weights.graph))
    return LinearRound(half_way(rows.matrix)), LinearRound(half_way(columns.matrix))
