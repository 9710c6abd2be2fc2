"""Every averaging kernel against the dense mean, at the cost it states."""

import time

import networkx as nx
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from eigenmesh import graphs
from eigenmesh.averaging import AVERAGINGS, AllReduce, Chebyshev, Factored, Gossip, Integers, Polynomial, PushSum, Tree
from eigenmesh.errors import GraphError, InputError, UnknownNameError
from eigenmesh.networks import Stacked
from eigenmesh.settings import Request

EXACT = [AllReduce(), Gossip(), Chebyshev(), Polynomial(), Tree(), Factored(), Integers(), Integers(AllReduce())]
KERNELS = [*EXACT, PushSum(), Gossip(1e-4), Chebyshev(1e-4), Polynomial(1e-4)]
TOPOLOGIES = ["erdos_renyi", "cycle", "path", "star", "complete", "grid", "binary_tree"]


def spread(array):
    return np.linalg.norm(array - array.mean(axis=0))


@pytest.mark.parametrize("kernel", KERNELS, ids=repr)
@pytest.mark.parametrize("topology", TOPOLOGIES)
@pytest.mark.parametrize("n_nodes", [1, 2, 3, 20])
def test_mean_is_as_accurate_and_costs_as_much_as_it_says(kernel, topology, n_nodes):
    network = Stacked(graphs.metropolis(graphs.topology(topology, n_nodes)), kernel)
    array = np.random.default_rng(0).standard_normal((n_nodes, 6, 3)) + 5
    averaged = network.mean(array)
    expected = array.mean(axis=0)
    # The stated accuracy plus what rounding adds over the rounds.
    allowed = network.average.accuracy * spread(array) + 1e-13 * (1 + network.average.rounds) * np.abs(array).max()
    assert np.abs(averaged - expected).max() <= allowed
    assert network.traffic.rounds == network.average.rounds
    assert network.average.accuracy <= max(getattr(kernel, "accuracy", 0.0), 1e-10)


def test_known_rounds_on_a_cycle_of_20():
    weights = graphs.metropolis(graphs.topologies.cycle(20))
    assert Gossip(1e-7).prepare(weights).rounds == 486
    assert Chebyshev(1e-7).prepare(weights).rounds <= 54
    assert Tree().prepare(weights).rounds == 20


@pytest.mark.parametrize("topology", TOPOLOGIES)
def test_tree_sends_each_link_twice_and_gives_the_same_bits_everywhere(topology):
    network = Stacked(graphs.metropolis(graphs.topology(topology, 20)))
    averaged = network.mean(np.random.default_rng(1).standard_normal((20, 4, 2)))
    assert network.traffic.messages == 2 * 19
    assert network.traffic.bytes == 2 * 19 * 4 * 2 * 8
    assert (averaged == averaged[0]).all()


@pytest.mark.parametrize("topology", [*TOPOLOGIES, "small_world", "random_geometric", "regular"])
@pytest.mark.parametrize("seed", range(4))
def test_the_tree_is_rooted_at_the_centre(topology, seed):
    graph = graphs.topology(topology, 30, seed=seed)
    average = Tree().prepare(graphs.metropolis(graph))
    assert nx.eccentricity(graph, average.root) == nx.radius(graph)
    assert average.rounds == 2 * nx.radius(graph)


def test_tree_only_uses_links_of_the_graph():
    weights = graphs.metropolis(graphs.topologies.erdos_renyi(15, p=0.3, seed=2))
    average = Tree().prepare(weights)
    for level in (*average.up, *average.down):
        for i, j in zip(*level.matrix.nonzero(), strict=True):
            assert i == j or weights.graph.has_edge(i, j)


@settings(max_examples=40)
@given(n_nodes=st.integers(2, 12), seed=st.integers(0, 10**6), kernel=st.sampled_from(KERNELS))
def test_averaging_keeps_the_mean_on_any_graph(n_nodes, seed, kernel):
    network = Stacked(graphs.metropolis(graphs.topologies.erdos_renyi(n_nodes, p=0.6, seed=seed)), kernel)
    array = np.random.default_rng(seed).standard_normal((n_nodes, 3))
    assert np.allclose(network.mean(array).mean(axis=0), array.mean(axis=0), rtol=0, atol=1e-12)


