"""Weights: symmetric doubly stochastic matrices on the links of a graph, which one round of mixing applies.

``mix(X)_i = sum_j w_ij X_j`` keeps the mean of X over the nodes and brings every node nearer to it.
"""

from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import networkx as nx
import numpy as np
from scipy import sparse

from eigenmesh._lookup import lookup
from eigenmesh.errors import GraphError
from eigenmesh.graphs._existing import graph_of, require_connected, require_simple
from eigenmesh.graphs._spectrum import Matrix, Spectrum, laplacian_extremes, spectrum

# Up to this many nodes, a dense product is as fast as a sparse one.
DENSE_NODES = 256
# Tolerance of symmetry and row sums: the mean drifts by as much per round, and must be right to 1e-12.
TOLERANCE = 1e-12


@dataclass(frozen=True, eq=False)
class Weights:
    """Weight matrix W (M, M) of a graph, checked: W = W^T, W 1 = 1, zero off the links, beta < 1.

    ``matrix`` is a NumPy array up to 256 nodes and a ``scipy.sparse.csr_array`` beyond, float64. Entries may be
    negative. Symmetry and row sums hold to 1e-12, 1 - beta is above 1e-12, zeros off the links are exact.
    """

    matrix: Matrix
    graph: nx.Graph

    def __post_init__(self) -> None:
        links = _square(self.matrix)
        _require_doubly_stochastic(links)
        _require_on_graph(links, self.graph)
        require_connected(self.graph)
        _require_averaging(self.spectrum)

    def __repr__(self) -> str:
        return f"Weights(n_nodes={self.n_nodes}, edges={self.edges}, beta={self.spectrum.beta:.4g})"

    @property
    def n_nodes(self) -> int:
        """Number of nodes M."""
        return int(self.matrix.shape[0])

    @property
    def edges(self) -> int:
        """Number of links of the graph, each counted once."""
        return int(self.graph.number_of_edges())

    @cached_property
    def spectrum(self) -> Spectrum:
        """Ends of the spectrum, beta, gap and diameter."""
        return spectrum(self.matrix)


def metropolis(graph: nx.Graph) -> Weights:
    """Metropolis weights: w_ij = 1 / (1 + max(deg_i, deg_j)) on links; needs only the neighbours' degrees."""
    adjacency = _adjacency(graph).tocoo()
    degrees = np.bincount(adjacency.row, minlength=adjacency.shape[0])
    values = 1.0 / (1.0 + np.maximum(degrees[adjacency.row], degrees[adjacency.col]))
    return _completed(sparse.coo_array((values, (adjacency.row, adjacency.col)), adjacency.shape), graph)


def max_degree(graph: nx.Graph) -> Weights:
    """One weight for all links: w_ij = 1 / (1 + max_k deg_k)."""
    adjacency = _adjacency(graph)
    return _completed(adjacency / (1.0 + adjacency.sum(axis=1).max()), graph)


def best_constant(graph: nx.Graph) -> Weights:
    """The one weight for all links with the least beta: W = I - 2 L / (l_2 + l_M), L the Laplacian.

    beta = (l_M - l_2) / (l_M + l_2). Diagonal entries may be negative.
    """
    adjacency = _adjacency(graph)
    if adjacency.shape[0] == 1:
        return _completed(adjacency, graph)
    return _completed(adjacency * (2.0 / sum(laplacian_extremes(graph))), graph)


def lazy(weights: Weights) -> Weights:
    """Lazy weights (I + W) / 2, whose eigenvalues are all positive if those of W are above -1."""
    return Weights(half_way(weights.matrix), weights.graph)


def half_way(matrix: Matrix) -> Matrix:
    """(I + W) / 2, dense or sparse as W is."""
    if sparse.issparse(matrix):
        return sparse.csr_array((sparse.eye_array(matrix.shape[0]) + matrix) / 2)
    return np.asarray((np.eye(matrix.shape[0]) + matrix) / 2)


def from_matrix(matrix: Any, graph: nx.Graph | None = None) -> Weights:
    """Weights from a symmetric doubly stochastic matrix (M, M); without a graph, its non-zero entries are the links."""
    links = _square(matrix)
    return Weights(_stored(links), _support(links) if graph is None else graph)


RULES = (metropolis, max_degree, best_constant)
WEIGHTS: dict[str, Callable[[nx.Graph], Weights]] = {build.__name__: build for build in RULES}


def by_name(name: str, graph: nx.Graph) -> Weights:
    """Weights of that name on the graph."""
    return lookup("weights", name, WEIGHTS)(graph)


