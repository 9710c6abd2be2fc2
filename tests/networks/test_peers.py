"""One node a thread gives what the stacked network gives: the same code, the same answers, the same count."""

import numpy as np
import pytest

from eigenmesh import graphs, run
from eigenmesh.arrays import Parts
from eigenmesh.averaging import AllReduce, Chebyshev, Gossip, Integers, Polynomial, Tree
from eigenmesh.data import Shards, build_covariance, pooled_moments
from eigenmesh.data.datasets import geometric_spectrum
from eigenmesh.errors import DataError, InputError
from eigenmesh.networks import Peers, Stacked
from eigenmesh.solvers import DSA, SDOT, BlockKrylov, DeEPCA, FastPCA, OneSum, TrackedSubspace
from eigenmesh.transports import run_threads
from eigenmesh.transports.base import Links
from eigenmesh.transports.threads import ThreadHub, ThreadTransport
from problems import angles, make_problem

M, K = 8, 3
SOLVERS = [FastPCA(), DeEPCA(mixes=8), DSA(), SDOT(mixes=20), BlockKrylov(), TrackedSubspace(), OneSum()]
AVERAGINGS = [Tree(), Polynomial(), Chebyshev()]


@pytest.mark.parametrize("averaging", [Tree(), Polynomial(), Chebyshev(), Gossip(1e-6)], ids=repr)
@pytest.mark.parametrize(
    "topology", ["cycle", "star", "path", "erdos_renyi", "complete", "directed_cycle", "random_out"]
)
def test_mix_mean_and_maximum_are_the_stacked_ones(averaging, topology):
    weights = graphs.weighting("auto", graphs.topology(topology, M, seed=3))
    rng = np.random.default_rng(0)
    X, S, values = rng.standard_normal((M, 6, 2)), rng.standard_normal((M, 6, 2)), rng.standard_normal((M, 4))
    # Sums of zeros have a sign too.
    X[:, 0], S[:, 0] = -0.0, 0.0

    def work(network, part):
        mixed = network.mix(part(X), part(S))
        mean, largest = network.mean(part(X)), network.maximum(part(values))
        carried = network.common_mean_and_maximum(part(S), part(values))
        return (*mixed, *network.lazy_mix(part(X)), mean, largest, *carried), network.traffic

    stacked, counted = work(Stacked(weights, averaging), lambda array: array)
    results = run_threads(
        M, lambda transport: work(Peers(weights, transport, averaging), lambda array: array[[transport.rank]])
    )
    for rank, (arrays, traffic) in enumerate(results):
        assert traffic == counted
        for ours, theirs in zip(arrays, stacked, strict=True):
            assert ours.tobytes() == theirs[[rank] if len(theirs) == M else [0]].tobytes()
        assert (arrays[4] == values.max(axis=0)).all()
        assert (arrays[6] == values.max(axis=0)).all()


@pytest.mark.parametrize("bits", [6, 13, 39, 52, 64])
@pytest.mark.parametrize("topology", ["cycle", "star", "erdos_renyi", "directed_cycle"])
def test_the_root_decides_from_an_average_in_few_bits(bits, topology):
    weights = graphs.weighting("auto", graphs.topology(topology, M, seed=3))
    rng = np.random.default_rng(0)
    X, values = rng.standard_normal((M, 30, 2)) * np.array([1e3, 1e-200]), rng.standard_normal((M, 4))
    X[:, 0] = -0.0

    def work(network, array, own):
        told = network.decided_mean_and_maximum(
            array, own, bits, lambda *average: average, lambda seen: np.append(seen[0][0, :3, 0], seen[1]), 5
        )
        return (*told.result, told.numbers, told.agreed), network.traffic

    stacked, counted = work(Stacked(weights), X, values)
    one_by_one, _ = work(Stacked(weights), Parts(lambda node: X[[node]].copy(), M, X), values)
    results = run_threads(
        M, lambda transport: work(Peers(weights, transport), X[[transport.rank]], values[[transport.rank]])
    )
    for told, traffic in [*results, (one_by_one, counted)]:
        assert traffic == counted
        for ours, theirs in zip(told[:3], stacked[:3], strict=True):
            assert ours.tobytes() == theirs.tobytes()
        assert (told[3][0] == values.max(axis=0)).all()
    mean, errors, numbers, _ = stacked
    assert numbers.tolist() == [*mean[0, :3, 0], *errors[0]]
    off = mean[0] - X.mean(axis=0)
    # Scaled, because squares of tiny numbers underflow.
    actual = np.linalg.norm(off / np.array([1e3, 1e-200]), axis=0) * np.array([1e3, 1e-200])
    assert (actual <= errors[0] + 1e-15 * np.array([1e3, 1e-200]) * 30).all()
    if bits < 64:
        assert (errors[0] <= np.abs(X).max(axis=(0, 1)) * M * 30**0.5 * 2.0 ** (1 - bits)).all()
    # So many bytes in the messages up and down, each with the maxima, and on the way down what was decided.
    size = 2 * (30 * 8 if bits == 64 else 4 * bits + 16) + 4 * 8
    assert counted.bytes == (M - 1) * (2 * size + 5 * 8)


