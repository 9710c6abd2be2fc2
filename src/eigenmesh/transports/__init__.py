"""Transports: how arrays get from a node to its neighbours."""

from eigenmesh.transports.base import Links, Transport
from eigenmesh.transports.threads import ThreadHub, ThreadTransport, run_threads

__all__ = ["Links", "ThreadHub", "ThreadTransport", "Transport", "run_threads"]
