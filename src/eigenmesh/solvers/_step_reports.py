"""Reports that nodes at their own pace exchange on every step, so that all take the next step with the same numbers."""

from __future__ import annotations

import numpy as np


class StepReports:
    """Reports of all nodes on the last two steps: which nodes have reported, and the maximum of each reported number.

    A node reports once per step, and no node is more than one step ahead of another. Merging tables takes maxima, so
    copies, order and route of the tables do not matter.

    Attributes
    ----------
    table : array of shape (2, 1 + M + n)
        One row per step: its number, M flags that are 1 for nodes that have reported, and n maxima.
    """

    def __init__(self, n_nodes: int, n_numbers: int) -> None:
        self._n_nodes = n_nodes
        self.table = np.zeros((2, 1 + n_nodes + n_numbers))

    def add(self, step: int, rank: int, numbers: np.ndarray) -> None:
        """Add the report of one node on a step, counted from 1: (n,)."""
        own = np.zeros_like(self.table)
        reported = np.zeros(self._n_nodes)
        reported[rank] = 1.0
        own[step % 2] = [step, *reported, *numbers]
        self.merge(own)

    def merge(self, table: np.ndarray) -> None:
        """Merge the table of another node: the newer row wins, rows of the same step take the maximum."""
        theirs, ours = table[:, :1], self.table[:, :1]
        largest = np.where(theirs == ours, np.maximum(self.table, table), self.table)
        self.table = np.where(theirs > ours, table, largest)

    def agreed(self, step: int) -> np.ndarray | None:
        """Maxima over all nodes, (n,); None until all nodes have reported on this step."""
        number, reported, maxima = np.split(self.table[step % 2], [1, 1 + self._n_nodes])
        return maxima if number[0] == step and reported.all() else None
