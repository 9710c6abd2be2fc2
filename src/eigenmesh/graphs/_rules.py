"""Rules for the weights of a graph."""

from collections.abc import Callable

import networkx as nx
import numpy as np
from scipy import sparse

from eigenmesh._lookup import canonical_name
from eigenmesh.graphs._existing import require_both_ways, require_connected, require_simple
from eigenmesh.graphs._spectrum import laplacian_extremes
from eigenmesh.graphs._weights import Weights, adjacency, stored

# Most scalings of rows and columns when balancing, and the relative change at which it stops.
SCALINGS, BALANCED = 100_000, 1e-15


def metropolis(graph: nx.Graph) -> Weights:
    """Metropolis weights: w_ij = 1 / (1 + max(deg_i, deg_j)) on links; a node needs only its neighbours' degrees."""
    require_both_ways(graph, "Metropolis weights")
    links = adjacency(graph).tocoo()
    degrees = np.bincount(links.row, minlength=links.shape[0])
    values = 1.0 / (1.0 + np.maximum(degrees[links.row], degrees[links.col]))
    return _completed(sparse.coo_array((values, (links.row, links.col)), links.shape), graph)


def max_degree(graph: nx.Graph) -> Weights:
    """One weight for all links: w_ij = 1 / (1 + max_k deg_k)."""
    require_both_ways(graph, "max_degree weights")
    links = adjacency(graph)
    return _completed(links / (1.0 + links.sum(axis=1).max()), graph)


def best_constant(graph: nx.Graph) -> Weights:
    """One weight for all links, with the smallest possible beta: W = I - 2 L / (l_2 + l_M), L the Laplacian.

    beta = (l_M - l_2) / (l_M + l_2). Diagonal entries may be negative.
    """
    require_both_ways(graph, "best_constant weights")
    links = adjacency(graph)
    if links.shape[0] == 1:
        return _completed(links, graph)
    return _completed(links * (2.0 / sum(laplacian_extremes(graph))), graph)


def push(graph: nx.Graph) -> Weights:
    """Columns that sum to one: a node keeps and sends equal shares, ``1 / (1 + out-degree)``; that is all it needs.

    Mixing conserves the mean but does not converge to it; a push sum corrects this with weights that start as ones.
    """
    links = _with_diagonal(graph)
    return Weights(stored(links / links.sum(axis=0)), graph.to_directed())


def pull(graph: nx.Graph) -> Weights:
    """Rows that sum to one: a node averages its own and all received values, each with ``1 / (1 + in-degree)``."""
    links = _with_diagonal(graph)
    return Weights(stored(sparse.diags_array(1 / links.sum(axis=1)) @ links), graph.to_directed())


def balanced(graph: nx.Graph) -> Weights:
    """Rows and columns that sum to one: Sinkhorn scaling of the rows and columns of I + A, A the links.

    It exists for every strongly connected graph. All nodes must know the whole graph.
    """
    links = _with_diagonal(graph)
    columns = np.ones(links.shape[0])
    for _ in range(SCALINGS):
        rows = 1 / (links @ columns)
        before, columns = columns, 1 / (links.T @ rows)
        if np.abs(columns - before).max() <= BALANCED * np.abs(columns).max():
            break
    scaled = sparse.diags_array(1 / (links @ columns)) @ links @ sparse.diags_array(columns)
    return Weights(stored(scaled), graph)


BOTH_WAYS = (metropolis, max_degree, best_constant)
ONE_WAY = (balanced, push, pull)
WEIGHTS: dict[str, Callable[[nx.Graph], Weights]] = {build.__name__: build for build in (*BOTH_WAYS, *ONE_WAY)}


def by_name(name: str, graph: nx.Graph) -> Weights:
    """Weights of the rule with this name."""
    return WEIGHTS[resolved(name, graph)](graph)


def resolved(name: str, graph: nx.Graph) -> str:
    """The full name of the rule; "auto" is metropolis, or balanced if links are one-way."""
    require_simple(graph)
    name = canonical_name("weights", name, ["auto", *WEIGHTS])
    return ("balanced" if graph.is_directed() else "metropolis") if name == "auto" else name


def _with_diagonal(graph: nx.Graph) -> sparse.csr_array:
    require_connected(graph)
    return sparse.csr_array(adjacency(graph) + sparse.eye_array(graph.number_of_nodes()))


def _completed(links: sparse.sparray, graph: nx.Graph) -> Weights:
    """Weights with a diagonal that completes the row sums of the links to one."""
    entries, nodes = sparse.coo_array(links), np.arange(links.shape[0])
    diagonal = 1.0 - np.bincount(entries.row, entries.data, minlength=len(nodes))
    # Built in one step, because adding small sparse matrices takes longer than everything else here.
    places = np.concatenate([entries.row, nodes]), np.concatenate([entries.col, nodes])
    values = np.concatenate([entries.data, diagonal])
    return Weights(stored(sparse.csr_array((values, places), links.shape)), graph)
