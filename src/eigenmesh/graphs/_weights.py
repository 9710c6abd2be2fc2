"""Weights: matrices on the links of a graph, which one round of mixing applies.

``mix(X)_i = sum_j w_ij X_j`` conserves the mean of X over the nodes and brings every node closer to it. For two-way
links the matrix is symmetric and doubly stochastic. For one-way links, w_ij is the weight of the link from j to i. Then
its columns sum to one, which conserves the mean; or its rows do, which leaves equal values unchanged; or both.
"""

import hashlib
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import networkx as nx
import numpy as np
from scipy import sparse

from eigenmesh._text import html_paragraphs
from eigenmesh.errors import GraphError
from eigenmesh.graphs._circle_picture import circle_picture
from eigenmesh.graphs._distances import is_two_way
from eigenmesh.graphs._existing import graph_of, require_connected, require_simple
from eigenmesh.graphs._spectrum import Matrix, Spectrum, is_symmetric, spectrum

# Up to this many nodes, a dense product is as fast as a sparse one.
DENSE_NODES = 256
# Tolerance of symmetry and row sums. The mean drifts by this much per round, and must be correct to 1e-12.
TOLERANCE = 1e-12
# Decimals of a weight in a digest.
DIGEST_DECIMALS = 10


@dataclass(frozen=True, eq=False)
class Weights:
    """Weight matrix W (M, M) of a graph, checked: W = W^T, W 1 = 1, zero off the links, beta < 1.

    ``matrix`` is a NumPy array up to 256 nodes and a ``scipy.sparse.csr_array`` beyond, float64. Entries may be
    negative. Symmetry and row sums hold to 1e-12, 1 - beta is above 1e-12, and entries off the links are exactly 0. On
    a ``networkx.DiGraph``, whose link (j, i) has the weight w_ij, rows or columns or both sum to one.
    """

    matrix: Matrix
    graph: nx.Graph

    def __post_init__(self) -> None:
        links = _square(self.matrix)
        if self.graph.is_directed():
            _require_rows_or_columns(links)
        else:
            _require_doubly_stochastic(links)
        _require_on_graph(links, self.graph)
        require_connected(self.graph)
        _require_averaging(self.spectrum)

    def __repr__(self) -> str:
        return f"Weights(n_nodes={self.n_nodes}, edges={self.edges}, beta={self.spectrum.beta:.4g})"

    def _repr_html_(self) -> str:
        facts = [f"{self.n_nodes} nodes, {self.edges} links, beta {self.spectrum.beta:.4g}"]
        return f"<div>{html_paragraphs(facts)}{circle_picture(self.graph)}</div>"

    @property
    def n_nodes(self) -> int:
        """Number of nodes M."""
        return int(self.matrix.shape[0])

    @property
    def edges(self) -> int:
        """Number of links of the graph, each counted once."""
        return int(self.graph.number_of_edges())

    @property
    def messages(self) -> int:
        """Messages of a round that uses all links."""
        return self.edges if self.graph.is_directed() else 2 * self.edges

    @property
    def most_receivers(self) -> int:
        """Largest number of nodes that one node sends to."""
        degrees = self.graph.out_degree if self.graph.is_directed() else self.graph.degree
        return max((degree for _, degree in degrees), default=0)

    @cached_property
    def symmetric(self) -> bool:
        """Whether W = W^T, so that its eigenvalues are real."""
        return is_symmetric(self.matrix)

    @cached_property
    def keeps_mean(self) -> bool:
        """Whether columns sum to one, so that mixing conserves the mean."""
        return bool(np.abs(self.matrix.sum(axis=0) - 1).max() <= TOLERANCE)

    @cached_property
    def averages(self) -> bool:
        """Whether rows and columns sum to one, so that mixing converges to the mean."""
        return self.keeps_mean and bool(np.abs(self.matrix.sum(axis=1) - 1).max() <= TOLERANCE)

    @cached_property
    def digest(self) -> str:
        """SHA-256 of the rounded weights, the same on different processors."""
        return digest_of(self.matrix)

    @property
    def summary(self) -> dict[str, Any]:
        """Size and digest as JSON values: nodes that have the same summary have the same weights."""
        return {"nodes": self.n_nodes, "links": self.edges, "weights": self.digest[:16]}

    @cached_property
    def spectrum(self) -> Spectrum:
        """Ends of the spectrum, beta, gap and diameter."""
        return spectrum(self.matrix)


def digest_of(matrix: Matrix) -> str:
    """SHA-256 of a matrix of weights, rounded because different processors may differ in the last bits."""
    entries = sparse.coo_array(matrix)
    order = np.lexsort((entries.col, entries.row))
    places = np.stack([entries.row[order], entries.col[order]]).astype("<i8")
    values = np.round(entries.data[order] * 10.0**DIGEST_DECIMALS).astype("<i8")
    return hashlib.sha256(places.tobytes() + values.tobytes()).hexdigest()


def lazy(weights: Weights) -> Weights:
    """Lazy weights (I + W) / 2; their eigenvalues are positive if those of W are above -1."""
    return Weights(half_way(weights.matrix), weights.graph)


