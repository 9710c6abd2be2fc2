import dataclasses

import networkx as nx
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import sparse

from eigenmesh.errors import GraphError, UnknownNameError
from eigenmesh.graphs import (
    Weights,
    best_constant,
    from_matrix,
    from_networkx,
    half_way,
    max_degree,
    metropolis,
    topology,
    weighting,
)
from eigenmesh.graphs.topologies import TWO_WAY, complete, cycle, path, random_geometric, regular, star

BOTH_WAYS = [metropolis, max_degree, best_constant]
BUILDS = [*BOTH_WAYS, lambda graph: Weights(half_way(metropolis(graph).matrix), graph)]


@st.composite
def connected_graphs(draw):
    """A random tree, and links drawn on top of it."""
    n_nodes = draw(st.integers(1, 14))
    graph = nx.Graph()
    graph.add_nodes_from(range(n_nodes))
    graph.add_edges_from((draw(st.integers(0, node - 1)), node) for node in range(1, n_nodes))
    node = st.integers(0, n_nodes - 1)
    graph.add_edges_from(link for link in draw(st.lists(st.tuples(node, node), max_size=30)) if len(set(link)) == 2)
    return graph


def dense(weights):
    return weights.matrix.toarray() if sparse.issparse(weights.matrix) else weights.matrix


def assert_averages(weights):
    matrix, n_nodes = dense(weights), weights.n_nodes
    np.testing.assert_allclose(matrix, matrix.T, rtol=0, atol=1e-15)
    np.testing.assert_allclose(matrix.sum(axis=0), 1.0, rtol=0, atol=1e-14)
    support = nx.to_numpy_array(weights.graph, nodelist=range(n_nodes)) + np.eye(n_nodes)
    assert not matrix[support == 0].any()
    assert weights.spectrum.beta < 1
    disagreement = np.linalg.norm(matrix - 1.0 / n_nodes, ord=2)
    assert weights.spectrum.beta == pytest.approx(disagreement, abs=1e-12)


@given(connected_graphs(), st.sampled_from(BUILDS))
def test_weights_are_symmetric_doubly_stochastic_and_average(graph, build):
    assert_averages(build(graph))


@given(connected_graphs(), st.sampled_from(BUILDS))
def test_weights_that_surely_average_need_no_eigenvalues(graph, build):
    weights = build(graph)
    matrix, n_nodes = dense(weights), weights.n_nodes
    least = min(2 * matrix.diagonal().min(), 4 * matrix[matrix != 0].min() / n_nodes**2)
    # A bound on the gap; weights with negative entries have none.
    assert weights.spectrum.gap >= min(least, 1) - 1e-12
    made_now = Weights(weights.matrix, graph)
    assert ("spectrum" in vars(made_now)) == (least <= 1e-12)


@given(connected_graphs(), st.sampled_from(BUILDS), st.randoms(use_true_random=False))
def test_relabelling_commutes(graph, build, rng):
    order = list(graph)
    rng.shuffle(order)
    renamed = build(nx.relabel_nodes(graph, dict(zip(graph, order, strict=True))))
    original = build(graph)
    np.testing.assert_allclose(dense(renamed)[np.ix_(order, order)], dense(original), rtol=0, atol=1e-12)
    assert renamed.spectrum.beta == pytest.approx(original.spectrum.beta, abs=1e-12)
    assert renamed.spectrum.diameter == original.spectrum.diameter


@given(connected_graphs())
def test_metropolis_by_its_definition(graph):
    matrix = dense(metropolis(graph))
    for i, j in graph.edges:
        assert matrix[i, j] == 1 / (1 + max(graph.degree(i), graph.degree(j)))
    assert (matrix.diagonal() > 0).all()


@given(connected_graphs())
def test_best_constant_is_the_best_of_all_constants(graph):
    best = best_constant(graph)
    laplacian = nx.laplacian_matrix(graph, nodelist=range(best.n_nodes)).toarray()
    average = np.full(laplacian.shape, 1.0 / best.n_nodes)
    for weight in np.linspace(0.01, 1.0, 25):
        beta = np.linalg.norm(np.eye(best.n_nodes) - weight * laplacian - average, ord=2)
        assert best.spectrum.beta <= beta + 1e-12
    assert best.spectrum.smallest == pytest.approx(-best.spectrum.second, abs=1e-12)


def test_weights_on_a_star_by_hand():
    np.testing.assert_allclose(metropolis(star(4)).matrix[0], [0.25] * 4)
    np.testing.assert_allclose(metropolis(star(4)).matrix[1], [0.25, 0.75, 0, 0])
    np.testing.assert_allclose(best_constant(star(4)).matrix[0], [1 - 3 * 0.4, 0.4, 0.4, 0.4])
    np.testing.assert_allclose(max_degree(path(3)).matrix * 3, [[2, 1, 0], [1, 1, 1], [0, 1, 2]])