@pytest.mark.parametrize(
    ("graph", "rounds"),
    [
        (graphs.topologies.cycle(20), 10),
        (graphs.topologies.hypercube(64), 6),
        (graphs.topologies.star(20), 2),
        (graphs.topologies.path(20), 19),
        (graphs.topologies.complete(9), 1),
    ],
    ids=["cycle", "hypercube", "star", "path", "complete"],
)
def test_polynomial_is_exact_at_the_diameter_of_structured_graphs(graph, rounds):
    average = Polynomial().prepare(graphs.metropolis(graph))
    assert average.rounds == rounds == nx.diameter(graph)
    assert average.accuracy < 1e-12


@pytest.mark.parametrize("seed", range(5))
def test_polynomial_is_near_the_limit_on_random_graphs(seed):
    weights = graphs.metropolis(graphs.topologies.erdos_renyi(20, p=0.5, seed=seed))
    assert Polynomial(1e-7).prepare(weights).rounds <= 13
    for accuracy in (1e-3, 1e-7, 1e-12):
        assert Polynomial(accuracy).prepare(weights).rounds <= Chebyshev(accuracy).prepare(weights).rounds


def test_a_long_path_is_averaged_at_its_diameter_and_says_how_well():
    average = Polynomial(1e-12).prepare(graphs.metropolis(graphs.topologies.path(200)))
    assert average.rounds == 199
    assert 1e-12 < average.accuracy < 1e-10


def test_polynomial_gives_way_to_chebyshev_where_it_has_no_advantage():
    weights = graphs.metropolis(graphs.topologies.regular(400, degree=6, seed=0))
    assert Polynomial(1e-3).prepare(weights).rounds <= Chebyshev(1e-3).prepare(weights).rounds


def test_chebyshev_uses_both_ends_of_the_spectrum():
    # On a bipartite-like lazy walk the spectrum lies in [0, 1], half the width of its symmetric hull.
    path = graphs.metropolis(graphs.topologies.path(20))
    weights = graphs.Weights(graphs.half_way(path.matrix), path.graph)
    beta = weights.spectrum.beta
    hull = np.arccosh(1e12) / np.arccosh(1 / beta)
    assert Chebyshev(1e-12).prepare(weights).rounds < 0.8 * hull


@pytest.mark.parametrize("averaging", [Gossip(1e-17), PushSum(1e-17)], ids=repr)
def test_an_average_that_rounding_keeps_from_its_accuracy_ends_with_what_it_has(averaging):
    weights = graphs.balanced(graphs.topologies.random_out(8, seed=0))
    network, X = Stacked(weights, averaging), np.random.default_rng(0).standard_normal((8, 3))
    assert 1e-17 < network.average.accuracy < 1e-14
    assert np.allclose(network.mean(X), X.mean(axis=0), rtol=0, atol=1e-14)


def slow(graph, share):
    """Weights that hardly mix, I - e L with e = share."""
    return graphs.from_matrix(np.eye(len(graph)) - share * nx.laplacian_matrix(graph).toarray(), graph)


@pytest.mark.parametrize("kernel", [Chebyshev(), Polynomial(), Factored(), Tree(), AllReduce()], ids=repr)
@pytest.mark.parametrize("share", [1e-2, 1e-5, 1e-7, 1e-9])
def test_the_accuracy_is_that_of_the_arithmetic_even_if_weights_hardly_mix(kernel, share):
    network = Stacked(slow(graphs.topologies.erdos_renyi(8, p=0.6, seed=1), share), kernel)
    for offset in (0.0, 5.0, 1e6):
        array = np.random.default_rng(1).standard_normal((8, 50)) + offset
        error = np.abs(network.mean(array) - array.astype(np.longdouble).mean(axis=0)).max(axis=0)
        assert (error <= 1.5 * network.average.accuracy * np.linalg.norm(array, axis=0)).all()


@pytest.mark.parametrize("kernel", [Chebyshev(1e-6), Chebyshev(), Polynomial()], ids=repr)
@pytest.mark.parametrize(
    "graph", [graphs.topologies.path(300), graphs.topologies.binary_tree(300)], ids=["path", "binary tree"]
)
def test_the_accuracy_on_a_large_network_is_that_on_all_unit_vectors(kernel, graph):
    average = kernel.prepare(graphs.metropolis(graph))
    true = np.linalg.norm(average.error(np.eye(300)), 2)
    assert true <= average.accuracy <= 3 * true


def test_the_accuracy_of_a_large_one_way_network_is_that_on_all_unit_vectors():
    graph = graphs.topologies.random_out(300, seed=0)
    for average in (Gossip(1e-6).prepare(graphs.balanced(graph)), PushSum(1e-6).prepare(graphs.push(graph))):
        true = np.linalg.norm(average.error(np.eye(300)), 2)
        assert true <= average.accuracy <= 3 * true


