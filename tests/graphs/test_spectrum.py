import warnings

import networkx as nx
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import sparse
from scipy.sparse import csgraph

from eigenmesh.errors import GraphError, InputError
from eigenmesh.graphs import (
    Spectrum,
    best_constant,
    eigenvalues,
    from_matrix,
    max_degree,
    metropolis,
    rounds_to_average,
    spectrum,
    topology,
)
from eigenmesh.graphs.eigenvalues import eccentricities
from eigenmesh.graphs.topologies import TWO_WAY, complete, cycle, grid, hypercube, path, regular, star
from eigenmesh.graphs.weights import BOTH_WAYS, laplacian_extremes


@pytest.fixture
def iterative(monkeypatch):
    """Make every matrix large enough for the iterative eigenvalues."""
    monkeypatch.setattr(eigenvalues, "DENSE_EIGENVALUES", 1)


@pytest.fixture
def inverse(iterative, monkeypatch):
    """Distrust Lanczos, so that the shifted inverse decides."""

    def top(matrix):
        # The eigenvalue of the constant vectors is 1, or -1 where the matrix is turned round.
        values = np.linalg.eigvalsh(matrix.toarray())
        others = np.delete(values, np.argmin(abs(abs(values) - 1)))
        return eigenvalues._top_by_inverse(matrix, others[-1] - 1e-3 * abs(others[-1]))

    monkeypatch.setattr(eigenvalues, "_top", top)


def ends(matrix):
    values = np.linalg.eigvalsh(matrix)
    return values[-2], values[0]


@pytest.mark.parametrize("n_nodes", [3, 4, 5, 20, 257, 1001, 3001])
def test_cycle_in_closed_form(n_nodes):
    found = metropolis(cycle(n_nodes)).spectrum
    values = 1 / 3 + 2 / 3 * np.cos(2 * np.pi * np.arange(n_nodes) / n_nodes)
    assert found.second == pytest.approx(np.sort(values)[-2], abs=1e-12)
    assert found.smallest == pytest.approx(values.min(), abs=1e-12)
    assert found.diameter == n_nodes // 2
    assert found.beta == pytest.approx(max(np.sort(values)[-2], -values.min()), abs=1e-12)
    assert found.gap == 1 - found.beta


@pytest.mark.parametrize("n_nodes", [2, 3, 8, 300])
def test_complete_averages_in_one_round(n_nodes):
    found = metropolis(complete(n_nodes)).spectrum
    assert found.beta == pytest.approx(0, abs=1e-12)
    assert found.diameter == 1


@pytest.mark.parametrize("n_nodes", [3, 4, 10, 400, 1500])
def test_star_in_closed_form(n_nodes):
    found = metropolis(star(n_nodes)).spectrum
    assert found.second == pytest.approx(1 - 1 / n_nodes, abs=1e-12)
    assert found.smallest == pytest.approx(0, abs=1e-12)
    assert found.diameter == 2
    assert best_constant(star(n_nodes)).spectrum.beta == pytest.approx((n_nodes - 1) / (n_nodes + 1), abs=1e-12)


@pytest.mark.parametrize("n_nodes", [3, 10, 400, 1001, 3000])
def test_path_in_closed_form(n_nodes):
    found = metropolis(path(n_nodes)).spectrum
    values = 1 / 3 + 2 / 3 * np.cos(np.pi * np.array([1, n_nodes - 1]) / n_nodes)
    assert found.second == pytest.approx(values[0], abs=1e-12)
    assert found.smallest == pytest.approx(values[1], abs=1e-12)
    assert found.gap == pytest.approx(1 - max(abs(values)), rel=1e-6)
    assert found.diameter == n_nodes - 1


@pytest.mark.parametrize("dimension", [1, 2, 3, 6, 11])
def test_hypercube_in_closed_form(dimension):
    found = metropolis(hypercube(2**dimension)).spectrum
    assert found.second == pytest.approx(1 - 2 / (dimension + 1), abs=1e-12)
    assert found.smallest == pytest.approx(-(dimension - 1) / (dimension + 1), abs=1e-12)
    assert found.diameter == dimension


