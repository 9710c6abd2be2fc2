"""Riders: values that travel in the messages of mixes, so that agreeing on their maxima costs no extra rounds."""

from __future__ import annotations

from abc import abstractmethod

from eigenmesh.arrays import Array
from eigenmesh.networks._in_notebooks import NetworkView


class Riders(NetworkView):
    """The part of a network whose messages can carry a rider in addition to the arrays that are mixed."""

    def __init__(self) -> None:
        super().__init__()
        self._rider: Array | None = None
        self._rider_rounds = 0

    @property
    @abstractmethod
    def flood_rounds(self) -> int:
        """Rounds over all links after which every node has heard from every other."""

    def ride(self, values: Array) -> None:
        """Send values (nodes, k) with the following mixes, so that all agree on their maximum without extra rounds."""
        self._rider, self._rider_rounds, self._riding_bytes = values, 0, self._size(values)[1]

    def ridden(self) -> Array | None:
        """The elementwise maximum of the rider, once all nodes know it; None before that, or if there is no rider."""
        if self._rider is None or self._rider_rounds < self.flood_rounds:
            return None
        agreed = self._end_of_ride(self._rider)
        self._rider, self._riding_bytes = None, 0
        return agreed

    @property
    def riding(self) -> bool:
        """Whether there is a rider."""
        return self._rider is not None

    def _end_of_ride(self, rider: Array) -> Array:
        """The maximum of a rider that has travelled over enough links."""
        return rider
