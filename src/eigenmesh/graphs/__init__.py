"""Graphs: topologies, weights, and how fast a network averages.

Graphs of a known form are functions of ``topologies``, networks that change from round to round those of ``changing``.
"""

from eigenmesh.graphs import changing, topologies
from eigenmesh.graphs.changing import NetworkSequence
from eigenmesh.graphs.eigenvalues import Spectrum, rounds_to_average, spectrum
from eigenmesh.graphs.topologies import TOPOLOGIES, from_edge_list, from_networkx
from eigenmesh.graphs.topologies import by_name as topology
from eigenmesh.graphs.weights import (
    WEIGHTS,
    Weights,
    balanced,
    best_constant,
    from_matrix,
    half_way,
    max_degree,
    metropolis,
    pull,
    push,
    resolved,
    weighting,
)

__all__ = [
    "TOPOLOGIES",
    "WEIGHTS",
    "NetworkSequence",
    "Spectrum",
    "Weights",
    "balanced",
    "best_constant",
    "changing",
    "from_edge_list",
    "from_matrix",
    "from_networkx",
    "max_degree",
    "metropolis",
    "pull",
    "push",
    "spectrum",
    "topologies",
    "topology",
]


def __dir__() -> list[str]:
    return __all__
