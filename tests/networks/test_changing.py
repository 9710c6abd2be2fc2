"""Networks that change or lose messages: sums that are kept, averages as accurate as they say, maxima or a name."""

import networkx as nx
import numpy as np
import pytest

from eigenmesh import graphs, run
from eigenmesh.averaging import PushSum
from eigenmesh.averaging.spectral import Probes
from eigenmesh.data.datasets import geometric_spectrum
from eigenmesh.errors import GraphError, InputError
from eigenmesh.graphs import NetworkSequence
from eigenmesh.networks import Changing, Stacked, Traffic
from eigenmesh.networks import changing as _changing
from eigenmesh.networks.changing import RunningSums
from eigenmesh.solvers import SDOT, BlockKrylov, DeEPCA, FastPCA, TrackedSubspace
from problems import make_problem

M = 12
ER = graphs.topologies.erdos_renyi(M, seed=1)
NETWORKS = {
    "one way": graphs.changing.over_time(graphs.topologies.random_out(M)),
    "links up": graphs.changing.links_up(ER, 0.4, seed=1),
    "fresh one way": graphs.changing.fresh_graphs(M, 0.3, one_way=True),
    "over 5 rounds": graphs.changing.dealt_out(ER, 5),
    "matchings": graphs.changing.matchings(ER),
    "loss": graphs.changing.lossy(ER, 0.3),
    "all that can be": graphs.changing.lossy(
        graphs.changing.links_up(graphs.topologies.random_out(M), 0.8), 0.2, delay=3, duplicates=0.3
    ),
}


@pytest.mark.parametrize("name", NETWORKS)
def test_averages_are_as_accurate_as_they_say_and_maxima_are_everywhere(name):
    network = Changing(NETWORKS[name], PushSum(1e-9))
    rng = np.random.default_rng(0)
    X, values = rng.standard_normal((M, 5, 3)) + 4, rng.standard_normal((M, 2))
    away = X - X.mean(axis=0)
    for _ in range(5):
        averaged = network.mean(X)
        assert np.abs(averaged - X.mean(axis=0)).max() <= 1e-9 * np.linalg.norm(away, axis=0).max()
    assert (network.maximum(values) == values.max(axis=0)).all()
    mean, largest = network.common_mean_and_maximum(X, values)
    assert np.allclose(mean, X.mean(axis=0), rtol=0, atol=1e-8)
    assert (largest == values.max(axis=0)).all()
    assert 0 < network.contraction < 1


@pytest.mark.parametrize("name", NETWORKS)
def test_values_that_travel_with_mixes_are_known_to_all_in_time(name):
    network = Changing(NETWORKS[name])
    values = np.random.default_rng(0).standard_normal((M, 3))
    mixes = network.mixes(1)
    S, y = np.ones((M, 4, 2)), np.ones((M, 1, 1))
    network.piggyback(values)
    for _ in range(network.flood_rounds):
        assert network.piggybacked() is None
        S, y = mixes(network, S, y)
    assert (network.piggybacked() == values.max(axis=0)).all()
    assert not network.piggybacking
    np.testing.assert_allclose(S / y, 1, rtol=0, atol=1e-12)


def test_running_sums_lose_nothing_and_are_a_plain_reading_of_the_equations():
    sequence = graphs.changing.lossy(graphs.changing.links_up(ER, 0.8), 0.3, delay=2, duplicates=0.3, seed=3)
    network = Changing(sequence)
    sums = RunningSums(network)
    x = start = np.random.default_rng(0).standard_normal((M, 2))
    sent, last, number = np.zeros((M, M, 2)), np.zeros((M, M, 2)), np.full((M, M), -1)
    on_the_way = []
    expected = start
    for t in range(40):
        W = sequence.weights_at(t)
        expected_next = W.diagonal()[:, None] * expected
        for i, j in np.argwhere(W > 0):
            if i != j:
                sent[i, j] += W[i, j] * expected[j]
                on_the_way += [
                    (t + late[i, j], t, i, j, sent[i, j].copy()) for late in sequence.arrivals(t) if late[i, j] >= 0
                ]
        for due, numbered, i, j, total in on_the_way:
            if due == t and numbered > number[i, j]:
                expected_next[i] += total - last[i, j]
                last[i, j], number[i, j] = total, numbered
        expected = expected_next
        (x,) = sums.mix(x)
        np.testing.assert_allclose(x, expected, rtol=0, atol=1e-12)
        # Nothing is lost: what is not at a node is on a link.
        np.testing.assert_allclose(x.sum(axis=0) + (sent - last).sum(axis=(0, 1)), start.sum(axis=0), atol=1e-12)


