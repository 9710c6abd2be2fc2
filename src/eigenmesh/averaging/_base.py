"""What an averaging kernel is made of: linear rounds on a network, and a promise of accuracy."""

from abc import abstractmethod
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, Protocol, Self, runtime_checkable

import numpy as np

from eigenmesh.arrays import Array
from eigenmesh.errors import GraphError, InputError
from eigenmesh.graphs import Weights

DEFAULT_ACCURACY = 1e-12


@dataclass(frozen=True, eq=False)
class LinearRound:
    """One synchronous exchange in which node i takes ``sum_j a_ij x_j`` of its own and its neighbours' arrays.

    Mixing with W, a level of a spanning tree and a step of a polynomial are all linear rounds, so a network
    has one verb to carry out and one place to count.
    """

    matrix: Any
    """The a_ij, (M, M), dense or CSR; zero where i and j are neither equal nor neighbours."""

    @cached_property
    def sends(self) -> tuple[np.ndarray, np.ndarray]:
        """Receiver and sender of each message: entries of the matrix off its diagonal, (messages,) each."""
        rows, columns = self.matrix.nonzero()
        between = rows != columns
        return rows[between], columns[between]

    @cached_property
    def messages(self) -> int:
        """Directed sends."""
        return len(self.sends[0])

    @cached_property
    def in_turn(self) -> int:
        """Directed sends of the node that has the most; they leave it one after the other."""
        return int(np.bincount(self.sends[1], minlength=1).max())


class LinearNetwork(Protocol):
    """The part of a network that averaging needs: see ``Network``."""

    def combine(self, exchange: LinearRound, *arrays: Array) -> tuple[Array, ...]: ...
    def reduced_mean(self, array: Array) -> Array: ...
    def reduced_sum(self, array: Array) -> Array: ...


class Average(Protocol):
    """An averaging kernel made ready for one network.

    ``rounds`` and ``messages`` (over all nodes) are what one average costs; ``in_turn`` are the messages of the node
    that sends the most in a round, added up over the rounds. ``accuracy`` is the relative error that is left in exact
    arithmetic: ``|x_i - mean| <= accuracy * |x - mean|`` in the Euclidean norm over all nodes.
    """

    @property
    def rounds(self) -> int: ...
    @property
    def messages(self) -> int: ...
    @property
    def in_turn(self) -> float: ...
    @property
    def accuracy(self) -> float: ...
    def __call__(self, network: LinearNetwork, array: Array) -> Array:
        """Average over all nodes: (nodes, ...) -> (nodes, ...)."""
        ...


@runtime_checkable
class Averaging(Protocol):
    """A way to average, chosen by the network."""

    def prepare(self, weights: Weights) -> Average:
        """Plan the rounds for these weights."""
        ...


@dataclass(frozen=True)
class ToAccuracy:
    """A kernel whose one setting is the accuracy of its averages."""

    accuracy: float = DEFAULT_ACCURACY

    def __post_init__(self) -> None:
        if not 0 < self.accuracy < 1:
            raise InputError(f"accuracy = {self.accuracy!r} must be strictly between 0 and 1, for example 1e-12.")


@dataclass(frozen=True)
class Mixing:
    """What averages have in common whose rounds mix with W: a message over every link, both ways, in each."""

    mixing: LinearRound
    rounds: int

    @property
    def messages(self) -> int:
        return self.rounds * self.mixing.messages

    @property
    def in_turn(self) -> int:
        return self.rounds * self.mixing.in_turn


@dataclass(frozen=True)
class MeasuredMixing(Mixing):
    """Mixes whose accuracy is stated: it follows from the spectrum of W or, where that is not enough, is measured."""

    accuracy: float

    @abstractmethod
    def __call__(self, network: LinearNetwork, array: Array) -> Array: ...

    def lengthened(self, weights: Weights, accuracy: float) -> Self:
        """With as many more rounds as this accuracy takes."""
        average = self
        while (reached := measured_accuracy(average, weights)) > accuracy:
            average = replace(average, rounds=average.rounds + 1 + average.rounds // 32)
        return replace(average, accuracy=reached)


def require_averaging(weights: Weights, what: str) -> None:
    """Raise GraphError unless mixing with the weights leads to the mean."""
    if not weights.averages:
        fix = "use eigenmesh.graphs.balanced(graph), or tree averaging"
        raise GraphError(f"{what} needs weights whose rows and columns all sum to 1; {fix}.")


def measured_accuracy(average: Average, weights: Weights) -> float:
    """Norm of ``average - 1 1^T / M`` in working precision, on the unit vectors or, for large M, on 64 random ones.

    Evaluating p on the eigenvalues is not enough: rounding errors along other eigenvectors are amplified by the
    following rounds.
    """
    n_nodes = weights.n_nodes
    if n_nodes == 1:
        return 0.0
    probe = np.eye(n_nodes) if n_nodes <= 256 else np.random.default_rng(0).standard_normal((n_nodes, 64))
    away = average(_Plain(), probe) - probe.mean(axis=0)
    return float(np.linalg.norm(away, 2) / np.linalg.norm(probe - probe.mean(axis=0), 2))


class _Plain:
    """A network that only multiplies by the round's matrix, to measure the accuracy."""

    def combine(self, exchange: LinearRound, *arrays: Array) -> tuple[Array, ...]:
        return tuple(exchange.matrix @ array for array in arrays)

    def reduced_mean(self, array: Array) -> Array:
        return array.mean(axis=0, keepdims=True)

    def reduced_sum(self, array: Array) -> Array:
        return array.sum(axis=0, keepdims=True)
