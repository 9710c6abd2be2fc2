"""Weights of samples: a row of weight w counts as w equal rows, on every way to hold the data and every engine."""

import numpy as np
import pytest
from scipy import sparse

from eigenmesh import DecentralizedPCA, load_model
from eigenmesh.data import Shards
from eigenmesh.errors import DataError, InputError

N, D, K = 60, 7, 3


@pytest.fixture(scope="module")
def rows():
    rng = np.random.default_rng(0)
    X = rng.standard_normal((N, D)) * np.geomspace(5, 0.5, D) + 3
    counts = rng.integers(0, 4, N)
    counts[:2] = 1, 5
    return X, counts


def require_same(weighted, repeated):
    np.testing.assert_allclose(weighted.components_, repeated.components_, atol=1e-7)
    np.testing.assert_allclose(weighted.explained_variance_, repeated.explained_variance_, rtol=1e-9)
    np.testing.assert_allclose(weighted.mean_, repeated.mean_, rtol=1e-12)
    np.testing.assert_allclose(weighted.singular_values_, repeated.singular_values_, rtol=1e-9)
    np.testing.assert_allclose(weighted.noise_variance_, repeated.noise_variance_, rtol=1e-7)
    assert weighted.n_samples_ == repeated.n_samples_
    assert isinstance(weighted.n_samples_, int)


def made(**settings):
    return DecentralizedPCA(K, topology="cycle", n_nodes=4, random_state=0, **settings)


WAYS = [{}, {"scale": True}, {"covariance": "formed"}, {"covariance": "matrix-free"}, {"covariance": "chunked"}]
WAYS += [{"averaging": "integers"}, {"averaging": "polynomial"}, {"transport": "threads"}, {"solver": "s-dot"}]


@pytest.mark.parametrize("settings", WAYS, ids=str)
def test_whole_weights_are_repeated_rows(rows, settings):
    X, counts = rows
    weighted = made(**settings).fit(X, sample_weight=counts)
    require_same(weighted, made(**settings).fit(np.repeat(X, counts, axis=0)))


def test_masked_and_sparse_rows(rows):
    pytest.importorskip("cryptography")
    X, counts = rows
    repeated = np.repeat(X, counts, axis=0)
    require_same(made(privacy="masked").fit(X, sample_weight=counts), made().fit(repeated))
    for shift in (0.0, 3e4):
        thin = np.where(X > 3, X + shift, 0.0)
        weighted = made().fit(sparse.csr_array(thin), sample_weight=counts)
        require_same(weighted, made().fit(sparse.csr_array(np.repeat(thin, counts, axis=0))))


def test_missing_entries_count_by_their_weights(rows):
    X, counts = rows
    holes = np.where(np.random.default_rng(1).random(X.shape) < 0.1, np.nan, X)
    weighted = made(missing="mean").fit(holes, sample_weight=counts)
    require_same(weighted, made(missing="mean").fit(np.repeat(holes, counts, axis=0)))
    tenths = made(missing="mean").fit(holes, sample_weight=0.1 * counts)
    np.testing.assert_allclose(tenths.components_, weighted.components_, atol=1e-7)
    empty = holes.copy()
    empty[:, 2] = np.nan
    with pytest.raises(DataError, match="no node has a finite entry in column 2"):
        made(missing="mean").fit(empty, sample_weight=0.1 * counts)


def test_weights_that_are_not_whole(rows, tmp_path):
    X, counts = rows
    weights = counts * 0.37
    pca = made().fit(X, sample_weight=weights)
    mean = weights @ X / weights.sum()
    C = (weights[:, np.newaxis] * (X - mean)).T @ (X - mean) / (weights.sum() - 1)
    np.testing.assert_allclose(pca.explained_variance_, np.linalg.eigvalsh(C)[::-1][:K], rtol=1e-9)
    assert pca.n_samples_ == pytest.approx(weights.sum())
    pca.save(tmp_path / "model.npz")
    assert load_model(tmp_path / "model.npz").n_samples_ == pca.n_samples_
    whole = DecentralizedPCA(topology="cycle", n_nodes=2, random_state=0).fit(X[:20], sample_weight=np.full(20, 0.29))
    assert whole.n_components_ == 4  # The weights add up to 5.8, as if there were 5 samples.


def test_weights_of_parts_are_theirs(rows):
    X, counts = rows
    parts, weights = {"a": X[:20], "b": X[20:45], "c": X[45:]}, {"c": counts[45:], "a": counts[:20], "b": counts[20:45]}
    expected = made().fit(np.repeat(X, counts, axis=0))
    cycle = {"topology": "cycle", "random_state": 0}
    require_same(DecentralizedPCA(K, **cycle).fit(parts, sample_weight=weights), expected)
    listed = [weights[name] for name in parts]
    require_same(DecentralizedPCA(K, **cycle).fit(list(parts.values()), sample_weight=listed), expected)
    with pytest.raises(InputError, match="one array for each of 3 parts"):
        DecentralizedPCA(K, **cycle).fit(parts, sample_weight=counts[:2])
    by_node = np.repeat(["a", "b", "c"], [20, 25, 15])
    require_same(DecentralizedPCA(K, **cycle).fit(X, nodes=by_node, sample_weight=counts), expected)


def test_some_nodes_may_have_weights_and_others_none(rows):
    X, counts = rows
    shards = Shards.from_list([X[:30], X[30:]]).weighted([counts[:30], None])
    expected = np.vstack([np.repeat(X[:30], counts[:30], axis=0), X[30:]])
    require_same(DecentralizedPCA(K, random_state=0).fit(shards), made().fit(expected))


@pytest.mark.parametrize(
    ("change", "said"),
    [
        (lambda w: np.where(np.arange(N) == 7, -1, w), "weight -1 of the data, row 7, must be finite"),
        (lambda w: np.where(np.arange(N) == 7, np.nan, w), "weight nan of the data, row 7"),
        (lambda w: np.where(np.arange(N) == 7, np.inf, w), "weight inf of the data, row 7"),
        (lambda w: 0 * w, "all weights of the data are zero"),
        (lambda w: 1e-3 * w, r"needs at least 2 \(where rows have weights, these are numbers"),
        (lambda w: w[:-1], "one number for each of 60 rows; got int64 of shape"),
        (lambda w: np.where(np.arange(N) == 1, 1e-12, w), "less than 1e-09 of the largest"),
    ],
)
def test_bad_weights_are_refused_by_name(rows, change, said):
    X, counts = rows
    with pytest.raises(DataError, match=said):
        made().fit(X, sample_weight=change(counts))


def test_a_node_without_weight_and_columns_that_are_split_are_refused(rows):
    X, counts = rows
    parts, weights = [X[:20], X[20:]], [np.zeros(20), counts[20:]]
    with pytest.raises(DataError, match="all weights of node 0 are zero"):
        DecentralizedPCA(K, topology="complete").fit(parts, sample_weight=weights)
    with pytest.raises(InputError, match='for partition="samples"'):
        made(partition="features").fit(X, sample_weight=counts)
