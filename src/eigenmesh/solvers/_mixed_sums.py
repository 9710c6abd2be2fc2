"""Mixing at a node with its own pace: its numbers, and what it has sent to and received from each neighbour."""

from __future__ import annotations

from typing import Any

import numpy as np

from eigenmesh.errors import DeadlineError
from eigenmesh.graphs import Weights

# After this many silent ticks a neighbour is sent no more shares: they would be missing from all sums while it is away.
SILENT_TICKS = 6


class MixedSums:
    """Numbers x_i of one node, and one running sum per link.

    ::

        give:   s_ji <- s_ji + w_ji x_i and x_i <- x_i - w_ji x_i for every neighbour j that is not silent
        take:   x_i <- x_i + s_ij - last_ij

    A message is the running sum s, so the next message repairs a lost one. The sum of all x_i and of everything on its
    way is constant, whatever is slow, lost, late, duplicated or out of order.
    """

    def __init__(self, weights: Weights, rank: int, values: np.ndarray) -> None:
        self.values, self.ticks, self._rank = values, 0, rank
        column, row = (_dense(part) for part in (weights.matrix[:, [rank]], weights.matrix[[rank], :]))
        self._shares = {int(j): float(column[j]) for j in np.flatnonzero(column) if j != rank}
        senders = [int(j) for j in np.flatnonzero(row) if j != rank]
        self._sent = {j: np.zeros_like(values) for j in self._shares}
        # Number and content of the newest message of each sender, and the tick at which one last came.
        self._newest = {j: (0, np.zeros_like(values)) for j in senders}
        self._last_heard = dict.fromkeys(senders, 0)
        # Ticks of this node per tick of the sender, at least 1.
        self._slowness = dict.fromkeys(senders, 1.0)

    def give(self) -> dict[int, np.ndarray]:
        """One tick: the message to each neighbour."""
        self.ticks += 1
        given = {j: share for j, share in self._shares.items() if not self._is_silent(j)}
        for j, share in given.items():
            self._sent[j] = self._sent[j] + share * self.values
        self.values = (1.0 - sum(given.values())) * self.values
        return dict(self._sent)

    def take(self, sender: int, number: int, total: np.ndarray) -> None:
        """Add what is new in a message, the running sum of a neighbour; messages are numbered from 1."""
        newest, known = self._newest[sender]
        if number > newest:
            self.values = self.values + (total - known)
            self._newest[sender] = number, total
        self._last_heard[sender] = self.ticks
        self._slowness[sender] = max(self.ticks / number, 1.0)

    def _is_silent(self, neighbour: int) -> bool:
        # A neighbour at the end of a one-way link never sends, and so is never silent.
        silent = self.ticks - self._last_heard.get(neighbour, self.ticks)
        return silent > SILENT_TICKS * self._slowness.get(neighbour, 1.0)

    def require_heard(self, patience: int) -> None:
        """Raise if a neighbour has been silent for more than ``patience`` ticks: every sum lacks its part."""
        for neighbour, heard in self._last_heard.items():
            if self.ticks - heard > patience:
                silence = f"node {self._rank} has heard nothing from node {neighbour} for {patience} ticks"
                raise DeadlineError(f"{silence}; restart that node and the run, or start the run without it.")


def _dense(line: Any) -> np.ndarray:
    """A row or column of a dense or sparse matrix as a vector (M,)."""
    return np.asarray(line.toarray() if hasattr(line, "toarray") else line).ravel()
