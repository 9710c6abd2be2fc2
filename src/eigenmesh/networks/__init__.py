"""Networks: exchange arrays between neighbours, and count the traffic."""

from eigenmesh.networks._base import Network, Traffic
from eigenmesh.networks._peers import Peers
from eigenmesh.networks._stacked import Stacked

__all__ = ["Network", "Peers", "Stacked", "Traffic"]


def __dir__() -> list[str]:
    return __all__
