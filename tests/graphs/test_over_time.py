"""Networks over time: weights that keep sums in every round, and what happens to messages."""

import networkx as nx
import numpy as np
import pytest
from scipy import sparse

from eigenmesh import graphs
from eigenmesh.errors import GraphError
from eigenmesh.graphs import NetworkSequence

ER = graphs.topologies.erdos_renyi(12, seed=1)
SEQUENCES = {
    "static": graphs.changing.over_time(ER),
    "one way": graphs.changing.over_time(graphs.topologies.random_out(12)),
    "links up": graphs.changing.links_up(ER, 0.5, seed=1),
    "one-way links up": graphs.changing.links_up(graphs.topologies.random_out(12), 0.5, seed=1),
    "fresh": graphs.changing.fresh_graphs(12, 0.2),
    "fresh one way": graphs.changing.fresh_graphs(12, 0.2, one_way=True),
    "dealt out": graphs.changing.dealt_out(ER, 5),
    "matchings": graphs.changing.matchings(ER),
    "function": NetworkSequence(12, lambda round_: nx.path_graph(12) if round_ % 2 else nx.empty_graph(12)),
}


@pytest.mark.parametrize("name", SEQUENCES)
def test_weights_of_every_round_keep_sums_and_depend_on_the_round_alone(name):
    sequence = SEQUENCES[name]
    for round_ in range(12):
        W = sequence.weights_at(round_)
        np.testing.assert_allclose(W.sum(axis=0), 1, rtol=0, atol=1e-14)
        assert (W >= -1e-15).all()
        if not sequence.one_way:
            np.testing.assert_allclose(W, W.T, rtol=0, atol=1e-15)
        np.testing.assert_array_equal(W, sequence.weights_at(round_))


def test_a_network_that_stays_has_its_usual_weights():
    np.testing.assert_allclose(SEQUENCES["static"].weights_at(7), graphs.metropolis(ER).matrix, rtol=0, atol=1e-15)
    one_way = graphs.topologies.random_out(12)
    np.testing.assert_allclose(SEQUENCES["one way"].weights_at(0), graphs.push(one_way).matrix, rtol=0, atol=1e-15)


def test_links_of_a_round():
    linked = nx.to_numpy_array(ER) > 0
    up = np.mean([(SEQUENCES["links up"].weights_at(t)[linked] > 0).mean() for t in range(100)])
    assert up == pytest.approx(0.5, abs=0.05)
    hands = [SEQUENCES["dealt out"].weights_at(t) > 0 for t in range(5)]
    off = ~np.eye(12, dtype=bool)
    assert (sum(hand & off for hand in hands) == (linked & off)).all()
    for t in range(20):
        matched = (SEQUENCES["matchings"].weights_at(t) > 0) & off
        assert matched.sum(axis=0).max() == 1
        assert (linked | ~matched).all()
    assert (SEQUENCES["function"].weights_at(0) == np.eye(12)).all()


def test_what_happens_to_messages():
    sequence = graphs.changing.lossy(ER, loss=0.3, delay=2, duplicates=0.5, seed=1)
    first, second = (np.stack([sequence.arrivals(t)[copy] for t in range(100)]) for copy in (0, 1))
    assert (first >= 0).mean() == pytest.approx(0.7, abs=0.02)
    assert (second >= 0).mean() == pytest.approx(0.35, abs=0.02)
    assert set(np.unique(first)) == {-1, 0, 1, 2}
    assert graphs.changing.lossy(ER, loss=0.0).reliable
    assert not sequence.reliable


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: graphs.changing.lossy(ER, loss=1.0), "loss=1.0 must be at least 0 and below 1"),
        (lambda: graphs.changing.lossy(ER, loss=0.1, delay=-1), "delay=-1 must be a whole number of rounds"),
        (lambda: graphs.changing.lossy(ER, duplicates=2.0), "duplicates=2.0 must be a share"),
        (lambda: graphs.changing.links_up(ER, 0.0), "probability=0.0 must be above 0"),
        (lambda: graphs.changing.fresh_graphs(5, p=0), "probability=0 must be above 0"),
        (lambda: graphs.changing.lossy(ER, loss=float("nan")), "loss=nan must be at least 0 and below 1"),
        (lambda: graphs.changing.lossy(ER, loss="half"), "loss='half' must be at least 0 and below 1"),
        (lambda: graphs.changing.lossy(ER, delay=0.5), "delay=0.5 must be a whole number of rounds"),
        (lambda: graphs.changing.fresh_graphs(2.5), "n_nodes=2.5 must be a whole number"),
        (lambda: graphs.changing.dealt_out(ER, 0), "rounds=0 must be a whole number"),
        (
            lambda: graphs.changing.periodic([nx.cycle_graph(4), nx.cycle_graph(5)]),
            "have 4 to 5 nodes; give all the same",
        ),
        (lambda: NetworkSequence(4, nx.cycle_graph(4)), r"must be a function of the round; .* use over_time\(graph\)"),
        (lambda: graphs.changing.periodic([]), "at least 1 graph"),
        (lambda: graphs.changing.matchings(graphs.topologies.directed_cycle(4)), "links that go both ways"),
        (lambda: NetworkSequence(0, lambda t: nx.empty_graph(0)), "n_nodes=0 must be a whole number of at least 1"),
        (lambda: NetworkSequence(3, lambda t: nx.path_graph(4)).weights_at(2), r"round 2 has links of shape \(4, 4\)"),
        (lambda: NetworkSequence(2, lambda t: np.tri(2)).weights_at(0), "one-way links; set one_way=True"),
    ],
)
def test_sequences_that_cannot_be(make, message):
    with pytest.raises(GraphError, match=message):
        make()


@pytest.mark.parametrize(
    "links",
    [None, "cycle", np.full((12, 12), "x"), np.full((12, 12), np.nan), [[1, 0], [1]], graphs.metropolis(ER)],
    ids=["nothing", "a name", "words", "not a number", "no matrix", "weights"],
)
def test_what_a_function_gives_in_place_of_links_is_named_with_its_round(links):
    sequence = NetworkSequence(12, lambda round_: ER if round_ < 3 else links)
    with pytest.raises(GraphError, match=r"links_at\(3\) gives a \w+ that is no links; give a networkx graph"):
        [sequence.weights_at(round_) for round_ in range(4)]


def test_a_matrix_of_links_may_be_sparse_and_its_numbers_do_not_count():
    linked = nx.to_numpy_array(ER)
    for matrix in (linked, -0.3 * linked, sparse.csr_array(linked), linked + np.eye(12), linked.tolist()):
        weights = NetworkSequence(12, lambda round_, matrix=matrix: matrix).weights_at(0)
        np.testing.assert_array_equal(weights, SEQUENCES["static"].weights_at(0))
