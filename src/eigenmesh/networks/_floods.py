"""Rounds of a network that changes or loses messages, and maxima by floods that record who has heard from whom."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from eigenmesh.arrays import Array
from eigenmesh.averaging import Average
from eigenmesh.errors import GraphError
from eigenmesh.graphs import NetworkSequence, over_time
from eigenmesh.networks._base import Network
from eigenmesh.networks._traffic import Traffic

# Nodes that have not heard from each other give up after HORIZON_PER_NODE * M + HORIZON rounds.
HORIZON_PER_NODE, HORIZON = 16, 64
# Extra rounds of a flood, beyond the measured number.
SPARE_ROUNDS = 4


class Flooding(Network):
    """The nodes of a ``NetworkSequence``, its rounds, and ``worst``.

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

    def worst(self, values: Array) -> Array:
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
