"""One node per process: a network over a transport."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from functools import cached_property
from math import prod
from typing import Any

import numpy as np
import scipy

from eigenmesh import arrays as ea
from eigenmesh.arrays import Array, Parts, whole
from eigenmesh.averaging import Averaging, Factored, LinearRound, TreeAverage, pack, packed_bytes, unpack
from eigenmesh.errors import InputError
from eigenmesh.graphs import Weights
from eigenmesh.networks.network import Network
from eigenmesh.networks.own_pace import Pace, Paced, drive, take_in
from eigenmesh.networks.traffic import Traffic
from eigenmesh.transports import Links, Transport


class Part:
    """One node's part of a linear round with an (M, M) matrix: ``sum_j a_ij X_j`` over itself and its senders."""

    def __init__(self, exchange: LinearRound, transport: Transport) -> None:
        rank, matrix = transport.rank, exchange.sums
        entries = slice(matrix.indptr[rank], matrix.indptr[rank + 1])
        columns, (receivers, senders) = matrix.indices[entries], exchange.sends
        heard = columns[columns != rank].tolist()
        self.links = transport.links(sorted(receivers[senders == rank].tolist()), heard)
        # Columns as places in the stack: this node, then its senders.
        places = np.searchsorted(heard, columns) + 1
        places[columns == rank] = 0
        self._row = scipy.sparse.csr_array((matrix.data[entries], places, [0, len(places)]), shape=(1, 1 + len(heard)))
        self._placed: dict[Any, Any] = {}

    def total(self, stack: Array) -> Array:
        """Weighted sum over the first axis, (1 + senders, ...) -> (...), as one product."""
        shape = stack.shape
        if isinstance(stack, np.ndarray):
            # This shortcut matters: mixing small arrays takes a few microseconds.
            return (self._like(stack, stack.dtype) @ stack.reshape(shape[0], -1)).reshape(shape[1:])
        reshape = ea.namespace(stack).reshape
        weights = self._like(stack, (type(stack), stack.dtype, stack.device))
        return reshape(weights @ reshape(stack, (shape[0], -1)), shape[1:])

    def _like(self, stack: Array, key: Any) -> Any:
        """Weights in the library, dtype and device of the stack, which are cached."""
        if key not in self._placed:
            is_numpy = isinstance(stack, np.ndarray)
            self._placed[key] = self._row.astype(stack.dtype) if is_numpy else ea.like(self._row.toarray(), stack)
        return self._placed[key]