def test_equivalences():
    for n_nodes in (1, 2, 7):
        for build in BOTH_WAYS:
            np.testing.assert_allclose(build(complete(n_nodes)).matrix, 1 / n_nodes, atol=1e-15)
    graph = regular(20, seed=1)
    np.testing.assert_array_equal(metropolis(graph).matrix, max_degree(graph).matrix)
    weights = metropolis(graph)
    np.testing.assert_array_equal(half_way(weights.matrix), (np.eye(20) + weights.matrix) / 2)
    assert Weights(half_way(weights.matrix), graph).spectrum.smallest > 0


@pytest.mark.parametrize("build", BOTH_WAYS)
@pytest.mark.parametrize("name", TWO_WAY)
def test_sparse_weights_are_the_dense_ones(name, build, monkeypatch):
    graph = topology(name, 64)
    whole = build(graph)
    monkeypatch.setattr("eigenmesh.graphs.weights.DENSE_NODES", 10)
    sparsely = build(graph)
    assert isinstance(whole.matrix, np.ndarray)
    assert isinstance(sparsely.matrix, sparse.csr_array)
    np.testing.assert_array_equal(sparsely.matrix.toarray(), whole.matrix)
    assert sparsely.spectrum == whole.spectrum
    assert isinstance(half_way(sparsely.matrix), sparse.csr_array)


def test_storage_is_dense_up_to_256_nodes():
    assert isinstance(metropolis(cycle(256)).matrix, np.ndarray)
    large = metropolis(cycle(257))
    assert isinstance(large.matrix, sparse.csr_array)
    assert large.matrix.dtype == np.float64
    assert_averages(large)
    assert large.n_nodes == large.edges == 257


@pytest.mark.parametrize("build", BOTH_WAYS)
def test_thousands_of_nodes(build):
    weights = build(random_geometric(2000, seed=1))
    assert weights.matrix.nnz <= 2 * weights.edges + 2000
    values = np.random.default_rng(0).standard_normal(2000)
    mixed = weights.matrix @ values
    assert mixed.mean() == pytest.approx(values.mean(), abs=1e-14)
    before, after = (np.linalg.norm(each - values.mean()) for each in (values, mixed))
    assert after <= weights.spectrum.beta * before


def test_weights_ignore_weights_of_links():
    graph = nx.path_graph(3)
    nx.set_edge_attributes(graph, 7.0, "weight")
    for build in BOTH_WAYS:
        np.testing.assert_array_equal(build(graph).matrix, build(path(3)).matrix)


def test_node_order_does_not_matter():
    shuffled = nx.Graph([(2, 1), (1, 0)])
    np.testing.assert_array_equal(metropolis(shuffled).matrix, metropolis(path(3)).matrix)


def test_weights_are_frozen_and_remember_their_spectrum():
    weights = metropolis(cycle(5))
    with pytest.raises(dataclasses.FrozenInstanceError):
        weights.matrix = np.eye(5)
    assert weights.spectrum is weights.spectrum


@pytest.mark.parametrize("form", [np.asarray, np.ndarray.tolist, sparse.csr_array, sparse.coo_matrix, sparse.csc_array])
def test_any_matrix_form_is_taken(form):
    given = metropolis(star(6)).matrix
    weights = from_matrix(form(given))
    np.testing.assert_array_equal(weights.matrix, given)
    assert weights.matrix is not given
    assert {frozenset(link) for link in weights.graph.edges} == {frozenset(link) for link in star(6).edges}


def test_given_graphs_are_kept_and_zero_weights_are_no_links():
    matrix = metropolis(path(3)).matrix
    assert from_matrix(matrix, complete(3)).edges == 3
    assert from_matrix(matrix).edges == 2
    stored_zero = sparse.csr_array(([1.0, 0.0, 0.0, 1.0], ([0, 0, 1, 1], [0, 1, 0, 1])))
    with pytest.raises(GraphError, match="2 components"):
        from_matrix(stored_zero)
    assert from_matrix([[1]]).spectrum.beta == 0


def changed(*entries):
    matrix = metropolis(cycle(5)).matrix.copy()
    for i, j, value in entries:
        matrix[i, j] += value
    return matrix


