import math

import networkx as nx
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from eigenmesh.errors import GraphError, UnknownNameError
from eigenmesh.graphs import TOPOLOGIES, topologies, topology

RANDOM = ["erdos_renyi", "regular", "random_geometric", "small_world"]
SIZES = [1, 2, 3, 4, 5, 6, 7, 8, 16, 20, 33, 64]


def links(graph):
    return {frozenset(link) for link in graph.edges}


@pytest.mark.parametrize("n_nodes", SIZES)
@pytest.mark.parametrize("name", TOPOLOGIES)
def test_every_topology_is_simple_connected_and_numbered(name, n_nodes):
    if name == "hypercube" and n_nodes & (n_nodes - 1):
        pytest.skip("a hypercube has 2^n nodes")
    graph = topology(name, n_nodes, seed=3)
    one_way = name not in topologies.TWO_WAY
    assert type(graph) is (nx.DiGraph if one_way else nx.Graph)
    assert list(graph) == list(range(n_nodes))
    assert nx.is_strongly_connected(graph) if one_way else nx.is_connected(graph)
    assert nx.number_of_selfloops(graph) == 0


def test_the_names_are_the_functions():
    assert len(TOPOLOGIES) == 15
    assert all(TOPOLOGIES[name] is getattr(topologies, name) for name in TOPOLOGIES)


@pytest.mark.parametrize("n_nodes", [3, 4, 9, 20])
def test_deterministic_topologies_are_those_of_networkx(n_nodes):
    assert links(topologies.cycle(n_nodes)) == links(nx.cycle_graph(n_nodes))
    assert links(topologies.path(n_nodes)) == links(nx.path_graph(n_nodes))
    assert links(topologies.star(n_nodes)) == links(nx.star_graph(n_nodes - 1))
    assert links(topologies.complete(n_nodes)) == links(nx.complete_graph(n_nodes))
    assert links(topologies.binary_tree(n_nodes)) == links(nx.full_rary_tree(2, n_nodes))


def test_small_cases_coincide():
    for name in TOPOLOGIES:
        assert links(topology(name, 1)) == set()
        assert links(topology(name, 2)) == {frozenset({0, 1})}
    assert nx.is_isomorphic(topologies.cycle(4), topologies.grid(4))
    assert nx.is_isomorphic(topologies.cycle(4), topologies.hypercube(4))
    assert nx.is_isomorphic(topologies.regular(5), topologies.complete(5))
    assert nx.is_isomorphic(topologies.small_world(5), topologies.complete(5))
    assert nx.is_isomorphic(topologies.exponential(5), topologies.complete(5))


@pytest.mark.parametrize(("rows", "columns"), [(1, 1), (2, 2), (2, 3), (3, 4), (4, 5), (5, 5), (9, 10)])
def test_grid_is_the_lattice_where_it_fills(rows, columns):
    assert nx.is_isomorphic(topologies.grid(rows * columns), nx.grid_2d_graph(rows, columns))


@given(st.integers(1, 400))
def test_grid_is_near_square_for_any_size(n_nodes):
    graph = topologies.grid(n_nodes)
    side = math.ceil(math.sqrt(n_nodes))
    assert nx.is_connected(graph)
    assert max((degree for _, degree in graph.degree), default=0) <= 4
    assert nx.diameter(graph) <= 2 * (side - 1) if n_nodes < 100 else True


@pytest.mark.parametrize("dimension", range(1, 7))
def test_hypercube_is_the_hypercube(dimension):
    graph = topologies.hypercube(2**dimension)
    assert nx.is_isomorphic(graph, nx.hypercube_graph(dimension))
    assert nx.diameter(graph) == dimension


@given(st.integers(2, 200))
def test_exponential_links_powers_of_two(n_nodes):
    graph = topologies.exponential(n_nodes)
    hops = {2**power for power in range(20) if 2**power < n_nodes}
    around = hops | {n_nodes - hop for hop in hops}
    assert set(graph[0]) == around
    assert nx.is_regular(graph)
    assert all(set(graph[node]) == {(node + hop) % n_nodes for hop in around} for node in graph)


@pytest.mark.parametrize("name", RANDOM)
def test_the_seed_decides(name):
    first, again, other = topology(name, 30, seed=1), topology(name, 30, seed=1), topology(name, 30, seed=2)
    assert links(first) == links(again)
    assert links(first) != links(other)
    assert links(topology(name, 30, seed=np.int64(1))) == links(first)


def test_random_draws_leave_the_global_state_alone():
    before = np.random.get_state()[1].copy()  # noqa: NPY002
    for name in RANDOM:
        topology(name, 12)
    assert np.array_equal(before, np.random.get_state()[1])  # noqa: NPY002


def test_erdos_renyi_has_the_expected_number_of_links():
    n_nodes, p = 300, 0.2
    expected = p * n_nodes * (n_nodes - 1) / 2
    assert topologies.erdos_renyi(n_nodes, p).number_of_edges() == pytest.approx(expected, rel=0.05)
    assert links(topologies.erdos_renyi(9, 1.0)) == links(topologies.complete(9))


