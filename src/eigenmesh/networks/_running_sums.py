"""Running sums: mixing that loses nothing over links that lose messages, without acknowledgements."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from eigenmesh.arrays import Array

if TYPE_CHECKING:
    from eigenmesh.networks._changing import Changing

# A link from sender j to receiver i is (i, j).
Link = tuple[int, int]


class RunningSums:
    """Mixing where a message is the sum of all that was ever sent over its link.

    ::

        s_ij <- s_ij + w_ij(t) x_j      at the sender j, who sends s_ij with its number and keeps w_jj x_j
        x_i <- x_i + s_ij - last_ij     at the receiver i, unless it has seen a later one; last_ij <- s_ij

    What a lost message carried comes with the next one; late, doubled and overtaken ones do no harm. The links
    remember, so a sum that is mixed in several calls must stay with one object.
    """

    def __init__(self, network: Changing) -> None:
        self._network = network
        self._sent: dict[Link, np.ndarray] = {}
        self._seen: dict[Link, tuple[int, np.ndarray]] = {}
        # What is on its way, by the round in which it arrives: link, number, sum.
        self._late: dict[int, list[tuple[Link, int, np.ndarray]]] = {}
        self._round = 0

    def mix(self, *arrays: Array) -> tuple[Array, ...]:
        """One round on all arrays, (M, ...) each, in one message."""
        weights, copies = self._network.send(arrays)
        values = np.concatenate([array.reshape(len(array), -1) for array in arrays], axis=1)
        mixed = weights.diagonal()[:, np.newaxis] * values
        for receiver, sender in np.argwhere(weights).tolist():
            if receiver != sender:
                self._send((receiver, sender), weights[receiver, sender] * values[sender], copies)
        for link, number, total in self._late.pop(self._round, []):
            last, seen = self._seen.get(link, (-1, np.zeros_like(total)))
            if number > last:
                mixed[link[0]] += total - seen
                self._seen[link] = (number, total)
        self._round += 1
        parts = np.split(mixed, np.cumsum([array[0].size for array in arrays])[:-1], axis=1)
        return tuple(part.reshape(array.shape) for part, array in zip(parts, arrays, strict=True))

    def _send(self, link: Link, share: np.ndarray, copies: list[np.ndarray]) -> None:
        total = self._sent[link] = share + self._sent.get(link, 0.0)
        for late in copies:
            if late[link] >= 0:
                self._late.setdefault(self._round + int(late[link]), []).append((link, self._round, total))