def test_a_product_that_is_not_finite_ends_the_average():
    X = np.ones((M, 6, 2))
    X[3, 2, 1] = np.inf
    network = Stacked(graphs.metropolis(graphs.topologies.cycle(M)))
    for bits in (16, 64):
        with pytest.raises(DataError, match="not finite"):
            network.decided_mean_and_maximum(
                X, np.ones((M, 1)), bits, lambda *average: 0, lambda nothing: np.zeros(1), 1
            )
    with pytest.raises(InputError, match='use averaging="tree"'):
        Stacked(graphs.metropolis(graphs.topologies.cycle(M)), Polynomial()).decided_mean_and_maximum(
            X, np.ones((M, 1)), 16, lambda *average: 0, lambda nothing: np.zeros(1), 1
        )


def test_values_travel_with_push_pull_over_one_way_links():
    weights = graphs.push(graphs.topologies.random_out(M, seed=3))
    values, X = np.random.default_rng(0).standard_normal((M, 4)), np.zeros((M, 6, 2))

    def node(transport):
        network, rank = Peers(weights, transport, Tree()), [transport.rank]
        network.piggyback(values[rank])
        for _ in range(network.flood_rounds):
            network.push_pull(X[rank], X[rank])
        return network.piggybacked()

    assert all((carried == values.max(axis=0)).all() for carried in run_threads(M, node))


class Reducing(ThreadTransport):
    """Threads with an all-reduce, which writes down what it is asked for."""

    reduces = True

    def all_reduce(self, array, reduction):
        self.reductions = [*getattr(self, "reductions", []), reduction]
        others = tuple(node for node in range(self.size) if node != self.rank)
        (stack,) = self.gather((array,), Links(others, others))
        return stack.max(axis=0) if reduction == "max" else stack.sum(axis=0)


@pytest.mark.parametrize("averaging", [AllReduce(), Integers(AllReduce())], ids=repr)
def test_maxima_ride_in_the_sum_of_an_all_reduce(averaging):
    weights, rng = graphs.metropolis(graphs.topologies.path(M)), np.random.default_rng(0)
    S, values = rng.standard_normal((M, 6, 2)), rng.standard_normal((M, 5))
    values[1, :3], values[2, 3] = [np.inf, -np.inf, np.nan], -0.0
    stacked = Stacked(weights, averaging)
    mean, stacked_maxima = stacked.common_mean_and_maximum(S, values)
    hub = ThreadHub(M)

    def work(transport):
        reducing = Reducing(hub, transport.rank)
        network, part = Peers(weights, reducing, averaging), slice(transport.rank, transport.rank + 1)
        return *network.common_mean_and_maximum(S[part], values[part]), network.traffic, reducing.reductions

    for ours, largest, traffic, reductions in run_threads(M, work):
        assert reductions == ["sum"]
        assert traffic == stacked.traffic
        np.testing.assert_allclose(ours, mean, rtol=0, atol=1e-13)
        np.testing.assert_array_equal(largest, stacked_maxima[:1])
        np.testing.assert_array_equal(largest[0], values.max(axis=0))


