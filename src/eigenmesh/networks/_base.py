"""What every network can do: mix, mean, worst; and the one place where traffic is counted."""

from __future__ import annotations

import secrets
from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, fields, replace
from math import prod
from typing import Any, overload

from eigenmesh import arrays as ea
from eigenmesh.arrays import Array
from eigenmesh.averaging import Averaging, LinearRound, Tree
from eigenmesh.averaging._allreduce import AllReduceAverage
from eigenmesh.graphs import Weights
from eigenmesh.graphs._weights import half_way

# Shape and dtype of an array; every library has dtypes of its own.
Kind = tuple[tuple[int, ...], Any]


@dataclass
class Traffic:
    """What a run has sent, over the whole network."""

    rounds: int = 0
    """Synchronous neighbour exchanges."""
    messages: int = 0
    """Directed sends."""
    matrices: int = 0
    """Matrix blocks that a node sends to each neighbour; FAST-PCA sends two per iteration."""
    bytes: int = 0
    """Payload."""

    def copy(self) -> Traffic:
        """The count as it stands."""
        return replace(self)

    def __add__(self, other: Traffic) -> Traffic:
        return Traffic(*(getattr(self, field.name) + getattr(other, field.name) for field in fields(self)))

    def __iadd__(self, other: Traffic) -> Traffic:
        for field in fields(self):
            setattr(self, field.name, getattr(self, field.name) + getattr(other, field.name))
        return self

    def __sub__(self, earlier: Traffic) -> Traffic:
        return Traffic(*(getattr(self, field.name) - getattr(earlier, field.name) for field in fields(self)))


