"""The parts of an averaging method: linear rounds on a network, and a stated accuracy."""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, Protocol, Self, runtime_checkable

import numpy as np
import scipy

from eigenmesh.arrays import Array, everywhere
from eigenmesh.errors import GraphError, InputError
from eigenmesh.graphs import Weights

DEFAULT_ACCURACY = 1e-12
# An error below this that no longer falls consists of rounding errors.
ROUNDING_LEVEL = 1e-10
# Vectors that are averaged to measure an accuracy, and their means in units of their deviation.
PROBES, PROBE_MEANS = 8, (0.0, 1.0, 30.0, 0.0)
# Up to this many nodes an accuracy is measured on all unit vectors. Beyond that the power iteration ends after
# POWER_STEPS, or once a step adds less than a hundredth; MARGIN covers what it has not found.
MOST_WHOLE, POWER_STEPS, GROWTH, MARGIN = 256, 12, 1.01, 1.5
# Averages with more rounds are not measured while they are planned.
MOST_MEASURED = 20_000


@dataclass(frozen=True, eq=False)
class LinearRound:
    """One synchronous exchange in which node i takes ``sum_j a_ij x_j`` of its own and its neighbours' arrays.

    Mixing with W, a level of a spanning tree and a step of a polynomial are all linear rounds, so a network needs only
    one operation, and counts traffic in one place.
    """

    matrix: Any
    """The a_ij, (M, M), dense or CSR, and zero where i and j are neither equal nor neighbours."""
    ordered: bool = False
    """Whether the matrix is as ``in_order`` makes it."""

    @cached_property
    def sums(self) -> scipy.sparse.csr_array:
        """The matrix for products with NumPy arrays, see ``in_order``."""
        return self.matrix if self.ordered else in_order(self.matrix)

    @cached_property
    def sends(self) -> tuple[np.ndarray, np.ndarray]:
        """Receivers and senders of the messages, (messages,) each: the off-diagonal entries of the matrix."""
        sums = self.sums
        rows = np.repeat(np.arange(sums.shape[0]), np.diff(sums.indptr))
        between = rows != sums.indices
        return rows[between], sums.indices[between]

    @cached_property
    def messages(self) -> int:
        """Number of messages."""
        return len(self.sends[0])

    @cached_property
    def in_turn(self) -> int:
        """Messages of the node that sends the most. A node sends its messages one after the other."""
        return int(np.bincount(self.sends[1], minlength=1).max())


def in_order(matrix: Any) -> scipy.sparse.csr_array:
    """A matrix (nodes, n) as CSR whose rows begin with the node's own entry, followed by its senders', ascending.

    A product adds the entries of a row in this order, each product and each sum rounded, so all networks that use it
    have the same bits, whether a process holds one node or all of them.
    """
    entries = scipy.sparse.coo_array(matrix)
    entries.eliminate_zeros()
    row, column = entries.row, entries.col
    order = np.lexsort((column, row != column, row))
    starts = np.concatenate([[0], np.cumsum(np.bincount(row, minlength=entries.shape[0]))])
    return scipy.sparse.csr_array((entries.data[order], column[order], starts), shape=entries.shape)


class LinearNetwork(Protocol):
    """The part of a network that averaging needs: see ``Network``."""

    def combine(self, exchange: LinearRound, *arrays: Array) -> tuple[Array, ...]: ...
    def send_down(self, levels: tuple[LinearRound, ...], root: int, array: Array) -> Array: ...
    def reduced_mean(self, array: Array) -> Array: ...
    def reduced_sum(self, array: Array) -> Array: ...


