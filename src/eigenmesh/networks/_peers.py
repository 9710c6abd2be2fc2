"""One node per process: a network over a transport."""

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from scipy import sparse

from eigenmesh import arrays as ea
from eigenmesh.arrays import Array
from eigenmesh.averaging import Averaging, LinearRound
from eigenmesh.errors import InputError
from eigenmesh.graphs import Weights
from eigenmesh.networks._base import Network
from eigenmesh.transports._base import Links, Transport


class Part:
    """One node's part of a linear round: ``sum_j a_ij X_j`` over itself and the nodes that send to it.

    Parameters
    ----------
    weights : a_ii, then a_ij of the nodes that send to it, in the order of the links.
    links : nodes that send to it and nodes that it sends to.
    """

    def __init__(self, weights: Sequence[float], links: Links) -> None:
        self.weights, self.links = np.array(weights), links
        self._placed: dict[Any, Array] = {}

    def total(self, stack: Array) -> Array:
        """Weighted sum over the first axis, (1 + senders, ...) -> (...), as one product."""
        shape = stack.shape
        if isinstance(stack, np.ndarray):
            # This shortcut matters: mixing small arrays takes a microsecond or two.
            return (self._like(stack, stack.dtype) @ stack.reshape(shape[0], -1)).reshape(shape[1:])
        reshape = ea.namespace(stack).reshape
        weights = self._like(stack, (type(stack), stack.dtype, stack.device))
        return reshape(weights @ reshape(stack, (shape[0], -1)), shape[1:])

    def _like(self, stack: Array, key: Any) -> Array:
        """Weights in the library, dtype and device of the stack; cached."""
        weights = self._placed.get(key)
        if weights is None:
            weights = self._placed[key] = ea.like(self.weights, stack)
        return weights


class Peers(Network):
    """Hold one node, arrays of shape (1, ...), and exchange with its neighbours through a transport.

    Every process knows the weights; traffic is that of the whole network, as the stacked network counts it.
    """

    def __init__(self, weights: Weights, transport: Transport, averaging: Averaging | None = None) -> None:
        if transport.size != weights.n_nodes:
            raise InputError(
                f"the transport links {transport.size} nodes but the network has {weights.n_nodes}; make them equal."
            )
        super().__init__(weights, averaging)
        if self.collective and not transport.reduces:
            raise InputError(f"{type(transport).__name__} has no all-reduce; use tree or polynomial averaging.")
        self.transport = transport
        neighbours = sorted(weights.graph.neighbors(transport.rank))
        self._neighbours = transport.links(neighbours, neighbours)
        self._parts: dict[int, tuple[LinearRound, Part]] = {}
        self._rider: Array | None = None

    @property
    def ids(self) -> Sequence[int]:
        return (self.transport.rank,)

    def _combine(self, exchange: LinearRound, arrays: tuple[Array, ...]) -> tuple[Array, ...]:
        part = self._part(exchange)
        message = arrays if self._rider is None else (*arrays, self._rider)
        stacks = self.transport.gather(message, part.links)
        if self._rider is not None:
            self._rider = _largest(stacks[-1])
            stacks = stacks[:-1]
        return tuple([part.total(stack) for stack in stacks])

    def _mean_reducer(self, like: Array) -> Callable[[Array], Array]:
        return self.transport.reducer(like, "mean")

    def _maximum(self, values: Array) -> Array:
        if self.collective:
            return self._reduced_maximum(values)
        agreed = _flat(values)
        for _ in range(self.weights.spectrum.diameter):
            agreed = self._maximum_round(agreed)
        return ea.namespace(values).reshape(agreed, values.shape)

    def _reduced_maximum(self, values: Array) -> Array:
        xp = ea.namespace(values)
        lost = xp.isnan(values)
        marked = xp.stack([xp.where(lost, -xp.inf, values), xp.astype(lost, values.dtype)])
        largest, mark = self.transport.all_reduce(marked, "max")
        return xp.where(mark > 0, xp.nan, largest)

    def _maximum_round(self, values: Array) -> Array:
        return _largest(self.transport.gather((values,), self._neighbours)[0])

    def _common_mean_and_maximum(self, array: Array, values: Array) -> tuple[Array, Array]:
        # The values travel in the messages of the average, and take the maximum with each that is received.
        self._rider = _flat(values)
        try:
            averaged = self.common_mean(array)
            agreed = self._rider
        finally:
            self._rider = None
        for _ in range(self.weights.spectrum.diameter - self.average.rounds):
            agreed = self._maximum_round(agreed)
        return averaged, ea.namespace(values).reshape(agreed, values.shape)

    def _part(self, exchange: LinearRound) -> Part:
        known = self._parts.get(id(exchange))
        if known is None:
            # The round is kept with its part so that no other object gets its id.
            known = self._parts[id(exchange)] = (exchange, part_of(exchange.matrix, self.transport))
        return known[1]


def _flat(values: Array) -> Array:
    """Values as vectors: transports may refuse infinity and NaN in matrices, but not in vectors."""
    return ea.namespace(values).reshape(values, (values.shape[0], -1))


def _largest(stack: Array) -> Array:
    """Elementwise maximum over the first axis; NaN if any value is NaN."""
    return ea.namespace(stack).max(stack, axis=0)


def part_of(matrix: Any, transport: Transport) -> Part:
    """Row and column of one node in the (M, M) matrix of a linear round."""
    rank = transport.rank
    if sparse.issparse(matrix):
        row, column = matrix[[rank], :].toarray()[0], matrix[:, [rank]].toarray()[:, 0]
    else:
        row, column = matrix[rank], matrix[:, rank]
    senders = [int(j) for j in np.flatnonzero(row) if j != rank]
    receivers = [int(j) for j in np.flatnonzero(column) if j != rank]
    return Part([float(row[j]) for j in (rank, *senders)], transport.links(receivers, senders))