SWAP = np.array([[0.0, 1.0], [1.0, 0.0]])
BAD = [
    (np.ones((2, 3)) / 3, r"square matrix \(M, M\), not of shape \(2, 3\)"),
    (np.ones(4), r"not of shape \(4,\)"),
    (np.ones((0, 0)), r"not of shape \(0, 0\)"),
    ([[1.0], [1.0, 2.0]], "must be a matrix of numbers"),
    ([["a"]], "must be real numbers, not <U1"),
    (np.eye(2) * 1j, "must be real numbers, not complex128"),
    (changed((1, 2, np.nan)), r"weight \(1, 2\) is nan; all weights must be finite"),
    (changed((3, 3, -np.inf)), r"weight \(3, 3\) is -inf"),
    (changed((1, 2, 1e-6), (1, 1, -1e-6)), r"\(1, 2\) and \(2, 1\) differ by 1e-06, at most 1e-12"),
    (changed((3, 3, 0.5)), r"row 3 of the weights sums to 1.5, it must be 1 to within 1e-12; .* at \(3, 3\)"),
    (np.eye(3), r"3 components, 1 is needed \(without any link: 0, 1, 2\)"),
    (SWAP, r"beta = 1 must be below 1.*from -1 to -1.*lazy form, from_matrix\(\(I \+ W\) / 2"),
    (np.roll(np.eye(4), 1, 0) / 2 + np.roll(np.eye(4), -1, 0) / 2, "beta = 1 must be below 1.*lazy form"),
    ([[1.5, -0.5], [-0.5, 1.5]], r"beta = 2 must be below 1.*use metropolis\(graph\)"),
    ([[-2.0, 3.0], [3.0, -2.0]], r"beta = 5 must be below 1.*use metropolis\(graph\)"),
    ([[1 - 1e-14, 1e-14], [1e-14, 1 - 1e-14]], r"beta = 0.99999999999998 must be below 1.*metropolis"),
]


@pytest.mark.parametrize(("matrix", "message"), BAD)
def test_matrices_that_do_not_average_are_refused(matrix, message):
    with pytest.raises(GraphError, match=message):
        from_matrix(matrix)


@pytest.mark.parametrize("matrix", [matrix for matrix, _ in BAD[6:10]])
def test_sparse_matrices_are_checked_alike(matrix):
    with pytest.raises(GraphError) as whole:
        from_matrix(matrix)
    with pytest.raises(GraphError) as sparsely:
        from_matrix(sparse.csr_array(matrix))
    assert str(whole.value) == str(sparsely.value)


def test_the_fix_of_the_swap_works():
    weights = from_matrix((np.eye(2) + SWAP) / 2)
    assert weights.spectrum.beta == pytest.approx(0, abs=1e-15)


@pytest.mark.parametrize("n_nodes", [4, 1100])
def test_even_rings_that_only_swap_are_refused_at_any_size(n_nodes):
    ring = nx.to_scipy_sparse_array(cycle(n_nodes), dtype=float) / 2
    with pytest.raises(GraphError, match=r"beta = 1 must be below 1.*lazy form"):
        from_matrix(ring)
    halfway = from_matrix((sparse.eye_array(n_nodes) + ring) / 2)
    assert halfway.spectrum.second == pytest.approx((1 + np.cos(2 * np.pi / n_nodes)) / 2, abs=1e-12)


def test_weights_off_the_graph_are_refused():
    with pytest.raises(GraphError, match=r"weight \(0, 4\) is 0.333, but .* no link 0-4; add the link, or set"):
        from_matrix(metropolis(cycle(5)).matrix, path(5))
    with pytest.raises(GraphError, match="weights of 5 nodes do not fit a graph of 6 nodes"):
        from_matrix(metropolis(cycle(5)).matrix, path(6))


def test_weights_cannot_be_built_past_the_check():
    with pytest.raises(GraphError, match="sums to 2"):
        Weights(2 * np.eye(1), path(1))


def test_links_of_weight_zero_do_not_connect():
    with pytest.raises(GraphError, match="non-zero weights leave the 2 nodes in 2 components"):
        from_matrix(np.eye(2), path(2))


@pytest.mark.parametrize("build", BOTH_WAYS)
def test_graphs_that_do_not_fit_are_refused(build):
    with pytest.raises(GraphError, match="2 components, 1 is needed"):
        build(nx.Graph([(0, 1), (2, 3)]))
    named = nx.Graph([("a", "b")])
    with pytest.raises(GraphError, match=r"numbered 0 to 1, but one is called 'a'; .*from_networkx\(graph\)"):
        build(named)
    np.testing.assert_allclose(build(from_networkx(named)).matrix, 0.5)


def test_weights_by_name():
    np.testing.assert_array_equal(weighting("max_degree", star(5)).matrix, max_degree(star(5)).matrix)
    with pytest.raises(UnknownNameError, match=r"unknown weights 'metropolitan'; .*Did you mean 'metropolis'\?"):
        weighting("metropolitan", star(5))
