"""Networks: who can talk to whom, and what it costs."""

from eigenmesh.networks._base import Network, Traffic
from eigenmesh.networks._peers import Peers
from eigenmesh.networks._stacked import Stacked

__all__ = ["Network", "Peers", "Stacked", "Traffic"]


def __dir__() -> list[str]:
    return __all__
