"""The interface of a network: mix, mean, maximum."""

from __future__ import annotations

import hashlib
import math
import secrets
import time
from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, fields, replace
from functools import cached_property, partial
from math import prod
from typing import Any, Protocol, TypeAlias, TypeVar, overload

import numpy as np

from eigenmesh import arrays as ea
from eigenmesh.arrays import Array, Parts, everywhere, whole
from eigenmesh.averaging import (
    BITS,
    AllReduceAverage,
    Average,
    Averaging,
    ChebyshevAverage,
    FixedPoint,
    GossipAverage,
    IntegerAverage,
    LinearNetwork,
    LinearRound,
    Polynomial,
    Scaled,
    Tree,
    TreeAverage,
    Wide,
)
from eigenmesh.errors import DeadlineError, GraphError, InputError
from eigenmesh.graphs import NetworkSequence, Weights, circle_picture, half_way, over_time, pull, push
from eigenmesh.masking import Disclosure, Masks
from eigenmesh.transports import Transport
from eigenmesh.words import html_paragraphs, readable_bytes

# Traffic, and the one place where it is counted.


@dataclass
class Traffic:
    """Traffic of a run over the whole network."""

    rounds: int = 0
    """Synchronous neighbour exchanges."""
    messages: int = 0
    """Directed sends."""
    matrices: int = 0
    """Matrices that a node sends to each neighbour; FAST-PCA sends two per iteration."""
    bytes: int = 0
    """Bytes of payload."""

    def copy(self) -> Traffic:
        """A copy of the current counts."""
        return replace(self)

    def __add__(self, other: Traffic) -> Traffic:
        return Traffic(*(getattr(self, field.name) + getattr(other, field.name) for field in fields(self)))

    def __iadd__(self, other: Traffic) -> Traffic:
        for field in fields(self):
            setattr(self, field.name, getattr(self, field.name) + getattr(other, field.name))
        return self

    def __sub__(self, earlier: Traffic) -> Traffic:
        return Traffic(*(getattr(self, field.name) - getattr(earlier, field.name) for field in fields(self)))


class Counted:
    """Counts the messages of the whole network as rounds are requested."""

    def __init__(self) -> None:
        self.traffic = Traffic()
        # Number of rounds, by exchange and bytes per message; all-reduces use no link of the graph and are left out.
        self.exchanges: Counter[tuple[LinearRound, int]] = Counter()
        self._riding_bytes = 0
        self._sizes: dict[tuple[type, Any, Any], tuple[int, int]] = {}

    def link_traffic(self) -> dict[tuple[int, int], tuple[int, int]]:
        """Messages and bytes so far over each link of the graph, by (sender, receiver)."""
        messages, sent = Counter[tuple[int, int]](), Counter[tuple[int, int]]()
        for (exchange, size), rounds in self.exchanges.items():
            receivers, senders = exchange.sends
            for link in zip(senders.tolist(), receivers.tolist(), strict=True):
                messages[link] += rounds
                sent[link] += rounds * size
        return {link: (messages[link], sent[link]) for link in sorted(messages)}

    def _count_rounds(self, exchange: LinearRound, arrays: tuple[Array, ...], rounds: int = 1, riding: int = 0) -> None:
        self.exchanges[exchange, self._count(exchange.messages, arrays, rounds, riding)] += rounds

    def _count(self, messages: int, arrays: tuple[Array, ...], rounds: int = 1, riding: int = 0) -> int:
        """Count rounds of ``messages`` messages, each of the arrays and ``riding`` bytes; returns the bytes of one."""
        traffic, sent = self.traffic, riding
        traffic.rounds += rounds
        traffic.messages += messages * rounds
        for array in arrays:
            matrices, size = self._size(array)
            traffic.matrices += rounds * matrices
            sent += size
        traffic.bytes += messages * rounds * sent
        return sent

    def _size(self, array: Array) -> tuple[int, int]:
        """Matrices and bytes in one node's part of the array; cached, because every round needs it."""
        # The type is part of the key, because some libraries cannot compare their dtypes with those of others.
        key = (type(array), array.shape, array.dtype)
        if key not in self._sizes:
            shape = array.shape[1:]
            self._sizes[key] = (int(len(shape) >= 2), prod(shape) * ea.ITEM_BYTES)
        return self._sizes[key]


