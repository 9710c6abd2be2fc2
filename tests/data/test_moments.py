from __future__ import annotations

import threading

import numpy as np
import pytest
import scipy.sparse
from hypothesis import given, settings
from hypothesis import strategies as st
from sklearn.preprocessing import StandardScaler

from eigenmesh.data import ContiguousSplit, CovarianceKind, Scatter, Shards, pooled_moments
from eigenmesh.data.block import Block
from eigenmesh.data.covariance import covariance_of_each
from eigenmesh.data.source import Place
from eigenmesh.errors import DataError, InputError, UnknownNameError

SIZES = (3, 1, 40, 17)


def make(mean=0.0, dtype=np.float64, seed=0):
    """Unequal nodes with unlike means, (61, 6), and where to cut them."""
    rng = np.random.default_rng(seed)
    X = rng.standard_normal((sum(SIZES), 6)) * [1, 2, 0.1, 5, 1, 1] + np.repeat(np.arange(4), SIZES)[:, None]
    return (X + mean).astype(dtype)


def cut(X):
    return [X[end - size : end] for size, end in zip(SIZES, np.cumsum(SIZES), strict=True)]


def exact(X):
    """Mean and variance in extended precision."""
    wide = X.astype(np.longdouble)
    return wide.mean(axis=0), ((wide - wide.mean(axis=0)) ** 2).sum(axis=0) / (len(X) - 1)


@pytest.mark.parametrize("sparse", [False, True])
@pytest.mark.parametrize("error", [0.0, 1e-12])
@pytest.mark.parametrize("dtype", [np.float32, np.float64, np.int32])
@pytest.mark.parametrize("mean", [0.0, 1e3, 1e6])
def test_against_extended_precision(exact_network, mean, dtype, error, sparse):
    X = make(mean, dtype)
    parts = [scipy.sparse.csr_array(part) for part in cut(X)] if sparse else cut(X)
    network = exact_network(4, error)
    moments = pooled_moments(Shards.from_list(parts), network)
    mu, variance = exact(X)
    assert moments.n_samples == 61
    assert moments.n_missing == 0
    assert network.calls == 2
    np.testing.assert_allclose(moments.mean, mu, rtol=1e-15, atol=1e-12)
    np.testing.assert_allclose(moments.variance, variance, rtol=1e-11 if error else 1e-12)
    assert moments.total_variance == pytest.approx(np.trace(np.cov(X.T)), rel=1e-9 if mean else 1e-11)


def test_scale_is_that_of_scikit_learn(exact_network):
    X = make(mean=10.0)
    moments = pooled_moments(Shards.from_list(cut(X)), exact_network(4), scale=True)
    scaler = StandardScaler().fit(X)
    np.testing.assert_allclose(moments.scale, scaler.scale_, rtol=1e-13)
    np.testing.assert_allclose(moments.mean, scaler.mean_, rtol=1e-13)
    assert moments.total_variance == pytest.approx(np.trace(np.cov(scaler.transform(X).T)), rel=1e-13)


@pytest.mark.parametrize("sparse", [False, True])
def test_missing_entries_count_as_the_pooled_mean(exact_network, sparse):
    X = make(mean=100.0)
    gaps = np.random.default_rng(1).random(X.shape) < 0.2
    X[gaps] = np.random.default_rng(2).choice([np.nan, np.inf, -np.inf], gaps.sum())
    X[:3, 0] = np.nan  # all of node 0's
    parts = [scipy.sparse.csr_array(part) for part in cut(X)] if sparse else cut(X)
    moments = pooled_moments(Shards.from_list(parts), exact_network(4), scale=True, missing="mean")
    observed = np.where(np.isfinite(X), X, np.nan)
    filled = np.where(np.isfinite(X), X, np.nanmean(observed, axis=0))
    assert moments.n_samples == 61
    assert moments.n_missing == np.isnan(observed).sum()
    np.testing.assert_allclose(moments.mean, np.nanmean(observed, axis=0), rtol=1e-13)
    np.testing.assert_allclose(moments.variance, filled.var(axis=0, ddof=1), rtol=1e-12)
    np.testing.assert_allclose(moments.scale, StandardScaler().fit(filled).scale_, rtol=1e-12)


