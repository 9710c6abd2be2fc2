"""Records the network calls of a run, and prices them for any averaging on any network."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np

from eigenmesh.arrays import Array, whole
from eigenmesh.averaging import Average, Averaging, LinearRound, PushSum, Tree
from eigenmesh.averaging._allreduce import AllReduceAverage
from eigenmesh.averaging._integers import IntegerAverage
from eigenmesh.averaging._tree import TreeAverage
from eigenmesh.graphs import NetworkSequence, Weights
from eigenmesh.graphs._resends import SAMPLED_ROUNDS
from eigenmesh.networks import Changing, Network, Stacked
from eigenmesh.networks._integers import Bound
from eigenmesh.settings import Costs


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
            return cls(weights.n_nodes, weights.messages, weights.most_receivers, weights.spectrum.diameter)
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
        over = average.over if isinstance(average, IntegerAverage) else average
        self.collective = isinstance(over, AllReduceAverage)
        self._down = over.down if isinstance(over, TreeAverage) else None

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
            riders = links.n_nodes if self.collective else 1
            yield SentRounds(average.rounds, average.messages, average.in_turn, averaged + riders * (compared or 0))
        if compared is not None and self.collective and averaged is None:
            # Each value has a flag for NaN.
            yield SentRounds(1, average.messages, average.in_turn, 2 * compared)
        elif compared is not None and not self.collective:
            # Maxima that travel with an average only need the rounds beyond those of the average.
            rounds = max(0, links.flood_rounds - (0 if averaged is None else average.rounds))
            yield SentRounds(rounds, rounds * links.messages, rounds * links.most_receivers, compared)


class _Reduced(Network):
    """A network whose matrices stand for larger ones: ``stands_for`` maps rows r here to rows d in the real problem."""

    def __init__(self, *network: Any, stands_for: dict[int, int] | None = None) -> None:
        super().__init__(*network)
        self.calls: list[NetworkCall] = []
        self._stands_for = stands_for or {}

    def _size(self, array: Array) -> tuple[int, int]:
        """Matrices and bytes of the real problem."""
        matrices, size = super()._size(array)
        rows = array.shape[1] if matrices else 0
        return matrices, size if rows not in self._stands_for else size // rows * self._stands_for[rows]


class RecordingChanging(_Reduced, Changing):
    """A network that changes, and records every round."""

    def send(self, arrays: tuple[Array, ...]) -> tuple[np.ndarray, list[np.ndarray]]:
        before = self.traffic.copy()
        begun = super().send(arrays)
        sent = self.traffic - before
        self.calls.append(NetworkCall(mixed=sent.bytes // max(1, sent.messages), messages=sent.messages))
        return begun


class RecordingNetwork(_Reduced, Stacked):
    """All nodes in one array; records every call, and averages exactly in one step."""

    def __init__(self, weights: Weights, averaging: Averaging, stands_for: dict[int, int] | None = None) -> None:
        super().__init__(weights, averaging, stands_for=stands_for)
        self._prices = Prices(weights, self.average, Costs())

    def _begin_round(self, exchange: LinearRound, arrays: tuple[Array, ...]) -> None:
        mixed = self._riding_bytes + sum(self._size(array)[1] for array in arrays)
        self._note(NetworkCall(mixed=mixed, messages=exchange.messages))
        self._rider_rounds += exchange.messages == self._mixing.messages

    def mean(self, array: Array, bound: Bound = None) -> Array:
        self._note(NetworkCall(averaged=self._averaged_bytes(array, bound)))
        array = whole(array)
        return self._mean_reducer(array)(array)

    def worst(self, values: Array) -> Array:
        self._note(NetworkCall(compared=self._size(values)[1]))
        return self._maximum(values)

    def common_mean_and_worst(self, array: Array, values: Array) -> tuple[Array, Array]:
        self._note(NetworkCall(averaged=self._averaged_bytes(array), compared=self._size(values)[1]))
        array = whole(array)
        return self._mean_reducer(array)(array)[:1, ...], self._maximum(values)

    @property
    def alike(self) -> bool:
        return True

    def same_bits(self, common: Array) -> Array:
        self._note(NetworkCall(made_equal=self._size(common)[1]))
        return common

    def from_root(self, values: np.ndarray) -> np.ndarray:
        self._note(NetworkCall(spread=self._size(values)[1]))
        return values

    def _averaged_bytes(self, array: Array, bound: Bound = None) -> int:
        """Bytes of a message of an average; an integer takes 8 bytes, or 16 before scales are known."""
        n_bytes = self._size(array)[1]
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
    return RecordingChanging(weights, push_sum, stands_for=stands_for)