# State of a network with integer averages: public scales, masks, and the number of the next average.


# Upper bound of the sum of absolute values over all nodes: one number, or one per entry.
Bound = np.ndarray | float | None

# Slack for columns of the start that are not exactly unit vectors, and for rounding in rows without variance.
SLACK, LEAST_ROW = 1.01, 2.0**-20


@dataclass
class Masking:
    """Masks of the nodes in this process, in the order of their ids, and the number of the next average.

    ``columns`` counts the columns of products with the pooled covariance that all nodes have received so far.
    """

    masks: Sequence[Masks]
    number: int = 0
    columns: int = 0

    def added(self, words: np.ndarray) -> np.ndarray:
        """Add each node's masks to its words modulo 2^64: (nodes, ...) -> (nodes, ...). No number is used twice."""
        number, self.number = self.number, self.number + 1
        pairs = zip(self.masks, words, strict=True)
        return np.stack([masks.masked(number, own.ravel()).reshape(own.shape) for masks, own in pairs])

    def hear(self, numbers: np.ndarray) -> None:
        """Bind all later masks to numbers that all nodes have received: words of 64 bits, or numbers in float64.

        Masks of nodes that were told other numbers no longer cancel.
        """
        if numbers.dtype == np.uint64:
            data = np.ascontiguousarray(numbers, "<u8")
        else:
            # A maximum of zeros may have either sign, and NaN many forms.
            data = np.where(np.isnan(numbers), np.nan, numbers.astype("<f8") + 0.0).astype("<f8")
        digest = hashlib.sha256(data.tobytes()).digest()
        for masks in self.masks:
            masks.hear(digest)


@dataclass(frozen=True, eq=False)
class ProductScales:
    """Public bounds of products ``C_i b`` with ``|b| <= 1``.

    By Cauchy and Schwarz ``sum_i |(C_i b)_j| <= M sqrt(C_jj b^T C b) <= M sqrt(C_jj tr C)``.

    rows : (d,), bound of row j of ``sum_i |C_i b|``; size : tr C.
    """

    rows: np.ndarray
    size: float

    @classmethod
    def of(cls, diagonal: np.ndarray, n_nodes: int, trace: float | None = None) -> ProductScales:
        """From the diagonal (d,) of the pooled covariance, or a bound of it and the trace; the same bits everywhere."""
        # `fsum` rounds once, so it gives the same bits on every processor.
        total = math.fsum(diagonal.tolist()) if trace is None else trace
        return cls(SLACK * n_nodes * (np.sqrt(diagonal * total) + LEAST_ROW * total), SLACK * total)

    def size_of(self, averaged: float, n_nodes: int) -> float:
        """Bound of the average over all nodes of ``|C_i b|`` where ``|C b|`` is at most ``averaged``.

        It is at most ``sqrt(tr C b^T C b)``, again by Cauchy and Schwarz. The certificate takes the rounding of double
        precision from it, so it is made large enough to cover the rounding to integers, ``2 M 2^-62 tr C`` per column.
        """
        rounded_off = 2 * n_nodes * 2.0**-BITS / ea.EPS
        return max(math.sqrt(self.size * averaged), rounded_off * self.size)


