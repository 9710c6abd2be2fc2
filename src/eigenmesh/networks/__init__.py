"""Networks: exchange arrays between neighbours, and count the traffic."""

from eigenmesh.networks.changing import Changing, ChangingPeers
from eigenmesh.networks.network import Bound, Masking, Message, Mixes, Network, Pace, Traffic
from eigenmesh.networks.peers import Peers
from eigenmesh.networks.stacked import Stacked
from eigenmesh.networks.virtual_time import InVirtualTime

__all__ = ["Changing", "ChangingPeers", "Network", "Peers", "Stacked", "Traffic"]


def __dir__() -> list[str]:
    return __all__
