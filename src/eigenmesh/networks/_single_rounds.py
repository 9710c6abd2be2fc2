"""Single rounds over a network with fixed weights: mix, lazy mix, push and pull."""

from __future__ import annotations

from abc import abstractmethod
from functools import cached_property
from typing import overload

from eigenmesh.arrays import Array
from eigenmesh.averaging import LinearRound
from eigenmesh.graphs import Weights
from eigenmesh.graphs._weights import half_way
from eigenmesh.networks._mixes import pull_and_push
from eigenmesh.networks._riders import Riders


class SingleRounds(Riders):
    """The part of a network that does one linear round at a time, and counts it."""

    @property
    @abstractmethod
    def weights(self) -> Weights:
        """The mixing weights; raises if they change over time."""

    @cached_property
    def _mixing(self) -> LinearRound:
        return LinearRound(self.weights.matrix)

    @cached_property
    def _lazy_mixing(self) -> LinearRound:
        return LinearRound(half_way(self.weights.matrix))

    @cached_property
    def _pull_and_push(self) -> tuple[LinearRound, LinearRound]:
        return pull_and_push(self.weights)

    @abstractmethod
    def _combine(self, exchange: LinearRound, arrays: tuple[Array, ...]) -> tuple[Array, ...]:
        """Do one linear round."""

    def combine(self, exchange: LinearRound, *arrays: Array) -> tuple[Array, ...]:
        """Do one linear round on each of the arrays, all in one message, and count it."""
        self._begin_round(exchange, arrays)
        return self._combine(exchange, arrays)

    @abstractmethod
    def broadcast(self, levels: tuple[LinearRound, ...], root: int, array: Array) -> Array:
        """Send the root's part of an array down a tree, bit for bit, and count it: (nodes, ...) -> (nodes, ...)."""

    def _begin_round(self, exchange: LinearRound, arrays: tuple[Array, ...]) -> None:
        self._count_rounds(exchange, arrays, riding=self._riding_bytes)
        self._rider_rounds += exchange.messages == self._mixing.messages

    @overload
    def mix(self, array: Array, /) -> Array: ...
    @overload
    def mix(self, first: Array, second: Array, /, *more: Array) -> tuple[Array, ...]: ...
    def mix(self, *arrays: Array) -> Array | tuple[Array, ...]:
        """One round: ``mix(X)_i = sum_j w_ij X_j``; several arrays share the round and its messages."""
        mixed = self.combine(self._mixing, *arrays)
        return mixed if len(arrays) > 1 else mixed[0]

    def lazy_mix(self, *arrays: Array) -> tuple[Array, ...]:
        """One half-way round: ``1/2 X_i + 1/2 sum_j w_ij X_j`` of each array, all in one message."""
        return self.combine(self._lazy_mixing, *arrays)

    def push_pull(self, X: Array, S: Array) -> tuple[Array, Array]:
        """One half-way round in one message: X with rows that sum to one, S with columns that sum to one.

        X is unchanged where all nodes agree; S conserves its sum over the nodes. If the weights do both, this is
        ``lazy_mix``; if they do only one, equal shares are used for the other (``graphs.pull``, ``graphs.push``).
        """
        if self.weights.averages:
            X, S = self.lazy_mix(X, S)
            return X, S
        pull, push = self._pull_and_push
        self._begin_round(push, (X, S))
        return self._combine_both(pull, push, X, S)

    def _combine_both(self, first: LinearRound, second: LinearRound, X: Array, S: Array) -> tuple[Array, Array]:
        """Two linear rounds over the same links in one message, one for each array."""
        return self._combine(first, (X,))[0], self._combine(second, (S,))[0]