def test_plain_gossip_takes_over_on_a_large_one_way_network():
    # Finding the polynomial of 300 nodes would take longer than the rounds it saves.
    weights = graphs.balanced(graphs.topologies.random_out(300, seed=0))
    assert Polynomial(1e-6).prepare(weights).rounds == Gossip(1e-6).prepare(weights).rounds


def test_planning_an_average_of_very_many_rounds_takes_no_time():
    two_way, one_way = graphs.topologies.erdos_renyi(8, p=0.6, seed=1), graphs.topologies.random_out(8, seed=0)
    for share in (1e-4, 1e-9):
        W = share * graphs.balanced(one_way).matrix + (1 - share) * np.eye(8)
        for weights in (slow(two_way, share), graphs.from_matrix(W, one_way)):
            began = time.process_time()
            assert Gossip().prepare(weights).rounds > 1 / share
            assert time.process_time() - began < 1


@pytest.mark.parametrize("kind", [Gossip, Chebyshev, Polynomial])
@pytest.mark.parametrize("accuracy", [0, 1, -1e-3, float("nan")])
def test_an_accuracy_outside_zero_and_one_is_refused(kind, accuracy):
    with pytest.raises(InputError, match="strictly between 0 and 1"):
        kind(accuracy)


DIRECTED = {
    "cycle": graphs.topologies.directed_cycle(20),
    "chords": graphs.topologies.directed_chords(20, seed=1),
    "out-degree 3": graphs.topologies.random_out(20, seed=2),
    "two": graphs.topologies.directed_cycle(2),
}


@pytest.mark.parametrize("kernel", KERNELS, ids=repr)
@pytest.mark.parametrize("graph", DIRECTED.values(), ids=DIRECTED)
def test_one_way_links_are_averaged_as_accurately_as_promised(kernel, graph):
    weights = graphs.balanced(graph)
    network = Stacked(weights, kernel)
    array = np.random.default_rng(0).standard_normal((len(graph), 6, 3)) + 5
    error = np.linalg.norm(network.mean(array) - array.mean(axis=0), axis=(1, 2)).max()
    assert error <= network.average.accuracy * spread(array) + 1e-12
    assert network.average.accuracy <= max(getattr(kernel, "accuracy", 0.0), 1e-10)
    assert network.traffic.rounds == network.average.rounds


@pytest.mark.parametrize("graph", DIRECTED.values(), ids=DIRECTED)
@pytest.mark.parametrize("rule", [graphs.balanced, graphs.push], ids=["balanced", "push"])
def test_two_trees_average_over_one_way_links(graph, rule):
    network = Stacked(rule(graph), Tree())
    array = np.random.default_rng(1).standard_normal((len(graph), 4, 2))
    averaged = network.mean(array)
    assert np.allclose(averaged, array.mean(axis=0), rtol=0, atol=1e-14)
    assert (averaged == averaged[0]).all()
    average, away, towards = network.average, nx.eccentricity(graph), nx.eccentricity(graph.reverse())
    assert (len(average.up), len(average.down)) == (towards[average.root], away[average.root])
    assert average.rounds == min(away[node] + towards[node] for node in graph)
    assert network.traffic.messages == average.messages == 2 * (len(graph) - 1)
    for level in (*average.up, *average.down):
        for receiver, sender in zip(*level.matrix.nonzero(), strict=True):
            assert receiver == sender or graph.has_edge(sender, receiver)


def test_a_polynomial_on_a_one_way_ring_takes_its_diameter():
    average = Polynomial().prepare(graphs.balanced(graphs.topologies.directed_cycle(20)))
    assert average.rounds == 19
    assert average.accuracy < 1e-13
    assert Polynomial().prepare(graphs.balanced(graphs.topologies.random_out(20, seed=2))).rounds <= 20
    with pytest.raises(GraphError, match=r"needs weights whose rows and columns all sum to 1; use .*balanced"):
        Polynomial().prepare(graphs.push(graphs.topologies.random_out(20, seed=2)))


def test_names():
    assert {type(make()) for make in AVERAGINGS.values()} == {type(kernel) for kernel in EXACT}
    with pytest.raises(
        UnknownNameError,
        match=r"'chebishev'.*chebyshev, factored, gossip, integers, polynomial, tree.*Did you mean 'chebyshev'",
    ):
        Request.parse(averaging="chebishev")
