"""Networks that are asked for by name, as a graph, as a matrix or as weights."""

from typing import Any

import networkx as nx
import numpy as np
from scipy import sparse

from eigenmesh import graphs
from eigenmesh.errors import InputError

DEFAULT_NODES = 10


def parse_weights(topology: Any, weighting: str, n_nodes: int, seed: int) -> graphs.Weights:
    """Weights of the network that is asked for, which must have as many nodes as the data have parts."""
    if isinstance(topology, str):
        topology = graphs.topology(topology, n_nodes, seed=seed)
    if isinstance(topology, nx.Graph):
        topology = graphs.weighting(weighting, graphs.from_networkx(topology))
    weights = topology if isinstance(topology, graphs.Weights) else graphs.from_matrix(_matrix(topology))
    if weights.n_nodes != n_nodes:
        raise InputError(f"the network has {weights.n_nodes} nodes but the data have {n_nodes} parts; make them equal.")
    return weights


def count_nodes(topology: Any, n_nodes: int | None, n_samples: int) -> int:
    """M for one array: what the topology has, what is asked for, or 10, fewer if nodes had less than two samples."""
    if isinstance(topology, graphs.Weights):
        return topology.n_nodes
    if isinstance(topology, nx.Graph):
        return int(topology.number_of_nodes())
    if not isinstance(topology, str):
        return int(_matrix(topology).shape[0])
    return n_nodes if n_nodes is not None else max(1, min(DEFAULT_NODES, n_samples // 2))


def _matrix(topology: Any) -> Any:
    """The (M, M) matrix, dense or sparse, or an error that says what a topology may be."""
    try:
        matrix = topology if sparse.issparse(topology) else np.asarray(topology, dtype=float)
    except (TypeError, ValueError):
        matrix = None
    if matrix is None or matrix.ndim != 2:
        also = "a networkx graph, Weights, a symmetric (M, M) matrix"
        raise InputError(f"topology = {topology!r} must be {also} or a name: {', '.join(sorted(graphs.TOPOLOGIES))}.")
    return matrix