class InIntegers(ABC):
    """The part of a network that averages in integers; inactive if ``integers`` is None."""

    integers: IntegerAverage | None
    # Public scales of products, once they are known, and masks, if there are any.
    scales: ProductScales | None
    masking: Masking | None

    @property
    @abstractmethod
    def n_nodes(self) -> int: ...

    @property
    @abstractmethod
    def ids(self) -> Sequence[int]: ...

    @property
    @abstractmethod
    def copies(self) -> int: ...

    def disclosure(self, n_features: int, whole: bool = False) -> Disclosure:
        """What all nodes have learned so far; ``whole``: the pooled covariance itself."""
        if self.masking is None:
            return Disclosure()
        columns, masks = n_features if whole else self.masking.columns, self.masking.masks[0]
        return Disclosure(self.n_nodes, n_features, columns, signed=masks.signed, left=masks.left)

    def given_masks(self) -> Masks | None:
        """Masks that the transport provides for this node; None if the fit makes its own keys."""
        return None

    @property
    def resolution(self) -> float:
        """Largest rounding error of a sum of any numbers over all nodes with integer averages, else 0."""
        return Wide(self.n_nodes).resolution if self.integers else 0.0

    def learn_scales(self, diagonal: np.ndarray, trace: float | None = None) -> None:
        """Take the scales of products from the diagonal of the pooled covariance, (d,), the same bits at all nodes.

        If the trace is given, the diagonal may be an upper bound.
        """
        if self.integers:
            self.scales = ProductScales.of(diagonal, self.n_nodes, trace)

    def size_of_products(self, norms: Array, averaged: Array) -> Array:
        """Size of the products ``C_i b`` for the certificate, from their norms and those of their average: (copies, 1).

        ``norms``, (nodes, ...), are those of the nodes in this process; nodes that share a copy of the average take the
        largest. Integer averages do not use them: no node reveals the size of its own products, and the public scales
        bound it.
        """
        xp = ea.namespace(norms)
        if not self.integers:
            return xp.max(xp.reshape(norms, (averaged.shape[0], -1)), axis=1, keepdims=True)
        if self.scales is None:
            raise InputError("integer averages need the pooled variances; call network.learn_scales first.")
        size = self.scales.size_of(float(xp.max(averaged)), self.n_nodes)
        return xp.asarray([[size]], dtype=norms.dtype, device=norms.device)

    def _integer_mean(self, total: Callable[[np.ndarray], np.ndarray], array: Array, bound: Bound) -> Array:
        """The average by ``total``, which sums words over all nodes modulo 2^64: (nodes, ...) -> (nodes, ...)."""
        codec = fixed_point(self.scales, bound, self.n_nodes)
        words = codec.encode(ea.to_numpy(array), self.ids)
        if self.masking is not None:
            words = self.masking.added(words)
            self.masking.columns += 0 if bound is not None or self.scales is None else array.shape[-1]
        summed = total(words)[:1]
        self._hear(summed)
        return ea.everywhere(ea.like(codec.decode(summed) / self.n_nodes, array), array.shape[0])

    def _hear(self, numbers: Array) -> None:
        """Bind masks to numbers (1, ...) that this node has received and acts on, and that all nodes have received."""
        if self.masking is not None:
            self.masking.hear(ea.to_numpy(numbers))


def fixed_point(scales: ProductScales | None, bound: Bound, n_nodes: int) -> FixedPoint:
    """Fixed-point format of an average: by its bound, else that of products; before scales are known, a wide one."""
    if bound is not None:
        return Scaled.within(bound)
    return Wide(n_nodes) if scales is None else Scaled.within(scales.rows[:, np.newaxis])


# How a notebook shows a network: its graph, and the traffic so far.


class NetworkView(Counted):
    """HTML of a network that counts its traffic."""

    @property
    @abstractmethod
    def _wiring(self) -> Weights | NetworkSequence:
        """The links."""

    def _repr_html_(self) -> str:
        sent, weights = self.traffic, self._wiring
        words = f"{sent.rounds:,} rounds, {sent.messages:,} messages, {readable_bytes(sent.bytes)} so far"
        if isinstance(weights, NetworkSequence):
            return f"<div>{html_paragraphs([f'{type(self).__name__}: {words}.'])}{weights._repr_html_()}</div>"
        about = f"{type(self).__name__} of {weights.n_nodes} nodes and {weights.edges} links: {words}"
        wider = "; links are wider the more went over them" if self.exchanges else ""
        over = Counter[frozenset[int]]()
        for link, (_, n_bytes) in self.link_traffic().items():
            over[frozenset(link)] += n_bytes
        return f"<div>{html_paragraphs([f'{about}{wider}.'])}{circle_picture(weights.graph, over)}</div>"


# Riders: values that travel in the messages of mixes, so that agreeing on their maxima costs no extra rounds.


