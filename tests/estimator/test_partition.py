"""partition="features": columns split over nodes, behind scikit-learn's interface."""

import numpy as np
import pandas as pd
import pytest
from sklearn.decomposition import PCA

from eigenmesh import DecentralizedPCA, load_model
from eigenmesh.data import FeatureShards, Shards
from eigenmesh.errors import DataError, InputError, UnknownNameError

K = 3
pytestmark = pytest.mark.filterwarnings("ignore::eigenmesh.errors.DataWarning")


@pytest.fixture(scope="module")
def X():
    rng = np.random.default_rng(0)
    return rng.standard_normal((40, 24)) * np.geomspace(9, 1, 24) + 2


def pca(**settings):
    return DecentralizedPCA(K, partition="features", random_state=0, **{"topology": "cycle", **settings})


def require_equal(found, X):
    true = PCA(K, svd_solver="full").fit(X)
    signs = np.sign(np.sum(found.components_ * true.components_, axis=1))[:, np.newaxis]
    np.testing.assert_allclose(found.components_ * signs, true.components_, atol=1e-8)
    np.testing.assert_allclose(found.transform(X) * signs.T, true.transform(X), atol=1e-7)
    np.testing.assert_allclose(found.scores_, found.transform(X), atol=1e-7)
    for name in ("explained_variance_", "explained_variance_ratio_", "singular_values_", "mean_", "noise_variance_"):
        np.testing.assert_allclose(getattr(found, name), getattr(true, name), rtol=1e-8)


@pytest.mark.parametrize("split", ["random", "contiguous", "sizes:4,8,12"])
def test_one_array_is_split_by_columns_and_put_together_in_its_order(X, split):
    require_equal(pca(split=split, n_nodes=3).fit(X), X)


def test_parts_labels_frames_and_threads_give_the_same(X):
    require_equal(pca().fit([X[:, :5], X[:, 5:]]), X)
    nodes = np.array(["b", "a", "c"] * 8)
    found = pca().fit(X, nodes=nodes)
    require_equal(found, X)
    assert found.node_names_ == ("a", "b", "c")
    require_equal(pca(transport="threads").fit({"oslo": X[:, :11], "bergen": X[:, 11:]}), X)
    frame = pd.DataFrame(X, columns=[f"x{column}" for column in range(24)])
    found = pca().fit({"left": frame.iloc[:, :10], "right": frame.iloc[:, 10:]})
    assert found.feature_names_in_.tolist() == list(frame)
    np.testing.assert_allclose(found.transform(frame), found.scores_, atol=1e-7)
    require_equal(pca(covariance="chunked").fit(FeatureShards.from_list([X[:, :5], X[:, 5:]])), X)


def test_files_with_ids(X, tmp_path):
    rows = [f"P{row}" for row in range(len(X))]
    for name, part in (("a", X[:, :9]), ("b", X[:, 9:])):
        table = pd.DataFrame(part, columns=[f"{name}{column}" for column in range(part.shape[1])])
        table.insert(0, "patient", rows)
        table.to_csv(tmp_path / f"{name}.csv", index=False)
    files = [tmp_path / "a.csv", tmp_path / "b.csv"]
    found = pca().fit(FeatureShards.from_files(files, id_column="patient"))
    np.testing.assert_allclose(found.explained_variance_, PCA(K).fit(X).explained_variance_)
    assert found.feature_names_in_.tolist() == [f"a{i}" for i in range(9)] + [f"b{i}" for i in range(15)]
    pd.read_csv(files[1]).iloc[::-1].to_csv(files[1], index=False)
    with pytest.raises(DataError, match=r"at node 1 \(b\) from row 0 on"):
        pca().fit(FeatureShards.from_files(files, id_column="patient"))


def test_a_saved_model_has_the_scores(X, tmp_path):
    found = pca(n_nodes=4).fit(X)
    found.save(tmp_path / "model.npz")
    read = load_model(tmp_path / "model.npz")
    np.testing.assert_array_equal(read.model_.scores, found.scores_)
    assert read.model_.all_features == 24
    assert not read.warnings_
    np.testing.assert_array_equal(read.transform(X), found.transform(X))
    found.set_params(partition="samples").fit(X)
    assert not hasattr(found, "scores_")


def test_what_does_not_go_together_is_refused(X):
    with pytest.raises(UnknownNameError, match="partition"):
        DecentralizedPCA(K, partition="columns").fit(X)
    with pytest.raises(InputError, match="partition = 'features' is for FeatureShards; got Shards"):
        pca().fit(Shards.from_list([X, X]))
    with pytest.raises(InputError, match="partition = 'samples' is for Shards; got FeatureShards"):
        DecentralizedPCA(K).fit(FeatureShards.from_list([X, X]))
    with pytest.raises(InputError, match="one entry per column"):
        pca().fit(pd.DataFrame(X), nodes="site")
    with pytest.raises(DataError, match="one entry for each of 24 columns"):
        pca().fit(X, nodes=np.zeros(40))
    with pytest.raises(InputError, match="a plan is for"):
        pca().plan(X)


def test_nodes_that_are_not_here_and_ids_that_are_not_given_are_refused_by_name(X):
    halves = FeatureShards.from_list([X[:, :5], X[:, 5:]])
    with pytest.raises(InputError, match=r"nodes \[2, 7\] are not in this process; choose from \[0, 1\]"):
        halves.take([1, 2, 7])
    with pytest.raises(InputError, match="2 matrices but 1 node ids; give one id per matrix"):
        FeatureShards.from_list([X[:, :5], X[:, 5:]], ids=[0], n_nodes=2)
