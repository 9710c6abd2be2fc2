"""The networks of a fit: of all nodes in this process or over a transport, for counting and for the fit itself."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from eigenmesh import averaging as averagings
from eigenmesh.arrays import ITEM_BYTES, NUMBER_BYTES, Array, as_bytes, as_numbers, to_numpy, whole
from eigenmesh.averaging import Average, Averaging, Integers, PushSum, Tree, name_of
from eigenmesh.errors import InputError, TransportError
from eigenmesh.graphs import NetworkSequence, Weights
from eigenmesh.graphs.changing import SAMPLED_ROUNDS
from eigenmesh.masking import KEY_BYTES, MIN_SITES, MaskContext, SiteKey, pairwise_masks
from eigenmesh.networks import Bound, Changing, ChangingRound, Decided, Masking, Meter, Network, Peers, Stacked
from eigenmesh.settings import Costs
from eigenmesh.transports import Transport

# Records the network calls of a run, and prices them for any averaging on any network.


class NetworkCall(NamedTuple):
    """One call of a network: bytes per message that are averaged, compared, mixed or spread, or None.

    To compare is to take the maximum over all nodes, to spread is to send the value of one node to all, and to make
    equal is to spread an average where nodes receive it with different last digits. ``messages`` is the number of
    messages of one round of mixing, over all nodes.
    """

    averaged: int | None = None
    compared: int | None = None
    mixed: int | None = None
    messages: int = 0
    spread: int | None = None
    made_equal: int | None = None


class SentRounds(NamedTuple):
    """Rounds with messages of one size; ``messages`` and ``in_turn`` as for ``Average``."""

    rounds: int
    messages: float
    in_turn: float
    message_bytes: int


@dataclass(frozen=True)
class Price:
    """Cost of network calls: rounds, messages and bytes over the whole network, and seconds."""

    rounds: float = 0
    messages: float = 0
    bytes: float = 0
    seconds: float = 0

    def __add__(self, other: Price) -> Price:
        return Price(*(mine + theirs for mine, theirs in zip(vars(self).values(), vars(other).values(), strict=True)))


class AllLinks(NamedTuple):
    """A round over all links; averages if the links change.

    ``messages``: of all nodes; ``most_receivers``: of the busiest node; ``flood_rounds``: rounds after which all nodes
    have heard from all.
    """

    n_nodes: int
    messages: float
    most_receivers: float
    flood_rounds: int

    @classmethod
    def of(cls, weights: Weights | NetworkSequence) -> AllLinks:
        if isinstance(weights, Weights):
            return cls(weights.n_nodes, weights.messages, weights.most_receivers, weights.diameter)
        sends = [(weights.weights_at(round_) > 0).sum(axis=0) - 1 for round_ in range(SAMPLED_ROUNDS)]
        messages, most = (float(np.mean(each)) for each in (np.sum(sends, axis=1), np.max(sends, axis=1)))
        return cls(weights.n_nodes, messages, most, Changing(weights).flood_rounds)


def prepared_average(averaging: Averaging, weights: Weights | NetworkSequence) -> Average:
    """The averaging on this network; on a network that changes, with the measured rounds of a push sum."""
    if isinstance(weights, Weights):
        return averaging.prepare(weights)
    network = Changing(weights, averaging if isinstance(averaging, PushSum) else None)
    for _ in range(2):
        # The first one measures how many rounds it takes.
        network.mean(np.zeros((weights.n_nodes, 1)))
    return network.average


class Prices:
    """Prices of network calls with one averaging on one network."""

    def __init__(self, weights: Weights | NetworkSequence, average: Average, costs: Costs) -> None:
        self.links, self.average, self.costs, self._weights = AllLinks.of(weights), average, costs, weights
        over = average.over if isinstance(average, averagings.IntegerAverage) else average
        self.collective = isinstance(over, averagings.AllReduceAverage)
        self._down = over.down if isinstance(over, averagings.TreeAverage) else None

    def over_tree(self) -> Prices:
        """Prices of the calls that a network makes over a tree, see ``Network.over_tree``."""
        if self.collective or self._down is not None or not isinstance(self._weights, Weights):
            return self
        return Prices(self._weights, Tree().prepare(self._weights), self.costs)

    def of(self, calls: list[NetworkCall]) -> Price:
        total = Price()
        for call, times in Counter(calls).items():
            for rounds, messages, in_turn, size in self.batches(call):
                seconds = rounds * self.costs.latency_s + in_turn * size / self.costs.bandwidth_bytes_s
                total += Price(times * rounds, times * messages, times * messages * size, times * seconds)
        return total

    def batches(self, call: NetworkCall) -> Iterator[SentRounds]:
        """The rounds of one call, as a network counts them."""
        average, links = self.average, self.links
        averaged, compared = call.averaged, call.compared
        if call.made_equal is not None and self._down is None and not self.collective:
            compared = call.made_equal
        if call.spread is not None and self._down is None:
            # Without a tree it is sent as a maximum.
            compared = call.spread
        elif call.spread is not None:
            in_turn = sum(level.in_turn for level in self._down or ())
            yield SentRounds(len(self._down or ()), links.n_nodes - 1, in_turn, call.spread)
        if call.mixed is not None:
            yield SentRounds(1, call.messages, links.most_receivers, call.mixed)
        if averaged is not None:
            # In an all-reduce each node has its own slot for what is compared.
            slots = links.n_nodes if self.collective else 1
            yield SentRounds(average.rounds, average.messages, average.in_turn, averaged + slots * (compared or 0))
        if compared is not None and averaged is None and (self.collective or self._down is not None):
            # Maxima go the way of sums. In an all-reduce each value has a flag for NaN.
            size = 2 * compared if self.collective else compared
            yield SentRounds(average.rounds, average.messages, average.in_turn, size)
        elif compared is not None and not self.collective:
            # Maxima that travel with an average only need the rounds beyond those of the average.
            rounds = max(0, links.flood_rounds - (0 if averaged is None else average.rounds))
            yield SentRounds(rounds, rounds * links.messages, rounds * links.most_receivers, compared)


class _ReducedMeter(Meter):
    """Counts matrices that stand for larger ones: ``stands_for`` maps rows r here to rows d in the real problem."""

    def __init__(self, stands_for: dict[int, int]) -> None:
        super().__init__()
        self._stands_for = stands_for

    def size(self, array: Array) -> tuple[int, int]:
        """Matrices and bytes of the real problem."""
        matrices, size = super().size(array)
        rows = array.shape[1] if matrices else 0
        return matrices, size if rows not in self._stands_for else size // rows * self._stands_for[rows]


class RecordingChanging(Changing):
    """A network that changes, and records every round."""

    def __init__(self, sequence: NetworkSequence, averaging: PushSum | None, stands_for: dict[int, int]) -> None:
        super().__init__(sequence, averaging)
        self.meter, self.calls = _ReducedMeter(stands_for), list[NetworkCall]()

    def send(self, arrays: tuple[Array, ...]) -> ChangingRound:
        before = self.traffic.copy()
        begun = super().send(arrays)
        sent = self.traffic - before
        self.calls.append(NetworkCall(mixed=sent.bytes // max(1, sent.messages), messages=sent.messages))
        return begun


class RecordingNetwork(Stacked):
    """All nodes in one array; records every call, and averages exactly in one step."""

    def __init__(self, weights: Weights, averaging: Averaging, stands_for: dict[int, int] | None = None) -> None:
        super().__init__(weights, averaging)
        self.meter, self.calls = _ReducedMeter(stands_for or {}), list[NetworkCall]()
        self._prices = Prices(weights, self.average, Costs())

    def _begin_round(self, exchange: averagings.LinearRound, arrays: tuple[Array, ...]) -> None:
        mixed = self._piggyback.n_bytes + sum(self.meter.size(array)[1] for array in arrays)
        self._note(NetworkCall(mixed=mixed, messages=exchange.messages))
        self._piggyback.rounds += exchange.messages == self._mixing.messages

    def mean(self, array: Array, bound: Bound = None) -> Array:
        self._note(NetworkCall(averaged=self._averaged_bytes(array, bound)))
        array = whole(array)
        return self._mean_reducer(array)(array)

    def total(self, words: np.ndarray) -> np.ndarray:
        self._note(NetworkCall(averaged=words[0].nbytes))
        return np.asarray(words.sum(axis=0, keepdims=True, dtype=np.uint64))

    def maximum(self, values: Array) -> Array:
        self._note(NetworkCall(compared=self.meter.size(values)[1]))
        return self._reduced_maximum(values)

    def common_mean_and_maximum(self, array: Array, values: Array) -> tuple[Array, Array]:
        self._note(NetworkCall(averaged=self._averaged_bytes(array), compared=self.meter.size(values)[1]))
        array = whole(array)
        return self._mean_reducer(array)(array)[:1, ...], self._reduced_maximum(values)

    def decided_mean_and_maximum(
        self,
        array: Array,
        values: Array,
        bits: int,
        decide: Callable[[np.ndarray, np.ndarray], np.ndarray],
        n_numbers: int,
    ) -> Decided:
        _, d, b = array.shape
        # What the root decides is in the messages of the way down only.
        size = averagings.packed_bytes(d, b, bits) + ITEM_BYTES * n_numbers // 2
        self._note(NetworkCall(averaged=size, compared=self.meter.size(values)[1]))
        average = to_numpy(whole(array)).mean(axis=0, keepdims=True)
        mean, errors = averagings.unpack(averagings.pack(average, np.zeros((1, b)), bits), d, b, bits)
        return Decided(mean, errors[0], decide(mean, errors[0]), self._reduced_maximum(to_numpy(values)))

    @property
    def alike(self) -> bool:
        return True

    def same_bits(self, common: Array) -> Array:
        self._note(NetworkCall(made_equal=self.meter.size(common)[1]))
        return common

    def broadcast(self, values: np.ndarray) -> np.ndarray:
        self._note(NetworkCall(spread=self.meter.size(values)[1]))
        return values

    def _averaged_bytes(self, array: Array, bound: Bound = None) -> int:
        """Bytes of a message of an average. An integer takes 8 bytes, or 16 before scales are known."""
        n_bytes = self.meter.size(array)[1]
        if not self.integers:
            return n_bytes
        words = 2 if self.scales is None and bound is None else 1
        return words * n_bytes

    def _note(self, call: NetworkCall) -> None:
        self.calls.append(call)
        # The loop stops by the number of rounds.
        self.traffic.rounds += sum(batch.rounds for batch in self._prices.batches(call))


def recording(
    weights: Weights | NetworkSequence, averaging: Averaging, stands_for: dict[int, int] | None = None
) -> RecordingNetwork | RecordingChanging:
    """A network that records its calls."""
    if isinstance(weights, Weights):
        return RecordingNetwork(weights, averaging, stands_for)
    push_sum = averaging if isinstance(averaging, PushSum) else None
    return RecordingChanging(weights, push_sum, stands_for or {})


# All-gather of bytes: each node sends a row, and every node receives all rows.


def gather_bytes(network: Network, own: Mapping[int, bytes]) -> list[bytes | None]:
    """The bytes of every node at every node, by one exchange of maxima; None for a node that sent nothing.

    ``own`` has the bytes of each node in this process. They have the same length at all nodes.
    """
    length = len(next(iter(own.values())))
    table = np.full((len(network.ids), network.n_nodes, words_for(length)), -1.0)
    for row, node in enumerate(network.ids):
        table[row, node] = as_numbers(own[node])
    rows = np.asarray(network.maximum(table))[0]
    return [as_bytes(row)[:length] if (row >= 0).all() else None for row in rows]


def words_for(length: int) -> int:
    """Numbers that this many bytes take."""
    return -(-length // NUMBER_BYTES)


# Masked averages: their requirements, and the keys that nodes make for one fit.


def require_enough_nodes(n_nodes: int) -> None:
    """Raise unless masks can hide one node's numbers from the others."""
    if n_nodes < MIN_SITES:
        raise InputError(
            f"{n_nodes} nodes cannot be masked: of two, each knows the other's numbers by subtraction. Take at least "
            f'{MIN_SITES}, or use privacy="open".'
        )


