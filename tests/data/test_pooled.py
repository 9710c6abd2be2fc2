"""Products with a block that all nodes share take the rows of all nodes at once; their average must be the same."""

import numpy as np
import pytest
import scipy.sparse

from eigenmesh import DecentralizedPCA, graphs
from eigenmesh.averaging import Chebyshev
from eigenmesh.data import CovarianceKind, RandomSplit, Shards, build_covariance, pooled_moments
from eigenmesh.data._in_place import InPlace
from eigenmesh.data._pooled import PooledCovariance, pooled_shards, product_to_average
from eigenmesh.errors import DataError
from eigenmesh.fitting import NodeData, Request, prepare
from eigenmesh.networks import Stacked
from eigenmesh.solvers import FastPCA

WEIGHTS = graphs.metropolis(graphs.erdos_renyi(6, seed=1))


def samples(n=300, d=20, mean=1.0, seed=0):
    rng = np.random.default_rng(seed)
    return rng.standard_normal((n, d)) * np.geomspace(3, 0.5, d) + mean


def prepared(X, **settings):
    return prepare(Request(3, seed=0, **settings), NodeData(Shards.from_array(X, 6, RandomSplit(2)), WEIGHTS))


def by_node(X, shared, **settings):
    """The average of the nodes' own products."""
    shards = Shards.from_array(X, 6, RandomSplit(2))
    moments = pooled_moments(shards, Stacked(WEIGHTS), **settings)
    return build_covariance(shards, moments).apply(np.repeat(shared, 6, axis=0)).mean(axis=0)


@pytest.mark.parametrize("scale", [False, True])
@pytest.mark.parametrize(
    ("X", "kind"),
    [
        (samples(3000), CovarianceKind.FORMED),
        (np.asfortranarray(samples(3000)), CovarianceKind.FORMED),
        (samples(40, 200), CovarianceKind.MATRIX_FREE),
        (np.asfortranarray(samples(40, 200)), CovarianceKind.MATRIX_FREE),
        (samples(40, 200)[::2], CovarianceKind.MATRIX_FREE),
        (samples(40, 200, mean=1e6), CovarianceKind.CHUNKED),
        (samples(40, 200).astype(np.float32), CovarianceKind.MATRIX_FREE),
        (scipy.sparse.csr_array(np.maximum(samples(40, 200), 1.0) - 1.0), CovarianceKind.SPARSE),
    ],
    ids=["tall", "tall by column", "wide", "wide by column", "every other row", "large means", "float32", "sparse"],
)
def test_the_average_of_products_is_that_of_the_nodes(X, kind, scale):
    if scale and kind is CovarianceKind.SPARSE:
        X = X[:, np.asarray((X != 0).sum(axis=0)).ravel() > 1]
    covariance = prepared(X, scale=scale).covariance
    assert isinstance(covariance, PooledCovariance)
    assert covariance.kind is kind
    shared = np.random.default_rng(1).standard_normal((1, X.shape[1], 4))
    found = product_to_average(covariance, shared, 6)
    expected = by_node(X, shared, scale=scale)
    np.testing.assert_allclose(found[3], expected, rtol=0, atol=1e-12 * np.abs(expected).max())


def test_blocks_of_their_own_are_multiplied_by_each_nodes_own_covariance():
    X = samples()
    covariance = prepared(X).covariance
    shards = Shards.from_array(X, 6, RandomSplit(2))
    own = np.random.default_rng(1).standard_normal((6, 20, 2))
    each = build_covariance(shards, pooled_moments(shards, Stacked(WEIGHTS)))
    np.testing.assert_allclose(covariance.apply(own), each.apply(own), rtol=1e-12)
    U = np.linalg.qr(own[0])[0]
    np.testing.assert_allclose(covariance.traces_beyond(U).mean(), each.traces_beyond(U).mean(), rtol=1e-12)


@pytest.mark.parametrize("device", ["cpu", "cuda"])
def test_rows_are_pooled_on_every_device(device):
    torch = pytest.importorskip("torch", reason="torch is not installed")
    if device == "cuda" and not torch.cuda.is_available():
        pytest.skip("there is no CUDA device")
    X = samples()
    for data in (X, torch.asarray(X, device=device)):
        covariance = prepared(data, device=device).covariance
        assert isinstance(covariance, PooledCovariance)
        assert covariance.kind is CovarianceKind.FORMED
        # One small matrix leaves a GPU.
        assert isinstance(covariance.pooled.matrices, np.ndarray if device == "cuda" else torch.Tensor)
        shared = np.random.default_rng(1).standard_normal((1, 20, 4))
        found, expected = product_to_average(covariance, covariance.place(shared), 6), by_node(X, shared)
        np.testing.assert_allclose(found[3], expected, rtol=0, atol=1e-12 * np.abs(expected).max())
        own = np.random.default_rng(2).standard_normal((6, 20, 2))
        np.testing.assert_allclose(covariance.apply(covariance.place(own)), prepared(X).covariance.apply(own))


def test_rows_that_are_used_in_place_are_not_copied():
    X = samples(40, 200)
    pooled = prepared(X).covariance.pooled
    assert isinstance(pooled, InPlace)
    assert np.shares_memory(pooled.rows, X)
    # What cancels counts in the certificate.
    assert pooled.rounding_size == pytest.approx(40 / 39 * np.sum(X.mean(axis=0) ** 2))


def test_loose_averages_and_other_solvers_keep_the_nodes_apart():
    X = samples()
    assert not isinstance(prepared(X, averaging=Chebyshev(1e-9)).covariance, PooledCovariance)
    assert not isinstance(prepared(X, solver=FastPCA()).covariance, PooledCovariance)
    assert not isinstance(prepared(X, covariance=CovarianceKind.FORMED).covariance, PooledCovariance)


def test_rows_that_two_nodes_share_are_not_pooled():
    class Twice:
        def rows(self, n_samples, n_nodes, labels=None):
            return [slice(0, n_samples)] * n_nodes

    X = samples()
    assert pooled_shards(Shards.from_array(X, 2, Twice())) is None
    assert pooled_shards(Shards.from_list([X, X])) is None
    assert pooled_shards(Shards.from_array(X, 2).take([0])) is None


def test_a_missing_entry_is_reported_with_its_node():
    X = samples()
    X[17, 5] = np.nan
    node = next(i for i, rows in enumerate(RandomSplit(2).rows(300, 6)) if 17 in rows)
    with pytest.raises(DataError, match=rf"node {node}, row \d+ \(row 17 of the data\), column 5 is NaN"):
        prepared(X)
    filled = np.where(np.isnan(X), np.nanmean(X, axis=0), X)
    found = DecentralizedPCA(2, n_nodes=6, missing="mean", random_state=0).fit(X).components_
    expected = DecentralizedPCA(2, n_nodes=6, random_state=0).fit(filled).components_
    np.testing.assert_allclose(np.abs(found @ expected.T), np.eye(2), atol=1e-6)
