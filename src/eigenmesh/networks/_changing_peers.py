"""One node per process on a network that changes from round to round, over a transport."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from scipy import sparse

from eigenmesh.arrays import Array
from eigenmesh.averaging import PushSum
from eigenmesh.errors import InputError
from eigenmesh.graphs import NetworkSequence
from eigenmesh.networks._changing import Changing
from eigenmesh.transports._base import Transport


class ChangingPeers(Changing):
    """Hold one node of a ``NetworkSequence``, NumPy arrays of shape (1, ...), and exchange with its current neighbours.

    Every process knows the links of each round, so all processes count the same traffic and take the same decisions.
    """

    def __init__(self, sequence: NetworkSequence, transport: Transport, averaging: PushSum | None = None) -> None:
        engine = type(transport).__name__
        if transport.size != sequence.n_nodes:
            raise InputError(
                f"the transport has {transport.size} nodes, the graph {sequence.n_nodes}; make them equal."
            )
        if not transport.changes_links:
            fix = "use threads or torch, or leave the transport out"
            raise InputError(f"{engine} keeps its links for the whole run, but this network changes; {fix}.")
        if not sequence.reliable:
            simulated = "loss, delay and duplicates can only be simulated"
            raise InputError(f"{engine} loses no messages: {simulated}; leave them out, or leave the transport out.")
        self.transport = transport
        super().__init__(sequence, averaging)

    @property
    def ids(self) -> Sequence[int]:
        return (self.transport.rank,)

    def private_bytes(self, count: int) -> bytes:
        return self.transport.private_bytes(count)

    def _spread_rider(self, rider: Array, on_time: np.ndarray) -> None:
        """Nothing: the rider travels with the arrays (``_gathered``)."""

    def _spread(self, values: Array, on_time: np.ndarray) -> Array:
        return self._gathered(on_time, (values,))[1][0].max(axis=0)

    def _mixed(self, weights: Sequence[np.ndarray], arrays: Sequence[Array]) -> tuple[Array, ...]:
        rank, (places, stacks) = self.transport.rank, self._gathered(weights[-1] > 0, tuple(arrays))
        return tuple(
            # The order of `in_order`: this node, then its senders.
            (sparse.csr_array(W[rank, places].astype(x.dtype)[np.newaxis]) @ x.reshape(len(x), -1)).reshape(x.shape[1:])
            for W, x in zip(weights, stacks, strict=True)
        )

    def _gathered(self, linked: np.ndarray, arrays: tuple[Array, ...]) -> tuple[list[int], tuple[Array, ...]]:
        """This node and its senders, and their arrays, (1 + senders, ...) each; the rider travels with them."""
        rank, riding = self.transport.rank, () if self._rider is None else (self._rider,)
        lines = linked[rank], linked[:, rank]
        senders, receivers = ([j for j in np.flatnonzero(line).tolist() if j != rank] for line in lines)
        stacks = self.transport.gather((*arrays, *riding), self.transport.links(receivers, senders))
        if riding:
            self._rider = stacks[-1].max(axis=0)
        return [rank, *senders], stacks[: len(arrays)]
