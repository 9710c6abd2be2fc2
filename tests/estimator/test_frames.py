"""Data frames of several libraries, dicts and lists of files, and networks given by their links."""

from __future__ import annotations

import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest
from sklearn.decomposition import PCA

from eigenmesh import DecentralizedPCA, load_model
from eigenmesh.errors import DataError, InputError, MissingExtraError
from eigenmesh.metrics import largest_angle

RNG = np.random.default_rng(0)
X = RNG.standard_normal((60, 4)) * [3, 2, 1, 0.5] + [5, 0, 0, 1]
SITE = np.array(["oslo", "bergen", "bodo"])[np.arange(60) % 3]
FRAME = pd.DataFrame(X, columns=list("abcd")).assign(site=SITE)
LIBRARIES = {
    "pandas": lambda frame: frame,
    "polars": lambda frame: pl.DataFrame({name: frame[name].to_numpy() for name in frame}),
    "pyarrow": lambda frame: pa.Table.from_pandas(frame, preserve_index=False),
}
TRUTH = PCA(2).fit(X).components_


def is_right(pca) -> bool:
    return largest_angle(pca.components_.T[np.newaxis], TRUTH.T) < 1e-6


@pytest.mark.parametrize("make", LIBRARIES.values(), ids=LIBRARIES)
def test_a_column_can_name_the_nodes(make):
    pca = DecentralizedPCA(2).fit(make(FRAME), nodes="site")
    assert is_right(pca)
    assert pca.node_names_ == ("bergen", "bodo", "oslo")
    assert pca.feature_names_in_.tolist() == list("abcd")
    assert pca.transform(make(FRAME.drop(columns="site"))).shape == (60, 2)


@pytest.mark.parametrize("make", LIBRARIES.values(), ids=LIBRARIES)
def test_a_dict_of_frames_names_the_nodes_and_their_columns_may_be_in_any_order(make):
    parts = {name: FRAME[name == SITE].drop(columns="site") for name in ("oslo", "bergen", "bodo")}
    parts["bodo"] = parts["bodo"][["d", "b", "a", "c"]]
    links = [("bodo", "oslo"), ("oslo", "bergen")]
    pca = DecentralizedPCA(2, topology=links).fit({name: make(part) for name, part in parts.items()})
    assert is_right(pca)
    assert pca.node_names_ == ("oslo", "bergen", "bodo")
    assert sorted(map(sorted, pca.weights_.graph.edges)) == [[0, 1], [0, 2]]


def test_a_list_of_files_is_one_node_each(tmp_path):
    paths = []
    for name in ("oslo", "bergen", "bodo"):
        paths.append(tmp_path / f"{name}.csv")
        FRAME[name == SITE].drop(columns="site").to_csv(paths[-1], index=False)
    pca = DecentralizedPCA(2).fit([str(path) for path in paths])
    assert is_right(pca)
    assert pca.node_names_ == ("oslo", "bergen", "bodo")
    with pytest.raises(InputError, match="is one file; read it with"):
        DecentralizedPCA(2).fit([paths[0]])


@pytest.mark.parametrize(
    "topology",
    [
        [(0, 1), (1, 2)],
        [(2, 1), (1, 0)],
        [[0, 1, 0], [1, 0, 1], [0, 1, 0]],
        np.array([[1, 1, 0], [1, 1, 1], [0, 1, 1]]),
        pd.DataFrame([[0, 1, 0], [1, 0, 1], [0, 1, 0]]),
    ],
    ids=["links", "turned", "0/1", "with itself", "frame"],
)
def test_links_and_adjacency_are_networks(topology):
    pca = DecentralizedPCA(2, topology=topology).fit(X)
    assert is_right(pca)
    assert sorted(map(sorted, pca.weights_.graph.edges)) == [[0, 1], [1, 2]]


@pytest.mark.parametrize(
    ("settings", "given", "nodes", "message"),
    [
        ({}, FRAME, "town", "X has no column 'town' for nodes=; its columns are a, b"),
        ({}, X, "site", "names a column, but X is not a data frame"),
        ({}, LIBRARIES["polars"](FRAME).lazy(), "site", r"polars\.LazyFrame, .* collect\(\) it"),
        ({"topology": [(0, 1), (2, 3)]}, X, None, "2 components"),
        ({"topology": [[0, 1], [0, 0]]}, X, None, "2 strongly connected parts"),
    ],
)
def test_what_cannot_be_used_says_why(settings, given, nodes, message):
    with pytest.raises((DataError, InputError), match=message):
        DecentralizedPCA(2, **settings).fit(given, nodes=nodes)


def test_loadings_are_a_frame_with_the_names_of_the_features(tmp_path):
    pca = DecentralizedPCA(2).fit(FRAME, nodes="site")
    loadings = pca.loadings_
    assert loadings["feature"].tolist() == list("abcd")
    assert np.array_equal(loadings[["pc1", "pc2"]].to_numpy(), pca.components_.T)
    pca.save(tmp_path / "model.npz")
    assert load_model(tmp_path / "model.npz").loadings_.equals(loadings)
    assert DecentralizedPCA(1).fit(X).loadings_["feature"].tolist() == ["x0", "x1", "x2", "x3"]


@pytest.mark.parametrize("missing", [["pandas"], ["pandas", "polars"]])
def test_loadings_are_of_a_library_that_is_there(monkeypatch, missing):
    monkeypatch.setattr("eigenmesh.data.source.find_spec", lambda name: None if name in missing else name)
    loadings = DecentralizedPCA(2).fit(X).loadings_
    assert type(loadings).__module__.partition(".")[0] == ("polars" if len(missing) == 1 else "pyarrow")
    monkeypatch.setattr("eigenmesh.data.source.find_spec", lambda name: None)
    with pytest.raises(MissingExtraError, match="pip install pandas"):
        _ = DecentralizedPCA(2).fit(X).loadings_
