"""Networks: who can talk to whom, and what it costs."""

from eigenmesh.networks.base import Network, Traffic
from eigenmesh.networks.peers import Peers
from eigenmesh.networks.stacked import Stacked

__all__ = ["Network", "Peers", "Stacked", "Traffic"]
