"""The interface of a network: mix, mean, worst."""

from __future__ import annotations

import math
import secrets
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from typing import TypeVar

import numpy as np

from eigenmesh import arrays as ea
from eigenmesh.arrays import Array, Parts, everywhere, whole
from eigenmesh.averaging import Average, Averaging, Polynomial, Tree
from eigenmesh.averaging._allreduce import AllReduceAverage
from eigenmesh.averaging._gossip import ChebyshevAverage, GossipAverage
from eigenmesh.averaging._integers import IntegerAverage
from eigenmesh.averaging._tree import TreeAverage
from eigenmesh.errors import GraphError, InputError
from eigenmesh.graphs import NetworkSequence, Weights
from eigenmesh.networks._all_reduce import AllReducing
from eigenmesh.networks._integers import Bound, InIntegers
from eigenmesh.networks._mixes import AveragingMixes, Mixes, PushMixes, rounds_to_contract
from eigenmesh.networks._paced import Pace, Paced
from eigenmesh.networks._single_rounds import SingleRounds
from eigenmesh.networks._traffic import Traffic

T = TypeVar("T")


class Network(SingleRounds, AllReducing, InIntegers, ABC):
    """Nodes that exchange arrays with their neighbours in rounds.

    Every array has a leading axis over *the nodes that this process holds*: all M when stacked, one at a peer. All
    nodes must call ``mix``, ``mean`` and ``worst`` in the same order: a branch around such a call may depend only on
    values that every node agrees on.
    """

    def __init__(self, weights: Weights, averaging: Averaging | None = None) -> None:
        self._weights = weights
        self._begin((averaging or Tree()).prepare(weights))

    def _begin(self, average: Average) -> None:
        super().__init__()
        self.average = average
        self.integers = self.average if isinstance(self.average, IntegerAverage) else None
        self._over = self.average if self.integers is None else self.integers.over
        # With an all-reduce the engine connects all nodes; maxima use it too.
        self.collective = isinstance(self._over, AllReduceAverage)
        self.scales, self.masking = None, None
        self._mixes: dict[float, Mixes] = {}

    @property
    def weights(self) -> Weights:
        """The mixing weights; raises if they change over time."""
        return self._weights

    @property
    def _wiring(self) -> Weights | NetworkSequence:
        return self._weights

    @property
    def n_nodes(self) -> int:
        """M, the number of nodes of the whole network."""
        return self.weights.n_nodes

    @property
    def links(self) -> Sequence[tuple[int, int]]:
        """Links of the graph, pairs of nodes; empty if they change over time."""
        return tuple(self.weights.graph.edges)

    @property
    def arrived(self) -> Traffic:
        """The part of the traffic that has arrived: all of it, unless links lose messages."""
        return self.traffic

    @property
    def flood_rounds(self) -> int:
        """Rounds over all links after which every node has heard from every other."""
        return self.weights.spectrum.diameter

    @property
    def contraction(self) -> float:
        """Factor by which one round of mixing shrinks disagreement."""
        return self.weights.spectrum.beta

    @property
    def second_eigenvalue(self) -> float:
        """lambda_2 of the weights, or the contraction if they change over time."""
        return self.weights.spectrum.second

    @property
    def chance(self) -> float:
        """Bound on the probability that any average so far was less accurate than claimed."""
        return 0.0

    def require_sums_kept(self) -> None:
        """Raise GraphError unless mixing conserves the sum over all nodes: every column of the weights sums to one."""
        if not self.weights.keeps_mean:
            what = "columns of these weights do not sum to 1, so mixing does not conserve the sum over all nodes"
            raise GraphError(f"{what}; use push or balanced weights, or the solver block-krylov, which does not mix.")

    def limit_rounds(self, max_rounds: int) -> None:
        """Raise InputError if one average takes more rounds than a whole run may, and by a tree would take fewer."""
        rounds = self.average.rounds
        if rounds <= max_rounds or rounds <= (by_tree := Tree().prepare(self.weights).rounds):
            return
        too_many = f"one average takes {rounds:,} rounds on this network, and max_rounds = {max_rounds:,}"
        raise InputError(f'{too_many}; use averaging="tree", which takes {by_tree:,}, or raise max_rounds.')

    def mixes(self, rounds: int, before: Mixes | None = None) -> Mixes:
        """The given number of mixing rounds; messages of the mixes ``before`` that are still on their way count."""
        self.require_sums_kept()
        if not self.weights.averages:
            return PushMixes(rounds, self.contraction**rounds, self.mix)
        if self.weights.symmetric:
            return AveragingMixes(ChebyshevAverage.of_rounds(self.weights, rounds))
        return AveragingMixes(GossipAverage(self._mixing, rounds))

    def mixes_to(self, contraction: float, before: Mixes | None = None) -> Mixes:
        """Enough mixing rounds to shrink disagreement by this factor; ``before`` as for ``mixes``."""
        if not self.weights.averages:
            return self.mixes(rounds_to_contract(contraction, self.contraction), before)
        # Rounded down to a power of two, so that few polynomials must be computed.
        power = 2.0 ** math.floor(math.log2(contraction))
        if power not in self._mixes:
            self._mixes[power] = AveragingMixes(Polynomial(power).prepare(self.weights))
        return self._mixes[power]

    def run_paced(self, nodes: Sequence[Paced], pace: Pace) -> None:
        """Let nodes act at their own pace, without rounds, until all of them are ready to meet."""
        self.require_time()

    def require_time(self) -> None:
        """Raise unless nodes can act at their own pace on this network."""
        what = f"nodes at their own pace need real or virtual time, and {type(self).__name__} has none"
        raise InputError(f'{what}; use transport="threads", or eigenmesh simulate.')

    @property
    @abstractmethod
    def ids(self) -> Sequence[int]:
        """Global ids of the nodes in this process."""

    @abstractmethod
    def _maximum(self, values: Array) -> Array:
        """Elementwise maximum over all nodes, by ``diameter`` rounds of neighbour maxima or by an all-reduce."""

    @abstractmethod
    def _common_mean_and_maximum(self, array: Array, values: Array) -> tuple[Array, Array]:
        """``common_mean(array)``, counted, and the maximum of values, not counted."""

    def mean(self, array: Array | Parts, bound: Bound = None) -> Array:
        """Average over all nodes, to ``self.average.accuracy``: (nodes, ...) -> (nodes, ...).

        Only integer averages need ``bound``, a public number or array: an upper bound of ``sum_i |array_i|`` for each
        entry. Without it the array must be a product ``C_i B``, (nodes, d, k), with columns of B of norm at most 1; or,
        before the scales of products are known (``learn_scales``), any numbers (nodes, n).
        """
        array = whole(array)
        if self.integers is not None:
            return self._integer_mean(partial(self.integers.total, self), array, bound)
        return self.reduced_mean(array) if self.collective else self.average(self, array)

    def from_root(self, values: np.ndarray) -> np.ndarray:
        """Broadcast the numbers of one node, bit for bit: (nodes, ...) -> (nodes, ...) float64.

        The root of the tree sends them down. Without a tree they are the maximum of node 0's numbers and the smallest
        float elsewhere.
        """
        own = np.ascontiguousarray(values, dtype=np.float64)
        if isinstance(self._over, TreeAverage):
            # As integers, because a product with zero loses the sign of zero.
            sent = np.asarray(self._over.from_root(self, own.view(np.uint64)))
            self._hear(sent[:1])
            return sent.view(np.float64)
        return np.asarray(self.worst(self._of_node_0(own).reshape(len(own), -1))).reshape(own.shape)

    def _of_node_0(self, values: np.ndarray) -> np.ndarray:
        """Numbers whose maximum over all nodes are those of node 0: (nodes, ...) -> (nodes, ...)."""
        is_first = np.reshape([node == 0 for node in self.ids], (-1, *[1] * (values.ndim - 1)))
        return np.where(is_first, values, np.finfo(np.float64).min)

    def same_bits(self, common: Array) -> Array:
        """An average with the same bits at all nodes: that of one node where they differ: (copies, ...) -> (1, ...)."""
        if self.alike:
            return common
        return ea.like(self.from_root(everywhere(ea.to_numpy(common), len(self.ids)))[:1, ...], common)

    @contextmanager
    def over_tree(self) -> Iterator[None]:
        """Average over a tree meanwhile if other averages would leave nodes with different last digits."""
        before = self.average, self._over
        if not self.alike:
            self.average = self._over = Tree().prepare(self.weights)
        try:
            yield
        finally:
            self.average, self._over = before

    @property
    def alike(self) -> bool:
        """Whether all nodes receive the same bits of an average."""
        return self.collective or isinstance(self._over, TreeAverage)

    @property
    def copies(self) -> int:
        """Copies of an average that this process holds: one if all nodes receive the same bits, else one per node.

        What is computed from an average that all nodes receive from the root of a tree is computed once for all of
        them. Other averages leave nodes with different last digits.
        """
        return 1 if self.alike else len(self.ids)

    def common_mean(self, array: Array | Parts, bound: Bound = None) -> Array:
        """The average, one copy where all nodes receive the same bits: (nodes, ...) -> (copies, ...)."""
        return self.mean(array, bound)[: self.copies, ...]

    def shared_mean(self, array: Array | Parts, bound: Bound = None) -> Array:
        """The average with the same bits at all nodes, that of one node where they differ: (nodes, ...) -> (1, ...).

        Nodes that take eigenvectors of an average need this one: where eigenvalues are equal, or nearly so, other last
        digits are other eigenvectors, and the next product would be of blocks that differ from node to node.
        """
        return self.same_bits(self.common_mean(array, bound))

    def common_mean_and_worst(self, array: Array, values: Array) -> tuple[Array, Array]:
        """``common_mean(array)`` and ``worst(values)`` in the same messages.

        An exact average takes at least as many rounds as the diameter, so the maxima travel with it at no extra round.
        In an all-reduce, which can only sum, each node writes its values into its own slot.
        """
        rider, riding = self._rider, self._riding_bytes
        self._riding_bytes = self._size(values)[1]
        try:
            averaged, agreed = self._common_mean_and_maximum(array, values)
        finally:
            self._rider, self._riding_bytes = rider, riding
        self._count_rounds(self._mixing, (values,), self._extra_rounds)
        self._hear(agreed[:1, ...])
        return averaged, agreed

    @property
    def _extra_rounds(self) -> int:
        """Further rounds of neighbour maxima that maxima need after an average they travelled with."""
        # An inaccurate average on a dense graph may take fewer rounds than the diameter.
        return 0 if self.collective else max(0, self.weights.spectrum.diameter - self.average.rounds)

    def worst_after_mean(self, array: Array, follows: Callable[[Array], tuple[T, Array]]) -> tuple[T, Array]:
        """``result, values = follows(shared_mean(array))``; returns ``result, worst(values)``."""
        result, values = follows(self.shared_mean(array))
        return result, self.worst(values)

    @property
    def flood_ends_average(self) -> bool:
        """Whether an average continues until all nodes agree that it is accurate.

        Such an average takes many rounds, and maxima after it few.
        """
        return False

    def private_bytes(self, count: int) -> bytes:
        """Bytes that no other process knows."""
        return secrets.token_bytes(count)

    def worst(self, values: Array) -> Array:
        """Elementwise maximum, the same bits at all nodes; one NaN gives NaN at all: (nodes, ...) -> (nodes, ...)."""
        if self.collective:
            # Each value is sent with a flag for NaN, because engines differ in how their maximum treats NaN.
            self._count(self.average.messages, (values, values))
        else:
            self._count_rounds(self._mixing, (values,), self.weights.spectrum.diameter)
        agreed = self._maximum(values)
        self._hear(agreed[:1, ...])
        return agreed
