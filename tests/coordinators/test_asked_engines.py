"""Every engine that is asked for sums, started for real: the components of the simulation, and clear errors."""

import numpy as np
import pandas as pd
import pytest
from scipy import sparse
from sklearn.decomposition import PCA

from eigenmesh import DecentralizedPCA, certify
from eigenmesh.data.datasets import gaussian, geometric_spectrum
from eigenmesh.errors import DataError, EigenmeshError, InputError, TransportError
from eigenmesh.events import on_record
from engine_rows import ENGINES, kill_one
from problems import angles, truth

# Ray and Spark warn of defaults of their own, and of those of pandas.
pytestmark = [
    pytest.mark.slow,
    pytest.mark.filterwarnings("ignore::DeprecationWarning", "ignore::FutureWarning", "ignore::ResourceWarning"),
]

D, K, ROWS = 30, 3, (100, 3, 250, 47)
NAMES = tuple(f"f{column}" for column in range(D))


@pytest.fixture(scope="module", params=ENGINES, ids=lambda engine: engine.name)
def engine(request):
    with request.param.started():
        yield request.param


@pytest.fixture(scope="module")
def samples():
    rng = np.random.default_rng(0)
    return gaussian(geometric_spectrum(D, K, 0.5, ratio=0.8), sum(ROWS), 0) + rng.normal(scale=5, size=D)


def in_parts(X):
    return np.split(X, np.cumsum(ROWS)[:-1])


def simulated(X, **settings):
    return DecentralizedPCA(K, tol=1e-10, random_state=0, **settings).fit(in_parts(X))


@pytest.mark.parametrize("covariance", ["auto", "matrix-free"])
def test_the_components_of_the_simulation(engine, samples, covariance):
    data = engine.of_parts(in_parts(samples))
    pca = DecentralizedPCA(K, tol=1e-10, random_state=0, covariance=covariance, solver="block-krylov").fit(data)
    same = simulated(samples, solver="block-krylov")
    np.testing.assert_allclose(pca.components_, same.components_, rtol=0, atol=1e-12)
    np.testing.assert_allclose(pca.explained_variance_, same.explained_variance_, rtol=1e-12)
    assert angles(pca.components_, truth(samples)[1][:, :K]).max() <= pca.certificate_.error_bound + 1e-14
    assert pca.n_nodes_ == len(ROWS)
    assert pca.n_samples_ == sum(ROWS)
    assert pca.result_.converged
    # The sums, of one block first if that saves a pass over files, and about the mean if that is far; then products.
    assert pca.traffic_.rounds <= pca.n_iter_ + 3


@pytest.mark.parametrize("covariance", ["auto", "matrix-free"])
def test_large_means_scales_and_missing_entries(engine, samples, covariance):
    X = samples * np.geomspace(1, 100, D) + 1e5
    settings = {"scale": True, "missing": "mean", "covariance": covariance, "tol": 1e-9}
    X[np.random.default_rng(1).random(X.shape) < 0.05] = np.nan
    pca = DecentralizedPCA(K, **settings).fit(engine.of_parts(in_parts(X)))
    filled = np.where(np.isnan(X), np.nanmean(X, axis=0), X)
    filled = (filled - filled.mean(axis=0)) / filled.std(axis=0)
    assert angles(pca.components_, truth(filled)[1][:, :K]).max() < 1e-8


def test_sparse_rows(engine, samples):
    X = np.where(np.abs(samples) > 3, samples, 0.0)
    data = engine.of_parts([sparse.csr_array(part) for part in in_parts(X)])
    pca = DecentralizedPCA(K, tol=1e-10, covariance="sparse").fit(data)
    assert angles(pca.components_, truth(X)[1][:, :K]).max() < 1e-9


@pytest.mark.parametrize("covariance", ["auto", "matrix-free"])
def test_weights_count_as_repeated_rows(engine, samples, covariance):
    X, counts = samples + 1e3, np.random.default_rng(2).integers(0, 3, len(samples))
    X[counts == 0] = np.nan
    data, sample_weight = engine.weighted(in_parts(X), in_parts(counts))
    settings = {"tol": 1e-10, "random_state": 0, "covariance": covariance}
    pca = DecentralizedPCA(K, **settings).fit(data, sample_weight=sample_weight)
    same = DecentralizedPCA(K, n_nodes=4, **settings).fit(np.repeat(X, counts, axis=0))
    np.testing.assert_allclose(pca.components_, same.components_, atol=1e-10)
    np.testing.assert_allclose(pca.explained_variance_, same.explained_variance_, rtol=1e-10)
    assert pca.n_samples_ == counts.sum()


