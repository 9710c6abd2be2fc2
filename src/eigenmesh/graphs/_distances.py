"""How far apart the nodes of a network are: its diameter and its centre."""

import numpy as np
from scipy import sparse

from eigenmesh.errors import GraphError

# Degrees of M / 8 or more keep the diameter below 24.
DENSE_SHARE = 8
# So few nodes need no search either, nor the import of one.
DENSE_NODES = 100
# Nodes and links that all searches together may visit: seconds. With 4 links per node it is a search from every node up
# to 5,700 of them.
VISITS = 200_000_000


def diameter(matrix: np.ndarray | sparse.csr_array) -> int:
    """Largest number of links between two nodes of the graph on which the matrix (M, M) is not zero."""
    return int(eccentricities(matrix).max())


def diameter_and_centre(matrix: np.ndarray | sparse.csr_array) -> tuple[int, int]:
    """The diameter of weights (M, M), and the node with the least sum of links from and to its farthest nodes."""
    away = eccentricities(matrix)
    # Where links go both ways the two are the same.
    both = away if is_two_way(matrix) else away + eccentricities(matrix.T)
    return int(away.max()), int(both.argmin())


def is_two_way(matrix: np.ndarray | sparse.csr_array) -> bool:
    """Whether every link, an entry of (M, M) that is not zero, goes both ways."""
    linked = matrix != 0
    return not (linked != linked.T).sum()


def eccentricities(matrix: np.ndarray | sparse.csr_array) -> np.ndarray:
    """Number of links from each node to the farthest one, on the graph where the matrix (M, M) is not zero: (M,).

    Entry (i, j) is a link from j to i. A breadth-first search from a node s with eccentricity e, and one back to it,
    bound those of all others (Takes and Kosters, 2013):
    ``max(d(v, s), e - d(s, v)) <= e(v) <= e + d(v, s)``. Searches go on, in turn from where the upper bound is largest
    and where the lower one is smallest, until the bounds meet everywhere: after a few searches on long, thin graphs,
    one per node on random ones. On large networks it ends after a fixed amount of work, with upper bounds.
    """
    # A row of this is whom a node sends to.
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
        there = _distances_from(links, source)
        back = there if backwards is None else _distances_from(backwards, source)
        lower = np.maximum(lower, np.maximum(back, there.max() - there))
        upper = np.minimum(upper, there.max() + back)
    return upper


def _not_connected(n_nodes: int, n_components: int) -> GraphError:
    return GraphError(f"the non-zero weights leave the {n_nodes} nodes in {n_components} components; connect them.")


def _eccentricities_of_dense(links: sparse.csr_array) -> np.ndarray:
    """By matrix products, (M, M) -> (M,); paths are short if all degrees are large or nodes are few."""
    n_nodes = links.shape[0]
    step = (links + sparse.eye_array(n_nodes)).astype(bool).astype(np.float32).toarray()
    reached = np.eye(n_nodes, dtype=np.float32)
    farthest = np.zeros(n_nodes, dtype=int)
    while not (complete := reached.all(axis=1)).all():
        farthest += ~complete
        before, reached = reached, np.minimum(reached @ step, 1.0)
        if np.array_equal(before, reached):
            # Nodes that reach each other.
            raise _not_connected(n_nodes, len(np.unique(reached * reached.T, axis=0)))
    return farthest


def _distances_from(links: sparse.csr_array, source: int) -> np.ndarray:
    """Number of links from the source to each node, (M,): all nodes climb the tree of a search together."""
    from scipy.sparse import csgraph

    _, ancestors = csgraph.breadth_first_order(links, source)
    distances = np.ones(len(ancestors), dtype=np.int32)
    distances[source], ancestors[source] = 0, source
    # The ancestor of the ancestor is twice as far away, so the steps double.
    while (ancestors != source).any():
        distances += distances[ancestors]
        ancestors = ancestors[ancestors]
    return distances