@pytest.mark.slow
@pytest.mark.parametrize("solver", SOLVERS, ids=lambda solver: solver.name)
@pytest.mark.parametrize("averaging", AVERAGINGS, ids=repr)
def test_every_solver_gives_the_stacked_answer(solver, averaging):
    problem = make_problem(geometric_spectrum(12, K, 0.6), M, "erdos_renyi", seed=1, averaging=averaging)
    shards, weights = Shards.from_list(problem.parts), problem.network.weights
    settings = {"tol": 1e-6, "max_rounds": 600, "seed": 5}

    def work(network, held):
        covariance = build_covariance(held, pooled_moments(held, network))
        return run(solver, covariance, network, K, **settings)

    stacked = work(Stacked(weights, averaging), shards)
    results = run_threads(
        M, lambda transport: work(Peers(weights, transport, averaging), shards.take([transport.rank]))
    )
    for rank, result in enumerate(results):
        assert result.stop_reason is stacked.stop_reason
        assert result.iterations == stacked.iterations
        assert result.traffic == stacked.traffic
        assert angles(result.node_components[0], stacked.node_components[rank].T).max() < 1e-12
        assert np.allclose(result.certificate.error_bounds, stacked.certificate.error_bounds, rtol=1e-2, atol=1e-9)
        # The same signs and order at all nodes, and the same decision from the same bits.
        assert (np.sum(result.components * stacked.components, axis=1) > 0).all()
        assert (result.certificate.values == results[0].certificate.values).all()
        assert (result.certificate.error_bounds == results[0].certificate.error_bounds).all()


def test_a_transport_of_another_size_is_refused():
    weights = graphs.metropolis(graphs.topologies.cycle(5))
    with pytest.raises(InputError, match="has 4 nodes, the graph 5; make them equal"):
        Peers(weights, ThreadHub(4).transport(0))


@pytest.mark.parametrize("averaging", [Tree(), Integers()], ids=repr)
@pytest.mark.parametrize("topology", ["complete", "cycle", "path", "random_out"])
def test_maxima_go_over_the_tree_where_sums_do(averaging, topology):
    weights = graphs.weighting("auto", graphs.topology(topology, M, seed=1))
    values = np.random.default_rng(0).standard_normal((M, 5))
    values[1, :3], values[2, 3], values[:, 4] = [np.inf, -np.inf, np.nan], np.nan, -1.0
    values[3, 1] = np.inf
    tree = Tree().prepare(weights)

    def work(network, part):
        largest = network.maximum(values[part])
        table = network.maximum(np.where(np.isnan(values[part]), 0.0, values[part]).reshape(-1, 5, 1))
        return largest, table, network.traffic, network.link_traffic()

    due, due_table, traffic, by_link = work(Stacked(weights, averaging), slice(None))
    assert (traffic.rounds, traffic.messages, traffic.bytes) == (2 * tree.rounds, 4 * (M - 1), 4 * (M - 1) * 5 * 8)
    np.testing.assert_array_equal(due, np.broadcast_to(values.max(axis=0), (M, 5)))
    for largest, table, counted, links in run_threads(
        M, lambda end: work(Peers(weights, end, averaging), slice(end.rank, end.rank + 1))
    ):
        assert largest.tobytes() == due[:1].tobytes()
        assert table.tobytes() == due_table[:1].tobytes()
        assert (counted, links) == (traffic, by_link)


def test_what_travels_with_mixes_is_not_sent_with_maxima():
    weights, rng = graphs.metropolis(graphs.topologies.complete(M)), np.random.default_rng(0)
    values, others = rng.standard_normal((M, 3)), rng.standard_normal((M, 2))

    def work(network, part):
        network.piggyback(values[part])
        largest = network.maximum(others[part])
        early = network.piggybacked()
        network.mix(np.zeros((len(others[part]), 1)))
        return largest, early, network.piggybacked(), network.traffic.bytes

    messages = (2 * (M - 1) * 2 + M * (M - 1) * (3 + 1)) * 8
    ends = run_threads(M, lambda end: work(Peers(weights, end), slice(end.rank, end.rank + 1)))
    for largest, early, carried, n_bytes in (work(Stacked(weights), slice(None)), *ends):
        assert early is None
        assert n_bytes == messages
        assert (largest == others.max(axis=0)).all()
        assert (carried == values.max(axis=0)).all()
