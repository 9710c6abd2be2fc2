"""The traffic of a run, by phase."""

from collections.abc import Iterator, Mapping
from contextlib import contextmanager

from eigenmesh.networks import Network, Traffic

# The phase of all traffic that belongs to no other phase.
ITERATIONS = "iterations"
PHASES = (ITERATIONS, "checks", "certificate")


class Account:
    """The traffic of a run, including what was sent for it before it began.

    Parameters
    ----------
    spent : mapping of str to Traffic
        Traffic before the run began, by phase.
    """

    def __init__(self, network: Network, spent: Mapping[str, Traffic]) -> None:
        self._network, self._at_start, self._spent = network, network.traffic.copy(), sum(spent.values(), Traffic())
        self._booked = {**spent, **{phase: spent.get(phase, Traffic()) for phase in PHASES}}

    @property
    def rounds(self) -> int:
        """Rounds since the run began."""
        return self._network.traffic.rounds - self._at_start.rounds

    @property
    def total(self) -> Traffic:
        return self._spent + (self._network.traffic - self._at_start)

    @property
    def by_phase(self) -> dict[str, Traffic]:
        others = sum((sent for phase, sent in self._booked.items() if phase != ITERATIONS), Traffic())
        return {**self._booked, ITERATIONS: self.total - others}

    @contextmanager
    def phase(self, name: str) -> Iterator[None]:
        """Count what is sent inside the ``with`` block under this name."""
        before = self._network.traffic.copy()
        yield
        self._booked[name] = self._booked[name] + (self._network.traffic - before)
