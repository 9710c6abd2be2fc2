"""All-reduce: average with the transport's collective operation, if it has one."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

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
        return AllReduceAverage(weights.n_nodes, messages, messages / weights.n_nodes)


@dataclass(frozen=True)
class AllReduceAverage:
    """All-reduce prepared for one network."""

    n_nodes: int
    messages: int
    in_turn: float
    rounds: int = 1

    @property
    def accuracy(self) -> float:
        """A sum of M numbers, in any order, is off by at most ``M eps / 2`` times the sum of their absolute values."""
        return 0.0 if self.n_nodes == 1 else self.n_nodes**0.5 * float(np.finfo(np.float64).eps) / 2

    def __call__(self, network: LinearNetwork, array: Array) -> Array:
        return network.reduced_mean(array)

    def total(self, network: LinearNetwork, array: Array) -> Array:
        """The sum over all nodes, at every node: (nodes, ...) -> (nodes, ...)."""
        return network.reduced_sum(array)