class Riders(NetworkView):
    """The part of a network whose messages can carry a rider in addition to the arrays that are mixed."""

    def __init__(self) -> None:
        super().__init__()
        self._rider: Array | None = None
        self._rider_rounds = 0

    @property
    @abstractmethod
    def flood_rounds(self) -> int:
        """Rounds over all links after which every node has heard from every other."""

    def ride(self, values: Array) -> None:
        """Send values (nodes, k) with the following mixes, so that all agree on their maximum without extra rounds."""
        self._rider, self._rider_rounds, self._riding_bytes = values, 0, self._size(values)[1]

    def ridden(self) -> Array | None:
        """The elementwise maximum of the rider, once all nodes know it; None before that, or if there is no rider."""
        if self._rider is None or self._rider_rounds < self.flood_rounds:
            return None
        agreed = self._end_of_ride(self._rider)
        self._rider, self._riding_bytes = None, 0
        return agreed

    @property
    def riding(self) -> bool:
        """Whether there is a rider."""
        return self._rider is not None

    def _end_of_ride(self, rider: Array) -> Array:
        """The maximum of a rider that has travelled over enough links."""
        return rider


# Rounds of mixing that shrink disagreement and conserve the sum over the nodes.


class Mixes(Protocol):
    """Some rounds of mixing for sums S and their push weights y, both with a leading axis over nodes.

    S and y go through the same linear map, whose columns sum to one. It conserves the sums of S and of y over the nodes
    (counting messages on their way), so ``S_i / y_i`` tends to the mean of all S if y started as ones. ``accuracy`` is
    the factor by which disagreement shrinks.
    """

    @property
    def rounds(self) -> int: ...
    @property
    def accuracy(self) -> float: ...
    def __call__(self, network: LinearNetwork, S: Array, y: Array) -> tuple[Array, Array]: ...


@dataclass(frozen=True)
class AveragingMixes:
    """Mixes by an averaging method with few rounds. It maps ones to ones, so y does not change."""

    average: Average

    @property
    def rounds(self) -> int:
        return self.average.rounds

    @property
    def accuracy(self) -> float:
        return self.average.accuracy

    def __call__(self, network: LinearNetwork, S: Array, y: Array) -> tuple[Array, Array]:
        return self.average(network, S), y


@dataclass(frozen=True)
class PushMixes:
    """Plain rounds with weights whose columns sum to one; ``mix`` does one round on several arrays."""

    rounds: int
    accuracy: float
    mix: Callable[..., Any]

    def __call__(self, network: LinearNetwork, S: Array, y: Array) -> tuple[Array, Array]:
        for _ in range(self.rounds):
            S, y = self.mix(S, y)
        return S, y


def rounds_to_contract(wanted: float, contraction: float) -> int:
    """Least m >= 1 with ``contraction^m <= wanted``."""
    return 1 if contraction <= wanted else math.ceil(math.log(wanted) / math.log(contraction))


def pull_and_push(weights: Weights) -> tuple[LinearRound, LinearRound]:
    """Half-way rounds whose rows sum to one, and whose columns do; one of the two comes from the weights themselves."""
    rows, columns = (pull(weights.graph), weights) if weights.keeps_mean else (weights, push(weights.graph))
    return LinearRound(half_way(rows.matrix)), LinearRound(half_way(columns.matrix))


# Single rounds over a network with fixed weights: mix, lazy mix, push and pull.


