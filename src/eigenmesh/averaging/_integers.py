"""Integer averaging: sums modulo 2^64, which have the same bits in any order, on any tree and at every node."""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np

from eigenmesh import arrays as ea
from eigenmesh.arrays import Array
from eigenmesh.averaging._allreduce import AllReduce, AllReduceAverage
from eigenmesh.averaging._base import LinearNetwork
from eigenmesh.averaging._fixed_point import BITS, Wide
from eigenmesh.averaging._tree import Tree, TreeAverage
from eigenmesh.errors import InputError
from eigenmesh.graphs import Weights


@dataclass(frozen=True)
class Integers:
    """Convert numbers to integers modulo 2^64 by public scales, sum them, and convert the sum back.

    A sum of integers has the same bits in any order, so results do not depend on the tree, the order of the nodes or
    the engine; and masks that cancel in the sum can hide the contribution of each node. Row j of a product ``C_i B``
    has the scale ``2^e_j >= M sqrt(C_jj tr C)``, known from the pooled variances; counts, sums and squares take two
    words.

    Parameters
    ----------
    over : Tree or AllReduce
        How the integers are summed.
    """

    over: Tree | AllReduce = field(default_factory=Tree)

    def __post_init__(self) -> None:
        if not isinstance(self.over, Tree | AllReduce):
            raise InputError(f"over = {self.over!r} must be Tree() or AllReduce().")

    def prepare(self, weights: Weights) -> IntegerAverage:
        return IntegerAverage(self.over.prepare(weights), weights.n_nodes)


@dataclass(frozen=True)
class IntegerAverage:
    """Integer averaging prepared for one network."""

    over: TreeAverage | AllReduceAverage
    n_nodes: int

    @property
    def rounds(self) -> int:
        return self.over.rounds

    @property
    def messages(self) -> int:
        return self.over.messages

    @property
    def in_turn(self) -> float:
        return self.over.in_turn

    @property
    def accuracy(self) -> float:
        """As for other averages, relative to the public size of a product, ``tr C``.

        Each node rounds by half a unit of ``2^(e_j - 62)`` at most and ``2^e_j`` is at most twice its bound, so an
        averaged column is off by less than ``M 2^-62 tr C``; the norm over all nodes is sqrt(M) times that of one.
        """
        # The factor 2 covers the slack that the bounds have against rounding.
        return float(np.sqrt(self.n_nodes) * 2.0 ** (1 - BITS))

    def total(self, network: LinearNetwork, words: np.ndarray) -> np.ndarray:
        """Sum over all nodes modulo 2^64, at every node: (nodes, ...) -> (nodes, ...) uint64."""
        return np.asarray(self.over.total(network, words))

    def __call__(self, network: LinearNetwork, array: Array) -> Array:
        """Average of numbers without known bounds, two words each; a network uses bounds where it knows them."""
        wide, flat = Wide(self.n_nodes), ea.to_numpy(array).reshape(len(array), -1)
        total = self.total(network, wide.encode(flat, range(len(flat))))
        return ea.like((wide.decode(total) / self.n_nodes).reshape(array.shape), array)