class Average(Protocol):
    """An averaging method prepared for one network.

    ``rounds`` and ``messages`` (over all nodes) are the cost of one average. ``in_turn`` is the number of messages of
    the busiest node in each round, summed over the rounds. ``accuracy`` is the relative error in float64 arithmetic:
    ``|y_i - mean| <= accuracy * |x|`` for the average ``y_i`` of every node i, with the Euclidean norm of x over all
    nodes.
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
    """A method whose only setting is the accuracy of its averages."""

    accuracy: float = DEFAULT_ACCURACY

    def __post_init__(self) -> None:
        if not 0 < self.accuracy < 1:
            raise InputError(f"accuracy = {self.accuracy!r} must be strictly between 0 and 1, for example 1e-12.")


class LinearAverage(ABC):
    """Base of averages that consist of linear rounds, whose accuracy is measured in the arithmetic that they run in.

    No formula replaces the measurement: weights that hardly mix, high degrees and many rounds amplify rounding errors.
    """

    n_nodes: int
    """M, the number of nodes."""

    @abstractmethod
    def __call__(self, network: LinearNetwork, array: Array) -> Array: ...

    @cached_property
    def accuracy(self) -> float:
        """Measured when it is first asked for: this takes about as long as some averages of M numbers."""
        return measured_accuracy(self)

    def error(self, array: np.ndarray) -> np.ndarray:
        """``(P - J) x`` for the matrix P of this average and that of the mean, J, as float64 gives it: (M, n)."""
        return np.asarray(self(_MatrixNetwork(), array) - array.mean(axis=0))

    def transposed_error(self, array: np.ndarray) -> np.ndarray:
        """``(P - J)^T x`` up to rounding: (M, n). By default P is J, which is symmetric, up to rounding."""
        return self.error(array)


@dataclass(frozen=True)
class Exchanges(LinearAverage):
    """Base of averages that are some exchanges, one after the other."""

    exchanges: tuple[LinearRound, ...]
    n_nodes: int

    @property
    def rounds(self) -> int:
        return len(self.exchanges)

    @property
    def messages(self) -> int:
        return sum(exchange.messages for exchange in self.exchanges)

    @property
    def in_turn(self) -> int:
        return sum(exchange.in_turn for exchange in self.exchanges)


@dataclass(frozen=True)
class Mixing(LinearAverage):
    """Base of averages whose rounds mix with W: in each round a message over every link, in both directions."""

    mixing: LinearRound
    rounds: int

    @property
    def n_nodes(self) -> int:  # type: ignore[override]
        return int(self.mixing.matrix.shape[0])

    def transposed_error(self, array: np.ndarray) -> np.ndarray:
        # P is a polynomial of W, and its transpose the same polynomial of W^T.
        return np.asarray(self(_MatrixNetwork(transposed=True), array) - array.mean(axis=0))

    @property
    def messages(self) -> int:
        return self.rounds * self.mixing.messages

    @property
    def in_turn(self) -> int:
        return self.rounds * self.mixing.in_turn

    def lengthened(self, accuracy: float) -> Self:
        """The same average with more rounds, until it has this accuracy or rounding errors keep it from that.

        An average of more than 20,000 rounds stays as it is: few runs can afford it, and measuring takes long.
        """
        average, before = self, np.inf
        while average.rounds <= MOST_MEASURED and average.accuracy > accuracy:
            if only_rounding_left(average.accuracy, before):
                break
            before = average.accuracy
            average = replace(average, rounds=average.rounds + 1 + average.rounds // 32)
        return average


def only_rounding_left(error: float, before: float) -> bool:
    """Whether more rounds no longer make the error of an average smaller, because it consists of rounding errors."""
    return error <= ROUNDING_LEVEL and error > 0.9 * before


def reaches(average: Average, accuracy: float) -> bool:
    """Whether an average is as accurate as asked for, or as rounding permits on a network that mixes well enough."""
    return average.accuracy <= max(MARGIN * accuracy, ROUNDING_LEVEL)


def require_averaging(weights: Weights, what: str) -> None:
    """Raise GraphError unless mixing with the weights converges to the mean."""
    if not weights.averages:
        fix = 'use weights="balanced", or averaging="tree"'
        raise GraphError(f"{what} needs weights whose rows and columns all sum to 1; {fix}.")


def measured_accuracy(average: LinearAverage) -> float:
    """Norm of ``P - J``, the average minus the mean, as the rounds run in float64.

    Up to 256 nodes it is computed from all unit vectors, beyond that by power iteration on ``(P - J)^T (P - J)`` with
    a block of vectors. Unit vectors have many zeros, which are not rounded, and rounding errors along the constant
    vectors add up. So dense vectors with means of all sizes are averaged too, and the largest error counts.
    """
    n_nodes = average.n_nodes
    if n_nodes == 1:
        return 0.0
    rng, eps = np.random.default_rng(0), float(np.finfo(np.float64).eps)
    dense = rng.standard_normal((n_nodes, PROBES)) + np.resize(PROBE_MEANS, PROBES)
    seen = float(np.max(np.linalg.norm(average.error(dense), axis=0) / np.linalg.norm(dense, axis=0)))
    if n_nodes <= MOST_WHOLE:
        # The means that the averages are compared with are rounded too, hence eps.
        return max(seen, float(np.linalg.norm(average.error(np.eye(n_nodes)), 2))) + eps
    block = np.linalg.qr(rng.standard_normal((n_nodes, PROBES)))[0]
    largest = 0.0
    for _ in range(POWER_STEPS):
        image = average.error(block)
        before, largest = largest, max(largest, float(np.linalg.norm(image, 2)))
        if largest <= GROWTH * before or not np.isfinite(image).all():
            break
        block = np.linalg.qr(average.transposed_error(image))[0]
    return MARGIN * max(seen, largest) + eps


class _MatrixNetwork:
    """Stands in for a network, and only multiplies by the matrix of a round or its transpose."""

    def __init__(self, transposed: bool = False) -> None:
        self.transposed = transposed

    def combine(self, exchange: LinearRound, *arrays: Array) -> tuple[Array, ...]:
        matrix = exchange.sums.T if self.transposed else exchange.sums
        return tuple(matrix @ array for array in arrays)

    def send_down(self, levels: tuple[LinearRound, ...], root: int, array: Array) -> Array:
        return everywhere(array[root : root + 1], len(array))

    def reduced_mean(self, array: Array) -> Array:
        return array.mean(axis=0, keepdims=True)

    def reduced_sum(self, array: Array) -> Array:
        return array.sum(axis=0, keepdims=True)