def test_erdos_renyi_has_half_of_all_links_up_to_50_nodes_and_few_per_node_beyond():
    shares = {n: topologies.erdos_renyi(n).number_of_edges() / math.comb(n, 2) for n in (30, 50, 51, 52, 200, 2000)}
    assert [shares[n] for n in (30, 50, 51, 52)] == pytest.approx([0.5] * 4, abs=0.04)
    for n in (200, 2000):
        assert shares[n] * (n - 1) == pytest.approx(math.log(n) + 21.1, rel=0.05)


@settings(max_examples=40)
@given(st.integers(3, 40), st.integers(3, 39), st.integers(0, 5))
def test_regular_has_the_degree_asked_for(n_nodes, degree, seed):
    if degree > n_nodes - 1 or n_nodes * degree % 2:
        with pytest.raises(GraphError, match=f"degree={degree} must be"):
            topologies.regular(n_nodes, degree, seed)
    else:
        graph = topologies.regular(n_nodes, degree, seed)
        assert {each for _, each in graph.degree} == {degree}
        assert nx.is_connected(graph)


def test_default_degrees_are_clipped_to_what_fits():
    assert [topologies.regular(n_nodes).degree(0) for n_nodes in range(1, 8)] == [0, 1, 2, 3, 4, 4, 4]
    sizes = [topologies.small_world(n_nodes).number_of_edges() for n_nodes in range(1, 8)]
    assert sizes == [0, 1, 3, 4, 10, 12, 14]


def test_random_geometric_links_exactly_the_near_points():
    graph = topologies.random_geometric(60, radius=0.3, seed=4)
    points = np.array([graph.nodes[node]["pos"] for node in range(60)])
    near = np.linalg.norm(points[:, None] - points[None], axis=2) <= 0.3
    np.fill_diagonal(near, False)
    assert np.array_equal(nx.to_numpy_array(graph).astype(bool), near)


def test_small_world_without_rewiring_is_the_ring_lattice():
    assert links(topologies.small_world(12, 4, p=0.0)) == links(nx.circulant_graph(12, [1, 2]))


BAD = [
    (lambda: topologies.path(0), "n_nodes=0 must be at least 1"),
    (lambda: topologies.erdos_renyi(-3), "n_nodes=-3 must be at least 1"),
    (lambda: topologies.cycle(4.0), "n_nodes=4.0 must be a whole number"),
    (lambda: topologies.cycle("4"), "n_nodes='4' must be a whole number"),
    (lambda: topologies.hypercube(20), "n_nodes=20 must be a power of two.*16 and 32"),
    (lambda: topologies.erdos_renyi(5, p=1.5), "p=1.5 must be a probability, from 0 to 1"),
    (lambda: topologies.erdos_renyi(5, p=math.nan), "p=nan must be a probability"),
    (lambda: topologies.small_world(9, p=-0.1), "p=-0.1 must be a probability"),
    (lambda: topologies.erdos_renyi(50, p=0.001), r"none of 100 draws on 50 nodes.*p=0.001.*log\(M\)/M = 0.0782"),
    (lambda: topologies.erdos_renyi(5, p=0), "none of 100 draws"),
    (lambda: topologies.erdos_renyi(5, seed=0.5), "seed=0.5 must be a whole number"),
    (lambda: topologies.regular(4, degree=4), "degree=4 must be from 1 to 3 for 4 nodes"),
    (lambda: topologies.regular(4, degree=0), "degree=0 must be from 1 to 3"),
    (lambda: topologies.regular(1, degree=1), "degree=1 must be from 0 to 0 for 1 node"),
    (lambda: topologies.regular(5, degree=3), r"degree=3 must be even for an odd number of nodes \(5\); take 2"),
    (lambda: topologies.regular(8, degree=1), "none of 100 draws on 8 nodes.*degree=1"),
    (lambda: topologies.regular(8, degree=2.5), "degree=2.5 must be a whole number"),
    (lambda: topologies.random_geometric(30, radius=0.01), "none of 100 draws.*radius=0.01.* = 0.337"),
    (lambda: topologies.random_geometric(30, radius=-1), "radius=-1 must be a finite number of at least 0"),
    (lambda: topologies.random_geometric(30, radius=math.inf), "radius=inf must be a finite number"),
    (lambda: topologies.small_world(9, degree=3), "degree=3 must be even and from 2 to 8"),
    (lambda: topologies.small_world(9, degree=10), "degree=10 must be even and from 2 to 8"),
    (lambda: topologies.small_world(9, degree=0), "degree=0 must be even and from 2 to 8"),
]


@pytest.mark.parametrize(("build", "message"), BAD)
def test_bad_values_are_named(build, message):
    with pytest.raises(GraphError, match=message):
        build()


def test_unknown_names_give_the_list():
    with pytest.raises(UnknownNameError, match=r"unknown topology 'cicle'; there are: .*Did you mean 'cycle'\?"):
        topology("cicle", 4)