@pytest.mark.parametrize(
    "network",
    [
        Stacked(graphs.push(graphs.topologies.random_out(M))),
        Stacked(graphs.pull(graphs.topologies.random_out(M))),
        Stacked(graphs.balanced(graphs.topologies.random_out(M))),
        Changing(NETWORKS["fresh one way"]),
        Changing(NETWORKS["links up"]),
    ],
    ids=["push", "pull", "balanced", "fresh one way", "links up"],
)
def test_push_pull_keeps_what_all_agree_on_and_the_sum(network):
    rng = np.random.default_rng(0)
    common, S = np.broadcast_to(rng.standard_normal((5, 2)), (M, 5, 2)), rng.standard_normal((M, 5, 2))
    for _ in range(3):
        before = network.traffic.copy()
        X, mixed = network.push_pull(common, S)
        np.testing.assert_allclose(X, common, rtol=0, atol=1e-14)
        np.testing.assert_allclose(mixed.sum(axis=0), S.sum(axis=0), rtol=0, atol=1e-13)
        assert not np.allclose(mixed, S)
        sent = network.traffic - before
        # X and S share one message.
        assert (sent.rounds, sent.matrices, sent.bytes) == (1, 2, sent.messages * 2 * 5 * 2 * 8)


def test_the_chance_that_probes_mislead_is_stated():
    problem = make_problem(geometric_spectrum(10, 2, 0.6), M)
    network = Changing(NETWORKS["links up"])
    assert network.chance == 0
    result = run(TrackedSubspace(), problem.covariance(), network, 2)
    assert network.chance >= 3e-13
    assert result.certificate.chance >= network.chance
    assert result.converged


def test_too_many_push_sums_certify_nothing(monkeypatch):
    problem = make_problem(geometric_spectrum(10, 2, 0.6), M)
    monkeypatch.setattr(_changing, "CHANCE", 1e-9)
    result = run(TrackedSubspace(), problem.covariance(), Changing(NETWORKS["links up"]), 2, max_rounds=200)
    assert result.certificate.error_bound == 1
    assert "nothing is certified" in result.certificate.warnings[0]


def test_traffic_counts_what_was_sent_and_what_arrived():
    network = Changing(graphs.changing.lossy(ER, 0.25, seed=2))
    mixes = network.mixes(50)
    before, came = network.traffic.copy(), network.arrived.copy()
    mixes(network, np.ones((M, 4, 2)), np.ones((M, 1, 1)))
    links = 2 * ER.number_of_edges()
    assert network.traffic - before == Traffic(50, 50 * links, 50 * 2, 50 * links * 9 * 8)
    arrived = network.arrived - came
    assert arrived.messages == pytest.approx(0.75 * 50 * links, rel=0.05)
    assert arrived.bytes == arrived.messages * 9 * 8
    assert sum(messages for messages, _ in network.link_traffic().values()) == network.traffic.messages


def test_probes_bound_the_error_of_every_average():
    rng = np.random.default_rng(0)
    for number in range(200):
        probes = Probes.drawn(M, number)
        E = rng.random((M, M))
        E /= E.sum(axis=1, keepdims=True)
        error = probes.error(E @ probes.start, np.ones((M, 1)))
        assert (error <= 25 * np.linalg.norm(E - 1 / M, axis=1)).all()
        assert (error >= np.linalg.norm(E - 1 / M, axis=1)).all()


@pytest.mark.parametrize("name", ["links up", "all that can be"])
def test_a_push_sum_that_rounding_keeps_from_its_accuracy_ends_with_what_it_has(name):
    network, X = Changing(NETWORKS[name], PushSum(1e-17)), np.random.default_rng(0).standard_normal((M, 3))
    for _ in range(2):
        away = np.abs(network.mean(X) - X.mean(axis=0)).max() / np.linalg.norm(X - X.mean(axis=0))
        assert away <= network.average.accuracy
        assert 1e-17 < network.average.accuracy < 1e-12


def test_certificates_reckon_with_the_accuracy_that_rounding_leaves(monkeypatch):
    problem, bounds = make_problem(geometric_spectrum(10, 2, 0.6), M), []
    for above in (4.0, 1e9):
        monkeypatch.setattr(_changing, "ABOVE_ROUNDING", above)
        network = Changing(NETWORKS["links up"], PushSum(1e-17))
        bounds.append(run(BlockKrylov(), problem.covariance(), network, 2).certificate.error_bound)
    assert bounds[0] < 1e-9 < bounds[1]