def test_weights_in_a_column_of_a_frame(engine, samples):
    if engine.of_frame is None:
        pytest.skip("it has no data frames")
    weights = np.linspace(0, 2, len(samples))
    frame = pd.DataFrame(samples, columns=list(NAMES)).assign(times=weights)
    pca = DecentralizedPCA(K, tol=1e-10).fit(engine.of_frame(frame), sample_weight="times")
    assert tuple(pca.feature_names_in_) == NAMES
    same = DecentralizedPCA(K, tol=1e-10).fit(samples, sample_weight=weights)
    np.testing.assert_allclose(pca.components_, same.components_, atol=1e-9)
    assert pca.n_samples_ == pytest.approx(weights.sum())
    with pytest.raises(InputError, match=r"sample_weight = 'often' must be the name of a column .*f0"):
        DecentralizedPCA(K).fit(engine.of_frame(frame), sample_weight="often")
    with pytest.raises(DataError, match=r"node \d.*row \d+ has weight -1; give 0 or a positive number"):
        DecentralizedPCA(K).fit(engine.of_frame(frame.assign(times=-1)), sample_weight="times")


def test_frames_with_names_and_their_scores(engine, samples):
    if engine.of_frame is None:
        pytest.skip("it has no data frames")
    frame = pd.DataFrame(samples, columns=list(NAMES))
    data = engine.of_frame(frame)
    pca = DecentralizedPCA(K).fit(data)
    assert tuple(pca.feature_names_in_) == NAMES
    assert angles(pca.components_, truth(samples)[1][:, :K]).max() < 1e-6
    scores, true = engine.back(pca.transform(data)), pca.transform(frame)
    # Engines do not promise an order.
    np.testing.assert_allclose(scores[np.argsort(scores[:, 0])], true[np.argsort(true[:, 0])], atol=1e-10)
    with pytest.raises(DataError, match="'word'"):
        DecentralizedPCA(K).fit(engine.of_frame(frame.assign(word="x")))


def test_scores_of_parts(engine, samples):
    data = engine.of_parts(in_parts(samples))
    pca = DecentralizedPCA(K).fit(data)
    np.testing.assert_allclose(np.sort(engine.back(pca.transform(data)), axis=0), np.sort(pca.transform(samples), 0))


def test_an_entry_that_is_not_finite_is_named(engine, samples):
    X = samples.copy()
    X[120, 7] = np.nan
    with pytest.raises(DataError, match=r"node 2, row 17, column 7 is NaN.*missing=\"mean\""):
        DecentralizedPCA(K).fit(engine.of_parts(in_parts(X)))


def test_a_part_with_other_columns_is_named(engine, samples):
    first, *rest = in_parts(samples)
    with pytest.raises((EigenmeshError, ValueError), match="29"):
        DecentralizedPCA(K).fit(engine.of_parts([first, rest[0][:, :-1], *rest[1:]]))


def test_components_of_other_tools_are_certified(engine, samples):
    pca = PCA(K, svd_solver="full").fit(samples)
    given = certify(engine.of_parts(in_parts(samples)), pca)
    assert given.error_bound < 1e-9
    swapped = certify(engine.of_parts(in_parts(samples)), pca.components_[[1, 0, 2]])
    assert swapped.error_bound > 0.9


def test_a_killed_worker_is_survived(engine, samples):
    if engine.worker_pids is None:
        pytest.skip("it works in this process")
    killed = []

    def kill(record):
        if not killed:
            killed.append(kill_one(engine.worker_pids()))

    data = engine.of_parts(in_parts(samples))
    pca = DecentralizedPCA(K, tol=1e-10, covariance="matrix-free", on_event=on_record(kill)).fit(data)
    assert killed[0] not in engine.worker_pids()
    assert len(pca.history_) > 1  # products were made after the kill
    assert angles(pca.components_, truth(samples)[1][:, :K]).max() < 1e-10


# The last test, because the engine is gone afterwards.
def test_an_engine_that_is_not_running(engine, samples):
    if engine.stop is None:
        pytest.skip("it runs without a server")
    data = engine.of_parts(in_parts(samples))
    engine.stop()
    with pytest.raises(TransportError, match="not running"):
        DecentralizedPCA(K).fit(data)