def test_one_node_has_nothing_to_average():
    for matrix in (np.ones((1, 1)), sparse.csr_array(np.ones((1, 1)))):
        assert spectrum(matrix) == Spectrum(second=0.0, smallest=0.0, diameter=0)
    assert metropolis(path(1)).spectrum.beta == 0
    assert metropolis(path(1)).spectrum.gap == 1


def test_two_nodes_have_one_eigenvalue_besides_the_mean():
    found = from_matrix([[0.7, 0.3], [0.3, 0.7]]).spectrum
    assert found.second == found.smallest == pytest.approx(0.4)
    assert found.diameter == 1


@pytest.mark.parametrize("build", BOTH_WAYS)
@pytest.mark.parametrize("name", TWO_WAY)
def test_iterations_find_what_eigvalsh_finds(name, build, iterative):
    weights = build(topology(name, 128, seed=2))
    assert (weights.spectrum.second, weights.spectrum.smallest) == pytest.approx(ends(weights.matrix), abs=1e-9)


@pytest.mark.parametrize("build", BOTH_WAYS)
@pytest.mark.parametrize("name", TWO_WAY)
def test_the_shifted_inverse_finds_what_eigvalsh_finds(name, build, inverse):
    weights = build(topology(name, 128, seed=2))
    assert (weights.spectrum.second, weights.spectrum.smallest) == pytest.approx(ends(weights.matrix), abs=1e-11)


@pytest.mark.parametrize("scale", [2.0, 40.0, 1e4])
def test_eigenvalues_beyond_one_are_found_too(scale, inverse):
    matrix = np.eye(128) - scale * (np.eye(128) - metropolis(grid(128)).matrix)
    for sign in (1, -1):
        steep = np.eye(128) + sign * (matrix - np.eye(128))
        values = np.linalg.eigvalsh(steep)
        others = np.delete(values, np.argmin(abs(values - 1)))
        found = spectrum(sparse.csr_array(steep))
        assert (found.second, found.smallest) == pytest.approx((others[-1], others[0]), rel=1e-11)


@pytest.mark.slow
def test_random_regular_of_2000():
    weights = metropolis(regular(2000, seed=1))
    assert (weights.spectrum.second, weights.spectrum.smallest) == pytest.approx(
        ends(weights.matrix.toarray()), abs=1e-10
    )
    assert weights.spectrum.diameter == csgraph.shortest_path(weights.matrix, unweighted=True).max()


@pytest.mark.slow
def test_path_of_3000_is_exact_with_every_weighting():
    long = path(3000)
    cosine = np.cos(np.pi / 3000)
    assert max_degree(long).spectrum.gap == pytest.approx(2 / 3 * (1 - cosine), abs=1e-14)
    assert best_constant(long).spectrum.second == pytest.approx(cosine, abs=1e-12)
    assert best_constant(long).spectrum.smallest == pytest.approx(-cosine, abs=1e-12)


def test_only_long_graphs_are_factorised(monkeypatch):
    tried = []
    inverse = eigenvalues._top_by_inverse
    monkeypatch.setattr(eigenvalues, "_top_by_inverse", lambda *given: tried.append(given) or inverse(*given))
    # Factors of a random graph fill up: 30,000 nodes would take 2 GB and minutes.
    monkeypatch.setattr(eigenvalues, "VISITS", 0)
    found = spectrum(metropolis(regular(30_000)).matrix)
    assert not tried
    # Friedman: the eigenvalues of the links besides the first are within 2 sqrt(degree - 1), and crowd there.
    assert found.second == pytest.approx((1 + 2 * np.sqrt(3)) / 5, abs=2e-3)
    assert found.smallest == pytest.approx((1 - 2 * np.sqrt(3)) / 5, abs=2e-3)
    spectrum(metropolis(path(3000)).matrix)
    assert tried


@pytest.mark.slow
def test_large_matrices_do_not_warn():
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        for graph in (path(1200), star(1200), cycle(1200), complete(300), grid(1200), regular(1200)):
            for build in BOTH_WAYS:
                assert build(graph).spectrum.beta < 1


def test_results_repeat_exactly():
    matrix = metropolis(regular(1500, seed=3)).matrix
    assert spectrum(matrix) == spectrum(matrix)


