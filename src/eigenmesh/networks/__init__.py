"""Networks: exchange arrays between neighbours, and count the traffic."""

from eigenmesh.networks._base import Network
from eigenmesh.networks._changing import Changing
from eigenmesh.networks._changing_peers import ChangingPeers
from eigenmesh.networks._peers import Peers
from eigenmesh.networks._stacked import Stacked
from eigenmesh.networks._traffic import Traffic

__all__ = ["Changing", "ChangingPeers", "Network", "Peers", "Stacked", "Traffic"]


def __dir__() -> list[str]:
    return __all__
