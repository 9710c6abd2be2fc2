"""What users give that is not quite what was meant: it is understood, or refused in words that name the cure."""

from __future__ import annotations

import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest
from sklearn.datasets import load_wine

from cells import in_memory
from eigenmesh import DecentralizedPCA, StreamingPCA, load_model
from eigenmesh.data import as_source
from eigenmesh.data.source import as_narwhals
from eigenmesh.errors import DataError, InputError, UnreadableFileError

WINE = load_wine(as_frame=True).frame
X, CULTIVAR = WINE.drop(columns="target").to_numpy(), WINE["target"].to_numpy()


def pca(**settings) -> DecentralizedPCA:
    return DecentralizedPCA(2, scale=True, random_state=0, **settings)


def test_a_frame_is_transformed_with_the_column_of_its_nodes_still_in_it():
    fitted = pca()
    scores = fitted.fit_transform(WINE, nodes="target")
    assert np.array_equal(scores, fitted.transform(WINE.drop(columns="target")))
    assert np.isfinite(fitted.score(WINE))


def test_that_column_is_forgotten_with_the_next_fit():
    fitted = pca().fit(WINE, nodes="target").fit(WINE)
    assert fitted.transform(WINE).shape == (len(WINE), 2)
    assert "target" in fitted.feature_names_in_


def test_masked_entries_are_missing_and_not_the_values_below_the_mask():
    masked = np.ma.masked_array(X, np.zeros_like(X, dtype=bool))
    masked[5, 3] = np.ma.masked
    holes = X.copy()
    holes[5, 3] = np.nan
    with pytest.raises(DataError, match=r"row 5 of the data.*column 3 is NaN"):
        pca().fit(masked)
    filled = pca(missing="mean").fit(masked)
    expected = pca(missing="mean").fit(holes)
    assert np.array_equal(filled.components_, expected.components_)
    assert np.array_equal(filled.transform(masked), expected.transform(holes))


@pytest.mark.parametrize("in_parts", [False, True])
def test_a_batch_has_no_values_below_its_mask_either(in_parts):
    masked = np.ma.masked_array(X, np.zeros_like(X, dtype=bool))
    masked[5, 3] = np.ma.masked
    with pytest.raises(DataError, match=r"row 5, column 3 is nan; drop the row"):
        StreamingPCA(2, n_nodes=2).partial_fit([masked, X] if in_parts else masked)


DAYS = pd.date_range("2026-01-01", periods=len(WINE))
NOT_NUMBERS = {
    "dates": WINE.assign(seen=DAYS),
    "dates alone": pd.DataFrame({"seen": DAYS, "left": DAYS[::-1]}),
    "dates with a time zone": WINE.assign(seen=DAYS.tz_localize("UTC")),
    "durations": WINE.assign(seen=DAYS - DAYS[0]),
    "periods": WINE.assign(seen=DAYS.to_period("D")),
    "dates as objects": WINE.assign(seen=[day.date() for day in DAYS]),
    "categories": WINE.assign(seen=pd.Categorical(["a", "b"] * 89)),
    "lists": WINE.assign(seen=[[1.0, 2.0]] * len(WINE)),
    "dates of polars": pl.DataFrame({"x": X[:, 0], "seen": DAYS.to_numpy()}),
    "dates of pyarrow": pa.table({"x": X[:, 0], "seen": DAYS.to_numpy()}),
}


@pytest.mark.parametrize("frame", NOT_NUMBERS.values(), ids=NOT_NUMBERS)
def test_columns_of_dates_and_other_things_are_named_with_the_cure(frame):
    said = r"has columns that are not numbers: 'seen' \(.*; give (drop|categories)=.* to fit or to read_table"
    for call in (pca().fit, StreamingPCA(2).partial_fit, lambda one: pca().fit([one, one])):
        with pytest.raises(DataError, match=said):
            call(frame)
    names = as_narwhals(frame, "X").columns
    fitted = DecentralizedPCA(1, n_nodes=2).fit(
        pd.DataFrame(np.random.default_rng(0).random((20, len(names))), columns=names)
    )
    with pytest.raises(
        DataError, match=r"'seen' \(.*the model was fitted to numbers in these columns, so give numbers"
    ):
        fitted.transform(frame)


class Images:
    """A data set of PyTorch, as far as it matters here."""

    def __len__(self):
        return 90

    def __getitem__(self, row):
        raise AssertionError("one image after another")


def test_anndata_is_refused_where_no_matrix_can_be_chosen():
    for call in (as_source, StreamingPCA(2).partial_fit):
        with pytest.raises(DataError, match=r"is an AnnData object, not a matrix; give its matrix, adata\.X"):
            call(in_memory(np.ones((90, 12))))


def test_what_is_no_array_is_refused_before_it_is_taken_apart():
    for call in (pca().fit, StreamingPCA(2).partial_fit, as_source):
        with pytest.raises(DataError, match=r"is a test_surprising_input\.Images, not a matrix; give an array"):
            call(Images())


@pytest.mark.parametrize(
    ("nodes", "row"),
    [
        (np.where(np.arange(len(X)) == 7, np.nan, CULTIVAR), 7),
        (np.where(np.arange(len(X)) == 8, None, CULTIVAR.astype(str)), 8),
        (np.where(np.arange(len(X)) == 9, "", CULTIVAR.astype(str)), 9),
    ],
    ids=["NaN", "None among text", "empty text"],
)
def test_a_sample_without_a_node_is_named(nodes, row):
    with pytest.raises(DataError, match=f"row {row} has no entry in nodes"):
        pca().fit(X, nodes=nodes)


@pytest.mark.parametrize(
    ("samples", "settings", "said"),
    [
        (WINE.assign(town="oslo"), {}, r"columns that are not numbers: 'town' \(String\)"),
        (pd.DataFrame(X[:, :3], columns=["a", "a", "b"]), {}, "columns of one name; rename"),
        ("wine.csv", {}, "wine.csv is one file; read it with eigenmesh.data.read_table"),
        (1e-200 * X, {}, "all samples are equal, or differ by less than 1e-160"),
    ],
    ids=["words", "same name", "path", "tiny"],
)
def test_what_cannot_be_fitted_is_refused_in_our_own_words(samples, settings, said):
    with pytest.raises(InputError, match=said):
        pca(**settings).fit(samples)


@pytest.mark.parametrize("parts", [{"nodes": CULTIVAR}, {}], ids=["nodes", "network"])
def test_a_number_of_nodes_that_is_not_that_of_the_data_is_refused(parts):
    topology = "cycle" if parts else [("a", "b"), ("b", "c")]
    with pytest.raises(InputError, match="n_nodes = 5, but data and network have 3 nodes"):
        pca(n_nodes=5, topology=topology).fit(X, **parts)


def test_what_is_no_model_is_refused_without_advice_to_unpickle_it(tmp_path):
    WINE.to_csv(tmp_path / "wine.csv")
    with pytest.raises(UnreadableFileError, match="it is not a zip file") as refused:
        load_model(tmp_path / "wine.csv")
    assert "pickle" not in str(refused.value)
