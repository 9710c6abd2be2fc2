"""HDF5, AnnData and zarr, written by their own libraries and read in pieces."""

import numpy as np
import pytest

from cells import write_by_anndata, write_by_hand
from eigenmesh import DecentralizedPCA, graphs
from eigenmesh.data import Block, Shards, as_source, build_covariance, pooled_moments, read_table
from eigenmesh.data import covariance as sparse_covariance
from eigenmesh.errors import DataError, UnreadableFileError
from eigenmesh.networks import Stacked

h5py = pytest.importorskip("h5py")


@pytest.fixture(scope="module")
def counts():
    rng = np.random.default_rng(0)
    X = rng.poisson(0.3, (90, 12)) * np.geomspace(6, 1, 12)
    X[3] = 0
    return X


@pytest.fixture(params=[".h5ad", ".zarr"])
def suffix(request):
    return request.param


@pytest.fixture(params=[write_by_hand, write_by_anndata])
def cells(request, suffix, counts, tmp_path):
    write = request.param
    pytest.importorskip("h5py" if suffix == ".h5ad" else "zarr")
    path = tmp_path / f"cells{suffix}"
    write(path, counts)
    return path


def test_cells_are_read_by_rows_with_their_names(cells, counts, monkeypatch):
    table = read_table(cells, label_column="site", weight_column="count")
    assert table.source.n_stored == np.count_nonzero(counts)
    assert not table.source.in_memory
    assert table.feature_names[2] == "gene2"
    assert (table.ids[4], table.labels[4], table.weights[6]) == ("cell4", "south", 2)
    monkeypatch.setattr("eigenmesh.data.source.WINDOW", 16)
    for rows in (slice(0, 90), slice(20, 41), slice(5, 5), np.array([80, 3, 3, 41, 0]), np.array([], dtype=int)):
        assert (table.source.read(rows).toarray() == counts[rows]).all()
        dense = read_table(cells, layer="dense").source
        assert (dense.read(rows) == counts[rows] + 1).all()
    chosen = read_table(cells, columns=["gene7", "gene1"])
    assert (chosen.X.toarray() == counts[:, [7, 1]]).all()


def test_a_fit_that_reads_pieces_is_that_of_the_matrix(cells, counts, monkeypatch):
    monkeypatch.setattr(sparse_covariance, "HELD_BYTES", 0)
    source, weights = read_table(cells).source, np.arange(90) % 4
    for block in (as_source(source), Shards.from_array(source, 3).blocks[0]):
        assert not block.in_memory
    for given in (None, weights):
        expected = DecentralizedPCA(3, n_nodes=4, random_state=0).fit(counts, sample_weight=given)
        found = DecentralizedPCA(3, n_nodes=4, random_state=0).fit(source, sample_weight=given)
        np.testing.assert_allclose(found.components_, expected.components_, atol=1e-7)
        np.testing.assert_allclose(found.explained_variance_, expected.explained_variance_, rtol=1e-9)
        np.testing.assert_allclose(found.transform(source), expected.transform(counts), atol=1e-6)


def test_products_of_pieces_are_those_of_the_whole(cells, counts, monkeypatch):
    shards = Shards.from_array(read_table(cells).source, 3).weighted_rows(np.arange(90) % 4 + 1)
    network = Stacked(graphs.metropolis(graphs.topology("complete", 3)))
    moments = pooled_moments(shards, network)
    X = np.random.default_rng(1).standard_normal((3, 12, 5))
    held = build_covariance(shards, moments)
    monkeypatch.setattr(sparse_covariance, "HELD_BYTES", 0)
    monkeypatch.setattr("eigenmesh.data.block.chunk_bytes", lambda device: 700)
    read = build_covariance(shards, moments)
    assert not any(isinstance(rows, Block) for rows in held.matrices)
    assert read.matrices == shards.blocks
    np.testing.assert_allclose(read.apply(X), held.apply(X), rtol=1e-9)
    U = np.linalg.qr(np.random.default_rng(2).standard_normal((12, 2)))[0]
    np.testing.assert_allclose(read.traces_beyond(U), held.traces_beyond(U))


def test_a_dataset_of_a_plain_file(counts, tmp_path):
    path = tmp_path / "samples.h5"
    with h5py.File(path, "w") as file:
        file.create_dataset("run/samples", data=counts, chunks=(10, 12))
        file.create_dataset("run/times", data=np.arange(90))
    np.testing.assert_array_equal(read_table(path).X, counts)
    with h5py.File(path, "a") as file:
        file.create_dataset("run/other", data=counts)
    np.testing.assert_array_equal(read_table(path, layer="run/other", drop=[0]).X, counts[:, 1:])
    for words, said in (({}, "several datasets"), ({"layer": "x"}, "no dataset 'x'.*run/other, run/samples")):
        with pytest.raises(UnreadableFileError, match=said):
            read_table(path, **words)