def test_missing_changes_nothing_where_nothing_is_missing(exact_network):
    shards = Shards.from_list(cut(make()))
    plain = pooled_moments(shards, exact_network(4))
    filled = pooled_moments(shards, exact_network(4), missing="mean")
    assert np.array_equal(plain.mean, filled.mean)
    assert np.array_equal(plain.variance, filled.variance)


@given(seed=st.integers(0, 1000), density=st.floats(0, 1), missing=st.booleans())
@settings(max_examples=50)
def test_sparse_is_dense(exact_network, seed, density, missing):
    rng = np.random.default_rng(seed)
    X = np.where(rng.random((20, 4)) < density, rng.standard_normal((20, 4)) + 3, 0.0)
    X[:2] = [[1, 2, 3, 4], [2, 3, 4, 6]]
    if missing:
        X[rng.integers(2, 20, 3), rng.integers(0, 4, 3)] = np.nan
    dense, sparse = (
        pooled_moments(Shards.from_array(make(X), 3, ContiguousSplit()), exact_network(3), missing="mean")
        for make in (np.asarray, scipy.sparse.csr_array)
    )
    np.testing.assert_allclose(sparse.mean, dense.mean, rtol=1e-13, atol=1e-14)
    np.testing.assert_allclose(sparse.variance, dense.variance, rtol=1e-12)
    assert sparse.n_missing == dense.n_missing


def test_chunks_do_not_matter(exact_network):
    X = np.random.default_rng(0).standard_normal((5000, 900)) + 50  # 2.1 chunks
    moments = pooled_moments(Shards.from_list([X]), exact_network(1))
    np.testing.assert_allclose(moments.mean, X.mean(axis=0), rtol=1e-13)
    np.testing.assert_allclose(moments.variance, X.var(axis=0, ddof=1), rtol=1e-12)


