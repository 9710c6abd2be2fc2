"""Runs in virtual time under given conditions: sites with their network and disks, or the nodes of a fit."""

from eigenmesh.rehearsal.conditions import EXAMPLE, Conditions, Fault, Host, LinkQuality, read_conditions

__all__ = ["Conditions", "Fault", "Host", "LinkQuality", "read_conditions"]


def __dir__() -> list[str]:
    return __all__
