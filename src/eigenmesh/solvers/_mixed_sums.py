"""What one node at its own pace mixes, and what it has given to and taken from each neighbour."""

from __future__ import annotations

from typing import Any

import numpy as np

from eigenmesh.errors import DeadlineError
from eigenmesh.graphs import Weights

# A neighbour that was not heard for so many ticks is not given anything: it would be lost to all for as long.
FED_TICKS = 6


class MixedSums:
    """Numbers x_i of one node, and one running sum per link.

    ::

        give:   s_ji <- s_ji + w_ji x_i and x_i <- x_i - w_ji x_i for every neighbour j that is heard
        take:   x_i <- x_i + s_ij - last_ij

    The sum over all x_i and all that is on its way or lost is kept, whoever is slow, and whatever is lost, late,
    doubled or overtaken.
    """

    def __init__(self, weights: Weights, rank: int, values: np.ndarray) -> None:
        self.values, self.ticks, self._rank = values, 0, rank
        column, row = (_dense(part) for part in (weights.matrix[:, [rank]], weights.matrix[[rank], :]))
        self._shares = {int(j): float(column[j]) for j in np.flatnonzero(column) if j != rank}
        senders = [int(j) for j in np.flatnonzero(row) if j != rank]
        self._sent = {j: np.zeros_like(values) for j in self._shares}
        self._seen = {j: (0, np.zeros_like(values)) for j in senders}
        self._heard = dict.fromkeys(senders, 0)
        # Ticks of this node in one of theirs, at least 1.
        self._slower = dict.fromkeys(senders, 1.0)

    def give(self) -> dict[int, np.ndarray]:
        """One tick: what each neighbour is sent."""
        self.ticks += 1
        fed = {j: share for j, share in self._shares.items() if self._hears(j)}
        for j, share in fed.items():
            self._sent[j] = self._sent[j] + share * self.values
        self.values = (1.0 - sum(fed.values())) * self.values
        return dict(self._sent)

    def take(self, sender: int, number: int, total: np.ndarray) -> None:
        """The message of this number of a neighbour."""
        last, seen = self._seen[sender]
        if number > last:
            self.values = self.values + (total - seen)
            self._seen[sender] = number, total
        self._heard[sender] = self.ticks
        self._slower[sender] = max(self.ticks / number, 1.0)

    def _hears(self, neighbour: int) -> bool:
        # A link that goes one way has nothing to hear.
        return self.ticks - self._heard.get(neighbour, self.ticks) <= FED_TICKS * self._slower.get(neighbour, 1.0)

    def require_heard(self, patience: int) -> None:
        """Raise if a neighbour is silent for too many ticks: what it holds is missing in every sum."""
        for neighbour, heard in self._heard.items():
            if self.ticks - heard > patience:
                silent = f"node {self._rank} has not heard node {neighbour} for {patience} ticks"
                raise DeadlineError(f"{silent}; bring it back and begin again, or begin again without it.")


def _dense(line: Any) -> np.ndarray:
    """A row or column of a matrix, dense or sparse, as numbers (M,)."""
    return np.asarray(line.toarray() if hasattr(line, "toarray") else line).ravel()
