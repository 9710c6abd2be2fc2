"""Ways to average over a network, to a stated accuracy."""

from collections.abc import Callable

from eigenmesh.averaging.base import (
    DEFAULT_ACCURACY,
    Average,
    Averaging,
    LinearNetwork,
    LinearRound,
    in_order,
    only_rounding_left,
    reaches,
)
from eigenmesh.averaging.factored import Factored
from eigenmesh.averaging.integers import BITS, FixedPoint, IntegerAverage, Integers, Scaled, Wide
from eigenmesh.averaging.packed import ALL_BITS, FEWER_BITS, pack, packed_bytes, unpack
from eigenmesh.averaging.spectral import (
    CHANCE,
    Chebyshev,
    ChebyshevAverage,
    Gossip,
    GossipAverage,
    Polynomial,
    Probes,
    PushSum,
    PushSumAverage,
)
from eigenmesh.averaging.tree import AllReduce, AllReduceAverage, Tree, TreeAverage

# All but the last send only over the links of the graph.
AVERAGINGS: dict[str, Callable[[], Averaging]] = {
    "gossip": Gossip,
    "chebyshev": Chebyshev,
    "factored": Factored,
    "integers": Integers,
    "polynomial": Polynomial,
    "tree": Tree,
    "allreduce": AllReduce,
}


def name_of(averaging: Averaging) -> str:
    """Name of the averaging, or of its class if it is not registered.

    Parameters
    ----------
    averaging : Averaging
        An averaging, registered or not.
    """
    names = {make: name for name, make in AVERAGINGS.items()}
    return names.get(type(averaging), type(averaging).__name__)


__all__ = [
    "AVERAGINGS",
    "AllReduce",
    "Averaging",
    "Chebyshev",
    "Factored",
    "Gossip",
    "Integers",
    "Polynomial",
    "PushSum",
    "Tree",
]


def __dir__() -> list[str]:
    return __all__