def in_integers(averaging: Averaging) -> Averaging:
    """The averaging with integers in its messages; raises for one that does more than sum."""
    if isinstance(averaging, Integers):
        return averaging
    if isinstance(averaging, Tree | averagings.AllReduce):
        return Integers(averaging)
    raise InputError(
        f"averaging {name_of(averaging)!r} cannot be masked: masks cancel only in plain sums, and it weights what it "
        f"receives. Use tree, allreduce or integers."
    )


def add_masks(network: Network) -> None:
    """Give the nodes in this process their masks: those of the transport, or from keys made for this network.

    Public keys reach all nodes by one exchange of maxima. They are not signed, so this does not protect against nodes
    that forge messages. The sites of ``eigenmesh site run`` sign their keys.
    """
    given = network.given_masks()
    if given is not None:
        network.masking = Masking([given])
        return
    keys = {node: SiteKey.generate(network.private_bytes(KEY_BYTES)) for node in network.ids}
    publics = gather_bytes(network, {node: key.public for node, key in keys.items()})
    silent = [node for node, public in enumerate(publics) if public is None]
    if silent:
        raise TransportError(f"node {silent[0]} sent no key for its masks; the fit ends.")
    context = MaskContext("fit", 0, b"", tuple(str(node) for node in range(network.n_nodes)))
    known = [public for public in publics if public is not None]
    network.masking = Masking([pairwise_masks(keys[node], known, node, context) for node in network.ids])


