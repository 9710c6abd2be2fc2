"""Rounds of mixing that shrink disagreement and conserve the sum over the nodes."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Protocol

from eigenmesh.arrays import Array
from eigenmesh.averaging import Average, LinearNetwork


class Mixes(Protocol):
    """Some rounds of mixing for sums S and their push weights y, both with a leading axis over nodes.

    S and y go through the same linear map, whose columns sum to one. It conserves the sums of S and of y over the nodes
    (counting messages on their way), so ``S_i / y_i`` tends to the mean of all S if y started as ones. ``accuracy`` is
    the factor by which disagreement shrinks.
    """

    @property
    def rounds(self) -> int: ...
    @property
    def accuracy(self) -> float: ...
    def __call__(self, network: LinearNetwork, S: Array, y: Array) -> tuple[Array, Array]: ...


@dataclass(frozen=True)
class AveragingMixes:
    """Mixes by an averaging method with few rounds. It maps ones to ones, so y does not change."""

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
    """Plain rounds with weights whose columns sum to one, where ``mix`` does one round on several arrays."""

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