def test_one_node_alone_is_its_own_average():
    network = Changing(NetworkSequence(1, lambda t: np.zeros((1, 1))))
    for _ in range(2):
        np.testing.assert_array_equal(network.mean(np.array([[3.0, 4.0]])), [[3.0, 4.0]])
    assert network.traffic.messages == 0


@pytest.mark.parametrize(
    "links", [nx.disjoint_union(nx.path_graph(3), nx.path_graph(2)), nx.empty_graph(5)], ids=["two parts", "no links"]
)
def test_nodes_that_never_hear_from_each_other_end_with_a_name(links):
    network = Changing(NetworkSequence(5, lambda t: links))
    with pytest.raises(GraphError, match=r"node \d has not heard from node .* within \d+ rounds"):
        network.mean(np.ones((5, 2)))


def test_a_flood_that_fails_later_is_noticed():
    links = [nx.cycle_graph(4)]
    network = Changing(NetworkSequence(4, lambda t: links[-1]))
    network.maximum(np.zeros((4, 1)))
    links.append(nx.empty_graph(4))
    with pytest.raises(GraphError, match="has not heard from"):
        network.maximum(np.zeros((4, 1)))


@pytest.mark.parametrize("seed", range(12))
@pytest.mark.parametrize("solver", [TrackedSubspace(), FastPCA()], ids=lambda solver: solver.name)
def test_two_nodes_whose_link_is_up_half_of_the_time_agree(solver, seed):
    problem = make_problem(geometric_spectrum(6, 2, 0.6), 2)
    network = Changing(graphs.changing.links_up(nx.path_graph(2), 0.5, seed))
    result = run(solver, problem.covariance(), network, 2, max_rounds=5000)
    assert result.converged
    assert network.traffic.rounds < 6000


def test_a_link_that_is_down_at_first_or_for_a_while_is_waited_for():
    for down in ([1, 2], range(20), range(30, 60)):
        network = Changing(
            NetworkSequence(2, lambda t, down=down: nx.empty_graph(2) if t in down else nx.path_graph(2))
        )
        for _ in range(4):
            np.testing.assert_array_equal(network.maximum(np.array([[1.0], [2.0]])), [[2.0], [2.0]])
            np.testing.assert_allclose(network.mean(np.array([[1.0], [2.0]])), [[1.5], [1.5]], rtol=1e-11)


def test_maxima_that_travel_with_mixes_wait_for_all_nodes():
    network = Changing(NetworkSequence(2, lambda t: nx.empty_graph(2) if 3 <= t < 30 else nx.path_graph(2)))
    rounds = network.flood_rounds
    network.piggyback(np.array([[1.0], [2.0]]))
    seen = []
    for _ in range(40):
        network.mix(np.zeros((2, 1)))
        seen.append(network.piggybacked())
        if seen[-1] is not None:
            break
    assert len(seen) > rounds
    np.testing.assert_array_equal(seen[-1], [[2.0], [2.0]])


def test_a_push_sum_ends_by_name_where_links_are_up_too_seldom():
    # Two halves of 4 nodes with a link between them that is up once in 60 rounds.
    halves = nx.disjoint_union(nx.complete_graph(4), nx.complete_graph(4))
    joined = nx.compose(halves, nx.Graph([(0, 4)]))
    network = Changing(NetworkSequence(8, lambda t: halves if t % 60 else joined))
    network.limit_rounds(1000)
    with pytest.raises(GraphError, match=r"an average has an error of .* after [\d,]+ rounds, and needs 1e-12"):
        network.mean(np.arange(8.0)[:, np.newaxis])
    assert network.traffic.rounds < 30_000


@pytest.mark.parametrize("solver", [DeEPCA(), SDOT()], ids=lambda solver: solver.name)
def test_solvers_that_need_what_is_not_there_name_the_one_to_use(solver):
    problem = make_problem(geometric_spectrum(10, 2, 0.6), M)
    with pytest.raises(InputError, match="use the solver tracked-subspace"):
        run(solver, problem.covariance(), Changing(NETWORKS["links up"]), 2)
    with pytest.raises(InputError, match=r"links that lose messages; use the solver tracked-subspace"):
        Changing(NETWORKS["loss"]).mix(np.ones((M, 2)))
