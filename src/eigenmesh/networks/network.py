"""A network: nodes that mix, average and take maxima of arrays by exchanges between neighbours.

A network holds its parts. The `Meter` counts what is sent. The `Piggyback` has values that travel in the messages of
mixes. With integer averages, `ProductScales` say how numbers become integers, and `Masking` hides those of each node. A
subclass says how arrays get to neighbours: in `Stacked` by a product with a matrix, in `Peers` through a transport.
"""

from __future__ import annotations

import math
import secrets
from abc import ABC, abstractmethod
from collections.abc import Callable, Hashable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cached_property
from typing import Generic, NamedTuple, TypeVar, overload
from weakref import WeakKeyDictionary

import numpy as np

from eigenmesh import arrays as ea
from eigenmesh import averaging as av
from eigenmesh import graphs
from eigenmesh.arrays import Array, Parts, everywhere, whole
from eigenmesh.averaging import Averaging, LinearRound
from eigenmesh.errors import GraphError, InputError
from eigenmesh.graphs import Weights
from eigenmesh.masking import Disclosure, Masks
from eigenmesh.networks.codec import Bound, Masking, ProductScales, format_of
from eigenmesh.networks.mixes import AveragingMixes, Mixes, PushMixes, rounds_to_contract
from eigenmesh.networks.own_pace import Pace, Paced
from eigenmesh.networks.traffic import Meter, Traffic
from eigenmesh.transports import Transport

T = TypeVar("T")


@dataclass
class Piggyback:
    """Values that travel in the messages of mixes, so that agreeing on their maxima costs no extra rounds.

    ``values``, (nodes, k), are the largest that the nodes of this process have seen so far, or None. ``n_bytes`` is
    their part of a message, and ``rounds`` the number of rounds that they have travelled over all links.
    """

    values: Array | None = None
    n_bytes: int = 0
    rounds: int = 0


class Decided(NamedTuple, Generic[T]):
    """What follows from an average over a tree, and what its root decided from that.

    Attributes
    ----------
    result : object
        What each process made from the average.
    numbers : array of shape (n,)
        What the root decided, the same bits at all nodes.
    agreed : array of shape (nodes, ...)
        Maxima over all nodes that travelled with the average, in NumPy.
    """

    result: T
    numbers: np.ndarray
    agreed: np.ndarray