class SingleRounds(Riders):
    """The part of a network that does one linear round at a time, and counts it."""

    @property
    @abstractmethod
    def weights(self) -> Weights:
        """The mixing weights; raises if they change over time."""

    @cached_property
    def _mixing(self) -> LinearRound:
        return LinearRound(self.weights.matrix)

    @cached_property
    def _lazy_mixing(self) -> LinearRound:
        return LinearRound(half_way(self.weights.matrix))

    @cached_property
    def _pull_and_push(self) -> tuple[LinearRound, LinearRound]:
        return pull_and_push(self.weights)

    @abstractmethod
    def _combine(self, exchange: LinearRound, arrays: tuple[Array, ...]) -> tuple[Array, ...]:
        """Do one linear round."""

    def combine(self, exchange: LinearRound, *arrays: Array) -> tuple[Array, ...]:
        """Do one linear round on each of the arrays, all in one message, and count it."""
        self._begin_round(exchange, arrays)
        return self._combine(exchange, arrays)

    @abstractmethod
    def send_down(self, levels: tuple[LinearRound, ...], root: int, array: Array) -> Array:
        """Send the root's part of an array down a tree, bit for bit, and count it: (nodes, ...) -> (nodes, ...)."""

    def _begin_round(self, exchange: LinearRound, arrays: tuple[Array, ...]) -> None:
        self._count_rounds(exchange, arrays, riding=self._riding_bytes)
        self._rider_rounds += exchange.messages == self._mixing.messages

    @overload
    def mix(self, array: Array, /) -> Array: ...
    @overload
    def mix(self, first: Array, second: Array, /, *more: Array) -> tuple[Array, ...]: ...
    def mix(self, *arrays: Array) -> Array | tuple[Array, ...]:
        """One round: ``mix(X)_i = sum_j w_ij X_j``; several arrays share the round and its messages."""
        mixed = self.combine(self._mixing, *arrays)
        return mixed if len(arrays) > 1 else mixed[0]

    def lazy_mix(self, *arrays: Array) -> tuple[Array, ...]:
        """One half-way round: ``1/2 X_i + 1/2 sum_j w_ij X_j`` of each array, all in one message."""
        return self.combine(self._lazy_mixing, *arrays)

    def push_pull(self, X: Array, S: Array) -> tuple[Array, Array]:
        """One half-way round in one message: X with rows that sum to one, S with columns that sum to one.

        X is unchanged where all nodes agree; S conserves its sum over the nodes. If the weights do both, this is
        ``lazy_mix``; if they do only one, equal shares are used for the other (``graphs.pull``, ``graphs.push``).
        """
        if self.weights.averages:
            X, S = self.lazy_mix(X, S)
            return X, S
        pull, push = self._pull_and_push
        self._begin_round(push, (X, S))
        return self._combine_both(pull, push, X, S)

    def _combine_both(self, first: LinearRound, second: LinearRound, X: Array, S: Array) -> tuple[Array, Array]:
        """Two linear rounds over the same links in one message, one for each array."""
        return self._combine(first, (X,))[0], self._combine(second, (S,))[0]


# Nodes that do not wait for each other: their interface, and a driver in real time.


# Arrays that one node sends to one neighbour.
Message: TypeAlias = tuple[np.ndarray, ...]


class Paced(Protocol):
    """A node without a clock: its driver calls ``tick``, passes on messages, and runs its work."""

    @property
    def rank(self) -> int: ...
    @property
    def ready_to_meet(self) -> bool:
        """Whether all nodes have ended the work before their next meeting."""
        ...

    @property
    def working(self) -> bool: ...
    @property
    def work_columns(self) -> int: ...
    def tick(self) -> list[tuple[int, Message]]: ...
    def receive(self, sender: int, message: Message) -> None: ...
    def require_heard(self) -> None:
        """Raise if a neighbour has been silent for too long."""
        ...

    def begin(self) -> Callable[[], Any] | None: ...
    def end(self, done: Any) -> None: ...


@dataclass(frozen=True)
class Pace:
    """Seconds between two ticks of a node; ``common``: all nodes tick by one clock, not each by its own."""

    tick_s: float
    common: bool

    def round_at(self, now: float) -> int:
        """Number of the tick at ``now``, the same at all nodes with a common clock."""
        return math.floor(now / self.tick_s + 1e-6)

    def next_tick(self, now: float) -> float:
        """Time of the next tick after one at ``now``."""
        return (self.round_at(now) + 1) * self.tick_s if self.common else now + self.tick_s


