"""The stacked network against the dense matrix, in every array library."""

import array_api_strict
import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import sparse

from eigenmesh import arrays as ea
from eigenmesh import graphs
from eigenmesh.averaging import Chebyshev, LinearRound, Tree
from eigenmesh.networks import Stacked, Traffic

LIBRARIES = {"numpy": np.asarray, "torch": torch.asarray, "strict": array_api_strict.asarray}


def dense(weights):
    return weights.matrix.toarray() if sparse.issparse(weights.matrix) else weights.matrix


def make(n_nodes=12, topology="erdos_renyi", **settings):
    return Stacked(graphs.metropolis(graphs.topology(topology, n_nodes)), **settings)


@pytest.mark.parametrize("library", LIBRARIES)
@pytest.mark.parametrize("n_nodes", [1, 12, 300])  # 300: sparse weights
def test_mix_is_the_dense_product(library, n_nodes):
    network = make(n_nodes)
    assert sparse.issparse(network.weights.matrix) == (n_nodes == 300)
    X = np.random.default_rng(0).standard_normal((n_nodes, 5, 3))
    expected = np.einsum("ij,jdk->idk", dense(network.weights), X)
    array = LIBRARIES[library](X)
    mixed = network.mix(array)
    (lazy,) = network.lazy_mix(array)
    assert mixed.dtype == array.dtype
    assert type(mixed) is type(array)
    assert np.allclose(ea.to_numpy(mixed), expected, rtol=0, atol=1e-13)
    assert np.allclose(ea.to_numpy(lazy), (X + expected) / 2, rtol=0, atol=1e-13)


@pytest.mark.parametrize("library", LIBRARIES)
def test_mean_and_maximum_in_every_library(library):
    X = np.random.default_rng(0).standard_normal((12, 5, 3))
    for averaging in (Tree(), Chebyshev()):
        network = make(averaging=averaging)
        mean = ea.to_numpy(network.mean(LIBRARIES[library](X)))
        assert np.allclose(mean, X.mean(axis=0), rtol=0, atol=1e-11)
    largest = ea.to_numpy(network.maximum(LIBRARIES[library](X)))
    assert (largest == X.max(axis=0)).all()


def test_maxima_carry_nan_to_every_node():
    values = np.zeros((12, 2))
    values[7, 1] = np.nan
    largest = make().maximum(values)
    assert (largest[:, 0] == 0).all()
    assert np.isnan(largest[:, 1]).all()


def test_traffic_counts_what_a_network_would_send():
    network = make(20, "cycle")
    X, S = np.zeros((20, 7, 3)), np.zeros((20, 7, 3))
    network.mix(X, S)
    assert network.traffic == Traffic(rounds=1, messages=40, matrices=2, bytes=40 * 2 * 21 * 8)
    before = network.traffic.copy()
    network.maximum(np.zeros((20, 4)))
    spent = network.traffic - before
    # A tree of a cycle of 20 has 10 levels and 19 links; four numbers are not a matrix.
    assert spent == Traffic(rounds=20, messages=38, matrices=0, bytes=38 * 4 * 8)
    assert before + spent == network.traffic


def test_a_network_of_one_sends_nothing_but_counts_its_rounds():
    network = make(1, "complete")
    X = np.arange(6.0).reshape(1, 3, 2)
    assert (network.mix(X) == X).all()
    assert (network.mean(X) == X).all()
    assert (network.maximum(X) == X).all()
    assert network.traffic == Traffic(rounds=1, messages=0, matrices=1, bytes=0)


def test_inputs_are_not_written_to():
    network = make()
    X = np.random.default_rng(0).standard_normal((12, 5, 3))
    kept = X.copy()
    network.mix(X, X)
    network.mean(X)
    network.maximum(X)
    assert (kept == X).all()


def test_traffic_is_known_for_each_link():
    network = Stacked(graphs.metropolis(graphs.topologies.path(3)))
    # Up the tree from its leaves, and down: one message each way over both links.
    network.mean(np.zeros((3, 5)))
    network.combine(LinearRound(np.diag([0.0, 1.0], 1) + np.diag([1.0, 1.0, 0.0])), np.zeros((3, 40)))
    sent = {frozenset(link): 0 for link in network.link_traffic()}
    for link, (_, n_bytes) in network.link_traffic().items():
        sent[frozenset(link)] += n_bytes
    assert sorted(sent.values()) == [80, 400]
    assert (network.traffic.rounds, network.traffic.messages, network.traffic.bytes) == (3, 5, 480)


@settings(max_examples=30)
@given(n_nodes=st.integers(2, 15), seed=st.integers(0, 10**6))
def test_mixing_keeps_the_mean_and_commutes_with_relabelling(n_nodes, seed):
    rng = np.random.default_rng(seed)
    weights = graphs.metropolis(graphs.topologies.erdos_renyi(n_nodes, p=0.6, seed=seed))
    X = rng.standard_normal((n_nodes, 4))
    order = rng.permutation(n_nodes)
    relabelled = graphs.from_matrix(weights.matrix[np.ix_(order, order)])
    mixed = Stacked(weights).mix(X)
    assert np.allclose(mixed.mean(axis=0), X.mean(axis=0), rtol=0, atol=1e-13)
    assert np.allclose(Stacked(relabelled).mix(X[order]), mixed[order], rtol=0, atol=1e-13)
