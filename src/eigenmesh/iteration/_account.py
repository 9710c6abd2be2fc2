"""What a run sends, by phase."""

from collections.abc import Iterator, Mapping
from contextlib import contextmanager

from eigenmesh.networks import Network, Traffic

# What belongs to no other phase.
USUAL = "iterations"
PHASES = (USUAL, "checks", "certificate")


class Account:
    """The traffic of a run, what was sent for it before it began included.

    Parameters
    ----------
    spent : mapping of str to Traffic
        What was sent before, by phase.
    """

    def __init__(self, network: Network, spent: Mapping[str, Traffic]) -> None:
        self._network, self._before, self._earlier = network, network.traffic.copy(), sum(spent.values(), Traffic())
        self._booked = {**spent, **{phase: spent.get(phase, Traffic()) for phase in PHASES}}

    @property
    def rounds(self) -> int:
        """Rounds since the run began."""
        return self._network.traffic.rounds - self._before.rounds

    @property
    def total(self) -> Traffic:
        return self._earlier + (self._network.traffic - self._before)

    @property
    def by_phase(self) -> dict[str, Traffic]:
        elsewhere = sum((sent for phase, sent in self._booked.items() if phase != USUAL), Traffic())
        return {**self._booked, USUAL: self.total - elsewhere}

    @contextmanager
    def phase(self, name: str) -> Iterator[None]:
        """Book what is sent inside under this name."""
        before = self._network.traffic.copy()
        yield
        self._booked[name] = self._booked[name] + (self._network.traffic - before)
