"""Running sums: mixing that conserves sums over links that lose messages, without acknowledgements."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from eigenmesh.arrays import Array

if TYPE_CHECKING:
    from eigenmesh.networks._changing import Changing

# A link from sender j to receiver i is (i, j).
Link = tuple[int, int]


class RunningSums:
    """Mixing in which a message is the sum of everything ever sent over its link.

    ::

        s_ij <- s_ij + w_ij(t) x_j      at the sender j, who sends s_ij with its number and keeps w_jj x_j
        x_i <- x_i + s_ij - last_ij     at the receiver i, unless a later message came before; last_ij <- s_ij

    The next message repairs a lost one; late, duplicate and reordered messages do no harm. The links have memory, so a
    sum that is mixed in several calls must always be mixed by the same object.
    """

    def __init__(self, network: Changing) -> None:
        self._network = network
        self._sent: dict[Link, np.ndarray] = {}
        # Number and content of the newest message on each link.
        self._newest: dict[Link, tuple[int, np.ndarray]] = {}
        # Messages on their way, by the round in which they arrive: link, number, sum.
        self._in_flight: dict[int, list[tuple[Link, int, np.ndarray]]] = {}
        self._round = 0

    def mix(self, *arrays: Array) -> tuple[Array, ...]:
        """One round on all arrays, each (M, ...), in one message."""
        weights, copies = self._network.send(arrays)
        values = np.concatenate([array.reshape(len(array), -1) for array in arrays], axis=1)
        mixed = weights.diagonal()[:, np.newaxis] * values
        for receiver, sender in np.argwhere(weights).tolist():
            if receiver != sender:
                self._send((receiver, sender), weights[receiver, sender] * values[sender], copies)
        for link, number, total in self._in_flight.pop(self._round, []):
            newest, known = self._newest.get(link, (-1, np.zeros_like(total)))
            if number > newest:
                mixed[link[0]] += total - known
                self._newest[link] = (number, total)
        self._round += 1
        parts = np.split(mixed, np.cumsum([array[0].size for array in arrays])[:-1], axis=1)
        return tuple(part.reshape(array.shape) for part, array in zip(parts, arrays, strict=True))

    def _send(self, link: Link, share: np.ndarray, copies: list[np.ndarray]) -> None:
        total = self._sent[link] = share + self._sent.get(link, 0.0)
        for late in copies:
            if late[link] >= 0:
                self._in_flight.setdefault(self._round + int(late[link]), []).append((link, self._round, total))
