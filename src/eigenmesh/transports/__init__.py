"""Transports: how arrays get from a node to its neighbours."""

from eigenmesh.transports.base import Links, Transport
from eigenmesh.transports.named import TRANSPORTS, transport_by_name
from eigenmesh.transports.threads import ThreadHub, ThreadTransport, run_threads

__all__ = ["TRANSPORTS", "Links", "ThreadHub", "ThreadTransport", "Transport", "run_threads", "transport_by_name"]
