"""Eigenvalues and diameter of a network, which decide how fast it averages."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, TypeAlias

import numpy as np
import scipy

from eigenmesh.arrays import is_sparse
from eigenmesh.errors import GraphError, InputError

# Distances in a network: its diameter and its centre.


# If all degrees are at least M / 8, the diameter is below 24.
DENSE_SHARE = 8
# Small networks need no search either, and so no import of csgraph.
DENSE_NODES = 100
# Nodes and links that all searches together may visit, a few seconds. With 4 links per node this is a search from every
# node of up to 5,700.
VISITS = 200_000_000


def diameter_and_centre(matrix: np.ndarray | scipy.sparse.csr_array) -> tuple[int, int]:
    """Diameter of weights (M, M), and the node with the smallest sum of distances to and from its farthest nodes."""
    outward = eccentricities(matrix)
    # With two-way links both distances are the same.
    both = outward if is_two_way(matrix) else outward + eccentricities(matrix.T)
    return int(outward.max()), int(both.argmin())


def is_two_way(matrix: np.ndarray | scipy.sparse.csr_array) -> bool:
    """Whether every link, a nonzero entry of (M, M), goes both ways."""
    linked = matrix != 0
    return not (linked != linked.T).sum()


def eccentricities(matrix: np.ndarray | scipy.sparse.csr_array) -> np.ndarray:
    """Number of links from each node to the farthest one, on the graph where the matrix (M, M) is not zero: (M,).

    Entry (i, j) is a link from j to i. A breadth-first search from a node s with eccentricity e, and one back to it,
    bound those of all others (Takes and Kosters, 2013):
    ``max(d(v, s), e - d(s, v)) <= e(v) <= e + d(v, s)``. Searches start alternately where the upper bound is largest
    and where the lower bound is smallest, until the bounds are equal everywhere: after a few searches on long, thin
    graphs, and one per node on random graphs. On large networks the work is limited, and the result is the upper
    bounds.
    """
    n_nodes = matrix.shape[0]
    # Row j has the nodes that node j sends to.
    if isinstance(matrix, np.ndarray) and n_nodes <= DENSE_NODES:
        return _eccentricities_of_dense(matrix.T != 0)
    links = scipy.sparse.csr_array(matrix.T != 0, dtype=np.float64)
    if n_nodes <= DENSE_NODES or int(np.diff(links.indptr).min()) * DENSE_SHARE >= n_nodes:
        return _eccentricities_of_dense((links != 0).toarray())
    from scipy.sparse import csgraph

    n_components, _ = csgraph.connected_components(links, connection="strong")
    if n_components > 1:
        raise _not_connected(n_nodes, n_components)
    backwards = None if is_two_way(links) else scipy.sparse.csr_array(links.T)
    lower, upper = np.zeros(n_nodes, dtype=np.int32), np.full(n_nodes, n_nodes, dtype=np.int32)
    for search in range(max(2, VISITS // (n_nodes + links.nnz))):
        unsettled = np.flatnonzero(lower < upper)
        if not unsettled.size:
            break
        source = unsettled[np.argmin(lower[unsettled]) if search % 2 else np.argmax(upper[unsettled])]
        to_node = csgraph.dijkstra(links, indices=source, unweighted=True).astype(np.int32)
        from_node = to_node
        if backwards is not None:
            from_node = csgraph.dijkstra(backwards, indices=source, unweighted=True).astype(np.int32)
        lower = np.maximum(lower, np.maximum(from_node, to_node.max() - to_node))
        upper = np.minimum(upper, to_node.max() + from_node)
    return upper


def _not_connected(n_nodes: int, n_components: int) -> GraphError:
    return GraphError(f"the non-zero weights leave the {n_nodes} nodes in {n_components} components; connect them.")


def _eccentricities_of_dense(links: np.ndarray) -> np.ndarray:
    """Eccentricities by matrix products, (M, M) -> (M,), for short paths: with large degrees or few nodes."""
    n_nodes = len(links)
    reached = np.eye(n_nodes, dtype=np.float32)
    step = np.maximum(links.astype(np.float32), reached)
    farthest = np.zeros(n_nodes, dtype=int)
    while not (complete := reached.all(axis=1)).all():
        farthest += ~complete
        before, reached = reached, np.minimum(reached @ step, 1.0)
        if np.array_equal(before, reached):
            # Nodes that reach each other have equal rows here.
            raise _not_connected(n_nodes, len(np.unique(reached * reached.T, axis=0)))
    return farthest


Matrix: TypeAlias = "np.ndarray | scipy.sparse.csr_array"

# Up to this many nodes, computing all eigenvalues is faster than iterating for two of them.
DENSE_EIGENVALUES = 1000
# On random graphs Lanczos converges at the ends of the spectrum in a few hundred steps, growing like M^(1/3). Where it
# does not converge, the graph is long and thin, and factorises with little fill. So Lanczos comes first. It restarts
# about every 20 steps.
RESTARTS = 200
# Accuracy of eigenvalues, and of the estimate from which the inverse starts.
RESIDUAL, ROUGHLY = 1e-10, 1e-3
# First distance of a shift from the estimated end of the spectrum: far below any useful gap, far above rounding.
SHIFT = 1e-8
# A matrix counts as symmetric if it differs from its transpose by less than this.
SYMMETRIC = 1e-12


@dataclass(frozen=True)
class Spectrum:
    """Ends of the spectrum of W on the complement of the constant vectors, and the diameter of its graph."""

    second: float
    """lambda_2(W), the largest eigenvalue besides the 1 of the constant vectors, or the largest modulus if W
    is not symmetric."""
    smallest: float
    """lambda_M(W), the smallest eigenvalue, or the smallest real part if W is not symmetric."""
    diameter: int
    """Largest number of links between two nodes: no exact average takes fewer rounds. Only an upper bound for networks
    of many thousand nodes."""
    centre: int = 0
    """Node with the smallest distances to and from its farthest nodes: the root of the shallowest spanning trees."""

    @property
    def beta(self) -> float:
        """Factor by which one round shrinks disagreement: ``beta = max(|lambda_2|, |lambda_M|)``."""
        return max(abs(self.second), abs(self.smallest))

    @property
    def gap(self) -> float:
        """Spectral gap 1 - beta."""
        return 1.0 - self.beta


def spectrum(matrix: Matrix, distances: tuple[int, int] | None = None) -> Spectrum:
    """Spectrum of a matrix (M, M), dense or sparse, whose rows or columns sum to one. It is all zeros for M = 1.

    Dense eigenvalues up to M = 1000. Beyond that Lanczos and, if it converges slowly (gaps below about 1e-5), inverse
    iteration with a shift near the end of the spectrum, or Arnoldi if the matrix is not symmetric. The links are the
    nonzero entries of the matrix: entry (i, j) is a link from j to i.

    Parameters
    ----------
    matrix : array of shape (M, M)
        The weights, dense or sparse.
    distances : tuple of int, optional
        Diameter and centre, if they are known.
    """
    if matrix.ndim != 2 or matrix.shape[0] != matrix.shape[1] or matrix.shape[0] == 0:
        raise GraphError(f"the matrix has shape {matrix.shape}; a spectrum needs a square matrix.")
    if not np.isfinite(matrix.data if is_sparse(matrix) else matrix).all():
        raise GraphError("the matrix has NaN or infinity; a spectrum needs finite entries.")
    second, smallest = ends(matrix) if is_symmetric(matrix) else _complex_ends(scipy.sparse.csr_array(matrix))
    return Spectrum(second, smallest, *(distances or diameter_and_centre(matrix)))


def is_symmetric(matrix: Matrix) -> bool:
    """Whether a matrix equals its transpose up to rounding."""
    return float(abs(matrix - matrix.T).max()) <= SYMMETRIC


def rounds_to_average(spectrum: Spectrum, accuracy: float) -> int:
    """Rounds of plain gossip that reduce disagreement to ``accuracy`` times its start: least L, beta^L <= accuracy.

    Parameters
    ----------
    spectrum : Spectrum
        Ends of the spectrum of the weights.
    accuracy : float
        Disagreement at the end, relative to that at the start.
    """
    if not accuracy > 0:
        raise InputError(f"accuracy={accuracy} must be above 0, for example 1e-12.")
    if not spectrum.beta < 1:
        raise GraphError(f"beta={spectrum.beta} must be below 1, or gossip never converges.")
    if accuracy >= 1 or spectrum.diameter == 0:
        return 0
    if spectrum.beta == 0:
        return 1
    return math.ceil(math.log(accuracy) / math.log(spectrum.beta))


def ends(matrix: Matrix) -> tuple[float, float]:
    """Largest and smallest eigenvalue on the complement of the constant vectors."""
    if matrix.shape[0] == 1:
        return 0.0, 0.0
    if matrix.shape[0] <= DENSE_EIGENVALUES:
        values = np.linalg.eigvalsh(scipy.sparse.csr_array(matrix).toarray())
        others = np.delete(values, np.argmin(np.abs(values - 1.0)))
        return float(others[-1]), float(others[0])
    links = scipy.sparse.csr_array(matrix, dtype=np.float64)
    return _top(links), -_top(-links)


def _complex_ends(links: scipy.sparse.csr_array) -> tuple[float, float]:
    """Largest modulus and smallest real part of the eigenvalues besides the 1 that belongs to the mean."""
    if links.shape[0] <= DENSE_EIGENVALUES:
        values = np.linalg.eigvals(links.toarray())
    else:
        from scipy.sparse import linalg as sparse_linalg

        start = np.random.default_rng(0).standard_normal(links.shape[0])
        settings = {"v0": start, "return_eigenvectors": False}
        found = [sparse_linalg.eigs(links, k=k, which=which, **settings) for k, which in ((3, "LM"), (1, "SR"))]
        values = np.concatenate(found)
    others = np.delete(values, np.argmin(np.abs(values - 1.0)))
    return float(np.abs(others).max()), float(others.real.min())


def _top(matrix: scipy.sparse.csr_array) -> float:
    """Largest eigenvalue on the complement of the constant vectors, by Lanczos or, if it is slow, by the inverse."""
    # Imported here and below, because small networks do not need these parts of SciPy.
    from scipy.sparse import linalg as sparse_linalg

    # Added to all eigenvalues but the 0 of the constant vectors, which rounding would let in if it were the largest.
    shift = float(abs(matrix).sum(axis=1).max())
    shifted = _off_constants(lambda vector: matrix @ vector + shift * vector)
    try:
        return _largest(shifted, matrix.shape, maxiter=RESTARTS) - shift
    except sparse_linalg.ArpackNoConvergence:
        return _top_by_inverse(matrix, _largest(shifted, matrix.shape, tol=ROUGHLY) - shift)


def _largest(apply: Callable[[np.ndarray], np.ndarray], shape: tuple[int, int], **settings: Any) -> float:
    """Largest eigenvalue of a symmetric map of vectors (M,)."""
    from scipy.sparse import linalg as sparse_linalg

    operator = sparse_linalg.LinearOperator(shape, matvec=apply, dtype=np.float64)
    settings = {"tol": RESIDUAL, "v0": np.random.default_rng(0).standard_normal(shape[0]), **settings}
    return float(sparse_linalg.eigsh(operator, k=1, which="LA", return_eigenvectors=False, **settings)[0])


def _top_by_inverse(matrix: scipy.sparse.csr_array, ritz: float) -> float:
    """Largest eigenvalue besides that of the constant vectors: sigma - 1/nu, nu the largest of (sigma I - matrix)^-1.

    sigma must be above the whole spectrum, that is, sigma I - matrix must be positive definite. It starts just above a
    Ritz value, which is slightly below the top, or above the eigenvalue of the constant vectors if that is larger, and
    moves up until the matrix is definite.
    """
    end = max(ritz, float(matrix.sum() / matrix.shape[0]))
    distance = SHIFT
    while (factor := _definite_factor(matrix, end + distance)) is None:
        distance *= 8.0
    return end + distance - 1.0 / _largest(_off_constants(factor.solve), matrix.shape)


def _definite_factor(matrix: scipy.sparse.csr_array, sigma: float) -> Any | None:
    """LU factors of sigma I - matrix, or None if it is not positive definite."""
    from scipy.sparse import linalg as sparse_linalg

    shifted = (sigma * scipy.sparse.eye_array(matrix.shape[0]) - matrix).tocsc()
    symmetric = {"permc_spec": "MMD_AT_PLUS_A", "diag_pivot_thresh": 0.0, "options": {"SymmetricMode": True}}
    try:
        factor = sparse_linalg.splu(shifted, **symmetric)
    except RuntimeError:  # exactly singular
        return None
    # With pivots from the diagonal alone, the signs of U are the signs of the eigenvalues (Sylvester).
    definite = np.array_equal(factor.perm_r, factor.perm_c) and (factor.U.diagonal() > 0).all()
    return factor if definite else None


def _off_constants(apply: Callable[[np.ndarray], np.ndarray]) -> Callable[[np.ndarray], np.ndarray]:
    """The map x -> P A P x of vectors (M,) with P = I - 11^T / M, for a symmetric A."""

    def projected(vector: np.ndarray) -> np.ndarray:
        image = apply(vector - vector.mean())
        return np.asarray(image - image.mean())

    return projected
