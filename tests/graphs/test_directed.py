"""One-way links: graphs, weights, distances."""

import networkx as nx
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from eigenmesh import graphs
from eigenmesh.errors import GraphError
from eigenmesh.graphs import eigenvalues as _distances


@st.composite
def digraphs(draw):
    """A one-way ring in some order, and links drawn on top of it."""
    n_nodes = draw(st.integers(2, 12))
    order = draw(st.permutations(range(n_nodes)))
    graph = nx.DiGraph()
    graph.add_nodes_from(range(n_nodes))
    graph.add_edges_from(zip(order, [*order[1:], order[0]], strict=True))
    node = st.integers(0, n_nodes - 1)
    graph.add_edges_from(link for link in draw(st.lists(st.tuples(node, node), max_size=20)) if len(set(link)) == 2)
    return graph


@given(digraphs())
def test_weights_sum_to_one_as_they_say_and_lie_on_the_links(graph):
    sums = {"push": (0,), "pull": (1,), "balanced": (0, 1)}
    for name, axes in sums.items():
        weights = graphs.weighting(name, graph)
        for axis in axes:
            np.testing.assert_allclose(weights.matrix.sum(axis=axis), 1, rtol=0, atol=1e-12)
        assert weights.averages == all(np.abs(weights.matrix.sum(axis=axis) - 1).max() <= 1e-12 for axis in (0, 1))
        for receiver, sender in zip(*weights.matrix.nonzero(), strict=True):
            assert receiver == sender or graph.has_edge(sender, receiver)
        assert weights.messages == graph.number_of_edges()
        assert weights.most_receivers == max(degree for _, degree in graph.out_degree)
    values = np.sort(np.abs(np.linalg.eigvals(graphs.balanced(graph).matrix)))
    assert graphs.balanced(graph).spectrum.beta == pytest.approx(values[-2], abs=1e-9)


@pytest.mark.parametrize("dense_nodes", [100, 0], ids=["dense", "searches"])
@pytest.mark.parametrize("seed", range(3))
def test_diameter_and_centre_are_those_of_a_search_from_every_node(dense_nodes, seed, monkeypatch):
    monkeypatch.setattr(_distances, "DENSE_NODES", dense_nodes)
    graph = graphs.topologies.random_out(40, degree=2, seed=seed)
    away = nx.eccentricity(graph)
    towards = nx.eccentricity(graph.reverse())
    spectrum = graphs.push(graph).spectrum
    assert spectrum.diameter == max(away.values())
    assert away[spectrum.centre] + towards[spectrum.centre] == min(away[node] + towards[node] for node in graph)


def test_topologies():
    assert nx.diameter(graphs.topologies.directed_cycle(9)) == 8
    assert set(dict(graphs.topologies.random_out(20).out_degree).values()) == {3}
    chords = graphs.topologies.directed_chords(20, seed=1)
    assert chords.number_of_edges() == 30
    assert all(chords.has_edge(node, (node + 1) % 20) for node in range(20))
    assert (
        graphs.topologies.random_out(1).number_of_nodes() == graphs.topologies.directed_cycle(1).number_of_nodes() == 1
    )
    with pytest.raises(GraphError, match="chords=1000 must be from 0 to 8 on 4 nodes"):
        graphs.topologies.directed_chords(4, chords=1000)
    with pytest.raises(GraphError, match="degree=4 must be from 1 to 3"):
        graphs.topologies.random_out(4, degree=4)


def test_the_usual_weights_follow_the_links():
    one_way, both = graphs.topologies.random_out(6), graphs.topologies.cycle(6)
    np.testing.assert_array_equal(graphs.weighting("auto", one_way).matrix, graphs.balanced(one_way).matrix)
    np.testing.assert_array_equal(graphs.weighting("auto", both).matrix, graphs.metropolis(both).matrix)
    pushed = np.array([[2, 3, 3], [2, 3, 0], [2, 0, 3]]) / 6
    np.testing.assert_allclose(graphs.push(graphs.topologies.star(3)).matrix, pushed)


@pytest.mark.parametrize("rule", ["metropolis", "max_degree", "best_constant"])
def test_rules_for_both_ways_say_what_to_use(rule):
    with pytest.raises(GraphError, match=r"need links that go both ways.*use weights=.balanced"):
        graphs.weighting(rule, graphs.topologies.directed_cycle(4))


def test_a_graph_with_no_way_back_is_refused_and_its_parts_are_named():
    one_way = nx.DiGraph([("a", "b"), ("b", "a"), ("b", "c"), ("c", "d"), ("d", "c")])
    with pytest.raises(GraphError, match=r"2 strongly connected parts, 1 is needed: a, b; c, d\. No links lead"):
        graphs.balanced(graphs.from_networkx(one_way))


def test_matrices_of_one_way_links():
    weights = graphs.from_matrix(graphs.balanced(graphs.topologies.random_out(7)).matrix)
    assert weights.graph.is_directed()
    assert set(weights.graph.edges) == set(graphs.topologies.random_out(7).edges)
    wrong = weights.matrix.copy()
    wrong[0, 0] += 0.5
    with pytest.raises(GraphError, match=r"neither all rows nor all columns.*row 0 is off by 0\.5.*balanced\(graph\)"):
        graphs.from_matrix(wrong)