class Network(ABC):
    """Nodes that exchange arrays with their neighbours in rounds.

    Every array has a leading axis over *the nodes this process holds*: all M when stacked, one at a peer. All
    nodes call ``mix``, ``mean`` and ``worst`` in the same order: a branch around a call may depend only on
    values that every node agrees on.
    """

    def __init__(self, weights: Weights, averaging: Averaging | None = None) -> None:
        self.weights = weights
        self.average = (averaging or Tree()).prepare(weights)
        # With an all-reduce the engine links all nodes, and maxima take that way too.
        self.collective = isinstance(self.average, AllReduceAverage)
        self.traffic = Traffic()
        # Rounds by what was exchanged and bytes per message; the rounds of an all-reduce take no link of the graph.
        self.exchanges: Counter[tuple[LinearRound, int]] = Counter()
        self._riding_bytes = 0
        self._mixing = LinearRound(weights.matrix)
        self._lazy_mixing = LinearRound(half_way(weights.matrix))
        self._sizes: dict[tuple[type, Any, Any], tuple[int, int]] = {}
        self._reducers: dict[Kind, tuple[int, int, Callable[[Array], Array]]] = {}

    @property
    def n_nodes(self) -> int:
        """M, the number of nodes of the whole network."""
        return self.weights.n_nodes

    @property
    @abstractmethod
    def ids(self) -> Sequence[int]:
        """Global ids of the nodes that this process holds."""

    @abstractmethod
    def _combine(self, exchange: LinearRound, arrays: tuple[Array, ...]) -> tuple[Array, ...]:
        """Carry out one linear round."""

    @abstractmethod
    def _mean_reducer(self, like: Array) -> Callable[[Array], Array]:
        """An average over all nodes by an all-reduce, made ready for arrays of one library, shape and dtype."""

    @abstractmethod
    def _maximum(self, values: Array) -> Array:
        """Elementwise maximum over all nodes, by ``diameter`` rounds of neighbour maxima or by an all-reduce."""

    @abstractmethod
    def _common_mean_and_maximum(self, array: Array, values: Array) -> tuple[Array, Array]:
        """``common_mean(array)``, counted, and the maximum of values, not counted."""

    def combine(self, exchange: LinearRound, *arrays: Array) -> tuple[Array, ...]:
        """Carry out one linear round on each of the arrays, all in one message, and count it."""
        self._count_rounds(exchange, arrays)
        return self._combine(exchange, arrays)

    def reduced_mean(self, array: Array) -> Array:
        """Average over all nodes by the engine's all-reduce, and count it: (nodes, ...) -> (nodes, ...)."""
        # One look for all that is the same every time: beside an engine's own all-reduce each step here is felt.
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

    @overload
    def mix(self, array: Array, /) -> Array: ...
    @overload
    def mix(self, first: Array, second: Array, /, *more: Array) -> tuple[Array, ...]: ...
    def mix(self, *arrays: Array) -> Array | tuple[Array, ...]:
        """One round: ``mix(X)_i = sum_j w_ij X_j``; several arrays share the round and its messages."""
        mixed = self.combine(self._mixing, *arrays)
        return mixed if len(arrays) > 1 else mixed[0]

    def lazy_mix(self, *arrays: Array) -> tuple[Array, ...]:
        """One round half way: ``1/2 X_i + 1/2 sum_j w_ij X_j`` of each array, all in one message."""
        return self.combine(self._lazy_mixing, *arrays)

    def mean(self, array: Array) -> Array:
        """Average over all nodes, to ``self.average.accuracy``: (nodes, ...) -> (nodes, ...)."""
        return self.reduced_mean(array) if self.collective else self.average(self, array)

    def common_mean(self, array: Array) -> Array:
        """The average as one copy for all the nodes that this process holds: (nodes, ...) -> (1, ...).

        What follows from an average is the same at every node, so a process that holds many works it out once.
        """
        return self.mean(array)[:1, ...]

    def common_mean_and_worst(self, array: Array, values: Array) -> tuple[Array, Array]:
        """``common_mean(array)`` and ``worst(values)`` in the same messages.

        An exact average takes at least as many rounds as the diameter, so maxima can ride along and cost no round.
        An all-reduce either adds or takes maxima, so there it is one of each.
        """
        if self.collective:
            return self.common_mean(array), self.worst(values)
        before, self._riding_bytes = self.traffic.rounds, self._size(values)[1]
        try:
            averaged, agreed = self._common_mean_and_maximum(array, values)
        finally:
            self._riding_bytes = 0
        # A loose average on a dense graph may be done sooner than the maxima.
        rounds = max(0, self.weights.spectrum.diameter - (self.traffic.rounds - before))
        self._count_rounds(self._mixing, (values,), rounds)
        return averaged, agreed

    def private_bytes(self, count: int) -> bytes:
        """Bytes that no other process knows."""
        return secrets.token_bytes(count)

    def worst(self, values: Array) -> Array:
        """Elementwise maximum, the same bits at all nodes; NaN at one is NaN at all: (nodes, ...) -> (nodes, ...)."""
        if self.collective:
            # A mark for NaN goes with each value: engines do not agree on what the maximum of NaN is.
            self._count(self.average.messages, (values, values))
        else:
            self._count_rounds(self._mixing, (values,), self.weights.spectrum.diameter)
        return self._maximum(values)

    def link_traffic(self) -> dict[tuple[int, int], tuple[int, int]]:
        """Messages and bytes that went over each link of the graph so far, by (sender, receiver)."""
        messages, sent = Counter[tuple[int, int]](), Counter[tuple[int, int]]()
        for (exchange, size), rounds in self.exchanges.items():
            receivers, senders = exchange.sends
            for link in zip(senders.tolist(), receivers.tolist(), strict=True):
                messages[link] += rounds
                sent[link] += rounds * size
        return {link: (messages[link], sent[link]) for link in sorted(messages)}

    def _count_rounds(self, exchange: LinearRound, arrays: tuple[Array, ...], rounds: int = 1) -> None:
        self.exchanges[exchange, self._count(exchange.messages, arrays, rounds)] += rounds

    def _count(self, messages: int, arrays: tuple[Array, ...], rounds: int = 1) -> int:
        """Count rounds in which as many messages carry the arrays; gives the bytes of one message."""
        traffic, sent = self.traffic, self._riding_bytes
        traffic.rounds += rounds
        traffic.messages += messages * rounds
        for array in arrays:
            matrices, size = self._size(array)
            traffic.matrices += rounds * matrices
            sent += size
        traffic.bytes += messages * rounds * sent
        return sent

    def _size(self, array: Array) -> tuple[int, int]:
        """Matrices and bytes in one node's part of the array; kept, for it is asked for every round."""
        # With the type, since libraries do not like their dtypes to be compared with those of others.
        key = (type(array), array.shape, array.dtype)
        if key not in self._sizes:
            shape = array.shape[1:]
            self._sizes[key] = (int(len(shape) >= 2), prod(shape) * ea.item_bytes(array))
        return self._sizes[key]