def key_exchange(n_nodes: int) -> NetworkCall:
    """The network call of ``add_masks`` if the transport provides no masks."""
    return NetworkCall(compared=8 * n_nodes * words_for(KEY_BYTES))


# Averages must be accurate enough to give the number of samples exactly.
LOOSEST_MEAN = 1e-8


def network_over(weights: Weights | NetworkSequence, transport: Transport | None, averaging: Averaging) -> Network:
    """All nodes stacked, or one node with its neighbours over a transport."""
    if isinstance(weights, NetworkSequence):
        push_sum = averaging if isinstance(averaging, PushSum) else None
        return Changing(weights, push_sum, transport)
    return Stacked(weights, averaging) if transport is None else Peers(weights, transport, averaging)


def with_exact_averages(network: Network, averaging: Averaging, max_rounds: int) -> Network:
    """The network; raises if its averages take more rounds than a run may, or are not accurate enough for moments."""
    wanted = getattr(averaging, "accuracy", averagings.DEFAULT_ACCURACY)
    if wanted > LOOSEST_MEAN:
        raise InputError(f"accuracy {wanted:.1g} is too low for exact moments; use {LOOSEST_MEAN:g} or less.")
    network.limit_rounds(max_rounds)
    if not averagings.reaches(network.average, wanted):
        reached = f"{name_of(averaging)} averages on this network reach an accuracy of {network.average.accuracy:.1g}"
        why = f"not {wanted:g}, because its weights mix so slowly that rounding errors grow"
        raise InputError(f'{reached}, {why}; use averaging="tree", or weights that mix faster.')
    return network
