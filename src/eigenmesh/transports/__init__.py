"""Transports: how arrays get from a node to its neighbours."""

from eigenmesh.transports.base import Links, Transport
from eigenmesh.transports.registry import TRANSPORTS, transport_by_name, transport_kind
from eigenmesh.transports.threads import run_threads

__all__ = ["TRANSPORTS", "Links", "Transport", "run_threads"]


def __dir__() -> list[str]:
    return __all__
