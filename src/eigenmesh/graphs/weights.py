"""Weights: matrices on the links of a graph, which one round of mixing applies.

``mix(X)_i = sum_j w_ij X_j`` conserves the mean of X over the nodes and brings every node closer to it. For two-way
links the matrix is symmetric and doubly stochastic. For one-way links, w_ij is the weight of the link from j to i. Then
its columns sum to one, which conserves the mean, or its rows do, which leaves equal values unchanged, or both.
"""

from __future__ import annotations

import hashlib
import itertools
from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any

import numpy as np
import scipy

from eigenmesh.arrays import is_sparse
from eigenmesh.errors import AtFirstUse, GraphError
from eigenmesh.graphs.eigenvalues import Matrix, Spectrum, diameter_and_centre, ends, is_symmetric, is_two_way, spectrum
from eigenmesh.graphs.topologies import graph_of, require_both_ways, require_connected, require_simple
from eigenmesh.words import canonical_name

if TYPE_CHECKING:
    import networkx as nx
else:
    nx = AtFirstUse("networkx")


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

    Parameters
    ----------
    matrix : array of shape (M, M)
        The weights.
    graph : networkx.Graph or networkx.DiGraph
        The links.
    """

    matrix: Matrix
    graph: nx.Graph

    def __post_init__(self) -> None:
        matrix = _square(self.matrix)
        if self.graph.is_directed():
            _require_rows_or_columns(matrix)
        else:
            _require_doubly_stochastic(matrix)
        links = _links_between(matrix, self.graph)
        require_connected(self.graph)
        if self.graph.is_directed() or not _surely_average(matrix, links):
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
    def distances(self) -> tuple[int, int]:
        """Diameter, and the centre of the graph, the root of the shallowest spanning trees."""
        return diameter_and_centre(self.matrix)

    @property
    def diameter(self) -> int:
        """Largest number of links between two nodes, or an upper bound for many thousand nodes."""
        return self.distances[0]

    @cached_property
    def spectrum(self) -> Spectrum:
        """Ends of the spectrum, beta, gap and diameter."""
        return spectrum(self.matrix, self.distances)


def digest_of(matrix: Matrix) -> str:
    """SHA-256 of a matrix of weights, rounded because different processors may differ in the last bits."""
    entries = scipy.sparse.coo_array(matrix)
    order = np.lexsort((entries.col, entries.row))
    places = np.stack([entries.row[order], entries.col[order]]).astype("<i8")
    values = np.round(entries.data[order] * 10.0**DIGEST_DECIMALS).astype("<i8")
    return hashlib.sha256(places.tobytes() + values.tobytes()).hexdigest()


def half_way(matrix: Matrix) -> Matrix:
    """Lazy weights (I + W) / 2, dense or sparse like W. Their eigenvalues are positive if those of W are above -1."""
    if is_sparse(matrix):
        return scipy.sparse.csr_array((scipy.sparse.eye_array(matrix.shape[0]) + matrix) / 2)
    return np.asarray((np.eye(matrix.shape[0]) + matrix) / 2)


def from_matrix(matrix: Any, graph: nx.Graph | None = None) -> Weights:
    """Weights from a matrix (M, M) that ``Weights`` accepts. By default its nonzero entries are the links.

    The links are two-way if each has its counterpart across the diagonal, otherwise one-way.

    Parameters
    ----------
    matrix : array of shape (M, M)
        The weights, dense or sparse.
    graph : networkx.Graph or networkx.DiGraph, optional
        The links.
    """
    links = _square(matrix)
    return Weights(stored(links), _support(links) if graph is None else graph)


def adjacency(graph: nx.Graph) -> scipy.sparse.csr_array:
    """Ones for the links, receivers in rows and senders in columns: (M, M)."""
    receivers, senders = places(graph)
    n_nodes = graph.number_of_nodes()
    return scipy.sparse.csr_array((np.ones(len(senders)), (receivers, senders)), shape=(n_nodes, n_nodes))


def places(graph: nx.Graph) -> tuple[np.ndarray, np.ndarray]:
    """Receivers and senders of all links, those of two-way links twice: (links,) each."""
    require_simple(graph)
    n_nodes = graph.number_of_nodes()
    if (other := next((node for node in graph if node not in range(n_nodes)), None)) is not None:
        numbered = f"nodes must be numbered 0 to {n_nodes - 1}, but one is called {other!r}"
        raise GraphError(f"{numbered}; use eigenmesh.graphs.from_networkx(graph).")
    # Several times as fast as the conversion of networkx, which also reads the weights of links.
    receivers = np.fromiter(itertools.chain.from_iterable(graph.adj.values()), dtype=np.intp)
    senders = np.repeat(np.fromiter(graph, dtype=np.intp), [len(links) for links in graph.adj.values()])
    return receivers, senders


def matrix_of(values: np.ndarray, rows: np.ndarray, columns: np.ndarray, n_nodes: int) -> Matrix:
    """The matrix (M, M) with these entries, each place at most once, stored as weights are."""
    if n_nodes > DENSE_NODES:
        return scipy.sparse.csr_array((values, (rows, columns)), shape=(n_nodes, n_nodes))
    matrix = np.zeros((n_nodes, n_nodes))
    matrix[rows, columns] = values
    return matrix


def stored(matrix: Any) -> Matrix:
    """Dense for small networks, sparse for large ones."""
    if matrix.shape[0] <= DENSE_NODES:
        return np.asarray(matrix.toarray() if is_sparse(matrix) else matrix)
    return scipy.sparse.csr_array(matrix)


def _support(matrix: Matrix) -> nx.Graph:
    """Graph with a link for each nonzero entry off the diagonal."""
    rows, columns = matrix.nonzero()
    between = rows != columns
    pairs = zip(columns[between].tolist(), rows[between].tolist(), strict=True)
    return graph_of(range(matrix.shape[0]), pairs, one_way=not is_two_way(matrix))


def _square(matrix: Any) -> Matrix:
    """Copy of a finite real square matrix, stored as weights are, or GraphError for anything else."""
    try:
        given = matrix if is_sparse(matrix) else np.asarray(matrix)
    except ValueError as error:
        raise GraphError(f"weights must be a matrix of numbers ({error}).") from error
    if given.dtype.kind not in "biuf":
        raise GraphError(f"weights must be real numbers, not {given.dtype}.")
    if given.ndim != 2 or given.shape[0] != given.shape[1] or given.shape[0] == 0:
        raise GraphError(f"weights must be a square matrix (M, M), not of shape {given.shape}.")
    square: Any = stored(given).astype(np.float64)
    if is_sparse(square):
        square.sum_duplicates()
        square.eliminate_zeros()
    values = square.data if is_sparse(square) else square
    if not np.isfinite(values).all():
        entries = scipy.sparse.coo_array(square)
        first = np.flatnonzero(~np.isfinite(entries.data))[0]
        row, column, value = (part[first] for part in (entries.row, entries.col, entries.data))
        raise GraphError(f"weight ({row}, {column}) is {value}; all weights must be finite numbers.")
    return square


def _require_doubly_stochastic(matrix: Matrix) -> None:
    # Otherwise a round would not conserve the mean.
    sums = matrix.sum(axis=1)
    apart = abs(matrix - matrix.T)
    row, column = divmod(int(apart.argmax()), len(sums))
    error = float(apart[row, column])
    if error > TOLERANCE:
        pair = f"weights ({row}, {column}) and ({column}, {row})"
        raise GraphError(f"{pair} differ by {error:.3g}, at most {TOLERANCE:g} is allowed; make W symmetric.")
    row = int(np.argmax(np.abs(sums - 1.0)))
    if abs(sums[row] - 1.0) > TOLERANCE:
        wrong = f"row {row} of the weights sums to {float(sums[row])!r}, it must be 1 to within {TOLERANCE:g}"
        raise GraphError(f"{wrong}; put the difference on the diagonal, at ({row}, {row}).")


def _require_rows_or_columns(matrix: Matrix) -> None:
    errors = {"row": np.abs(matrix.sum(axis=1) - 1.0), "column": np.abs(matrix.sum(axis=0) - 1.0)}
    if min(error.max() for error in errors.values()) <= TOLERANCE:
        return
    worst = " and ".join(f"{line} {int(off.argmax())} is off by {float(off.max()):.3g}" for line, off in errors.items())
    raise GraphError(f"neither all rows nor all columns of the weights sum to 1 ({worst}); use balanced(graph).")


def _links_between(matrix: Matrix, graph: nx.Graph) -> Matrix:
    """Ones for the links of the graph; GraphError if the matrix has an entry off the diagonal that is on no link."""
    receivers, senders = places(graph)
    links = matrix_of(np.ones(len(senders)), receivers, senders, graph.number_of_nodes())
    if links.shape != matrix.shape:
        raise GraphError(f"weights of {matrix.shape[0]} nodes do not fit a graph of {len(graph)} nodes.")
    rows, columns = matrix.nonzero()
    off = (rows != columns) & (links[rows, columns] == 0)
    if off.any():
        row, column = int(rows[off][0]), int(columns[off][0])
        wrong = f"weight ({row}, {column}) is {matrix[row, column]:.3g}, but the graph has no link {row}-{column}"
        raise GraphError(f"{wrong}; add the link, or set the weight to exactly 0.")
    return links


def _surely_average(matrix: Matrix, links: Matrix) -> bool:
    """Whether the gap exceeds the tolerance by bounds that take no eigenvalues, for symmetric weights.

    With a weight of at least w on each of its links, a connected graph has ``lambda_2 <= 1 - 4 w / M^2`` (Mohar, 1991),
    and ``lambda_M >= 2 min_i w_ii - 1`` if no weight is negative (Gershgorin).
    """
    diagonal, n_nodes = matrix.diagonal(), matrix.shape[0]
    weights = matrix[links.nonzero()]
    least = min(diagonal.min(), weights.min(initial=np.inf))
    return bool(min(2 * diagonal.min(), 4 * least / n_nodes**2) > TOLERANCE)


def _require_averaging(ends: Spectrum) -> None:
    if ends.gap > TOLERANCE:
        return
    fix = "use metropolis(graph)"
    if ends.second < 1.0 - TOLERANCE and ends.smallest > -3.0 + 2.0 * TOLERANCE:
        fix = "use the lazy form, from_matrix((I + W) / 2, graph)"
    others = f"the eigenvalues besides the 1 of the mean go from {ends.smallest:.6g} to {ends.second:.6g}"
    raise GraphError(f"beta = {ends.beta:.15g} must be below 1, or the nodes never agree ({others}); {fix}.")


# Rules for the weights of a graph.


# Most scalings of rows and columns when balancing, and the relative change at which it stops.
SCALINGS, BALANCED = 100_000, 1e-15


def metropolis(graph: nx.Graph) -> Weights:
    """Metropolis weights: w_ij = 1 / (1 + max(deg_i, deg_j)) on links, so a node needs only its neighbours' degrees.

    Parameters
    ----------
    graph : networkx.Graph
        A graph whose links go both ways.
    """
    require_both_ways(graph, "Metropolis weights")
    receivers, senders = places(graph)
    degrees = np.bincount(receivers, minlength=len(graph))
    return _completed(1.0 / (1.0 + np.maximum(degrees[receivers], degrees[senders])), receivers, senders, graph)


def max_degree(graph: nx.Graph) -> Weights:
    """One weight for all links: w_ij = 1 / (1 + max_k deg_k).

    Parameters
    ----------
    graph : networkx.Graph
        A graph whose links go both ways.
    """
    require_both_ways(graph, "max_degree weights")
    receivers, senders = places(graph)
    most = np.bincount(receivers, minlength=len(graph)).max()
    return _completed(np.full(len(senders), 1.0 / (1.0 + most)), receivers, senders, graph)


def best_constant(graph: nx.Graph) -> Weights:
    """One weight for all links, with the smallest possible beta: W = I - 2 L / (l_2 + l_M), L the Laplacian.

    beta = (l_M - l_2) / (l_M + l_2). Diagonal entries may be negative.

    Parameters
    ----------
    graph : networkx.Graph
        A graph whose links go both ways.
    """
    require_both_ways(graph, "best_constant weights")
    receivers, senders = places(graph)
    weight = 2.0 / sum(laplacian_extremes(graph)) if len(graph) > 1 else 0.0
    return _completed(np.full(len(senders), weight), receivers, senders, graph)


def laplacian_extremes(graph: nx.Graph) -> tuple[float, float]:
    """Smallest and largest eigenvalue (l_2, l_M) of the Laplacian L besides the 0 of the constant vectors.

    Computed from I - L / max degree, whose eigenvalues are in [-1, 1], or (0, 0) for M = 1.

    Parameters
    ----------
    graph : networkx.Graph
        A connected graph whose links go both ways.
    """
    require_connected(graph)
    links = adjacency(graph)
    degrees = links.sum(axis=1)
    largest = float(degrees.max())
    if not largest:
        return 0.0, 0.0
    second, smallest = ends(scipy.sparse.csr_array(links + scipy.sparse.diags_array(largest - degrees)) / largest)
    return largest * (1.0 - second), largest * (1.0 - smallest)


def push(graph: nx.Graph) -> Weights:
    """Columns that sum to one: a node keeps and sends equal shares, ``1 / (1 + out-degree)``, which is all it needs.

    Mixing conserves the mean but does not converge to it. A push sum corrects this with weights that start as ones.

    Parameters
    ----------
    graph : networkx.Graph or networkx.DiGraph
        The links.
    """
    links = _with_diagonal(graph)
    return Weights(stored(links / links.sum(axis=0)), graph.to_directed())


def pull(graph: nx.Graph) -> Weights:
    """Rows that sum to one: a node averages its own and all received values, each with ``1 / (1 + in-degree)``.

    Parameters
    ----------
    graph : networkx.Graph or networkx.DiGraph
        The links.
    """
    links = _with_diagonal(graph)
    return Weights(stored(scipy.sparse.diags_array(1 / links.sum(axis=1)) @ links), graph.to_directed())


def balanced(graph: nx.Graph) -> Weights:
    """Rows and columns that sum to one: Sinkhorn scaling of the rows and columns of I + A, A the links.

    It exists for every strongly connected graph. All nodes must know the whole graph.

    Parameters
    ----------
    graph : networkx.Graph or networkx.DiGraph
        The links.
    """
    links = _with_diagonal(graph)
    columns = np.ones(links.shape[0])
    for _ in range(SCALINGS):
        rows = 1 / (links @ columns)
        before, columns = columns, 1 / (links.T @ rows)
        if np.abs(columns - before).max() <= BALANCED * np.abs(columns).max():
            break
    scaled = scipy.sparse.diags_array(1 / (links @ columns)) @ links @ scipy.sparse.diags_array(columns)
    return Weights(stored(scaled), graph)


BOTH_WAYS = (metropolis, max_degree, best_constant)
ONE_WAY = (balanced, push, pull)
WEIGHTS: dict[str, Callable[[nx.Graph], Weights]] = {build.__name__: build for build in (*BOTH_WAYS, *ONE_WAY)}


def weighting(name: str, graph: nx.Graph) -> Weights:
    """Weights of the rule with this name.

    Parameters
    ----------
    name : str
        Name of the rule, in any spelling, or "auto".
    graph : networkx.Graph or networkx.DiGraph
        The links.
    """
    return WEIGHTS[resolved(name, graph)](graph)


def resolved(name: str, graph: nx.Graph) -> str:
    """The full name of the rule, where "auto" is metropolis, or balanced if links are one-way."""
    require_simple(graph)
    name = canonical_name("weights", name, ["auto", *WEIGHTS])
    return ("balanced" if graph.is_directed() else "metropolis") if name == "auto" else name


def _with_diagonal(graph: nx.Graph) -> scipy.sparse.csr_array:
    require_connected(graph)
    return scipy.sparse.csr_array(adjacency(graph) + scipy.sparse.eye_array(graph.number_of_nodes()))


def _completed(values: np.ndarray, receivers: np.ndarray, senders: np.ndarray, graph: nx.Graph) -> Weights:
    """Weights of links, with a diagonal that completes the sums of their rows to one."""
    nodes = np.arange(len(graph))
    diagonal = 1.0 - np.bincount(receivers, values, minlength=len(nodes))
    rows, columns = np.concatenate([receivers, nodes]), np.concatenate([senders, nodes])
    return Weights(matrix_of(np.concatenate([values, diagonal]), rows, columns, len(nodes)), graph)
