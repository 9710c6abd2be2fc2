"""Tree averaging: sum up a spanning tree, then send the average down."""

from __future__ import annotations

from dataclasses import dataclass
from operator import itemgetter
from typing import TYPE_CHECKING

import numpy as np
import scipy

from eigenmesh.arrays import Array
from eigenmesh.averaging.base import Exchanges, LinearNetwork, LinearRound
from eigenmesh.errors import AtFirstUse
from eigenmesh.graphs import Weights

if TYPE_CHECKING:
    import networkx as nx
else:
    nx = AtFirstUse("networkx")


@dataclass(frozen=True)
class Tree:
    """Sum up a breadth-first spanning tree rooted at the centre of the graph, divide by M, and send the mean down.

    It takes ``2 x height`` rounds and only ``2 (M - 1)`` messages, and every node ends with the same bits. It relies on
    every link of the tree, so it is for static, reliable networks. With one-way links, one tree of links towards the
    root is used on the way up and another one on the way down, and the rounds are the sum of both heights.
    """

    def prepare(self, weights: Weights) -> TreeAverage:
        (_, root), graph, n_nodes = weights.distances, weights.graph, weights.n_nodes
        away = _levels(graph, root)
        towards = _levels(graph.reverse(copy=False), root) if graph.is_directed() else away
        up = [_from_children(level, n_nodes) for level in reversed(towards)]
        down = [_from_parents(level, n_nodes) for level in away]
        return TreeAverage((*up, *down), n_nodes, root, height=len(up))


@dataclass(frozen=True)
class TreeAverage(Exchanges):
    """Tree averaging prepared for one network. It is exact up to the rounding of its sums."""

    root: int
    height: int
    """Rounds on the way up, which come first; those on the way down follow."""

    @property
    def up(self) -> tuple[LinearRound, ...]:
        return self.exchanges[: self.height]

    @property
    def down(self) -> tuple[LinearRound, ...]:
        return self.exchanges[self.height :]

    def __call__(self, network: LinearNetwork, array: Array) -> Array:
        # Only the root's value is used from here on; the others are overwritten on the way down.
        return self.broadcast(network, self._summed(network, array) / self.n_nodes)

    def total(self, network: LinearNetwork, array: Array) -> Array:
        """The sum over all nodes, at every node: (nodes, ...) -> (nodes, ...)."""
        return self.broadcast(network, self._summed(network, array))

    def _summed(self, network: LinearNetwork, array: Array) -> Array:
        """The sum over all nodes, at the root alone."""
        for level in self.up:
            (array,) = network.combine(level, array)
        return array

    def broadcast(self, network: LinearNetwork, array: Array) -> Array:
        """The value of the root, at every node: (nodes, ...) -> (nodes, ...)."""
        return network.send_down(self.down, self.root, array)


def _levels(graph: nx.Graph, root: int) -> list[list[tuple[int, int]]]:
    """Pairs (child, parent) of a breadth-first tree, grouped by distance from the root."""
    levels, depth = list[list[tuple[int, int]]](), {root: 0}
    for child, parent in nx.bfs_predecessors(graph, root):
        depth[child] = depth[parent] + 1
        if depth[child] > len(levels):
            levels.append([])
        levels[-1].append((child, parent))
    return levels


def _from_children(level: list[tuple[int, int]], n_nodes: int) -> LinearRound:
    """A round in which parents add the values of their children on this level, given as pairs (child, parent)."""
    child, parent = np.array(sorted(level, key=itemgetter(1, 0))).T
    # A row has the node itself, then its children.
    starts = np.arange(n_nodes + 1) + np.concatenate([[0], np.cumsum(np.bincount(parent, minlength=n_nodes))])
    columns = np.insert(np.arange(n_nodes), parent + 1, child)
    return _level(columns, starts)


def _from_parents(level: list[tuple[int, int]], n_nodes: int) -> LinearRound:
    """A round in which children on this level take the value of their parent."""
    source = np.arange(n_nodes)
    child, parent = np.array(level).T
    source[child] = parent
    return _level(source, np.arange(n_nodes + 1))


def _level(columns: np.ndarray, starts: np.ndarray) -> LinearRound:
    """A round in which each node adds up the values of some nodes: those of node i begin at ``starts[i]``."""
    n_nodes = len(starts) - 1
    matrix = scipy.sparse.csr_array((np.ones(len(columns)), columns, starts), shape=(n_nodes, n_nodes))
    return LinearRound(matrix, ordered=True)


# All-reduce: average with the transport's collective operation, if it has one.


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
