"""Samples that were not in the fit: T2, SPE and their limits, and scores without shrinkage."""

from dataclasses import replace

import numpy as np
import pytest
from scipy import sparse

from eigenmesh import DecentralizedPCA, StreamingPCA, load_model
from eigenmesh.data import as_source
from eigenmesh.errors import DataError, InputError
from eigenmesh.estimator.projection import SavedModel
from eigenmesh.fitting import model_of

N, D, K = 80, 600, 2


@pytest.fixture(scope="module")
def cohort():
    """Two directions in many features of few samples, and many samples that are left out of the fit."""
    rng = np.random.default_rng(0)
    axes, latent = np.linalg.qr(rng.standard_normal((D, K)))[0], rng.standard_normal((11 * N, K))
    # Those of both have the same variance, so that scores can be compared.
    for part in (latent[:N], latent[N:]):
        part -= part.mean(axis=0)
        part[:] = np.linalg.qr(part)[0] * np.sqrt(len(part) - 1)
    X = rng.standard_normal((11 * N, D)) + (latent * [8, 5]) @ axes.T + 1
    return X[:N], X[N:]


@pytest.fixture(scope="module")
def model(cohort, tmp_path_factory):
    path = tmp_path_factory.mktemp("model") / "pca.npz"
    DecentralizedPCA(K, n_nodes=3, topology="complete", scale=True, random_state=0).fit(cohort[0]).save(path)
    return load_model(path)


def test_t2_and_spe_are_what_they_say(cohort, model):
    new = cohort[1]
    Z = (new - model.mean_) / model.scale_
    scores = Z @ model.components_.T
    found = model.distances(new)
    np.testing.assert_allclose(found.t2, np.sum(scores**2 / model.explained_variance_, axis=1))
    np.testing.assert_allclose(found.spe, np.sum((Z - scores @ model.components_) ** 2, axis=1))
    np.testing.assert_allclose(model.distances(sparse.csr_array(new)).spe, found.spe)
    assert model.spe_limit_ is None
    holes = np.where(np.arange(D) == 5, np.nan, new)
    with pytest.raises(DataError, match="today: row 0, column 5 is nan"):
        model.distances(as_source(holes), "today")


def test_one_in_a_hundred_is_beyond_the_limits(tmp_path):
    rng, spread = np.random.default_rng(1), np.linspace(3, 1, 20)
    pca = StreamingPCA(3, n_nodes=2, topology="complete", random_state=0)
    for _ in range(8):
        pca.partial_fit(rng.standard_normal((500, 20)) * spread)
    assert pca.spe_limit_ is not None
    pca.save(tmp_path / "stream.npz")
    model = load_model(tmp_path / "stream.npz")
    assert (model.t2_limit_, model.spe_limit_) == (pca.t2_limit_, pca.spe_limit_)
    found = model.distances(rng.standard_normal((40000, 20)) * spread)
    assert 0.008 < np.mean(found.t2 > model.t2_limit_) < 0.012
    assert 0.006 < np.mean(found.spe > model.spe_limit_) < 0.016
    pca.fit(rng.standard_normal((100, 20)))
    assert pca.spe_limit_ is None


def test_scores_of_new_samples_are_as_large_as_if_they_had_been_fitted(cohort, model):
    new = cohort[1]
    plain, corrected = model.transform(new), model.transform_new(new)
    shrunk, mended = [found.std(axis=0) / np.sqrt(model.explained_variance_) for found in (plain, corrected)]
    # (l - 1) / (l + d/N - 1) for directions of variance l beside noise of variance 1.
    np.testing.assert_allclose(shrunk, [64 / (64 + D / N), 25 / (25 + D / N)], rtol=0.06)
    np.testing.assert_allclose(mended, 1, atol=0.06)
    assert np.allclose(model.transform_new(as_source(new)), corrected)
    whitened = SavedModel.of(model.model_, whiten=True)
    np.testing.assert_allclose(whitened.transform_new(new), corrected / np.sqrt(model.explained_variance_))


def test_a_site_with_some_of_the_columns_cannot_say(cohort):
    X = cohort[0]
    pca = DecentralizedPCA(K, partition="features", topology="complete", privacy="masked", random_state=0)
    pca.fit([X[:, :300], X[:, 300:500], X[:, 500:]])
    assert pca.distances(X).t2.shape == (N,)
    whole = model_of(pca.fitted_)
    own = {name: getattr(whole, name)[..., :300] for name in ("components", "mean")}
    part = SavedModel.of(replace(whole, node_components=None, **own))
    with pytest.raises(InputError, match="loadings of one site's columns"):
        part.distances(X[:, :300])