def test_peers_find_what_the_simulation_finds(exact_network, peer_network):
    shards = Shards.from_list(cut(make(mean=5.0)))
    network = peer_network(4)
    found = {}

    def peer(node):
        found[node] = pooled_moments(shards.take([node]), network.at(node), scale=True, missing="mean")

    threads = [threading.Thread(target=peer, args=(node,)) for node in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    expected = pooled_moments(shards, exact_network(4), scale=True)
    for node in range(4):
        assert found[node].n_samples == 61
        np.testing.assert_allclose(found[node].mean, expected.mean, rtol=1e-14)
        np.testing.assert_allclose(found[node].scale, expected.scale, rtol=1e-14)


class TestErrors:
    def check(self, message, shards, network, error=DataError, **options):
        with pytest.raises(error, match=message):
            pooled_moments(shards, network, **options)

    @pytest.mark.parametrize("sparse", [False, True])
    @pytest.mark.parametrize("value", [np.nan, np.inf, -np.inf])
    def test_not_finite(self, exact_network, value, sparse):
        X = make()
        X[3 + 1 + 7, 2] = value
        X[-1, -1] = np.nan
        parts = [scipy.sparse.csr_array(part) for part in cut(X)] if sparse else cut(X)
        shards = Shards.from_list(parts, node_names=["a", "b", "c", "d"])
        named = Shards(shards.blocks, 4, shards.ids, tuple("uvwxyz"), shards.node_names)
        word = "NaN" if np.isnan(value) else value
        self.check(rf"node 2 \(c\), row 7, column 2 \('w'\) is {word};.*missing=\"mean\"", named, exact_network(4))

    def test_not_finite_beyond_the_first_chunk(self, exact_network):
        X = np.zeros((5000, 900), dtype=np.float32)
        X[4321, 7] = np.inf
        self.check("node 0, row 4321, column 7 is inf", Shards.from_list([X]), exact_network(1))

    def test_no_observed_entry(self, exact_network):
        X = make()
        X[:, 4] = np.nan
        self.check("no node has a finite entry in column 4", Shards.from_list(cut(X)), exact_network(4), missing="mean")

    def test_one_sample(self, exact_network):
        self.check("n_samples = 1 ", Shards.from_list([make()[:1]]), exact_network(1))

    @pytest.mark.parametrize("value", [0.0, 0.1, 1e6 / 3])
    @pytest.mark.parametrize("error", [0.0, 1e-12])
    def test_no_variance(self, exact_network, value, error):
        shards = Shards.from_list(cut(np.full((61, 6), value)))
        self.check("total variance is zero", shards, exact_network(4, error))

    def test_constant_columns(self, exact_network):
        X = make()
        X[:, [1, 3]] = 1 / 3
        shards = Shards.from_list(cut(X))
        self.check("constant column 1, column 3; drop", shards, exact_network(4, 1e-12), scale=True)
        assert pooled_moments(shards, exact_network(4)).variance[[1, 3]] == pytest.approx(0)

    def test_overflow(self, exact_network):
        X = make()
        X[:, 2] *= 1e200
        self.check("variance overflows float64 in column 2", Shards.from_list(cut(X)), exact_network(4))
        X[:, 2] = 1e308
        self.check("sums overflow float64 at node 0 in column 2", Shards.from_list(cut(X)), exact_network(4))

    def test_policy_and_network(self, exact_network):
        shards = Shards.from_list(cut(make()))
        self.check("'median'; there are: error, mean", shards, exact_network(4), UnknownNameError, missing="median")
        self.check("network has 5 nodes but the data 4", shards, exact_network(5), InputError)


@pytest.mark.parametrize("order", ["C", "F"])
def test_means_of_many_rows_are_not_rounded_row_by_row(exact_network, order):
    """Products that are centred afterwards take the sums of the rows from the mean."""
    X = np.asarray(np.random.default_rng(0).random((200_000, 6)) + 0.5, order=order)
    mean = pooled_moments(Shards.from_list([X]), exact_network(1)).mean
    np.testing.assert_allclose(mean, X.mean(axis=0, dtype=np.longdouble).astype(float), rtol=4 * np.finfo(float).eps)


@pytest.mark.parametrize("drifts", [False, True])
@pytest.mark.parametrize("weighted", [False, True])
@pytest.mark.parametrize("scale", [False, True])
@pytest.mark.parametrize("mean", [0.0, 1e6])
def test_one_pass_gives_moments_and_covariances(exact_network, monkeypatch, mean, scale, weighted, drifts):
    X, rng = make(mean), np.random.default_rng(1)
    if drifts:
        # The first rows of the node with 40 say nothing about the others, so it has to start again.
        X[4:6] += 1e4
    weights = [rng.integers(1, 4, size).astype(float) for size in SIZES] if weighted else [None] * len(SIZES)
    shards = Shards.from_list(cut(X))
    shards = shards.weighted(weights) if weighted else shards
    chunks = Block.chunks
    monkeypatch.setattr(Block, "chunks", lambda block, *args, **kwargs: chunks(block, 96, out=kwargs.get("out")))
    given = X.copy()
    scatters = [Scatter(shards, position) for position in range(4)]
    assert (given == X).all()
    found = pooled_moments(shards, exact_network(4), scale=scale, scatters=scatters)
    kinds = [CovarianceKind.FORMED] * 4
    C = covariance_of_each(shards, found, kinds, Place.of(None, None), scatters).matrices.mean(axis=0)
    rows = np.repeat(X, np.concatenate(weights).astype(int), axis=0) if weighted else X
    true_mean, true_variance = exact(rows)
    np.testing.assert_allclose(found.mean, true_mean.astype(float), rtol=1e-15, atol=1e-15)
    np.testing.assert_allclose(found.variance, true_variance.astype(float), rtol=1e-11)
    deviations = (rows.astype(np.longdouble) - true_mean).astype(float)
    if scale:
        deviations /= deviations.std(axis=0)
    true = deviations.T @ deviations / (len(rows) - 1)
    np.testing.assert_allclose(C, true, atol=1e-12 * np.trace(true))
    assert (C == C.T).all()


def test_one_pass_names_an_entry_that_is_not_finite():
    X = make()
    X[5, 2] = np.nan
    shards = Shards.from_list(cut(X))
    with pytest.raises(DataError, match="row 1, column 2 is NaN"):
        Scatter(shards, 2)
    huge = Shards.from_list([np.array([[1e308, 1.0], [1.5e308, 2.0]])])
    with pytest.raises(DataError, match="sums overflow float64"):
        Scatter(huge, 0).count_and_sum()
