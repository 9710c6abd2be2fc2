"""Networks given by name, as a graph, as a matrix or as weights."""

from collections.abc import Sequence
from typing import Any

import networkx as nx
import numpy as np
from scipy import sparse

from eigenmesh import graphs
from eigenmesh.errors import InputError
from eigenmesh.graphs._existing import graph_of, in_order_of, is_edge_list

DEFAULT_NODES = 10


def parse_weights(
    topology: Any, weighting: str, n_nodes: int, seed: int, names: Sequence[str] | None = None
) -> graphs.Weights | graphs.NetworkSequence:
    """Weights of the requested network, which must have as many nodes as the data have parts.

    If the nodes of a graph have the ``names`` of the parts, they are put in that order. A network that changes is
    returned as it is.
    """
    if isinstance(topology, str):
        topology = graphs.topology(topology, n_nodes, seed=seed)
    graph = _graph(topology)
    if graph is not None:
        topology = graphs.weighting(weighting, in_order_of(graphs.from_networkx(graph), names))
    elif weighting != "auto":
        own = "a network that changes has" if isinstance(topology, graphs.NetworkSequence) else "this topology has"
        raise InputError(f'{own} its own weights, so weights = {weighting!r} would have no effect; use weights="auto".')
    ready = isinstance(topology, graphs.Weights | graphs.NetworkSequence)
    weights = topology if ready else graphs.from_matrix(_matrix(topology))
    if weights.n_nodes != n_nodes:
        raise InputError(f"the network has {weights.n_nodes} nodes but the data have {n_nodes} parts; make them equal.")
    return weights


def count_nodes(topology: Any, n_nodes: int | None, n_samples: int) -> int:
    """M for one array: that of the topology, else ``n_nodes``, else 10 or fewer, so that every node has two samples."""
    if isinstance(topology, graphs.Weights | graphs.NetworkSequence):
        return topology.n_nodes
    graph = _graph(topology)
    if graph is not None:
        return int(graph.number_of_nodes())
    if not isinstance(topology, str):
        return int(_matrix(topology).shape[0])
    return n_nodes if n_nodes is not None else max(1, min(DEFAULT_NODES, n_samples // 2))


def _graph(topology: Any) -> nx.Graph | None:
    """The topology as a graph, from a graph, a list of links or a matrix of 0 and 1; None for anything else."""
    if isinstance(topology, nx.Graph):
        return topology
    if isinstance(topology, str | graphs.Weights | graphs.NetworkSequence):
        return None
    if is_edge_list(topology):
        return graph_of((), topology)
    matrix = sparse.csr_array(_matrix(topology))
    # As weights, a matrix of 0 and 1 would never average: it would only leave or swap values. So it is an adjacency
    # matrix.
    if matrix.shape[0] != matrix.shape[1] or matrix.shape[0] < 2 or not np.isin(matrix.data, (0, 1)).all():
        return None
    # An entry (i, j) without its counterpart (j, i) is a one-way link.
    kind = nx.DiGraph if (matrix != matrix.T).nnz else nx.Graph
    linked = nx.from_scipy_sparse_array(matrix, create_using=kind)
    linked.remove_edges_from(list(nx.selfloop_edges(linked)))
    return linked


def _matrix(topology: Any) -> Any:
    """The (M, M) matrix, dense or sparse; raises an error that lists what a topology may be."""
    try:
        matrix = topology if sparse.issparse(topology) else np.asarray(topology, dtype=float)
    except (TypeError, ValueError):
        matrix = None
    if matrix is None or matrix.ndim != 2:
        also = "a networkx graph, a list of pairs of nodes, Weights, a symmetric (M, M) matrix"
        raise InputError(f"topology = {topology!r} must be {also} or a name: {', '.join(sorted(graphs.TOPOLOGIES))}.")
    return matrix