def half_way(matrix: Matrix) -> Matrix:
    """(I + W) / 2, dense or sparse like W."""
    if sparse.issparse(matrix):
        return sparse.csr_array((sparse.eye_array(matrix.shape[0]) + matrix) / 2)
    return np.asarray((np.eye(matrix.shape[0]) + matrix) / 2)


def from_matrix(matrix: Any, graph: nx.Graph | None = None) -> Weights:
    """Weights from a matrix (M, M) that ``Weights`` accepts; by default its nonzero entries are the links.

    The links are two-way if each has its counterpart across the diagonal, otherwise one-way.
    """
    links = _square(matrix)
    return Weights(stored(links), _support(links) if graph is None else graph)


def adjacency(graph: nx.Graph) -> sparse.csr_array:
    """Ones for the links, receivers in rows and senders in columns: (M, M)."""
    _require_numbered(graph)
    nodes = range(graph.number_of_nodes())
    return nx.to_scipy_sparse_array(graph, nodes, dtype=np.float64, weight=None, format="csr").T.tocsr()


def _require_numbered(graph: nx.Graph) -> None:
    require_simple(graph)
    numbers = set(range(graph.number_of_nodes()))
    if (other := next((node for node in graph if node not in numbers), None)) is not None:
        numbered = f"nodes must be numbered 0 to {len(numbers) - 1}, but one is called {other!r}"
        raise GraphError(f"{numbered}; use eigenmesh.graphs.from_networkx(graph).")


def stored(matrix: Matrix | sparse.sparray) -> Matrix:
    """Dense for small networks, sparse for large ones."""
    links = sparse.csr_array(matrix)
    return links.toarray() if links.shape[0] <= DENSE_NODES else links


def _support(links: sparse.csr_array) -> nx.Graph:
    """Graph with a link for each nonzero entry off the diagonal."""
    rows, columns = links.nonzero()
    between = rows != columns
    pairs = zip(columns[between].tolist(), rows[between].tolist(), strict=True)
    return graph_of(range(links.shape[0]), pairs, one_way=not is_two_way(links))


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
        entries = links.tocoo()
        row, column, value = (part[broken[0]] for part in (entries.row, entries.col, entries.data))
        raise GraphError(f"weight ({row}, {column}) is {value}; all weights must be finite numbers.")
    return links


def _worst(entries: sparse.sparray) -> tuple[float, int, int]:
    """Largest entry in absolute value, and its row and column."""
    entries = entries.tocoo()
    if entries.nnz == 0:
        return 0.0, 0, 0
    place = int(np.argmax(np.abs(entries.data)))
    return float(np.abs(entries.data[place])), int(entries.row[place]), int(entries.col[place])


def _require_doubly_stochastic(links: sparse.csr_array) -> None:
    # Otherwise a round would not conserve the mean.
    error, row, column = _worst(links - links.T)
    if error > TOLERANCE:
        pair = f"weights ({row}, {column}) and ({column}, {row})"
        raise GraphError(f"{pair} differ by {error:.3g}, at most {TOLERANCE:g} is allowed; make W symmetric.")
    sums = links.sum(axis=1)
    row = int(np.argmax(np.abs(sums - 1.0)))
    if abs(sums[row] - 1.0) > TOLERANCE:
        wrong = f"row {row} of the weights sums to {float(sums[row])!r}, it must be 1 to within {TOLERANCE:g}"
        raise GraphError(f"{wrong}; put the difference on the diagonal, at ({row}, {row}).")


def _require_rows_or_columns(links: sparse.csr_array) -> None:
    errors = {"row": np.abs(links.sum(axis=1) - 1.0), "column": np.abs(links.sum(axis=0) - 1.0)}
    if min(error.max() for error in errors.values()) <= TOLERANCE:
        return
    worst = " and ".join(f"{line} {int(off.argmax())} is off by {float(off.max()):.3g}" for line, off in errors.items())
    raise GraphError(f"neither all rows nor all columns of the weights sum to 1 ({worst}); use balanced(graph).")


def _require_on_graph(links: sparse.csr_array, graph: nx.Graph) -> None:
    _require_numbered(graph)
    if len(graph) != links.shape[0]:
        raise GraphError(f"weights of {links.shape[0]} nodes do not fit a graph of {len(graph)} nodes.")
    rows, columns = links.nonzero()
    for row, column in zip(rows.tolist(), columns.tolist(), strict=True):
        if row != column and not graph.has_edge(column, row):
            wrong = f"weight ({row}, {column}) is {links[row, column]:.3g}, but the graph has no link {row}-{column}"
            raise GraphError(f"{wrong}; add the link, or set the weight to exactly 0.")


def _require_averaging(ends: Spectrum) -> None:
    if ends.gap > TOLERANCE:
        return
    fix = "use metropolis(graph)"
    if ends.second < 1.0 - TOLERANCE and ends.smallest > -3.0 + 2.0 * TOLERANCE:
        fix = "use the lazy form, from_matrix((I + W) / 2, graph)"
    others = f"the eigenvalues besides the 1 of the mean go from {ends.smallest:.6g} to {ends.second:.6g}"
    raise GraphError(f"beta = {ends.beta:.15g} must be below 1, or the nodes never agree ({others}); {fix}.")
