"""Networks: exchange arrays between neighbours, and count the traffic."""

from eigenmesh.networks.changing import Changing, ChangingRound
from eigenmesh.networks.codec import Bound, Masking
from eigenmesh.networks.mixes import Mixes
from eigenmesh.networks.network import Decided, Network
from eigenmesh.networks.own_pace import Message, Pace, Paced
from eigenmesh.networks.peers import Peers
from eigenmesh.networks.stacked import Stacked
from eigenmesh.networks.traffic import Meter, Traffic

__all__ = ["Changing", "Network", "Peers", "Stacked", "Traffic"]


def __dir__() -> list[str]:
    return __all__
