"""Graphs: topologies, weights, and how fast a network averages."""

from eigenmesh.graphs._distances import diameter
from eigenmesh.graphs._existing import from_edge_list, from_networkx, require_connected
from eigenmesh.graphs._spectrum import Spectrum, laplacian_extremes, rounds_to_average, spectrum
from eigenmesh.graphs._topologies import (
    TOPOLOGIES,
    binary_tree,
    complete,
    cycle,
    erdos_renyi,
    exponential,
    grid,
    hypercube,
    path,
    random_geometric,
    regular,
    small_world,
    star,
)
from eigenmesh.graphs._topologies import by_name as topology
from eigenmesh.graphs._weights import WEIGHTS, Weights, best_constant, from_matrix, lazy, max_degree, metropolis
from eigenmesh.graphs._weights import by_name as weighting

__all__ = [
    "TOPOLOGIES",
    "WEIGHTS",
    "Spectrum",
    "Weights",
    "best_constant",
    "binary_tree",
    "complete",
    "cycle",
    "diameter",
    "erdos_renyi",
    "exponential",
    "from_edge_list",
    "from_matrix",
    "from_networkx",
    "grid",
    "hypercube",
    "laplacian_extremes",
    "lazy",
    "max_degree",
    "metropolis",
    "path",
    "random_geometric",
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
