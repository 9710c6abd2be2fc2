"""Rounds of a network that changes or loses messages, and maxima by floods: who has heard from whom is known."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from eigenmesh.arrays import Array
from eigenmesh.averaging import Average
from eigenmesh.errors import GraphError
from eigenmesh.graphs import NetworkSequence, over_time
from eigenmesh.networks._base import Network
from eigenmesh.networks._traffic import Traffic

# Rounds in which nodes that never hear from each other give up: so many per node, and so many more.
HORIZON_PER_NODE, HORIZON = 16, 64
# Beyond twice what was enough, a flood gets so many rounds more.
SPARE_ROUNDS = 4


class Flooding(Network):
    """The nodes of a ``NetworkSequence``, its rounds, and ``worst``.

    How many rounds it takes until all have heard from all is found by the nodes at the first call, by floods of 1, 2,
    4, ... rounds; each message names whom it speaks for, so a later flood that fails to reach someone is noticed, and
    named.
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
        """All nodes; in a subclass those that this process holds."""
        return range(self.n_nodes)

    @property
    def links(self) -> Sequence[tuple[int, int]]:
        return ()

    @property
    def arrived(self) -> Traffic:
        return self._arrived

    def send(self, arrays: tuple[Array, ...]) -> tuple[np.ndarray, list[np.ndarray]]:
        """Begin a round whose messages carry the arrays: its weights, and how late each copy of a message arrives."""
        weights = self.sequence.weights_at(self._round)
        links = (weights > 0) & ~np.eye(self.n_nodes, dtype=bool)
        copies = [np.where(links, late, -1) for late in self.sequence.arrivals(self._round)]
        n_bytes = self._count(int(links.sum()), arrays, riding=self._riding_bytes)
        came = sum(int((late >= 0).sum()) for late in copies)
        self._arrived += Traffic(1, came, 0, came * n_bytes)
        self._in_turn += int(links.sum(axis=0).max())
        self._link_messages += links
        self._link_bytes += links * n_bytes
        self._round += 1
        if self._rider is not None:
            come = _come(copies)
            self._heard = _heard(self._heard, come)
            self._rider_rounds += 1
            self._spread_rider(self._rider, come)
        return weights, copies

    def _spread_rider(self, rider: Array, come: np.ndarray) -> None:
        self._rider = self._spread(rider, come)

    def _spread(self, values: Array, come: np.ndarray) -> Array:
        """Maxima over what arrives in its round, ``come`` (M, M); what comes late counts as lost."""
        return np.stack([values[senders].max(axis=0) for senders in come])

    def link_traffic(self) -> dict[tuple[int, int], tuple[int, int]]:
        places = np.argwhere(self._link_messages.T).tolist()
        return {(j, i): (int(self._link_messages[i, j]), int(self._link_bytes[i, j])) for j, i in places}

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
        """What the nodes held here have, as rows (nodes, n); one row for all where they work out the same."""
        return np.broadcast_to(values.reshape(len(values), -1), (len(self.ids), values[0].size))

    def ride(self, values: Array) -> None:
        super().ride(values)
        self._heard = np.eye(self.n_nodes, dtype=bool)

    def _end_of_ride(self, rider: Array) -> Array:
        self._require_heard(self._heard, self._rider_rounds)
        return rider

    def _flood(self, values: Array, rounds: int) -> tuple[Array, np.ndarray]:
        """Neighbour maxima for so many rounds: (nodes, n), and whom each node has heard of, (M, M)."""
        heard = np.eye(self.n_nodes, dtype=bool)
        for _ in range(rounds):
            come = _come(self.send((values,))[1])
            values, heard = self._spread(values, come), _heard(heard, come)
        return values, heard

    def _measured_flood(self) -> int:
        """Floods of 1, 2, 4, ... rounds that carry whom a node has heard of, and who had heard of all the time before.

        A node that hears from all that all had heard of all knows that the time before was enough.
        """
        rounds, enough = 1, False
        while True:
            heard = self._flood(np.zeros((len(self.ids), 1)), rounds)[1]
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


def _come(copies: list[np.ndarray]) -> np.ndarray:
    """Who hears from whom in the round itself: (M, M), each node from itself too."""
    return np.asarray(np.logical_or.reduce([late == 0 for late in copies]) | np.eye(len(copies[0]), dtype=bool))


def _heard(heard: np.ndarray, come: np.ndarray) -> np.ndarray:
    """Whom each node has heard of after one more round: (M, M)."""
    return np.asarray((come.astype(np.int64) @ heard.astype(np.int64)) > 0)