def drive(node: Paced, transport: Transport, pace: Pace) -> int:
    """Drive a node in real time until it is ready to meet and idle; returns its ticks. Work runs in another thread.

    Work that takes longer than the transport's deadline ends the run: the neighbours still hear this node, and would
    wait for its product for ever.
    """
    ticks, tick_at, end_at, work = 0, time.monotonic(), math.inf, None
    future: Future[Any] | None = None
    pool = ThreadPoolExecutor(1, thread_name_prefix=f"work-{node.rank}")
    try:
        while node.working or not node.ready_to_meet:
            if time.monotonic() >= tick_at:
                _post_tick(node, transport)
                if not node.ready_to_meet:
                    # Nodes that are done fall silent, which is no fault once all are ready.
                    node.require_heard()
                ticks, tick_at = ticks + 1, pace.next_tick(time.monotonic())
            if future is not None and future.done():
                node.end(future.result())
                future = None
            if future is None and (work := node.begin()) is not None:
                future, end_at = pool.submit(work), time.monotonic() + transport.deadline_s
            if future is not None and time.monotonic() > end_at:
                what = f"node {node.rank} has worked for {transport.deadline_s:g} s on one product"
                raise DeadlineError(f"{what}; it is stuck, or has too many samples.")
            take_in(node, transport, tick_at - time.monotonic())
    finally:
        # If the run has failed, do not wait for work that may be stuck.
        pool.shutdown(wait=False)
    # A last message, so that the neighbours learn that all are ready.
    _post_tick(node, transport)
    return ticks + 1


def _post_tick(node: Paced, transport: Transport) -> None:
    for receiver, message in node.tick():
        transport.post(receiver, message)


def take_in(node: Paced, transport: Transport, timeout_s: float) -> None:
    """Pass all received messages to the node; if there are none, wait for one until the timeout."""
    received = transport.collect(timeout_s)
    while received is not None:
        node.receive(*received)
        received = transport.collect(0.0)


# Averages and sums by the all-reduce of an engine such as MPI, which connects all nodes by itself.


# Shape and dtype of an array; the dtype also identifies the library.
Kind = tuple[tuple[int, ...], Any]


class AllReducing(Counted):
    """The part of a network that calls all-reduces of the engine and counts each as one round."""

    average: Average

    def __init__(self) -> None:
        super().__init__()
        self._reducers: dict[Kind, tuple[int, int, Callable[[Array], Array]]] = {}

    @property
    @abstractmethod
    def n_nodes(self) -> int: ...

    @abstractmethod
    def _mean_reducer(self, like: Array) -> Callable[[Array], Array]:
        """A function that averages over all nodes by an all-reduce, for arrays of one library, shape and dtype."""

    @abstractmethod
    def _reduced_sum(self, array: Array) -> Array:
        """Sum over all nodes by an all-reduce: (nodes, ...) -> (1 or nodes, ...)."""

    def reduced_mean(self, array: Array) -> Array:
        """Average over all nodes by the engine's all-reduce, and count it: (nodes, ...) -> (nodes, ...)."""
        if self._riding_bytes:
            self._count(self.average.messages, (array,), riding=self.n_nodes * self._riding_bytes)
            return self._mean_reducer(array)(array)
        # All that does not change is cached in one dictionary: next to a fast all-reduce, every Python step counts.
        try:
            matrices, sent, reduce = self._reducers[array.shape, array.dtype]
        except KeyError:
            matrices, size = self._size(array)
            sent, reduce = size * self.average.messages, self._mean_reducer(array)
            self._reducers[array.shape, array.dtype] = matrices, sent, reduce
        traffic = self.traffic
        traffic.rounds += 1
        traffic.messages += self.average.messages
        traffic.matrices += matrices
        traffic.bytes += sent
        return reduce(array)

    def reduced_sum(self, array: Array) -> Array:
        """Sum over all nodes by the engine's all-reduce, and count it: (nodes, ...) -> (nodes, ...)."""
        self._count(self.average.messages, (array,), riding=self.n_nodes * self._riding_bytes)
        return self._reduced_sum(array)


T = TypeVar("T")


