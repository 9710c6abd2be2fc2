"""Eigenvalues and diameter of a network, which decide how fast it averages."""

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, TypeAlias

import networkx as nx
import numpy as np
from scipy import sparse
from scipy.sparse import csgraph
from scipy.sparse import linalg as sparse_linalg

from eigenmesh.errors import GraphError, InputError
from eigenmesh.graphs._existing import require_connected

Matrix: TypeAlias = np.ndarray | sparse.csr_array

# Up to this many nodes, computing all eigenvalues is faster than iterating for two of them.
DENSE_EIGENVALUES = 1000
# Lanczos reaches well-separated ends (expanders) in a few restarts. Ends that it does not reach belong to
# long, thin graphs, and those factorise with little fill: so Lanczos is tried first, then factorisation.
LANCZOS_RESTARTS = 20
LANCZOS_VECTORS = 48
RESIDUAL = 1e-10
ROUGH_RESIDUAL = 1e-3
# First distance of a shift from the estimated end of the spectrum: small beside any gap of use, large beside rounding.
SHIFT = 1e-8
SOURCES_PER_CHUNK = 256
# Degrees of M / 8 or more keep the diameter below 24.
DENSE_SHARE = 8


@dataclass(frozen=True)
class Spectrum:
    """Ends of the spectrum of W on the complement of the constant vectors, and the diameter of its graph."""

    second: float
    """lambda_2(W), the largest eigenvalue besides the 1 of the constant vectors."""
    smallest: float
    """lambda_M(W), the smallest eigenvalue."""
    diameter: int
    """Largest number of links between two nodes: no exact average takes fewer rounds."""
    centre: int = 0
    """Node whose farthest node is nearest: the root of a shallow spanning tree."""

    @property
    def beta(self) -> float:
        """Factor that one round shrinks disagreement by: ``beta = max(|lambda_2|, |lambda_M|)``."""
        return max(abs(self.second), abs(self.smallest))

    @property
    def gap(self) -> float:
        """Spectral gap 1 - beta."""
        return 1.0 - self.beta


def spectrum(matrix: Matrix) -> Spectrum:
    """Spectrum of a symmetric matrix (M, M), dense or sparse, whose rows sum to one; all zeros for M = 1.

    Dense eigenvalues up to M = 1000; beyond, Lanczos and, if that is slow (gaps below about 1e-4), inverse
    iteration with a shift next to the wanted end. The graph is the support of the matrix.
    """
    if matrix.ndim != 2 or matrix.shape[0] != matrix.shape[1] or matrix.shape[0] == 0:
        raise GraphError(f"the matrix has shape {matrix.shape}; a spectrum needs a square matrix.")
    links = sparse.csr_array(matrix, dtype=np.float64)
    if not np.isfinite(links.data).all():
        raise GraphError("the matrix has NaN or infinity; a spectrum needs finite entries.")
    second, smallest = _ends(matrix)
    farthest = eccentricities(links)
    return Spectrum(second, smallest, diameter=int(farthest.max()), centre=int(farthest.argmin()))


def rounds_to_average(spectrum: Spectrum, accuracy: float) -> int:
    """Rounds of plain gossip that reduce disagreement to ``accuracy`` times its start: least L, beta^L <= accuracy."""
    if not accuracy > 0:
        raise InputError(f"accuracy={accuracy} must be above 0, for example 1e-12.")
    if not spectrum.beta < 1:
        raise GraphError(f"beta={spectrum.beta} must be below 1, or gossip never converges.")
    if accuracy >= 1 or spectrum.diameter == 0:
        return 0
    if spectrum.beta == 0:
        return 1
    return math.ceil(math.log(accuracy) / math.log(spectrum.beta))


def laplacian_extremes(graph: nx.Graph) -> tuple[float, float]:
    """Smallest and largest eigenvalue (l_2, l_M) of the Laplacian L besides the 0 of the constant vectors.

    Computed from I - L / max degree, whose eigenvalues are in [-1, 1]; (0, 0) for M = 1.
    """
    require_connected(graph)
    if graph.number_of_nodes() == 1:
        return 0.0, 0.0
    adjacency = nx.to_scipy_sparse_array(graph, weight=None, dtype=np.float64, format="csr")
    degrees = adjacency.sum(axis=1)
    largest_degree = float(degrees.max())
    averaging = (adjacency + sparse.diags_array(largest_degree - degrees)) / largest_degree
    second, smallest = _ends(averaging.tocsr())
    return largest_degree * (1.0 - second), largest_degree * (1.0 - smallest)


def diameter(matrix: Matrix) -> int:
    """Largest number of links between two nodes of the graph on which the matrix (M, M) is not zero."""
    return int(eccentricities(matrix).max())


def eccentricities(matrix: Matrix) -> np.ndarray:
    """Number of links from each node to the farthest one, on the graph where the matrix (M, M) is not zero: (M,).

    One breadth-first search per node. The last node that a search visits is a farthest one, so its depth is the
    eccentricity of the source; depths are read by climbing the trees of a chunk of searches together.
    """
    links = sparse.csr_array(matrix, copy=True)
    links.eliminate_zeros()
    n_nodes = links.shape[0]
    n_components, _ = csgraph.connected_components(links, directed=False)
    if n_components > 1:
        raise GraphError(f"the non-zero weights leave the {n_nodes} nodes in {n_components} components; connect them.")
    if int(np.diff(links.indptr).min()) * DENSE_SHARE >= n_nodes:
        return _eccentricities_of_dense(links)
    chunks = (range(n_nodes)[at : at + SOURCES_PER_CHUNK] for at in range(0, n_nodes, SOURCES_PER_CHUNK))
    return np.concatenate([_eccentricities_from(links, sources) for sources in chunks])