def _adjacency(graph: nx.Graph) -> sparse.csr_array:
    require_simple(graph)
    nodes = range(graph.number_of_nodes())
    numbers = set(nodes)
    if (stranger := next((node for node in graph if node not in numbers), None)) is not None:
        numbered = f"nodes must be numbered 0 to {nodes[-1]}, but one is called {stranger!r}"
        raise GraphError(f"{numbered}; use eigenmesh.graphs.from_networkx(graph).")
    return nx.to_scipy_sparse_array(graph, nodes, dtype=np.float64, weight=None, format="csr")


def _completed(links: sparse.sparray, graph: nx.Graph) -> Weights:
    """Weights with a diagonal that completes the row sums of the links to one."""
    return Weights(_stored(links + sparse.diags_array(1.0 - links.sum(axis=1))), graph)


def _stored(matrix: Matrix | sparse.sparray) -> Matrix:
    links = sparse.csr_array(matrix)
    return links.toarray() if links.shape[0] <= DENSE_NODES else links


def _support(links: sparse.csr_array) -> nx.Graph:
    """Graph with a link wherever an entry off the diagonal is not zero."""
    rows, columns = links.nonzero()
    between = rows != columns
    return graph_of(range(links.shape[0]), zip(rows[between].tolist(), columns[between].tolist(), strict=True))


def _square(matrix: Any) -> sparse.csr_array:
    """Sparse copy of a finite real square matrix; GraphError for anything else."""
    try:
        given = matrix if sparse.issparse(matrix) else np.asarray(matrix)
    except ValueError as error:
        raise GraphError(f"weights must be a matrix of numbers ({error}).") from error
    if given.dtype.kind not in "biuf":
        raise GraphError(f"weights must be real numbers, not {given.dtype}.")
    if given.ndim != 2 or given.shape[0] != given.shape[1] or given.shape[0] == 0:
        raise GraphError(f"weights must be a square matrix (M, M), not of shape {given.shape}.")
    links = sparse.csr_array(given, dtype=np.float64, copy=True)
    links.sum_duplicates()
    links.eliminate_zeros()
    broken = np.flatnonzero(~np.isfinite(links.data))
    if broken.size:
        found = links.tocoo()
        row, column, value = found.row[broken[0]], found.col[broken[0]], found.data[broken[0]]
        raise GraphError(f"weight ({row}, {column}) is {value}; all weights must be finite numbers.")
    return links


def _worst(entries: sparse.sparray) -> tuple[float, int, int]:
    """Largest entry in absolute value, and its row and column."""
    found = entries.tocoo()
    if found.nnz == 0:
        return 0.0, 0, 0
    place = int(np.argmax(np.abs(found.data)))
    return float(np.abs(found.data[place])), int(found.row[place]), int(found.col[place])


def _require_doubly_stochastic(links: sparse.csr_array) -> None:
    # Otherwise a round would not keep the mean.
    error, row, column = _worst(links - links.T)
    if error > TOLERANCE:
        pair = f"weights ({row}, {column}) and ({column}, {row})"
        raise GraphError(f"{pair} differ by {error:.3g}, at most {TOLERANCE:g} is allowed; make W symmetric.")
    sums = links.sum(axis=1)
    row = int(np.argmax(np.abs(sums - 1.0)))
    if abs(sums[row] - 1.0) > TOLERANCE:
        found = f"row {row} of the weights sums to {float(sums[row])!r}, it must be 1 to within {TOLERANCE:g}"
        raise GraphError(f"{found}; put the difference on the diagonal, at ({row}, {row}).")


def _require_on_graph(links: sparse.csr_array, graph: nx.Graph) -> None:
    allowed = _adjacency(graph)
    if allowed.shape != links.shape:
        raise GraphError(f"weights of {links.shape[0]} nodes do not fit a graph of {allowed.shape[0]} nodes.")
    allowed = allowed + sparse.eye_array(links.shape[0])
    value, row, column = _worst(links - links.multiply(allowed))
    if value > 0.0:
        found = f"weight ({row}, {column}) is {value:.3g} in size, but the graph has no link {row}-{column}"
        raise GraphError(f"{found}; add the link, or set the weight to exactly 0.")


def _require_averaging(ends: Spectrum) -> None:
    if ends.gap > TOLERANCE:
        return
    fix = "use metropolis(graph)"
    if ends.second < 1.0 - TOLERANCE and ends.smallest > -3.0 + 2.0 * TOLERANCE:
        fix = "use the lazy form, from_matrix((I + W) / 2, graph)"
    others = f"the eigenvalues besides the 1 of the mean go from {ends.smallest:.6g} to {ends.second:.6g}"
    raise GraphError(f"beta = {ends.beta:.15g} must be below 1, or the nodes never agree ({others}); {fix}.")