class Network(SingleRounds, AllReducing, InIntegers, ABC):
    """Nodes that exchange arrays with their neighbours in rounds.

    Every array has a leading axis over *the nodes that this process holds*: all M when stacked, one at a peer. All
    nodes must call ``mix``, ``mean`` and ``maximum`` in the same order: a branch around such a call may depend only on
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

    def broadcast(self, values: np.ndarray) -> np.ndarray:
        """Broadcast the numbers of one node, bit for bit: (nodes, ...) -> (nodes, ...) float64.

        The root of the tree sends them down. Without a tree they are the maximum of node 0's numbers and the smallest
        float elsewhere.
        """
        own = np.ascontiguousarray(values, dtype=np.float64)
        if isinstance(self._over, TreeAverage):
            # As integers, because a product with zero loses the sign of zero.
            sent = np.asarray(self._over.broadcast(self, own.view(np.uint64)))
            self._hear(sent[:1])
            return sent.view(np.float64)
        return np.asarray(self.maximum(self._of_node_0(own).reshape(len(own), -1))).reshape(own.shape)

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

    def common_mean_and_maximum(self, array: Array, values: Array) -> tuple[Array, Array]:
        """``common_mean(array)`` and ``maximum(values)`` in the same messages.

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

    def maximum_after_mean(self, array: Array, follows: Callable[[Array], tuple[T, Array]]) -> tuple[T, Array]:
        """``result, values = follows(shared_mean(array))``; returns ``result, maximum(values)``."""
        result, values = follows(self.shared_mean(array))
        return result, self.maximum(values)

    @property
    def flood_ends_average(self) -> bool:
        """Whether an average continues until all nodes agree that it is accurate.

        Such an average takes many rounds, and maxima after it few.
        """
        return False

    def private_bytes(self, count: int) -> bytes:
        """Bytes that no other process knows."""
        return secrets.token_bytes(count)

    def maximum(self, values: Array) -> Array:
        """Elementwise maximum, the same bits at all nodes; one NaN gives NaN at all: (nodes, ...) -> (nodes, ...)."""
        if self.collective:
            # Each value is sent with a flag for NaN, because engines differ in how their maximum treats NaN.
            self._count(self.average.messages, (values, values))
        else:
            self._count_rounds(self._mixing, (values,), self.weights.spectrum.diameter)
        agreed = self._maximum(values)
        self._hear(agreed[:1, ...])
        return agreed


# Rounds of a network that changes or loses messages, and maxima by floods that record who has heard from whom.


# Nodes that have not heard from each other give up after HORIZON_PER_NODE * M + HORIZON rounds.
HORIZON_PER_NODE, HORIZON = 16, 64
# Extra rounds of a flood, beyond the measured number.
SPARE_ROUNDS = 4


