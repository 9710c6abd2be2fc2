"""The parts of an averaging method: linear rounds on a network, and a stated accuracy."""

from abc import abstractmethod
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, Protocol, Self, runtime_checkable

import numpy as np
from scipy import sparse

from eigenmesh.arrays import Array, everywhere
from eigenmesh.errors import GraphError, InputError
from eigenmesh.graphs import Weights

DEFAULT_ACCURACY = 1e-12
# An error below this that no longer falls consists of rounding errors.
ROUNDING_LEVEL = 1e-10


@dataclass(frozen=True, eq=False)
class LinearRound:
    """One synchronous exchange in which node i takes ``sum_j a_ij x_j`` of its own and its neighbours' arrays.

    Mixing with W, a level of a spanning tree and a step of a polynomial are all linear rounds, so a network needs only
    one operation, and counts traffic in one place.
    """

    matrix: Any
    """The a_ij, (M, M), dense or CSR; zero where i and j are neither equal nor neighbours."""

    @cached_property
    def sums(self) -> sparse.csr_array:
        """The matrix for products with NumPy arrays, see ``in_order``."""
        return in_order(self.matrix)

    @cached_property
    def sends(self) -> tuple[np.ndarray, np.ndarray]:
        """Receivers and senders of the messages, (messages,) each: the off-diagonal entries of the matrix."""
        rows, columns = self.matrix.nonzero()
        between = rows != columns
        return rows[between], columns[between]

    @cached_property
    def messages(self) -> int:
        """Number of messages."""
        return len(self.sends[0])

    @cached_property
    def in_turn(self) -> int:
        """Messages of the node that sends the most; a node sends its messages one after the other."""
        return int(np.bincount(self.sends[1], minlength=1).max())


def in_order(matrix: Any) -> sparse.csr_array:
    """A matrix (nodes, n) as CSR whose rows begin with the node's own entry, followed by its senders', ascending.

    A product adds the entries of a row in this order, each product and each sum rounded, so all networks that use it
    have the same bits, whether a process holds one node or all of them.
    """
    entries = sparse.coo_array(matrix)
    entries.eliminate_zeros()
    row, column = entries.row, entries.col
    order = np.lexsort((column, row != column, row))
    starts = np.concatenate([[0], np.cumsum(np.bincount(row, minlength=entries.shape[0]))])
    return sparse.csr_array((entries.data[order], column[order], starts), shape=entries.shape)


class LinearNetwork(Protocol):
    """The part of a network that averaging needs: see ``Network``."""

    def combine(self, exchange: LinearRound, *arrays: Array) -> tuple[Array, ...]: ...
    def broadcast(self, levels: tuple[LinearRound, ...], root: int, array: Array) -> Array: ...
    def reduced_mean(self, array: Array) -> Array: ...
    def reduced_sum(self, array: Array) -> Array: ...


class Average(Protocol):
    """An averaging method prepared for one network.

    ``rounds`` and ``messages`` (over all nodes) are the cost of one average; ``in_turn`` is the number of messages of
    the busiest node in each round, summed over the rounds. ``accuracy`` is the relative error in exact arithmetic:
    ``|x_i - mean| <= accuracy * |x - mean|`` in the Euclidean norm over all nodes.
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


@dataclass(frozen=True)
class Mixing:
    """Base of averages whose rounds mix with W: in each round a message over every link, in both directions."""

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
    """Mixing with a stated accuracy, which comes from the spectrum of W or, where that is not enough, is measured."""

    accuracy: float

    @abstractmethod
    def __call__(self, network: LinearNetwork, array: Array) -> Array: ...

    def lengthened(self, weights: Weights, accuracy: float) -> Self:
        """The same average with more rounds, until it has this accuracy or rounding errors keep it from that."""
        average, before = self, np.inf
        while (reached := measured_accuracy(average, weights)) > accuracy and not only_rounding_left(reached, before):
            average, before = replace(average, rounds=average.rounds + 1 + average.rounds // 32), reached
        return replace(average, accuracy=reached)


def only_rounding_left(error: float, before: float) -> bool:
    """Whether more rounds no longer make the error of an average smaller, because it consists of rounding errors."""
    return error <= ROUNDING_LEVEL and error > 0.9 * before


def require_averaging(weights: Weights, what: str) -> None:
    """Raise GraphError unless mixing with the weights converges to the mean."""
    if not weights.averages:
        fix = "use eigenmesh.graphs.balanced(graph), or tree averaging"
        raise GraphError(f"{what} needs weights whose rows and columns all sum to 1; {fix}.")


def measured_accuracy(average: Average, weights: Weights) -> float:
    """Norm of ``average - 1 1^T / M`` in working precision, on the unit vectors or, for large M, on 64 random vectors.

    Evaluating p on the eigenvalues is not enough, because later rounds amplify rounding errors along other
    eigenvectors.
    """
    n_nodes = weights.n_nodes
    if n_nodes == 1:
        return 0.0
    probe = np.eye(n_nodes) if n_nodes <= 256 else np.random.default_rng(0).standard_normal((n_nodes, 64))
    error = average(_MatrixNetwork(), probe) - probe.mean(axis=0)
    return float(np.linalg.norm(error, 2) / np.linalg.norm(probe - probe.mean(axis=0), 2))


class _MatrixNetwork:
    """Stands in for a network, and only multiplies by the matrix of a round, to measure the accuracy."""

    def combine(self, exchange: LinearRound, *arrays: Array) -> tuple[Array, ...]:
        return tuple(exchange.sums @ array for array in arrays)

    def broadcast(self, levels: tuple[LinearRound, ...], root: int, array: Array) -> Array:
        return everywhere(array[root : root + 1], len(array))

    def reduced_mean(self, array: Array) -> Array:
        return array.mean(axis=0, keepdims=True)

    def reduced_sum(self, array: Array) -> Array:
        return array.sum(axis=0, keepdims=True)
