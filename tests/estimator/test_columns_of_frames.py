"""Frames with ids, dates and words, and AnnData, in fit and transform: as on the command line."""

from __future__ import annotations

import inspect

import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest
from sklearn.decomposition import PCA
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

from cells import in_memory
from eigenmesh import DecentralizedPCA, StreamingPCA, load_model
from eigenmesh.data import Shards, read_table
from eigenmesh.errors import DataError, InputError

N = 60
RNG = np.random.default_rng(0)
PATIENTS = pd.DataFrame(
    {
        "patient": [f"P{row:02}" for row in range(N)],
        "seen": pd.date_range("2026-01-01", periods=N),
        "sex": np.array(["f", "m"])[np.arange(N) % 2],
        "age": RNG.normal(50, 9, N),
        "town": np.array(["oslo", "bergen", "bodo"])[np.arange(N) % 3],
        "bmi": RNG.normal(25, 3, N),
    }
)
HOW = {"id_column": "patient", "drop": "seen", "categories": {"sex": ["f", "m"]}}
NUMBERS = np.column_stack([PATIENTS.sex == "f", PATIENTS.sex == "m", PATIENTS.age, PATIENTS.bmi]).astype(float)
MADE = {"pandas": pd.DataFrame, "polars": pl.from_pandas, "pyarrow": lambda frame: pa.table(dict(frame.items()))}


def pca(**settings):
    return DecentralizedPCA(2, **{"random_state": 0, **settings})


def same(one, other):
    return np.allclose(np.abs(one), np.abs(other), atol=1e-6)


@pytest.mark.parametrize("make", MADE.values(), ids=MADE)
def test_a_frame_with_ids_dates_and_words_is_fitted_and_transformed(make):
    frame = make(PATIENTS)
    ours, theirs = pca().fit(frame, nodes="town", **HOW), PCA(2).fit(NUMBERS)
    assert ours.feature_names_in_.tolist() == ["sex=f", "sex=m", "age", "bmi"]
    assert ours.node_names_ == ("bergen", "bodo", "oslo")
    assert same(ours.components_, theirs.components_)
    assert same(ours.transform(frame), theirs.transform(NUMBERS))
    assert ours.score(frame) == pytest.approx(theirs.score(NUMBERS))


@pytest.mark.parametrize("parts", ["list", "dict", "files", "one file"])
def test_options_go_to_every_part(parts, tmp_path):
    towns = {town: part.drop(columns="town") for town, part in PATIENTS.groupby("town")}
    for town, part in towns.items():
        part.iloc[:, ::-1].to_csv(tmp_path / f"{town}.csv", index=False)
    given = {
        "list": list(towns.values()),
        "dict": towns,
        "files": sorted(tmp_path.glob("*.csv")),
        "one file": str(tmp_path / "*.csv"),
    }
    ours, theirs = pca().fit(given[parts], **HOW), PCA(2).fit(NUMBERS)
    order = [ours.feature_names_in_.tolist().index(name) for name in ("sex=f", "sex=m", "age", "bmi")]
    assert same(ours.components_[:, order], theirs.components_)
    assert same(ours.transform(PATIENTS), theirs.transform(NUMBERS))


def test_columns_are_matched_by_name_and_others_are_left_out(tmp_path):
    frame = PATIENTS[["age", "bmi"]]
    ours = pca().fit(frame)
    ours.save(tmp_path / "pca.npz")
    mixed = PATIENTS[["bmi", "patient", "age", "seen"]]
    for model in (ours, load_model(tmp_path / "pca.npz")):
        assert np.allclose(model.transform(mixed), model.transform(frame))
        assert np.allclose(model.score_samples(mixed), model.score_samples(frame))
        with pytest.raises(DataError, match="X lacks column 'age', which the model has"):
            model.transform(mixed.drop(columns="age"))


def test_a_saved_model_reads_frames_as_the_fit_did(tmp_path):
    ours = pca().fit(PATIENTS, nodes="town", **HOW)
    ours.save(tmp_path / "pca.npz")
    saved = load_model(tmp_path / "pca.npz")
    assert np.allclose(saved.transform(PATIENTS[::-1]), ours.transform(PATIENTS)[::-1])
    assert np.allclose(saved.transform(PATIENTS.drop(columns=["patient", "seen"])), ours.transform(PATIENTS))
    with pytest.raises(DataError, match="is 'x', not one of f, m"):
        saved.transform(PATIENTS.assign(sex="x"))
    ours.fit(PATIENTS[["age", "bmi"]])
    ours.save(tmp_path / "pca.npz")
    assert load_model(tmp_path / "pca.npz").model_.read_with is None


def test_dtypes_and_data_frames_out_are_kept():
    ours = pca().fit(PATIENTS, nodes="town", **HOW).set_output(transform="pandas")
    shown = ours.transform(PATIENTS.set_index(PATIENTS.patient))
    assert shown.index.tolist() == PATIENTS.patient.tolist()
    narrow = PATIENTS[["age", "bmi"]].astype(np.float32)
    assert pca().fit(narrow).transform(narrow).dtype == np.float32


def test_a_pipeline_passes_the_options_on():
    numbers = PATIENTS[["age", "bmi"]]
    steps = make_pipeline(StandardScaler().set_output(transform="pandas"), DecentralizedPCA(1, random_state=0))
    assert steps.fit(numbers, decentralizedpca__drop="bmi")[-1].feature_names_in_.tolist() == ["age"]


