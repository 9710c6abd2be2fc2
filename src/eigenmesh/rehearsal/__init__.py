"""Rehearses a run in virtual time: the machines of all sites in one process, with a network and disks that can fail."""

from eigenmesh.rehearsal._scenario import Fault, Scenario, draw
from eigenmesh.rehearsal._world import SeedOutcome, World

__all__ = ["Fault", "Scenario", "SeedOutcome", "World", "draw"]


def __dir__() -> list[str]:
    return __all__
