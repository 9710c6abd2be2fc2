"""HDF5 and AnnData files, written by their own libraries and read in pieces."""

import numpy as np
import pytest
from scipy import sparse

from eigenmesh import DecentralizedPCA, graphs
from eigenmesh.data import Block, Shards, as_source, build_covariance, pooled_moments, read_table
from eigenmesh.data import _hdf5 as hdf5
from eigenmesh.data import _sparse_covariance as sparse_covariance
from eigenmesh.errors import DataError, UnreadableFileError
from eigenmesh.networks import Stacked

h5py = pytest.importorskip("h5py")


@pytest.fixture(scope="module")
def counts():
    rng = np.random.default_rng(0)
    X = rng.poisson(0.3, (90, 12)) * np.geomspace(6, 1, 12)
    X[3] = 0
    return X


def write_by_anndata(path, counts):
    """By the library itself; it is no part of the tests' environment, because it asks for an older pandas."""
    anndata, pandas = pytest.importorskip("anndata"), pytest.importorskip("pandas")
    site = pandas.Categorical(np.array(["north", "south", "west"])[np.arange(90) % 3])
    obs = pandas.DataFrame({"site": site, "count": np.arange(90) % 4}, index=[f"cell{row}" for row in range(90)])
    var = pandas.DataFrame(index=[f"gene{column}" for column in range(12)])
    adata = anndata.AnnData(sparse.csr_matrix(counts), obs=obs, var=var)
    adata.layers["dense"] = counts + 1
    adata.layers["by columns"] = sparse.csc_matrix(counts)
    adata.write_h5ad(path)


def write_by_hand(path, counts):
    """As the specification of AnnData's files has it."""
    with h5py.File(path, "w") as file:
        file["layers/dense"] = counts + 1
        for name, matrix in (("X", sparse.csr_matrix(counts)), ("layers/by columns", sparse.csc_matrix(counts))):
            group = file.create_group(name)
            group.attrs.update({"encoding-type": f"{matrix.format}_matrix", "shape": matrix.shape})
            for part in ("data", "indices", "indptr"):
                group[part] = getattr(matrix, part)
        for name, what, length in (("obs", "cell", 90), ("var", "gene", 12)):
            group = file.create_group(name)
            group.attrs["_index"] = "_index"
            group["_index"] = [f"{what}{number}" for number in range(length)]
        file["obs/count"] = np.arange(90) % 4
        file["obs/site/codes"] = (np.arange(90) % 3).astype(np.int8)
        file["obs/site/categories"] = ["north", "south", "west"]


@pytest.fixture(params=[write_by_hand, write_by_anndata])
def cells(request, counts, tmp_path):
    request.param(tmp_path / "cells.h5ad", counts)
    return tmp_path / "cells.h5ad"


def test_cells_are_read_by_rows_with_their_names(cells, counts, monkeypatch):
    table = read_table(cells, label_column="site", weight_column="count")
    assert table.source.n_stored == np.count_nonzero(counts)
    assert not table.source.in_memory
    assert table.feature_names[2] == "gene2"
    assert (table.ids[4], table.labels[4], table.weights[6]) == ("cell4", "south", 2)
    monkeypatch.setattr(hdf5, "WINDOW", 16)
    for rows in (slice(0, 90), slice(20, 41), slice(5, 5), np.array([80, 3, 3, 41, 0]), np.array([], dtype=int)):
        assert (table.source.read(rows).toarray() == counts[rows]).all()
        dense = read_table(cells, layer="dense").source
        assert (dense.read(rows) == counts[rows] + 1).all()
    chosen = read_table(cells, columns=["gene7", "gene1"])
    assert (chosen.X.toarray() == counts[:, [7, 1]]).all()


def test_a_fit_that_reads_pieces_is_that_of_the_matrix(cells, counts, monkeypatch):
    monkeypatch.setattr(sparse_covariance, "FILE_COPY_BYTES", 0)
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
    monkeypatch.setattr(sparse_covariance, "FILE_COPY_BYTES", 0)
    monkeypatch.setattr("eigenmesh.data._block.chunk_bytes", lambda device: 700)
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
    whole = cells.read_bytes()
    cells.write_bytes(whole[: len(whole) // 2])
    with pytest.raises(UnreadableFileError, match=r"cannot be read as \.h5ad"):
        read_table(cells)
    with h5py.File(tmp_path / "plain.h5ad", "w") as file:
        file.create_dataset("X", data=np.ones((3, 2)))
    with pytest.raises(UnreadableFileError, match="no AnnData file"):
        read_table(tmp_path / "plain.h5ad")


def test_names_that_are_there_twice_are_refused(counts, tmp_path):
    write_by_hand(tmp_path / "twice.h5ad", counts)
    with h5py.File(tmp_path / "twice.h5ad", "a") as file:
        file["var/_index"][1] = "gene0"
    with pytest.raises(DataError, match=r"'gene0' twice in var; make them unique with adata.var_names_make_unique"):
        read_table(tmp_path / "twice.h5ad")
