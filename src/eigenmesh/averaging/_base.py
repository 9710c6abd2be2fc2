"""What an averaging kernel is made of: linear rounds on a network, and a promise of accuracy."""

from dataclasses import dataclass
from functools import cached_property
from typing import Any, Protocol, runtime_checkable

import numpy as np

from eigenmesh.arrays import Array
from eigenmesh.graphs import Weights

DEFAULT_ACCURACY = 1e-12


@dataclass(frozen=True, eq=False)
class LinearRound:
    """One synchronous exchange in which node i takes ``sum_j a_ij x_j`` of its own and its neighbours' arrays.

    Mixing with W, a level of a spanning tree and a step of a polynomial are all linear rounds, so a network
    has one verb to carry out and one place to count.

    Parameters
    ----------
    matrix : array or CSR array of shape (M, M)
        The a_ij; zero where i and j are neither equal nor neighbours.
    """

    matrix: Any

    @cached_property
    def sends(self) -> tuple[np.ndarray, np.ndarray]:
        """Receiver and sender of each message: entries of the matrix off its diagonal."""
        rows, columns = self.matrix.nonzero()
        between = rows != columns
        return rows[between], columns[between]

    @cached_property
    def messages(self) -> int:
        """Directed sends."""
        return len(self.sends[0])


class LinearNetwork(Protocol):
    """The part of a network that averaging needs."""

    def combine(self, exchange: LinearRound, *arrays: Array) -> tuple[Array, ...]:
        """Carry out one linear round on each of the arrays, all in one message."""
        ...

    def reduced_mean(self, array: Array) -> Array:
        """Average over all nodes by the engine's own all-reduce."""
        ...


class Average(Protocol):
    """An averaging kernel made ready for one network.

    ``rounds`` and ``messages`` are what one average costs, ``accuracy`` the relative error it leaves in exact
    arithmetic: ``|x_i - mean| <= accuracy * |x - mean|`` in the Euclidean norm over all nodes.
    """

    @property
    def rounds(self) -> int:
        """Neighbour exchanges that one average takes."""
        ...

    @property
    def messages(self) -> int:
        """Messages that one average takes, over all nodes."""
        ...

    @property
    def accuracy(self) -> float:
        """Relative error that one average leaves."""
        ...

    def __call__(self, network: LinearNetwork, array: Array) -> Array:
        """Average over all nodes: (nodes, ...) -> (nodes, ...)."""
        ...


@runtime_checkable
class Averaging(Protocol):
    """A way to average, chosen by the network: ``prepare`` fits it to the weights."""

    def prepare(self, weights: Weights) -> Average:
        """Plan the rounds for these weights."""
        ...
