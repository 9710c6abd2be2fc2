"""What nodes at their own pace tell each other of every step, so that all take the next one alike."""

from __future__ import annotations

import numpy as np


class Looks:
    """The last two looks of all nodes: who has told what it found, and the largest of every number told.

    A node looks once before each step, and no node is more than one look ahead of another. Tables are merged number by
    number, so it does not matter how often, in which order or by which way they come.

    Attributes
    ----------
    table : array of shape (2, 1 + M + n)
        One row per look: its number, 1 for every node that has told, and n numbers.
    """

    def __init__(self, n_nodes: int, n_numbers: int) -> None:
        self._n_nodes = n_nodes
        self.table = np.zeros((2, 1 + n_nodes + n_numbers))

    def tell(self, look: int, rank: int, numbers: np.ndarray) -> None:
        """What one node has found in a look, from 1 on: (n,)."""
        own = np.zeros_like(self.table)
        told = np.zeros(self._n_nodes)
        told[rank] = 1.0
        own[look % 2] = [look, *told, *numbers]
        self.merge(own)

    def merge(self, table: np.ndarray) -> None:
        """What another node knows."""
        theirs, ours = table[:, :1], self.table[:, :1]
        largest = np.where(theirs == ours, np.maximum(self.table, table), self.table)
        self.table = np.where(theirs > ours, table, largest)

    def found(self, look: int) -> np.ndarray | None:
        """The largest of all nodes' numbers, (n,), once all have told."""
        number, told, numbers = np.split(self.table[look % 2], [1, 1 + self._n_nodes])
        return numbers if number[0] == look and told.all() else None
