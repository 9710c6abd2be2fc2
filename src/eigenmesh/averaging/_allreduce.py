"""All-reduce: average with the transport's collective operation, if it has one."""

from __future__ import annotations

from dataclasses import dataclass

from eigenmesh.arrays import Array
from eigenmesh.averaging._base import LinearNetwork
from eigenmesh.graphs import Weights


@dataclass(frozen=True)
class AllReduce:
    """Mean over all nodes by the transport's all-reduce: the sum of ``x_i / M``.

    MPI and torch.distributed have one. It connects all nodes, whatever the graph, so it suits clusters, not
    organisations that reach only their neighbours. It counts as one round and ``2 (M - 1)`` messages, the fewest that
    can sum and distribute.
    """

    def prepare(self, weights: Weights) -> AllReduceAverage:
        messages = 2 * (weights.n_nodes - 1)
        # On average a node sends each part twice: once to sum it, once to distribute it.
        return AllReduceAverage(messages, messages / weights.n_nodes)


@dataclass(frozen=True)
class AllReduceAverage:
    """All-reduce prepared for one network."""

    messages: int
    in_turn: float
    rounds: int = 1
    # The sum is exact up to rounding.
    accuracy: float = 0.0

    def __call__(self, network: LinearNetwork, array: Array) -> Array:
        return network.reduced_mean(array)

    def total(self, network: LinearNetwork, array: Array) -> Array:
        """The sum over all nodes, at every node: (nodes, ...) -> (nodes, ...)."""
        return network.reduced_sum(array)
