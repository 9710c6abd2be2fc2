"""All-reduce: let the engine that carries the messages average, where it can."""

from __future__ import annotations

from dataclasses import dataclass

from eigenmesh.arrays import Array
from eigenmesh.averaging._base import LinearNetwork
from eigenmesh.graphs import Weights


@dataclass(frozen=True)
class AllReduce:
    """Mean over all nodes by the transport's own all-reduce: the sum of every node's M-th part.

    MPI and torch.distributed have one; it links all nodes, whatever the graph, so it is for clusters and not for
    organisations that know only their neighbours. It counts as one round and ``2 (M - 1)`` messages, the fewest
    that can sum and spread.
    """

    def prepare(self, weights: Weights) -> AllReduceAverage:
        """There is nothing to plan."""
        return AllReduceAverage(2 * (weights.n_nodes - 1))


@dataclass(frozen=True)
class AllReduceAverage:
    """All-reduce made ready for one network."""

    messages: int
    rounds: int = 1
    # The sum is exact but for rounding.
    accuracy: float = 0.0

    def __call__(self, network: LinearNetwork, array: Array) -> Array:
        """One all-reduce: (nodes, ...) -> (nodes, ...)."""
        return network.reduced_mean(array)