@given(st.integers(1, 60), st.floats(0.02, 1.0), st.integers(0, 10**6))
def test_diameter_is_that_of_networkx(n_nodes, p, seed):
    drawn = nx.gnp_random_graph(n_nodes, p, seed=seed)
    graph = nx.convert_node_labels_to_integers(drawn.subgraph(max(nx.connected_components(drawn), key=len)))
    matrix = nx.to_numpy_array(graph) - 2.5 * np.eye(len(graph))
    assert eccentricities(matrix).max() == eccentricities(sparse.csr_array(matrix)).max() == nx.diameter(graph)


@pytest.mark.parametrize("share", [0, 10**6])
@pytest.mark.parametrize("name", TWO_WAY)
def test_diameters_by_search_and_by_products_agree(name, share, monkeypatch):
    monkeypatch.setattr(eigenvalues, "DENSE_SHARE", share)
    monkeypatch.setattr(eigenvalues, "DENSE_NODES", 0)
    graph = topology(name, 64, seed=5)
    assert eccentricities(nx.to_scipy_sparse_array(graph, format="csr")).max() == nx.diameter(graph)


@pytest.mark.parametrize("searches", [2, 5, 64])
@pytest.mark.parametrize("name", TWO_WAY)
def test_a_few_searches_bound_every_distance(name, searches, monkeypatch):
    graph = topology(name, 64, seed=5)
    links = nx.to_scipy_sparse_array(graph, format="csr")
    monkeypatch.setattr(eigenvalues, "DENSE_SHARE", 0)
    monkeypatch.setattr(eigenvalues, "DENSE_NODES", 0)
    monkeypatch.setattr(eigenvalues, "VISITS", searches * (64 + links.nnz))
    true = np.array([nx.eccentricity(graph, node) for node in range(64)])
    found = eigenvalues.eccentricities(links)
    assert (found >= true).all()
    assert found.max() <= 2 * true.max()
    assert searches < 64 or (found == true).all()


def test_zeros_that_are_stored_are_no_links():
    ring = nx.to_scipy_sparse_array(cycle(10), dtype=float, format="csr")
    ring[0, 9] = ring[9, 0] = 0.0
    assert ring.nnz == 20
    assert eccentricities(ring).max() == 9
    assert ring.nnz == 20


@pytest.mark.parametrize("n_nodes", [1, 2, 7, 1200])
def test_laplacian_extremes(n_nodes):
    smallest, largest = laplacian_extremes(path(n_nodes))
    if n_nodes == 1:
        assert (smallest, largest) == (0, 0)
    else:
        assert smallest == pytest.approx(2 - 2 * np.cos(np.pi / n_nodes), abs=1e-12)
        assert largest == pytest.approx(2 + 2 * np.cos(np.pi / n_nodes), abs=1e-12)


def test_rounds_of_plain_gossip():
    ring = metropolis(cycle(20)).spectrum
    assert rounds_to_average(ring, 1e-7) == 486
    assert ring.beta**486 <= 1e-7 < ring.beta**485
    assert rounds_to_average(ring, 1.0) == 0
    assert rounds_to_average(metropolis(complete(9)).spectrum, 1e-12) == 1
    assert rounds_to_average(Spectrum(0.0, 0.0, 1), 1e-12) == 1
    assert rounds_to_average(metropolis(path(1)).spectrum, 1e-12) == 0


def test_bad_input_is_named():
    with pytest.raises(InputError, match=r"accuracy=0 must be above 0"):
        rounds_to_average(Spectrum(0.5, 0.0, 2), 0)
    with pytest.raises(InputError, match="accuracy=nan must be above 0"):
        rounds_to_average(Spectrum(0.5, 0.0, 2), float("nan"))
    with pytest.raises(GraphError, match=r"beta=1.0 must be below 1"):
        rounds_to_average(Spectrum(0.5, -1.0, 2), 1e-3)
    with pytest.raises(GraphError, match=r"shape \(2, 3\); a spectrum needs a square matrix"):
        spectrum(np.ones((2, 3)))
    with pytest.raises(GraphError, match="finite entries"):
        spectrum(np.full((2, 2), np.nan))
    with pytest.raises(GraphError, match="leave the 4 nodes in 2 components; connect them"):
        spectrum(np.kron(np.eye(2), np.full((2, 2), 0.5)))
    with pytest.raises(GraphError, match="2 components"):
        laplacian_extremes(nx.Graph([(0, 1), (2, 3)]))
