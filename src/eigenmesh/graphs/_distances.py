"""Distances in a network: its diameter and its centre."""

import numpy as np
from scipy import sparse

from eigenmesh.errors import GraphError

# If all degrees are at least M / 8, the diameter is below 24.
DENSE_SHARE = 8
# Small networks need no search either, and so no import of csgraph.
DENSE_NODES = 100
# Nodes and links that all searches together may visit, a few seconds. With 4 links per node this is a search from every
# node of up to 5,700.
VISITS = 200_000_000


def diameter(matrix: np.ndarray | sparse.csr_array) -> int:
    """Largest number of links between two nodes of the graph on which the matrix (M, M) is not zero."""
    return int(eccentricities(matrix).max())


def diameter_and_centre(matrix: np.ndarray | sparse.csr_array) -> tuple[int, int]:
    """Diameter of weights (M, M), and the node with the smallest sum of distances to and from its farthest nodes."""
    outward = eccentricities(matrix)
    # With two-way links both distances are the same.
    both = outward if is_two_way(matrix) else outward + eccentricities(matrix.T)
    return int(outward.max()), int(both.argmin())


def is_two_way(matrix: np.ndarray | sparse.csr_array) -> bool:
    """Whether every link, a nonzero entry of (M, M), goes both ways."""
    linked = matrix != 0
    return not (linked != linked.T).sum()


def eccentricities(matrix: np.ndarray | sparse.csr_array) -> np.ndarray:
    """Number of links from each node to the farthest one, on the graph where the matrix (M, M) is not zero: (M,).

    Entry (i, j) is a link from j to i. A breadth-first search from a node s with eccentricity e, and one back to it,
    bound those of all others (Takes and Kosters, 2013):
    ``max(d(v, s), e - d(s, v)) <= e(v) <= e + d(v, s)``. Searches start alternately where the upper bound is largest
    and where the lower bound is smallest, until the bounds are equal everywhere: after a few searches on long, thin
    graphs, and one per node on random graphs. On large networks the work is limited, and the result is the upper
    bounds.
    """
    # Row j has the nodes that node j sends to.
    links = sparse.csr_array(matrix.T, copy=True)
    links.eliminate_zeros()
    n_nodes = links.shape[0]
    if n_nodes <= DENSE_NODES or int(np.diff(links.indptr).min()) * DENSE_SHARE >= n_nodes:
        return _eccentricities_of_dense(links)
    from scipy.sparse import csgraph

    n_components, _ = csgraph.connected_components(links, connection="strong")
    if n_components > 1:
        raise _not_connected(n_nodes, n_components)
    backwards = None if is_two_way(links) else sparse.csr_array(links.T)
    lower, upper = np.zeros(n_nodes, dtype=np.int32), np.full(n_nodes, n_nodes, dtype=np.int32)
    for search in range(max(2, VISITS // (n_nodes + links.nnz))):
        unsettled = np.flatnonzero(lower < upper)
        if not unsettled.size:
            break
        source = unsettled[np.argmin(lower[unsettled]) if search % 2 else np.argmax(upper[unsettled])]
        to_node = _distances_from(links, source)
        from_node = to_node if backwards is None else _distances_from(backwards, source)
        lower = np.maximum(lower, np.maximum(from_node, to_node.max() - to_node))
        upper = np.minimum(upper, to_node.max() + from_node)
    return upper


def _not_connected(n_nodes: int, n_components: int) -> GraphError:
    return GraphError(f"the non-zero weights leave the {n_nodes} nodes in {n_components} components; connect them.")


def _eccentricities_of_dense(links: sparse.csr_array) -> np.ndarray:
    """Eccentricities by matrix products, (M, M) -> (M,), for short paths: with large degrees or few nodes."""
    n_nodes = links.shape[0]
    step = (links + sparse.eye_array(n_nodes)).astype(bool).astype(np.float32).toarray()
    reached = np.eye(n_nodes, dtype=np.float32)
    farthest = np.zeros(n_nodes, dtype=int)
    while not (complete := reached.all(axis=1)).all():
        farthest += ~complete
        before, reached = reached, np.minimum(reached @ step, 1.0)
        if np.array_equal(before, reached):
            # Nodes that reach each other have equal rows here.
            raise _not_connected(n_nodes, len(np.unique(reached * reached.T, axis=0)))
    return farthest


def _distances_from(links: sparse.csr_array, source: int) -> np.ndarray:
    """Number of links from the source to each node, (M,), by pointer doubling on the tree of a search."""
    from scipy.sparse import csgraph

    _, ancestors = csgraph.breadth_first_order(links, source)
    distances = np.ones(len(ancestors), dtype=np.int32)
    distances[source], ancestors[source] = 0, source
    # The ancestor of the ancestor is twice as far away, so the step doubles each time.
    while (ancestors != source).any():
        distances += distances[ancestors]
        ancestors = ancestors[ancestors]
    return distances