def test_bad_files_are_refused_by_name(cells, tmp_path):
    for words, error, said in (
        ({"layer": "log"}, UnreadableFileError, "no layer 'log'; it has by columns, dense"),
        ({"layer": "by columns"}, UnreadableFileError, "sparse by columns"),
        ({"label_column": "age"}, DataError, "no column 'age' in obs; it has count, site"),
        ({"weight_column": "site"}, DataError, r"obs\['site'\] of .*, row 0, is north; a weight must be"),
        ({"drop": ["gene99"]}, DataError, "gene99"),
    ):
        with pytest.raises(error, match=said):
            read_table(cells, **words)
    with h5py.File(tmp_path / "plain.h5ad", "w") as file:
        file.create_dataset("X", data=np.ones((3, 2)))
    with pytest.raises(UnreadableFileError, match="is not an AnnData file"):
        read_table(tmp_path / "plain.h5ad")


def test_files_that_were_cut_short_are_refused_by_name(cells, monkeypatch):
    for path in [cells] if cells.is_file() else (cells / "X" / "data").rglob("*[0-9]"):
        whole = path.read_bytes()
        path.write_bytes(whole[: len(whole) // 2])
    with pytest.raises(UnreadableFileError, match=r"cells\.h5ad cannot be|X/data of .*cells\.zarr cannot be"):
        read_table(cells).X  # noqa: B018


def test_parts_that_disagree_are_refused(counts, tmp_path):
    write_by_hand(tmp_path / "short.h5ad", counts)
    with h5py.File(tmp_path / "short.h5ad", "a") as file:
        indices = file["X/indices"][:-1]
        del file["X/indices"]
        file["X/indices"] = indices
    with pytest.raises(UnreadableFileError, match=r"numbers in .* columns, but indptr says .*not written completely"):
        read_table(tmp_path / "short.h5ad")


@pytest.mark.parametrize(
    ("part", "said"),
    [("indices", "X/indices of .* has the first column .* times in row"), ("indptr", "indptr falls from row")],
)
def test_chunks_of_sparse_cells_that_are_lost_are_noticed(part, said, counts, tmp_path):
    zarr, path = pytest.importorskip("zarr"), tmp_path / "cells.zarr"
    write_by_hand(path, counts)
    group = zarr.open_group(path, mode="a")["X"]
    whole = group[part][:]
    del group[part]
    group.create_array(part, data=whole, chunks=(20,))
    assert (read_table(path).X.toarray() == counts).all()
    (path / "X" / part / "1").unlink()
    with pytest.raises(UnreadableFileError, match=said):
        read_table(path).X  # noqa: B018


def test_a_first_column_that_is_stored_twice_in_a_row_is_added_up(counts, suffix, tmp_path):
    """Where no part of the store is missing, it is nothing but an entry in two pieces."""
    path = tmp_path / f"cells{suffix}"
    write_by_hand(path, counts)
    row = int(np.flatnonzero(counts[:, 0])[0])
    file = h5py.File(path, "a") if suffix == ".h5ad" else pytest.importorskip("zarr").open_group(path, mode="a")
    group = file["X"]
    data, indices, starts = (group[part][:] for part in ("data", "indices", "indptr"))
    place = starts[row]
    pieces = np.insert(data, place, 3.0), np.insert(indices, place, 0), starts + (np.arange(len(starts)) > row)
    for part, values in zip(("data", "indices", "indptr"), pieces, strict=True):
        del group[part]
        group[part] = values
    if suffix == ".h5ad":
        file.close()
    expected = np.array(counts, dtype=float)
    expected[row, 0] += 3.0
    assert (read_table(path).X.toarray() == expected).all()


def test_names_that_are_there_twice_are_refused(counts, tmp_path):
    write_by_hand(tmp_path / "twice.h5ad", counts)
    with h5py.File(tmp_path / "twice.h5ad", "a") as file:
        file["var/_index"][1] = "gene0"
    with pytest.raises(DataError, match=r"'gene0' twice in var; make them unique with adata.var_names_make_unique"):
        read_table(tmp_path / "twice.h5ad")
    write_by_hand(tmp_path / "ids.h5ad", counts)
    with pytest.raises(DataError, match=r"obs\['count'\] of .*ids\.h5ad, row 4, is '0', as .* row 0, is; give every"):
        read_table(tmp_path / "ids.h5ad", id_column="count")
