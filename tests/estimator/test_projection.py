"""Use of fitted components: the answers, types and names of scikit-learn's PCA."""

import numpy as np
import pandas as pd
import pytest
from scipy import sparse
from sklearn.decomposition import PCA
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

from eigenmesh import DecentralizedPCA
from eigenmesh.data.datasets import gaussian, geometric_spectrum
from eigenmesh.errors import InputError

X = gaussian(geometric_spectrum(8, 3, 0.5, ratio=0.7), 300, seed=1, mean=np.arange(8.0)) * np.geomspace(1, 10, 8)


def fitted(k, **settings):
    return DecentralizedPCA(k, n_nodes=5, topology="complete", tol=1e-10, max_rounds=30_000, **settings).fit(X)


@pytest.mark.parametrize("scale", [False, True])
@pytest.mark.parametrize("k", [1, 3, 7, 8])
def test_precision_is_the_inverse_of_the_covariance_and_that_of_scikit_learn(k, scale):
    ours = fitted(k, scale=scale)
    inverse = np.linalg.inv(ours.get_covariance())
    assert np.allclose(ours.get_precision(), inverse, rtol=0, atol=1e-10 * np.abs(inverse).max())
    factor = X.std(axis=0) if scale else np.ones(8)
    theirs = PCA(k).fit(X / factor)
    for found, expected in (
        (ours.get_covariance(), theirs.get_covariance() * np.outer(factor, factor)),
        (ours.get_precision(), theirs.get_precision() / np.outer(factor, factor)),
    ):
        assert np.allclose(found, expected, rtol=0, atol=1e-7 * np.abs(expected).max())


def test_all_components_give_the_sample_covariance_whitened_or_not():
    for whiten in (False, True):
        assert np.allclose(fitted(8, whiten=whiten).get_covariance(), np.cov(X, rowvar=False), rtol=1e-10)


def test_components_at_the_level_of_the_noise_do_not_break_the_precision():
    ours = fitted(3)
    ours.explained_variance_ = np.array([5.0, 2.0, 1.0])
    ours.noise_variance_ = 1.0
    assert np.allclose(ours.get_precision(), np.linalg.inv(ours.get_covariance()), rtol=0, atol=1e-12)


def test_a_precision_that_does_not_exist_is_refused():
    few = DecentralizedPCA(3, n_nodes=1).fit(X[:4])
    with pytest.raises(InputError, match=r"n_components = 3 leaves no variance for noise.*ask for fewer"):
        few.get_precision()
    with pytest.raises(InputError, match="n_components = 3 leaves no variance for noise"):
        few.score(X)
    full = fitted(8)
    full.explained_variance_ = np.array([3.0, 2, 1, 1, 1, 1, 1, 0])
    with pytest.raises(InputError, match=r"rank 7 of 8.*ask for fewer than 7"):
        full.get_precision()


@pytest.mark.parametrize("settings", [{}, {"scale": True}, {"whiten": True}, {"missing": "mean"}])
@pytest.mark.parametrize("form", [np.asarray, sparse.csr_array])
def test_float32_in_float32_out(settings, form):
    single = X.astype(np.float32)
    double, ours = fitted(3, **settings), DecentralizedPCA(3, n_nodes=5, tol=1e-3, **settings).fit(form(single))
    theirs = PCA(3, whiten=settings.get("whiten", False))
    theirs = (make_pipeline(StandardScaler(), theirs) if settings.get("scale") else theirs).fit(single)
    scores = ours.transform(form(single))
    assert scores.dtype == theirs.transform(single).dtype == np.float32
    assert ours.inverse_transform(scores).dtype == theirs.inverse_transform(scores).dtype == np.float32
    expected = double.transform(X)
    assert np.allclose(scores, expected, rtol=0, atol=1e-4 * np.abs(expected).max())
    assert np.allclose(ours.inverse_transform(scores), double.inverse_transform(expected), rtol=1e-3, atol=1e-3)
    # A model of either precision takes samples of either; the scores are as precise as the samples.
    assert double.transform(form(single)).dtype == np.float32
    assert np.allclose(double.transform(form(single)), expected, rtol=0, atol=1e-6 * np.abs(expected).max())
    assert ours.transform(form(X)).dtype == np.float64
    assert double.transform(form(X)).dtype == double.inverse_transform(expected).dtype == np.float64


def test_whole_numbers_become_float64():
    ours = fitted(2)
    assert ours.transform(np.arange(16).reshape(2, 8)).dtype == np.float64
    assert ours.inverse_transform([[1, 2]]).dtype == np.float64


def test_a_far_mean_costs_float32_scores_no_digits():
    ours = fitted(2)
    far = DecentralizedPCA(2, n_nodes=5, topology="complete", tol=1e-8).fit(X + 1e3)
    shifted = (X + 1e3).astype(np.float32)
    exact = ours.transform(shifted.astype(np.float64) - 1e3)
    assert np.allclose(far.transform(shifted), exact, rtol=0, atol=1e-5)


def test_output_columns_are_called_as_scikit_learn_calls_them():
    ours, theirs = fitted(2), PCA(2).fit(X)
    assert [name.removeprefix("pca") for name in theirs.get_feature_names_out()] == ["0", "1"]
    assert list(ours.get_feature_names_out()) == ["decentralizedpca0", "decentralizedpca1"]
    frame = ours.set_output(transform="pandas").transform(pd.DataFrame(X))
    assert list(frame.columns) == ["decentralizedpca0", "decentralizedpca1"]
    assert np.allclose(ours.inverse_transform(frame), theirs.inverse_transform(theirs.transform(X)), atol=1e-6)
