"""Averages and sums by the all-reduce of an engine such as MPI, which connects all nodes by itself."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable
from typing import Any

from eigenmesh.arrays import Array
from eigenmesh.averaging import Average
from eigenmesh.networks._traffic import Counted

# Shape and dtype of an array; the dtype also identifies the library.
Kind = tuple[tuple[int, ...], Any]


class AllReducing(Counted):
    """The part of a network that calls all-reduces of the engine and counts each as one round."""

    average: Average

    def __init__(self) -> None:
        super().__init__()
        self._reducers: dict[Kind, tuple[int, int, Callable[[Array], Array]]] = {}

    @property
    @abstractmethod
    def n_nodes(self) -> int: ...

    @abstractmethod
    def _mean_reducer(self, like: Array) -> Callable[[Array], Array]:
        """A function that averages over all nodes by an all-reduce, for arrays of one library, shape and dtype."""

    @abstractmethod
    def _reduced_sum(self, array: Array) -> Array:
        """Sum over all nodes by an all-reduce: (nodes, ...) -> (1 or nodes, ...)."""

    def reduced_mean(self, array: Array) -> Array:
        """Average over all nodes by the engine's all-reduce, and count it: (nodes, ...) -> (nodes, ...)."""
        if self._riding_bytes:
            self._count(self.average.messages, (array,), riding=self.n_nodes * self._riding_bytes)
            return self._mean_reducer(array)(array)
        # All that does not change is cached in one dictionary: next to a fast all-reduce, every Python step counts.
        try:
            matrices, sent, reduce = self._reducers[array.shape, array.dtype]
        except KeyError:
            matrices, size = self._size(array)
            sent, reduce = size * self.average.messages, self._mean_reducer(array)
            self._reducers[array.shape, array.dtype] = matrices, sent, reduce
        traffic = self.traffic
        traffic.rounds += 1
        traffic.messages += self.average.messages
        traffic.matrices += matrices
        traffic.bytes += sent
        return reduce(array)

    def reduced_sum(self, array: Array) -> Array:
        """Sum over all nodes by the engine's all-reduce, and count it: (nodes, ...) -> (nodes, ...)."""
        self._count(self.average.messages, (array,), riding=self.n_nodes * self._riding_bytes)
        return self._reduced_sum(array)
