"""Graphs: topologies, weights, and how fast a network averages."""

from eigenmesh.graphs._distances import diameter
from eigenmesh.graphs._existing import from_edge_list, from_networkx, require_connected
from eigenmesh.graphs._over_time import (
    NetworkSequence,
    dealt_out,
    fresh_graphs,
    links_up,
    lossy,
    matchings,
    over_time,
    periodic,
)
from eigenmesh.graphs._rules import WEIGHTS, balanced, best_constant, max_degree, metropolis, pull, push
from eigenmesh.graphs._rules import by_name as weighting
from eigenmesh.graphs._spectrum import Spectrum, laplacian_extremes, rounds_to_average, spectrum
from eigenmesh.graphs._topologies import (
    TOPOLOGIES,
    binary_tree,
    complete,
    cycle,
    directed_chords,
    directed_cycle,
    erdos_renyi,
    exponential,
    grid,
    hypercube,
    path,
    random_geometric,
    random_out,
    regular,
    small_world,
    star,
)
from eigenmesh.graphs._topologies import by_name as topology
from eigenmesh.graphs._weights import Weights, from_matrix, lazy

__all__ = [
    "TOPOLOGIES",
    "WEIGHTS",
    "NetworkSequence",
    "Spectrum",
    "Weights",
    "balanced",
    "best_constant",
    "binary_tree",
    "complete",
    "cycle",
    "dealt_out",
    "diameter",
    "directed_chords",
    "directed_cycle",
    "erdos_renyi",
    "exponential",
    "fresh_graphs",
    "from_edge_list",
    "from_matrix",
    "from_networkx",
    "grid",
    "hypercube",
    "laplacian_extremes",
    "lazy",
    "links_up",
    "lossy",
    "matchings",
    "max_degree",
    "metropolis",
    "over_time",
    "path",
    "periodic",
    "pull",
    "push",
    "random_geometric",
    "random_out",
    "regular",
    "require_connected",
    "rounds_to_average",
    "small_world",
    "spectrum",
    "star",
    "topology",
    "weighting",
]


def __dir__() -> list[str]:
    return __all__