class Network(ABC):
    """Nodes that exchange arrays with their neighbours in rounds.

    Every array has a leading axis over *the nodes that this process holds*: all M when stacked, one at a peer. All
    nodes must call ``mix``, ``mean`` and ``maximum`` in the same order: a branch around such a call may depend only on
    values that every node agrees on.

    Parameters
    ----------
    weights : Weights
        The links, and the weights with which nodes mix.
    averaging : Averaging, optional
        How nodes average, by default over a tree.

    Attributes
    ----------
    n_nodes : int
        M, the number of nodes of the whole network.
    average : Average
        The averaging, prepared for this network.
    meter : Meter
        Counts what is sent.
    integers : IntegerAverage or None
        The averaging, if averages are sums of integers.
    scales : ProductScales or None
        Public scales of products with integer averages, once all nodes know the pooled variances.
    masking : Masking or None
        Hides the integers of each node, if the nodes have agreed on masks.
    """

    def __init__(self, weights: Weights, averaging: Averaging | None = None) -> None:
        self._weights, self.n_nodes = weights, weights.n_nodes
        self._begin(_prepared(averaging or av.Tree(), weights))

    def _begin(self, average: av.Average) -> None:
        self.average = self._over = average
        self.meter, self._piggyback = Meter(), Piggyback()
        self.integers: av.IntegerAverage | None = None
        self.scales: ProductScales | None = None
        self.masking: Masking | None = None
        if isinstance(average, av.IntegerAverage):
            self.integers, self._over = average, average.over
        # With an all-reduce the engine connects all nodes; maxima use it too.
        self.collective = isinstance(self._over, av.AllReduceAverage)
        self._mixes: dict[float, Mixes] = {}

    # How arrays get to neighbours: what a subclass has to say.

    n_nodes: int
    # What connects the nodes, if this process holds one of them.
    transport: Transport | None = None

    @property
    @abstractmethod
    def ids(self) -> Sequence[int]:
        """Global ids of the nodes in this process."""

    @abstractmethod
    def _combine(self, exchange: LinearRound, arrays: tuple[Array, ...]) -> tuple[Array, ...]:
        """Do one linear round."""

    def _combine_both(self, first: LinearRound, second: LinearRound, X: Array, S: Array) -> tuple[Array, Array]:
        """Two linear rounds over the same links in one message, one for each array."""
        return self._combine(first, (X,))[0], self._combine(second, (S,))[0]

    @abstractmethod
    def send_down(self, levels: tuple[LinearRound, ...], root: int, array: Array) -> Array:
        """Send the root's part of an array down a tree, bit for bit, and count it: (nodes, ...) -> (nodes, ...)."""

    @abstractmethod
    def _packed_sum(self, tree: av.TreeAverage, array: Array | Parts, bits: int) -> tuple[np.ndarray, np.ndarray]:
        """Sum up a tree in numbers of few bits, and count it; the root has the sum (1, d, b) and its errors (1, b)."""

    @abstractmethod
    def _tree_maxima(self, tree: av.TreeAverage, values: Array) -> Array:
        """Maxima over all nodes, up and down a tree, and count them: (nodes, n) -> (nodes, n)."""

    @abstractmethod
    def _neighbour_maxima(self, values: Array, rounds: int) -> Array:
        """Maxima over all nodes, by so many rounds in which each takes the maximum of its neighbours' (nodes, n)."""

    @abstractmethod
    def _reduced_mean(self, array: Array) -> Array:
        """Average over all nodes by an all-reduce: (nodes, ...) -> (nodes, ...)."""

    @abstractmethod
    def _reduced_sum(self, array: Array) -> Array:
        """Sum over all nodes by an all-reduce: (nodes, ...) -> (1 or nodes, ...)."""

    @abstractmethod
    def _reduced_maximum(self, values: Array) -> Array:
        """Elementwise maximum over all nodes by an all-reduce: (nodes, ...) -> (nodes, ...)."""

    # Facts about the network.

    @property
    def weights(self) -> Weights:
        """The mixing weights; raises if they change over time."""
        return self._weights

    @property
    def links(self) -> Sequence[tuple[int, int]]:
        """Links of the graph, pairs of nodes, or none if they change over time."""
        return tuple(self.weights.graph.edges)

    @property
    def traffic(self) -> Traffic:
        """What the whole network has sent so far."""
        return self.meter.traffic

    @property
    def arrived(self) -> Traffic:
        """The part of the traffic that has arrived: all of it, unless links lose messages."""
        return self.traffic

    def link_traffic(self) -> dict[tuple[int, int], tuple[int, int]]:
        """Messages and bytes so far over each link of the graph, by (sender, receiver)."""
        return self.meter.by_link()

    @property
    def flood_rounds(self) -> int:
        """Rounds over all links after which every node has heard from every other."""
        return self.weights.diameter

    @property
    def maximum_rounds(self) -> int:
        """Rounds of one ``maximum``."""
        return self.flood_rounds if self._tree is None else self._tree.rounds

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

    @property
    def flood_ends_average(self) -> bool:
        """Whether an average continues until all nodes agree that it is accurate.

        Such an average takes many rounds, and maxima after it few.
        """
        return False

    def require_sums_kept(self) -> None:
        """Raise GraphError unless mixing conserves the sum over all nodes: every column of the weights sums to one."""
        if not self.weights.keeps_mean:
            what = "columns of these weights do not sum to 1, so mixing does not conserve the sum over all nodes"
            raise GraphError(f"{what}; use push or balanced weights, or the solver block-krylov, which does not mix.")

    def limit_rounds(self, max_rounds: int) -> None:
        """Raise InputError if one average takes more rounds than a whole run may, and by a tree would take fewer."""
        rounds = self.average.rounds
        if rounds <= max_rounds or rounds <= (by_tree := av.Tree().prepare(self.weights).rounds):
            return
        too_many = f"one average takes {rounds:,} rounds on this network, and max_rounds = {max_rounds:,}"
        raise InputError(f'{too_many}; use averaging="tree", which takes {by_tree:,}, or raise max_rounds.')

    def private_bytes(self, count: int) -> bytes:
        """Bytes that no other process knows. A node that can resume gets the same ones again."""
        return secrets.token_bytes(count) if self.transport is None else self.transport.private_bytes(count)

    # Single rounds, and mixes of several.

    @cached_property
    def _mixing(self) -> LinearRound:
        return LinearRound(self.weights.matrix)

    @cached_property
    def _lazy_mixing(self) -> LinearRound:
        return LinearRound(graphs.half_way(self.weights.matrix))

    @cached_property
    def _pull_and_push(self) -> tuple[LinearRound, LinearRound]:
        """Half-way rounds whose rows sum to one, and whose columns do. The weights themselves are one of the two."""
        weights = self.weights
        by_rows, by_columns = (
            (graphs.pull(weights.graph), weights) if weights.keeps_mean else (weights, graphs.push(weights.graph))
        )
        return LinearRound(graphs.half_way(by_rows.matrix)), LinearRound(graphs.half_way(by_columns.matrix))

    def combine(self, exchange: LinearRound, *arrays: Array) -> tuple[Array, ...]:
        """Do one linear round on each of the arrays, all in one message, and count it."""
        self._begin_round(exchange, arrays)
        return self._combine(exchange, arrays)

    def _begin_round(self, exchange: LinearRound, arrays: tuple[Array, ...]) -> None:
        self.meter.count_rounds(exchange, arrays, extra=self._piggyback.n_bytes)
        self._piggyback.rounds += exchange.messages == self._mixing.messages

    @overload
    def mix(self, array: Array, /) -> Array: ...
    @overload
    def mix(self, first: Array, second: Array, /, *more: Array) -> tuple[Array, ...]: ...
    def mix(self, *arrays: Array) -> Array | tuple[Array, ...]:
        """One round: ``mix(X)_i = sum_j w_ij X_j``. Several arrays share the round and its messages."""
        mixed = self.combine(self._mixing, *arrays)
        return mixed if len(arrays) > 1 else mixed[0]

    def lazy_mix(self, *arrays: Array) -> tuple[Array, ...]:
        """One half-way round: ``1/2 X_i + 1/2 sum_j w_ij X_j`` of each array, all in one message."""
        return self.combine(self._lazy_mixing, *arrays)

    def push_pull(self, X: Array, S: Array) -> tuple[Array, Array]:
        """One half-way round in one message: X with rows that sum to one, S with columns that sum to one.

        X is unchanged where all nodes agree, and S conserves its sum over the nodes. If the weights do both, this is
        ``lazy_mix``. If they do only one, equal shares are used for the other (``graphs.pull``, ``graphs.push``).
        """
        if self.weights.averages:
            X, S = self.lazy_mix(X, S)
            return X, S
        pull, push = self._pull_and_push
        self._begin_round(push, (X, S))
        return self._combine_both(pull, push, X, S)

    def mixes(self, rounds: int, before: Mixes | None = None) -> Mixes:
        """The given number of mixing rounds. Messages of the mixes ``before`` that are still on their way count."""
        self.require_sums_kept()
        if not self.weights.averages:
            return PushMixes(rounds, self.contraction**rounds, self.mix)
        if self.weights.symmetric:
            return AveragingMixes(av.ChebyshevAverage.of_rounds(self.weights, rounds))
        return AveragingMixes(av.GossipAverage(self._mixing, rounds))

    def mixes_to(self, contraction: float, before: Mixes | None = None) -> Mixes:
        """Enough mixing rounds to shrink disagreement by this factor, with ``before`` as for ``mixes``."""
        if not self.weights.averages:
            return self.mixes(rounds_to_contract(contraction, self.contraction), before)
        # Rounded down to a power of two, so that few polynomials must be computed.
        power = 2.0 ** math.floor(math.log2(contraction))
        if power not in self._mixes:
            self._mixes[power] = AveragingMixes(av.Polynomial(power).prepare(self.weights))
        return self._mixes[power]

    # Values that travel with mixes.

    @property
    def piggybacking(self) -> bool:
        """Whether values travel with the mixes."""
        return self._piggyback.values is not None

    def piggyback(self, values: Array) -> None:
        """Send values (nodes, k) with the following mixes, so that all agree on their maximum without extra rounds."""
        self._piggyback = Piggyback(values, self.meter.size(values)[1])

    def piggybacked(self) -> Array | None:
        """The maxima of the values on the piggyback, once all nodes know them, or None before that."""
        carried = self._piggyback
        if carried.values is None or carried.rounds < self.flood_rounds:
            return None
        self._piggyback = Piggyback()
        return self._neighbour_maxima(carried.values, 0)

    # Averages.

    def mean(self, array: Array | Parts, bound: Bound = None) -> Array:
        """Average over all nodes, to ``self.average.accuracy``: (nodes, ...) -> (nodes, ...).

        Only integer averages need ``bound``, a public number or array: an upper bound of ``sum_i |array_i|`` for each
        entry. Without it the array must be a product ``C_i B``, (nodes, d, k), with columns of B of norm at most 1, or
        before the scales of products are known (``learn_scales``), any numbers (nodes, n).
        """
        array = whole(array)
        if self.integers is not None:
            return self._integer_mean(self.integers, array, bound)
        return self.reduced_mean(array) if self.collective else self.average(self, array)

    def _integer_mean(self, integers: av.IntegerAverage, array: Array, bound: Bound) -> Array:
        codec = format_of(bound, self.scales, self.n_nodes)
        if self.masking is not None:
            self.masking.columns += 0 if bound is not None or self.scales is None else array.shape[-1]
        summed = self.total(codec.encode(ea.to_numpy(array), self.ids))
        return everywhere(ea.like(codec.decode(summed) / self.n_nodes, array), array.shape[0])

    def total(self, words: np.ndarray) -> np.ndarray:
        """Sum of 64-bit words over all nodes modulo 2^64, masked if there are masks: (nodes, ...) -> (1, ...).

        Only networks with integer averages have it.
        """
        if self.integers is None:
            raise InputError('sums of words need integer averages; use averaging="integers", or masks.')
        if self.masking is not None:
            words = self.masking.added(words)
        summed = self.integers.total(self, words)[:1]
        self._hear(summed)
        return summed

    def reduced_mean(self, array: Array) -> Array:
        """Average over all nodes by the engine's all-reduce, and count it: (nodes, ...) -> (nodes, ...)."""
        self.meter.count(self.average.messages, (array,), extra=self.n_nodes * self._piggyback.n_bytes)
        return self._reduced_mean(array)

    def reduced_sum(self, array: Array) -> Array:
        """Sum over all nodes by the engine's all-reduce, and count it: (nodes, ...) -> (nodes, ...)."""
        self.meter.count(self.average.messages, (array,), extra=self.n_nodes * self._piggyback.n_bytes)
        return self._reduced_sum(array)

    def common_mean(self, array: Array | Parts, bound: Bound = None) -> Array:
        """The average, one copy where all nodes receive the same bits: (nodes, ...) -> (copies, ...)."""
        return self.mean(array, bound)[: self.copies, ...]

    def shared_mean(self, array: Array | Parts, bound: Bound = None) -> Array:
        """The average with the same bits at all nodes, that of one node where they differ: (nodes, ...) -> (1, ...).

        Nodes that take eigenvectors of an average need this one: where eigenvalues are equal, or nearly so, other last
        digits are other eigenvectors, and the next product would be of blocks that differ from node to node.
        """
        return self.same_bits(self.common_mean(array, bound))

    # What all nodes hold with the same bits.

    @property
    def alike(self) -> bool:
        """Whether all nodes receive the same bits of an average."""
        return self.collective or self._tree is not None

    @property
    def _tree(self) -> av.TreeAverage | None:
        """The tree over which averages are summed, or None."""
        return self._over if isinstance(self._over, av.TreeAverage) else None

    @property
    def copies(self) -> int:
        """Copies of an average that this process holds: one if all nodes receive the same bits, else one per node.

        What is computed from an average that all nodes receive from the root of a tree is computed once for all of
        them. Other averages leave nodes with different last digits.
        """
        return 1 if self.alike else len(self.ids)

    def broadcast(self, values: np.ndarray) -> np.ndarray:
        """Broadcast the numbers of one node, bit for bit: (nodes, ...) -> (nodes, ...) float64.

        The root of the tree sends them down. Without a tree they are the maximum of node 0's numbers and the smallest
        float elsewhere.
        """
        own = np.ascontiguousarray(values, dtype=np.float64)
        if self._tree is not None:
            # As integers, because a product with zero loses the sign of zero.
            sent = np.asarray(self._tree.broadcast(self, own.view(np.uint64)))
            self._hear(sent[:1])
            return sent.view(np.float64)
        return np.asarray(self.maximum(flat(self._of_node_0(own)))).reshape(own.shape)

    def _of_node_0(self, values: np.ndarray) -> np.ndarray:
        """Numbers whose maximum over all nodes are those of node 0: (nodes, ...) -> (nodes, ...)."""
        is_first = np.reshape([node == 0 for node in self.ids], (-1, *[1] * (values.ndim - 1)))
        return np.where(is_first, values, np.finfo(np.float64).min)

    def same_bits(self, common: Array) -> Array:
        """An average with the same bits at all nodes: that of one node where they differ: (copies, ...) -> (1, ...)."""
        if self.alike:
            return common
        return ea.like(self.broadcast(everywhere(ea.to_numpy(common), len(self.ids)))[:1, ...], common)

    @contextmanager
    def over_tree(self) -> Iterator[None]:
        """Average over a tree meanwhile if other averages would leave nodes with different last digits."""
        before = self.average, self._over
        if not self.alike:
            self.average = self._over = av.Tree().prepare(self.weights)
        try:
            yield
        finally:
            self.average, self._over = before

    # Maxima.

    def maximum(self, values: Array) -> Array:
        """Elementwise maximum, the same bits at all nodes: (nodes, ...) -> (nodes, ...). One NaN gives NaN.

        Where sums go over a tree, so do maxima: one message over each of its links up, and one down. Other nodes take
        the maximum of their neighbours' values as many times as the diameter.
        """
        # What travels with mixes needs them to go over all links.
        outer, self._piggyback = self._piggyback, Piggyback()
        try:
            agreed = self._maximum(values)
        finally:
            self._piggyback = outer
        self._hear(agreed[:1, ...])
        return agreed

    def _maximum(self, values: Array) -> Array:
        if self.collective:
            # Each value is sent with a flag for NaN, because engines differ in how their maximum treats NaN.
            self.meter.count(self.average.messages, (values, values))
            return self._reduced_maximum(values)
        if self._tree is not None:
            agreed = self._tree_maxima(self._tree, flat(values))
        else:
            self.meter.count_rounds(self._mixing, (values,), self.weights.diameter)
            agreed = self._neighbour_maxima(flat(values), self.weights.diameter)
        return ea.namespace(values).reshape(agreed, values.shape)

    def common_mean_and_maximum(self, array: Array, values: Array) -> tuple[Array, Array]:
        """``common_mean(array)`` and ``maximum(values)`` in the same messages.

        An exact average takes at least as many rounds as the diameter, so the maxima travel with it at no extra round.
        In an all-reduce, which can only sum, each node writes its values into its own slot.
        """
        outer, self._piggyback = self._piggyback, Piggyback(flat(values), self.meter.size(values)[1])
        try:
            averaged, carried = self.common_mean(array), self._piggyback.values
        finally:
            self._piggyback = outer
        # An inaccurate average on a dense graph may take fewer rounds than the diameter.
        more = 0 if self.collective else max(0, self.weights.diameter - self.average.rounds)
        agreed = ea.namespace(values).reshape(self._neighbour_maxima(carried, more), values.shape)
        self.meter.count_rounds(self._mixing, (values,), more)
        self._hear(agreed[:1, ...])
        return averaged, agreed

    @property
    def decides(self) -> bool:
        """Whether the root of a tree sees averages first, as in ``decided_mean_and_maximum``."""
        return isinstance(self.average, av.TreeAverage)

    def decided_mean_and_maximum(
        self,
        array: Array | Parts,
        values: Array,
        bits: int,
        follows: Callable[[np.ndarray, np.ndarray], T],
        decide: Callable[[T], np.ndarray],
        n_numbers: int,
    ) -> Decided[T]:
        """An average in numbers of few bits, ``maximum(values)``, and what the root decides, in the same messages.

        What nodes decide from eigenvectors and other rounded numbers may differ between processors. So the root decides
        before it sends the average down, and all others do as it says.

        Parameters
        ----------
        array, values : arrays of shapes (nodes, d, b) and (nodes, ...)
            What is averaged, and what the maximum is taken of.
        bits : int
            Bits of a number in each message, one of ``averaging.FEWER_BITS``, or all of them.
        follows : callable
            Makes the result of each process from the average (1, d, b), which has the same bits at all nodes, and
            bounds of what rounding to fewer bits took away from its columns (1, b).
        decide : callable
            Makes ``n_numbers`` numbers from the result where the root is.
        n_numbers : int
            How many numbers are decided.
        """
        tree, (_, d, b) = self.average, array.shape
        if not isinstance(tree, av.TreeAverage):
            raise InputError('only the root of a tree can decide; use averaging="tree".')
        values, at_root, result = ea.to_numpy(values), tree.root in self.ids, list[T]()
        outer, self._piggyback = self._piggyback, Piggyback(flat(values), self.meter.size(values)[1])
        try:
            total, errors = self._packed_sum(tree, array, bits)
            size = av.packed_bytes(d, b, bits)
            message = np.zeros((1, 1, size + 8 * n_numbers), np.uint8)
            if at_root:
                message[0, :, :size] = av.pack(total / self.n_nodes, errors / self.n_nodes, bits)
                result.append(follows(*av.unpack(message[0, :, :size], d, b, bits)))
                message[0, 0, size:] = np.asarray(decide(result[0]), dtype="<f8").view(np.uint8)
            sent = np.asarray(tree.broadcast(self, everywhere(message, len(self.ids))))[0, :, :]
            carried = self._piggyback.values
        finally:
            self._piggyback = outer
        if not at_root:
            result.append(follows(*av.unpack(sent[:, :size], d, b, bits)))
        numbers = np.array(sent[0, size:]).view("<f8")
        return Decided(result[0], numbers, np.reshape(self._neighbour_maxima(carried, 0), values.shape))

    # Integer averages: their scales and masks.

    @property
    def resolution(self) -> float:
        """Largest rounding error of a sum of any numbers over all nodes with integer averages, else 0."""
        return av.Wide(self.n_nodes).resolution if self.integers else 0.0

    def learn_scales(self, diagonal: np.ndarray, trace: float | None = None) -> None:
        """Take the scales of products from the diagonal of the pooled covariance, (d,), the same bits at all nodes.

        If the trace is given, the diagonal may be an upper bound.
        """
        if self.integers:
            self.scales = ProductScales.of(diagonal, self.n_nodes, trace)

    def size_of_products(self, norms: Array, averaged: Array) -> Array:
        """Size of the products ``C_i b`` for the certificate, from their norms and those of their average: (copies, 1).

        ``norms``, (nodes, ...), are those of the nodes in this process. Nodes that share a copy of the average take the
        largest. Integer averages do not use them, because no node reveals the size of its own products.
        """
        xp = ea.namespace(norms)
        if self.integers:
            if self.scales is None:
                raise InputError("integer averages need the pooled variances; call network.learn_scales first.")
            size = self.scales.size_of(float(xp.max(averaged)), self.n_nodes)
            return xp.asarray([[size]], dtype=norms.dtype, device=norms.device)
        return xp.max(xp.reshape(norms, (averaged.shape[0], -1)), axis=1, keepdims=True)

    def given_masks(self) -> Masks | None:
        """Masks that the transport provides for this node, or None if the fit makes its own keys."""
        return None if self.transport is None else self.transport.masks()

    def disclosure(self, n_features: int, whole: bool = False) -> Disclosure:
        """What all nodes have learned so far, and with ``whole`` the pooled covariance itself."""
        if self.masking is None:
            return Disclosure()
        columns, masks = n_features if whole else self.masking.columns, self.masking.masks[0]
        return Disclosure(self.n_nodes, n_features, columns, whole=whole, signed=masks.signed, left=masks.left)

    def _hear(self, numbers: Array) -> None:
        """Bind masks to numbers (1, ...) that this node has received and acts on, and that all nodes have received."""
        if self.masking is not None:
            self.masking.hear(ea.to_numpy(numbers))

    # Nodes at their own pace.

    def run_paced(self, nodes: Sequence[Paced], pace: Pace) -> None:
        """Let nodes act at their own pace, without rounds, until all of them are ready to meet."""
        self.require_time()

    def require_time(self) -> None:
        """Raise unless nodes can act at their own pace on this network."""
        what = f"nodes at their own pace need real or virtual time, and {type(self).__name__} has none"
        raise InputError(f'{what}; use transport="threads", or eigenmesh simulate.')


# Averagings that were prepared for weights that are still in use: a stream has the same network in every batch.
_PREPARED: WeakKeyDictionary[Weights, dict[Averaging, av.Average]] = WeakKeyDictionary()


def _prepared(averaging: Averaging, weights: Weights) -> av.Average:
    known = _PREPARED.setdefault(weights, {})
    if not isinstance(averaging, Hashable):
        return averaging.prepare(weights)
    if averaging not in known:
        known[averaging] = averaging.prepare(weights)
    return known[averaging]


def flat(values: Array) -> Array:
    """Values as vectors: transports may refuse infinity and NaN in matrices, but not in vectors."""
    return values if values.ndim == 2 else ea.namespace(values).reshape(values, (values.shape[0], -1))