@pytest.mark.parametrize(
    ("given", "options", "message"),
    [
        (NUMBERS, {"drop": 0}, "are for frames, AnnData and files, not for a ndarray; leave them out"),
        ([NUMBERS, NUMBERS], {"drop": 0}, "not for a list"),
        (Shards.from_array(NUMBERS, 3), {"columns": [0]}, "not for a Shards"),
        (PATIENTS, {"drop": "day"}, "X has no column 'day'; its columns are patient, seen"),
        (
            PATIENTS,
            {"id_column": "sex", "columns": ["age", "bmi"]},
            r"row 2 of X, column 2 \('sex'\), is 'f', as row 0 of X",
        ),
        (PATIENTS, {"categories": {"sex": ["f"]}}, "must be two levels or more"),
    ],
    ids=["array", "list", "shards", "column", "ids", "levels"],
)
def test_bad_options_are_refused(given, options, message):
    with pytest.raises(InputError, match=message):
        pca().fit(given, **options)


def test_the_constructor_has_no_options_of_tables():
    assert not {"columns", "drop", "id_column", "categories", "layer"} & set(
        inspect.signature(DecentralizedPCA).parameters
    )


def test_batches_of_a_stream_are_matched_by_name():
    stream = StreamingPCA(1, n_nodes=2, random_state=0)
    frame = PATIENTS[["age", "bmi"]]
    stream.partial_fit(frame[:30]).partial_fit(frame[["bmi", "age"]][30:])
    assert same(stream.mean_, frame.mean().to_numpy())


@pytest.fixture(scope="module")
def counts():
    return np.random.default_rng(0).poisson(0.5, (90, 12)) * np.geomspace(6, 1, 12)


@pytest.fixture(params=[False, True], ids=["like it", "AnnData"])
def adata(request, counts):
    return in_memory(counts, request.param)


class TestAnnData:
    def test_fit_and_results_where_scanpy_has_them(self, adata, counts):
        ours, theirs = pca().fit(adata, nodes="site"), PCA(2).fit(counts)
        assert ours.node_names_ == ("north", "south", "west")
        assert ours.feature_names_in_.tolist() == [f"gene{column}" for column in range(12)]
        assert same(ours.components_, theirs.components_)
        assert same(ours.transform(adata), theirs.transform(counts))
        ours.to_anndata(adata)
        assert same(adata.obsm["X_pca"], theirs.transform(counts))
        assert same(adata.varm["PCs"], theirs.components_.T)

    def test_a_layer_is_remembered(self, adata, counts, tmp_path):
        theirs = PCA(2).fit(counts + 1)
        ours = pca().fit(adata, nodes="site", layer="dense")
        ours.save(tmp_path / "pca.npz")
        for model in (ours, load_model(tmp_path / "pca.npz")):
            assert same(model.mean_, counts.mean(axis=0) + 1)
            assert same(model.transform(adata), theirs.transform(counts + 1))
            model.to_anndata(adata)
            assert adata.uns["pca"]["params"]["layer"] == "dense"
            assert same(adata.obsm["X_pca"], theirs.transform(counts + 1))

    def test_some_genes(self, adata, counts):
        genes = ["gene7", "gene2", "gene3"]
        ours, theirs = pca().fit(adata, columns=genes), PCA(2).fit(counts[:, [7, 2, 3]])
        assert same(ours.components_, theirs.components_)
        ours.to_anndata(adata)
        assert same(adata.varm["PCs"][[7, 2, 3]], theirs.components_.T)
        assert not adata.varm["PCs"][[0, 1, 4, 5]].any()

    def test_parts(self, adata, counts):
        ours, theirs = pca().fit({"a": adata, "b": adata}), PCA(2).fit(np.vstack([counts, counts]))
        assert same(ours.components_, theirs.components_)

    def test_tables(self, adata):
        read = read_table(adata, label_column="site", weight_column="count")
        assert read.ids.tolist()[:2] == ["cell0", "cell1"]
        assert read.labels.tolist()[:4] == ["north", "south", "west", "north"]
        assert read.weights.tolist()[:5] == [0, 1, 2, 3, 0]

    def test_bad_names(self, adata):
        for options, message in (
            ({"nodes": "town"}, "X has no column 'town' in obs for nodes=; it has site, count"),
            ({"layer": "raw"}, "X has no layer 'raw'; it has dense"),
            ({"id_column": "town"}, "X has no column 'town' in obs; it has count, site"),
            ({"id_column": "site"}, r"obs\['site'\] of X, row 3, is 'north', as obs\['site'\] of X, row 0"),
            ({"drop": "tp53"}, "X has no column 'tp53'"),
            ({"categories": {"site": ["north", "south"]}}, "leave categories out"),
        ):
            with pytest.raises(InputError, match=message):
                pca().fit(adata, **options)

    def test_no_matrix(self, adata):
        adata.X = None
        with pytest.raises(DataError, match="X has no X; give layer='dense'"):
            pca().fit(adata)

    def test_cells_in_a_file_are_read_from_there(self, counts, tmp_path):
        in_memory(counts, real=True).write_h5ad(tmp_path / "a.h5ad")
        backed = pytest.importorskip("anndata").read_h5ad(tmp_path / "a.h5ad", backed="r")
        assert same(pca().fit(backed, nodes="site").components_, PCA(2).fit(counts).components_)
        with pytest.raises(DataError, match=r"is a view of a file; give adata.to_memory\(\)"):
            pca().fit(backed[:50])
