"""Rehearses a run in virtual time: the machines of all sites in one process, with a network and disks that can fail."""

from eigenmesh.rehearsal.conditions import EXAMPLE, Conditions, Fault, Host, LinkQuality, read_conditions

__all__ = ["Conditions", "Fault", "Host", "LinkQuality", "read_conditions"]


def __dir__() -> list[str]:
    return __all__