def _eccentricities_of_dense(links: sparse.csr_array) -> np.ndarray:
    """By matrix products; shortest paths are short if all degrees are large."""
    n_nodes = links.shape[0]
    step = (links + sparse.eye_array(n_nodes)).astype(bool).astype(np.float32).toarray()
    reached = np.eye(n_nodes, dtype=np.float32)
    farthest = np.zeros(n_nodes, dtype=int)
    while not (complete := reached.all(axis=1)).all():
        farthest += ~complete
        reached = np.minimum(reached @ step, 1.0)
    return farthest


def _eccentricities_from(links: sparse.csr_array, sources: range) -> np.ndarray:
    """Largest distance from each of the sources to any node."""
    searches = [csgraph.breadth_first_order(links, source) for source in sources]
    parents = np.stack([parent for _, parent in searches])
    climbers = np.arange(len(sources))
    at = parents[climbers, [order[-1] for order, _ in searches]]
    depth = np.zeros(len(sources), dtype=int)
    while (climbing := at >= 0).any():
        climbers = climbers[climbing]
        depth[climbers] += 1
        at = parents[climbers, at[climbing]]
    return depth


def _ends(matrix: Matrix) -> tuple[float, float]:
    """Largest and smallest eigenvalue on the complement of the constant vectors."""
    if matrix.shape[0] == 1:
        return 0.0, 0.0
    if matrix.shape[0] <= DENSE_EIGENVALUES:
        values = np.linalg.eigvalsh(sparse.csr_array(matrix).toarray())
        others = np.delete(values, np.argmin(np.abs(values - 1.0)))
        return float(others[-1]), float(others[0])
    links = sparse.csr_array(matrix, dtype=np.float64)
    return _top(links), -_top(-links)


def _top(matrix: sparse.csr_array) -> float:
    """Largest eigenvalue on the complement of the constant vectors."""
    try:
        return _top_by_lanczos(matrix, RESIDUAL, LANCZOS_RESTARTS)
    except sparse_linalg.ArpackError:
        return _top_by_inverse(matrix)


def _top_by_lanczos(matrix: sparse.csr_array, residual: float, restarts: int | None) -> float:
    # Raised by its norm plus one, the matrix has its eigenvalues from 1 up, apart from the 0 of the constant
    # vectors: the relative tolerance of ARPACK is then an absolute one.
    raised = 1.0 + float(abs(matrix).sum(axis=1).max())
    operator = _off_constants(lambda vector: raised * vector + matrix @ vector, matrix.shape[0])
    return _largest(operator, residual, restarts) - raised


def _top_by_inverse(matrix: sparse.csr_array) -> float:
    """Top eigenvalue sigma - 1/nu, where nu is the largest eigenvalue of (sigma I - matrix)^-1.

    sigma must be above the whole spectrum, that is, sigma I - matrix must be positive definite. It starts
    next to a rough Ritz value, which is a little below the top, or to the eigenvalue of the constant vectors
    where that is larger, and moves up until the matrix is definite.
    """
    ritz = _top_by_lanczos(matrix, ROUGH_RESIDUAL, None)
    end = max(ritz, float(matrix.sum() / matrix.shape[0]))
    distance = SHIFT
    while (factor := _definite_factor(matrix, end + distance)) is None:
        distance *= 8.0
    return end + distance - 1.0 / _largest(_off_constants(factor.solve, matrix.shape[0]), RESIDUAL, None)


def _definite_factor(matrix: sparse.csr_array, sigma: float) -> Any | None:
    """LU factors of sigma I - matrix, or None if it is not positive definite."""
    shifted = (sigma * sparse.eye_array(matrix.shape[0]) - matrix).tocsc()
    symmetric = {"permc_spec": "MMD_AT_PLUS_A", "diag_pivot_thresh": 0.0, "options": {"SymmetricMode": True}}
    try:
        factor = sparse_linalg.splu(shifted, **symmetric)
    except RuntimeError:  # exactly singular
        return None
    # With pivots from the diagonal alone, the signs of U are the signs of the eigenvalues (Sylvester).
    definite = np.array_equal(factor.perm_r, factor.perm_c) and (factor.U.diagonal() > 0).all()
    return factor if definite else None


def _off_constants(apply: Callable[[np.ndarray], np.ndarray], n_nodes: int) -> Any:
    """Operator P A P with P = I - 11^T / M, for a symmetric A."""

    def projected(vector: np.ndarray) -> np.ndarray:
        image = apply(vector - vector.mean())
        return np.asarray(image - image.mean())

    return sparse_linalg.LinearOperator((n_nodes, n_nodes), matvec=projected, dtype=np.float64)


def _largest(operator: Any, residual: float, restarts: int | None) -> float:
    """Largest eigenvalue by restarted Lanczos (ARPACK), from a fixed start."""
    start = np.random.default_rng(0).standard_normal(operator.shape[0])
    settings = {"ncv": LANCZOS_VECTORS, "maxiter": restarts, "tol": residual, "v0": start}
    return float(sparse_linalg.eigsh(operator, k=1, which="LA", return_eigenvectors=False, **settings)[0])