class Peers(Network):
    """Hold one node, arrays of shape (1, ...), and exchange with its neighbours through a transport.

    Every process knows all weights, and traffic is counted for the whole network, as by the stacked network.

    Parameters
    ----------
    weights : Weights
        The links of all nodes, and the weights with which they mix.
    transport : Transport
        What connects this node to its neighbours.
    averaging : Averaging, optional
        How nodes average; by default over a tree.
    """

    def __init__(self, weights: Weights, transport: Transport, averaging: Averaging | None = None) -> None:
        if transport.size != weights.n_nodes:
            raise InputError(f"the transport has {transport.size} nodes, the graph {weights.n_nodes}; make them equal.")
        super().__init__(weights, averaging)
        if self.collective and not transport.reduces:
            raise InputError(f"{type(transport).__name__} has no all-reduce; use tree or polynomial averaging.")
        self.transport: Transport = transport
        self._parts: dict[LinearRound, Part] = {}
        if isinstance(averaging, Factored) and averaging.factors is None:
            self.average = averaging.shared(self, weights).prepare(weights)

    @property
    def ids(self) -> Sequence[int]:
        return (self.transport.rank,)

    @cached_property
    def _neighbours(self) -> Links:
        """Links to all neighbours, prepared when first needed. All-reduces never need them."""
        graph, rank = self.weights.graph, self.transport.rank
        receivers = sorted(graph.neighbors(rank))
        return self.transport.links(receivers, sorted(graph.predecessors(rank)) if graph.is_directed() else receivers)

    def _combine(self, exchange: LinearRound, arrays: tuple[Array, ...]) -> tuple[Array, ...]:
        part = self._part(exchange)
        return tuple([part.total(stack) for stack in self._gathered(arrays, part.links)])

    def _combine_both(self, first: LinearRound, second: LinearRound, X: Array, S: Array) -> tuple[Array, Array]:
        parts = self._part(first), self._part(second)
        stacks = self._gathered((X, S), parts[0].links)
        return parts[0].total(stacks[0]), parts[1].total(stacks[1])

    def send_down(self, levels: tuple[LinearRound, ...], root: int, array: Array) -> Array:
        for level in levels:
            self._begin_round(level, (array,))
            links = self._part(level).links
            (stack,) = self._gathered((array,), links)
            if links.receive_from:
                # A copy, because the next exchange may overwrite the stack.
                array = ea.namespace(stack).asarray(stack[1, ...], copy=True)
        return array

    def _gathered(self, arrays: tuple[Array, ...], links: Links) -> Sequence[Array]:
        """The arrays of this node and its neighbours, (senders, ...) each. A piggyback is in the same messages."""
        carried = self._piggyback
        if carried.values is None:
            return self.transport.gather(arrays, links)
        *stacks, received = self.transport.gather((*arrays, carried.values), links)
        carried.values = _largest(received)
        return stacks

    def require_time(self) -> None:
        """Nothing: a transport that works only in rounds raises its own error."""

    def run_paced(self, nodes: Sequence[Paced], pace: Pace) -> None:
        (node,) = nodes
        before, ticks = replace(self.transport.sent), drive(node, self.transport, pace)
        sent = self.transport.sent
        own = np.array([[sent.messages - before.messages, sent.bytes - before.bytes, ticks]], dtype=float)
        # After this average all nodes are done, and everything they have posted has arrived.
        messages, size, ticks = np.rint(self.n_nodes * self.mean(own)[0]).astype(int).tolist()
        rounds = -(-ticks // self.n_nodes)
        self.meter.traffic += Traffic(rounds, messages, rounds, size)
        take_in(node, self.transport, 0.0)

    def _reduced_sum(self, array: Array) -> Array:
        if self._piggyback.values is None:
            return self.transport.all_reduce(array, "sum")
        return self._sum_with(self._piggyback.values, array)

    def _reduced_mean(self, array: Array) -> Array:
        if self._piggyback.values is None:
            return self.transport.all_reduce(array, "mean")
        return self._sum_with(self._piggyback.values, array * (1 / self.n_nodes))

    def _sum_with(self, values: Array, array: Array) -> Array:
        """Sum over all nodes, (1, ...), with a slot for the piggyback of each node appended, where others add zeros."""
        xp, size = ea.namespace(array), prod(array.shape)
        # In a sum of integers the piggyback travels as the bits of its float64 values.
        as_bits = isinstance(array, np.ndarray) and array.dtype == np.uint64
        own = ea.to_numpy(values).astype(np.float64).view(array.dtype) if as_bits else values
        slots = xp.zeros((self.n_nodes, own.shape[1]), dtype=array.dtype, device=array.device)
        slots[self.transport.rank, :] = own[0, :]
        message = xp.concat([xp.reshape(array, (size,)), xp.reshape(slots, (-1,))])
        total = self.transport.all_reduce(message, "sum")
        of_all = xp.reshape(total[size:], slots.shape)
        agreed = _largest(of_all.view(np.float64) if as_bits else of_all)[None, :]
        self._piggyback.values = ea.like(agreed, values) if as_bits else agreed
        return xp.reshape(total[:size], array.shape)

    def _reduced_maximum(self, values: Array) -> Array:
        xp = ea.namespace(values)
        is_nan = xp.isnan(values)
        flagged = xp.stack([xp.where(is_nan, -xp.inf, values), xp.astype(is_nan, values.dtype)])
        largest, flag = self.transport.all_reduce(flagged, "max")
        return xp.where(flag > 0, xp.nan, largest)

    def _packed_sum(self, tree: TreeAverage, array: Array | Parts, bits: int) -> tuple[np.ndarray, np.ndarray]:
        total, (_, d, b) = ea.to_numpy(whole(array)), array.shape
        errors, nothing = np.zeros((1, b)), np.zeros((1, 1, packed_bytes(d, b, bits)), np.uint8)
        for level in tree.up:
            part = self._part(level)
            message = pack(total, errors, bits)[:, np.newaxis, :] if part.links.send_to else nothing
            self._begin_round(level, (message,))
            (stack,) = self._gathered((message,), part.links)
            if part.links.receive_from:
                received, more = unpack(np.asarray(stack)[1:, 0, 0, :], d, b, bits)
                total = part.total(np.concatenate([total, received]))[np.newaxis]
                errors = part.total(np.concatenate([errors, more]))[np.newaxis]
        return total, errors

    def _tree_maxima(self, tree: TreeAverage, values: Array) -> Array:
        for level in tree.up:
            self._begin_round(level, (values,))
            values = _largest(self.transport.gather((values,), self._part(level).links)[0])
        return tree.broadcast(self, values)

    def _neighbour_maxima(self, values: Array, rounds: int) -> Array:
        for _ in range(rounds):
            values = _largest(self.transport.gather((values,), self._neighbours)[0])
        return values

    def _part(self, exchange: LinearRound) -> Part:
        if exchange not in self._parts:
            self._parts[exchange] = Part(exchange, self.transport)
        return self._parts[exchange]


def _largest(stack: Array) -> Array:
    """Elementwise maximum over the first axis, (n, ...) -> (...), which is NaN if any value is NaN."""
    return ea.namespace(stack).max(stack, axis=0)
