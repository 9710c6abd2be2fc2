"""Networks that change from round to round or lose messages, all nodes in one array: no tree, no diameter, no spectrum.

Everything rests on sums that are kept: what a node keeps and sends in a round adds up to what it had.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import NoReturn

import numpy as np

from eigenmesh.arrays import Array
from eigenmesh.averaging import LinearRound, PushSum
from eigenmesh.averaging._push_sum import Probes, PushSumAverage
from eigenmesh.errors import GraphError, InputError
from eigenmesh.graphs import NetworkSequence, Weights, over_time
from eigenmesh.networks._base import Network
from eigenmesh.networks._mixes import Mixes, PushMixes, rounds_to_contract
from eigenmesh.networks._running_sums import RunningSums
from eigenmesh.networks._traffic import Traffic

# Rounds in which nodes that never hear from each other give up: so many per node, and so many more.
HORIZON_PER_NODE, HORIZON = 16, 64
# Beyond twice what was enough, a flood gets so many rounds more.
SPARE_ROUNDS = 4


class Changing(Network):
    """Hold all M nodes of a ``NetworkSequence`` in NumPy arrays of shape (M, ...).

    ``mix`` uses the weights of the round. ``worst`` floods: how many rounds it takes until all have heard from all is
    found by the nodes at the first call, by floods of 1, 2, 4, ... rounds; each message names whom it speaks for, so a
    later flood that fails to reach someone is noticed, and named. ``mean`` is a push sum, carried on until it is as
    accurate as it says (``PushSum``).
    """

    def __init__(self, sequence: NetworkSequence, averaging: PushSum | None = None) -> None:
        self.sequence = over_time(sequence)
        self.accuracy = (averaging or PushSum()).accuracy
        self._arrived = Traffic()
        self._round = self._push_sums = 0
        self._flood_rounds, self._contraction = 0, 0.0
        self._heard = np.zeros((0, 0), dtype=bool)
        self._link_messages, self._link_bytes = (np.zeros((self.n_nodes, self.n_nodes), dtype=int) for _ in range(2))
        self._begin(PushSumAverage(0, 0, 0, self.accuracy))

    @property
    def weights(self) -> Weights:
        raise self._no_fixed_links()

    @property
    def n_nodes(self) -> int:
        return self.sequence.n_nodes

    @property
    def ids(self) -> Sequence[int]:
        return range(self.n_nodes)

    @property
    def links(self) -> Sequence[tuple[int, int]]:
        return ()

    @property
    def arrived(self) -> Traffic:
        return self._arrived

    # --- one round ---------------------------------------------------------------------------------------

    def send(self, arrays: tuple[Array, ...]) -> tuple[np.ndarray, list[np.ndarray]]:
        """Begin a round whose messages carry the arrays: its weights, and how late each copy of a message arrives."""
        weights = self.sequence.weights_at(self._round)
        links = (weights > 0) & ~np.eye(self.n_nodes, dtype=bool)
        copies = [np.where(links, late, -1) for late in self.sequence.arrivals(self._round)]
        n_bytes = self._count(int(links.sum()), arrays, riding=self._riding_bytes)
        came = sum(int((late >= 0).sum()) for late in copies)
        self._arrived += Traffic(1, came, 0, came * n_bytes)
        self._link_messages += links
        self._link_bytes += links * n_bytes
        self._round += 1
        if self._rider is not None:
            self._rider, self._heard = _spread(self._rider, self._heard, copies)
            self._rider_rounds += 1
        return weights, copies

    def mix(self, *arrays: Array) -> Array | tuple[Array, ...]:
        """One round with the weights of the moment; where messages get lost only ``mixes`` keep the sums."""
        if not self.sequence.reliable:
            raise InputError("links that lose messages need running sums; use the solver tracked-subspace.")
        weights, _ = self.send(arrays)
        mixed = tuple(_product(weights, array) for array in arrays)
        return mixed if len(mixed) > 1 else mixed[0]

    def lazy_mix(self, *arrays: Array) -> tuple[Array, ...]:
        mixed = self.mix(*arrays)
        mixed = mixed if isinstance(mixed, tuple) else (mixed,)
        return tuple((array + other) / 2 for array, other in zip(arrays, mixed, strict=True))

    def mixes(self, rounds: int, before: Mixes | None = None) -> Mixes:
        mix = before.mix if isinstance(before, PushMixes) else self._new_mix()
        return PushMixes(rounds, self.contraction**rounds, mix)

    def mixes_to(self, contraction: float, before: Mixes | None = None) -> Mixes:
        return self.mixes(rounds_to_contract(contraction, self.contraction), before)

    def _new_mix(self) -> Callable[..., tuple[Array, ...]]:
        return self.mix if self.sequence.reliable else RunningSums(self).mix

    # --- maxima ------------------------------------------------------------------------------------------

    @property
    def flood_rounds(self) -> int:
        if not self._flood_rounds:
            self._flood_rounds = self._measured_flood()
        return self._flood_rounds

    def worst(self, values: Array) -> Array:
        rounds = self.flood_rounds
        agreed, heard = self._flood(self._rows(values), rounds)
        self._require_heard(heard, rounds)
        return agreed[: len(values)].reshape(values.shape)

    def _rows(self, values: Array) -> Array:
        """What nodes have, as rows (M, n); one row for all where they work out the same."""
        return np.broadcast_to(values.reshape(len(values), -1), (self.n_nodes, values[0].size))

    def ride(self, values: Array) -> None:
        super().ride(values)
        self._heard = np.eye(self.n_nodes, dtype=bool)

    def _end_of_ride(self, rider: Array) -> Array:
        self._require_heard(self._heard, self._rider_rounds)
        return rider

    def _flood(self, values: Array, rounds: int) -> tuple[Array, np.ndarray]:
        """Neighbour maxima for so many rounds: (M, n), and whom each node has heard of, (M, M)."""
        heard = np.eye(self.n_nodes, dtype=bool)
        for _ in range(rounds):
            values, heard = _spread(values, heard, self.send((values,))[1])
        return values, heard

    def _measured_flood(self) -> int:
        """Floods of 1, 2, 4, ... rounds that carry whom a node has heard of, and who had heard of all the time before.

        A node that hears from all that all had heard of all knows that the time before was enough.
        """
        rounds, enough = 1, False
        while True:
            heard = self._flood(np.zeros((self.n_nodes, 1)), rounds)[1]
            if enough or rounds > HORIZON_PER_NODE * self.n_nodes + HORIZON:
                self._require_heard(heard, rounds)
                return rounds + SPARE_ROUNDS
            enough, rounds = bool(heard.all()), 2 * rounds

    def _require_heard(self, heard: np.ndarray, rounds: int) -> None:
        if heard.all():
            return
        node = int(np.argmin(heard.sum(axis=1)))
        silent = ", ".join(str(other) for other in np.flatnonzero(~heard[node])[:5])
        found = f"node {node} has not heard from node {silent} within {rounds} rounds"
        raise GraphError(f"{found}: the network is not connected over so many; add links, or lose fewer messages.")

    # --- averages ----------------------------------------------------------------------------------------

    @property
    def contraction(self) -> float:
        if not self._contraction:
            self.mean(np.zeros((self.n_nodes, 0)))
        return self._contraction

    @property
    def second_eigenvalue(self) -> float:
        return self.contraction

    def reduced_mean(self, array: Array) -> Array:
        """A push sum over all nodes: (M, ...) -> (M, ...)."""
        return self._push_sum(array, np.zeros((self.n_nodes, 0)))[0]

    def common_mean_and_worst(self, array: Array, values: Array) -> tuple[Array, Array]:
        averaged, agreed = self._push_sum(array, self._rows(values))
        return averaged[:1, ...], agreed[: len(values)].reshape(values.shape)

    def _push_sum(self, array: Array, values: Array) -> tuple[Array, Array]:
        """Mix sums, weights and probes until all nodes are as near to the mean as asked for; and maxima of values."""
        sums, y = np.asarray(array, dtype=np.float64), np.ones((self.n_nodes, 1))
        probes, mix = Probes.drawn(self.n_nodes, self._push_sums), self._new_mix()
        self._push_sums += 1
        moved, error, taken, rounds = probes.start, probes.error(probes.start, y), 0, self._forecast()
        first = error.max()
        while True:
            for _ in range(rounds):
                sums, moved, y = mix(sums, moved, y)
            taken += rounds
            error = probes.error(moved, y)
            agreed = self.worst(np.hstack([error[:, np.newaxis], values]))
            largest, values = float(agreed[0, 0]), agreed[:, 1:]
            self._contraction = min(max((largest / first) ** (1 / taken), 1e-3), 1 - 1e-9)
            if largest <= self.accuracy:
                break
            rounds = rounds_to_contract(self.accuracy / largest, self._contraction) + 1
        messages = self.traffic.messages // max(1, self.traffic.rounds)
        self.average = PushSumAverage(taken + self.flood_rounds, taken * messages, taken, self.accuracy)
        averaged = sums / y.reshape(self.n_nodes, *[1] * (sums.ndim - 1))
        return averaged.astype(array.dtype), values

    def _forecast(self) -> int:
        """Rounds that should do, by the contraction of the last push sum; before there was one, those of a flood."""
        if not self._contraction:
            return 2 * self.flood_rounds
        return rounds_to_contract(self.accuracy / 10, self._contraction)

    def link_traffic(self) -> dict[tuple[int, int], tuple[int, int]]:
        places = np.argwhere(self._link_messages.T).tolist()
        return {(j, i): (int(self._link_messages[i, j]), int(self._link_bytes[i, j])) for j, i in places}

    def combine(self, exchange: LinearRound, *arrays: Array) -> NoReturn:
        raise self._no_fixed_links()

    _combine = _mean_reducer = _reduced_sum = _total = _maximum = combine  # type: ignore[assignment]
    _common_mean_and_maximum = combine  # type: ignore[assignment]

    def _no_fixed_links(self) -> InputError:
        fix = "use the solver tracked-subspace, which needs none"
        return InputError(f"a network that changes has no fixed weights, tree or exact averages; {fix}.")


def _product(weights: np.ndarray, array: Array) -> Array:
    return (weights.astype(array.dtype) @ array.reshape(len(array), -1)).reshape(array.shape)


def _spread(values: Array, heard: np.ndarray, copies: list[np.ndarray]) -> tuple[Array, np.ndarray]:
    """Maxima with what arrives in its round; what comes late counts as lost."""
    come = np.logical_or.reduce([late == 0 for late in copies]) | np.eye(len(heard), dtype=bool)
    largest = np.stack([values[senders].max(axis=0) for senders in come])
    return largest, (come.astype(np.int64) @ heard.astype(np.int64)) > 0
