"""Ways to average over a network, to a stated accuracy."""

from collections.abc import Callable

from eigenmesh._lookup import lookup
from eigenmesh.averaging._allreduce import AllReduce
from eigenmesh.averaging._base import DEFAULT_ACCURACY, Average, Averaging, LinearRound
from eigenmesh.averaging._factored import Factored
from eigenmesh.averaging._gossip import Chebyshev, Gossip
from eigenmesh.averaging._integers import Integers
from eigenmesh.averaging._polynomial import Polynomial
from eigenmesh.averaging._push_sum import PushSum
from eigenmesh.averaging._tree import Tree

# Methods that send only over the links of the graph.
OVER_LINKS: dict[str, Callable[[], Averaging]] = {
    "gossip": Gossip,
    "chebyshev": Chebyshev,
    "factored": Factored,
    "integers": Integers,
    "polynomial": Polynomial,
    "tree": Tree,
}
AVERAGINGS: dict[str, Callable[[], Averaging]] = {**OVER_LINKS, "allreduce": AllReduce}


def averaging_by_name(name: str) -> Averaging:
    """Averaging method with this name, for the command line and the estimator."""
    return lookup("averaging", name, AVERAGINGS)()


def name_of(averaging: Averaging) -> str:
    """Name of the averaging, or of its class if it is not registered."""
    names = {make: name for name, make in AVERAGINGS.items()}
    return names.get(type(averaging), type(averaging).__name__)


__all__ = [
    "AVERAGINGS",
    "DEFAULT_ACCURACY",
    "OVER_LINKS",
    "AllReduce",
    "Average",
    "Averaging",
    "Chebyshev",
    "Factored",
    "Gossip",
    "Integers",
    "LinearRound",
    "Polynomial",
    "PushSum",
    "Tree",
    "averaging_by_name",
    "name_of",
]


def __dir__() -> list[str]:
    return __all__