class Flooding(Network):
    """The nodes of a ``NetworkSequence``, its rounds, and ``maximum``.

    At the first call the nodes measure how many rounds it takes until all have heard from all, by floods of 1, 2, 4,
    ... rounds. All nodes know the links of every round, and so who has heard from whom: a later flood that has missed a
    node continues, and raises an error that names it if that does not help.
    """

    def __init__(self, sequence: NetworkSequence, average: Average) -> None:
        self.sequence = over_time(sequence)
        self._arrived = Traffic()
        self._round = self._in_turn = self._flood_rounds = 0
        self._heard = np.zeros((0, 0), dtype=bool)
        self._link_messages, self._link_bytes = (np.zeros((self.n_nodes, self.n_nodes), dtype=int) for _ in range(2))
        self._begin(average)

    @property
    def _wiring(self) -> NetworkSequence:
        return self.sequence

    @property
    def n_nodes(self) -> int:
        return self.sequence.n_nodes

    @property
    def ids(self) -> Sequence[int]:
        """All nodes; in a subclass the nodes in this process."""
        return range(self.n_nodes)

    @property
    def links(self) -> Sequence[tuple[int, int]]:
        return ()

    @property
    def arrived(self) -> Traffic:
        return self._arrived

    def send(self, arrays: tuple[Array, ...]) -> tuple[np.ndarray, list[np.ndarray]]:
        """Start a round that sends the arrays: its weights, and the delay of each copy of a message, -1 if lost."""
        weights = self.sequence.weights_at(self._round)
        links = (weights > 0) & ~np.eye(self.n_nodes, dtype=bool)
        copies = [np.where(links, late, -1) for late in self.sequence.arrivals(self._round)]
        n_bytes = self._count(int(links.sum()), arrays, riding=self._riding_bytes)
        arrived = sum(int((late >= 0).sum()) for late in copies)
        self._arrived += Traffic(1, arrived, 0, arrived * n_bytes)
        self._in_turn += int(links.sum(axis=0).max())
        self._link_messages += links
        self._link_bytes += links * n_bytes
        self._round += 1
        if self._rider is not None:
            on_time = _on_time(copies)
            self._heard = _heard_after(self._heard, on_time)
            self._rider_rounds += 1
            self._spread_rider(self._rider, on_time)
        return weights, copies

    def _spread_rider(self, rider: Array, on_time: np.ndarray) -> None:
        self._rider = self._spread(rider, on_time)

    def _spread(self, values: Array, on_time: np.ndarray) -> Array:
        """Maxima over the messages that arrive in their round, ``on_time`` (M, M); late ones count as lost."""
        return np.stack([values[senders].max(axis=0) for senders in on_time])

    def link_traffic(self) -> dict[tuple[int, int], tuple[int, int]]:
        places = np.argwhere(self._link_messages.T).tolist()
        return {(j, i): (int(self._link_messages[i, j]), int(self._link_bytes[i, j])) for j, i in places}

    @property
    def flood_rounds(self) -> int:
        if not self._flood_rounds:
            self._flood_rounds = self._measured_flood()
        return self._flood_rounds

    def maximum(self, values: Array) -> Array:
        rounds = self.flood_rounds
        agreed, heard = self._flood(self._rows(values), rounds)
        while not heard.all():
            self._require_time_left(heard, rounds)
            agreed, heard = self._flood(agreed, SPARE_ROUNDS, heard)
            rounds += SPARE_ROUNDS
        return agreed[: len(values)].reshape(values.shape)

    def _rows(self, values: Array) -> Array:
        """Values as rows (nodes, n), one per node in this process; a single row is repeated."""
        return np.broadcast_to(values.reshape(len(values), -1), (len(self.ids), values[0].size))

    def ride(self, values: Array) -> None:
        super().ride(values)
        self._heard = np.eye(self.n_nodes, dtype=bool)

    def ridden(self) -> Array | None:
        if self._rider is not None and not self._heard.all():
            self._require_time_left(self._heard, self._rider_rounds)
            return None
        return super().ridden()

    def _flood(self, values: Array, rounds: int, heard: np.ndarray | None = None) -> tuple[Array, np.ndarray]:
        """Neighbour maxima over the given rounds, (nodes, n), and who has heard from whom, (M, M).

        ``heard`` is who had heard from whom before, if this continues a flood.
        """
        heard = np.eye(self.n_nodes, dtype=bool) if heard is None else heard
        for _ in range(rounds):
            on_time = _on_time(self.send((values,))[1])
            values, heard = self._spread(values, on_time), _heard_after(heard, on_time)
        return values, heard

    def _measured_flood(self) -> int:
        """Rounds after which all have heard from all, by floods of 1, 2, 4, ... rounds, and some spare rounds.

        Each flood also carries which nodes had heard from all in the flood before. A node that hears from all nodes
        that they had, knows that the flood before was long enough.
        """
        rounds, enough = 1, False
        while True:
            heard = self._flood(np.zeros((len(self.ids), 1)), rounds)[1]
            if enough and heard.all():
                return rounds + SPARE_ROUNDS
            self._require_time_left(heard, rounds)
            enough, rounds = bool(heard.all()), 2 * rounds

    def _require_time_left(self, heard: np.ndarray, rounds: int) -> None:
        """Raise GraphError if a node has not heard from another one for so long that it never will."""
        if heard.all() or rounds <= HORIZON_PER_NODE * self.n_nodes + HORIZON:
            return
        node = int(np.argmin(heard.sum(axis=1)))
        silent = ", ".join(str(other) for other in np.flatnonzero(~heard[node])[:5])
        unheard = f"node {node} has not heard from node {silent} within {rounds} rounds"
        raise GraphError(f"{unheard}: the network is not connected over this time; add links, or lose fewer messages.")


def _on_time(copies: list[np.ndarray]) -> np.ndarray:
    """Which receiver (row) hears from which sender (column) in the round itself, each also from itself: (M, M)."""
    return np.asarray(np.logical_or.reduce([late == 0 for late in copies]) | np.eye(len(copies[0]), dtype=bool))


def _heard_after(heard: np.ndarray, on_time: np.ndarray) -> np.ndarray:
    """Who has heard from whom after one more round, directly or through others: (M, M)."""
    return np.asarray((on_time.astype(np.int64) @ heard.astype(np.int64)) > 0)
