"""Transports: how arrays get from a node to its neighbours."""

from eigenmesh.transports.base import Arrays, Links, SentCount, Transport
from eigenmesh.transports.registry import TRANSPORTS, TransportKind, transport_by_name, transport_kind
from eigenmesh.transports.threads import ThreadHub, ThreadTransport, run_threads

__all__ = [
    "TRANSPORTS",
    "Links",
    "SentCount",
    "ThreadHub",
    "ThreadTransport",
    "Transport",
    "TransportKind",
    "run_threads",
    "transport_by_name",
    "transport_kind",
]


def __dir__() -> list[str]:
    return __all__
