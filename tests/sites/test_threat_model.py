"""The page on the threat model claims what neighbours can work out; here they do."""

import numpy as np
import pytest

from attacks import D, K, M, off, watched, worked_out
from eigenmesh import graphs
from eigenmesh.averaging import Chebyshev, Factored, Gossip, Polynomial, Tree
from eigenmesh.data import Shards, pooled_moments
from eigenmesh.networks import Peers
from eigenmesh.sites.audit import RunSummary
from eigenmesh.transports import run_threads

RING = graphs.metropolis(graphs.topologies.cycle(12))


def _spy(sizes, topology, averaging, spy, **settings):
    """What one site saw of the products of its neighbours, and the true covariances."""
    run = watched(sizes, topology, averaging, (spy,), **settings)
    return run.products(spy), run.true


@pytest.mark.parametrize("size", [12, 300])
def test_the_parent_in_a_tree_works_out_the_covariance_of_a_leaf(size):
    seen, true = _spy((200, size, 200, 200), graphs.topologies.star(M), Tree(), spy=0)
    found, columns = worked_out(seen, victim=1)
    assert columns >= min(D, size)
    assert off(found, true[1]) < 1e-6


def test_few_samples_are_worked_out_from_few_columns():
    seen, true = _spy((200, 12, 200, 200), graphs.topologies.star(M), Tree(), spy=0)
    found, columns = worked_out(seen[:2], victim=1)
    assert columns == 2 * (K + 5) < D
    assert off(found, true[1]) < 1e-6
    # With many samples the same two products are not enough.
    seen, true = _spy((200, 300, 200, 200), graphs.topologies.star(M), Tree(), spy=0)
    assert off(worked_out(seen[:2], victim=1)[0], true[1]) > 0.01


def test_the_squares_that_go_before_the_run_spare_the_last_columns():
    """Sums of squares are the diagonal of C, and settle what products with n < d columns leave open."""
    seen, true = _spy((200, 300, 200, 200), graphs.topologies.star(M), Tree(), spy=0, oversample=6)
    found, columns = worked_out(seen[:3], victim=1)
    assert RunSummary(n_features=D, n_samples=300).enough_columns <= columns < D
    assert off(found, true[1]) > 1e-4
    # C = found + P S P^T, with P the dimensions that were not seen, and the diagonal known.
    B = np.concatenate([block for block, _ in seen[:3]], axis=1)
    P = np.linalg.svd(B)[0][:, columns:]
    rows, others = np.triu_indices(P.shape[1])
    equations = P[:, rows] * P[:, others] * np.where(rows == others, 1, 2)
    S = np.zeros((P.shape[1],) * 2)
    S[rows, others] = np.linalg.lstsq(equations, np.diag(true[1]) - np.diag(found), rcond=None)[0]
    S = S + np.triu(S, 1).T
    assert off(found + P @ S @ P.T, true[1]) < 1e-6


def test_polynomial_averaging_shows_products_to_every_neighbour():
    seen, true = _spy((200, 12, 200, 200), graphs.topologies.cycle(M), Polynomial(), spy=0)
    for neighbour in (1, 3):
        assert off(worked_out(seen, neighbour)[0], true[neighbour]) < 1e-6


def _heard_by_the_first(averaging, use, width):
    """What neighbours send to node 0 of the ring while all nodes average arrays of this width: (messages, width)."""

    def work(transport):
        network, got = Peers(RING, transport, averaging), []
        exchange = transport.exchange

        def listen(arrays, links):
            received = exchange(arrays, links)
            for sender in sorted(received):
                first = received[sender][0]
                if first.shape == (1, width):
                    got.append(first[0].copy())
            return received

        transport.exchange = listen
        use(transport.rank, network)
        return np.array(got)

    return run_threads(len(RING.matrix), work)[0]


def _ring_attack(averaging):
    """Node 0 solves for the moments of all nodes; returns its equations, what it found, and the truth.

    All weights are public, so it knows how much of each node's numbers is in each message: what it would hear if each
    node had sent a unit vector.
    """
    rng = np.random.default_rng(0)
    sizes = rng.integers(5, 200, len(RING.matrix))
    parts = [rng.standard_normal((size, 8)) + rng.uniform(-1, 1, 8) for size in sizes]
    shards, units = Shards.from_list(parts), np.eye(len(parts))
    heard = _heard_by_the_first(averaging, lambda rank, network: pooled_moments(shards.take([rank]), network), 17)
    equations = _heard_by_the_first(averaging, lambda rank, network: network.common_mean(units[[rank]]), len(parts))
    true = np.array([[len(part), *part.sum(axis=0)] for part in parts])
    # It knows its own numbers, too.
    equations, heard = np.vstack([units[0], equations]), np.vstack([true[0], heard[: len(equations), :9]])
    return equations, np.linalg.lstsq(equations, heard, rcond=None)[0], true


@pytest.mark.parametrize("averaging", [Gossip(), Chebyshev(), Polynomial(), Factored()], ids=lambda one: str(one))
def test_other_averages_show_the_counts_and_sums_of_all_nodes_to_each_node(averaging):
    equations, found, true = _ring_attack(averaging)
    assert np.linalg.matrix_rank(equations, tol=1e-9 * np.linalg.norm(equations)) == len(true)
    assert np.array_equal(np.rint(found[:, 0]), true[:, 0])
    np.testing.assert_allclose(found, true, atol=1e-6)


def test_a_tree_shows_sums_over_the_sites_below_and_no_others():
    equations, found, true = _ring_attack(Tree())
    # Of the eleven others only those whose unit vector follows from what was heard are known; a leaf would be.
    known = [
        np.linalg.norm(np.linalg.lstsq(equations.T, unit, rcond=None)[0] @ equations - unit) < 1e-9
        for unit in np.eye(12)
    ]
    assert sum(known[1:]) == 0
    assert np.linalg.matrix_rank(equations) <= 3
    assert np.abs(found - true)[1:].max() > 1
