"""Scores, loadings and variances in AnnData, where scanpy looks for them."""

import numpy as np
import pytest
from typer.testing import CliRunner

from cells import in_memory, write_by_anndata, write_by_hand
from eigenmesh import DecentralizedPCA, load_model
from eigenmesh.cli.app import app
from eigenmesh.data import read_table
from eigenmesh.errors import DataError

h5py = pytest.importorskip("h5py")
K = 3


@pytest.fixture(scope="module")
def counts():
    return np.random.default_rng(0).poisson(0.5, (90, 12)) * np.geomspace(6, 1, 12)


def saved(path, counts, **options):
    """Of a fit without gene 4."""
    pca = DecentralizedPCA(K, n_nodes=3, random_state=0).fit(read_table(path, drop=["gene4"], **options).source)
    pca.save(path.with_name("pca.npz"))
    return pca


def scores(pca, counts):
    return (np.delete(counts, 4, axis=1) - pca.mean_) @ pca.components_.T


def command(*words):
    return CliRunner().invoke(app, [str(word) for word in words])


@pytest.mark.parametrize("write", [write_by_hand, write_by_anndata])
@pytest.mark.parametrize("layer", [None, "dense"])
def test_a_copy_of_the_file_has_the_results(write, layer, counts, tmp_path):
    write(tmp_path / "cells.h5ad", counts)
    options = [] if layer is None else ["--table", f"layer={layer}"]
    pca = saved(tmp_path / "cells.h5ad", counts, layer=layer)
    # Twice: what is there already is written over.
    for source, target in (("cells", "once"), ("once", "twice")):
        words = [tmp_path / f"{source}.h5ad", "--model", tmp_path / "pca.npz", "--out", tmp_path / f"{target}.h5ad"]
        assert command("transform", *words, *options).exit_code == 0
    values = scores(pca, counts + (layer == "dense"))
    with h5py.File(tmp_path / "twice.h5ad") as file:
        np.testing.assert_allclose(file["obsm/X_pca"][:], values, atol=1e-9)
        np.testing.assert_array_equal(np.delete(file["varm/PCs"][:], 4, axis=0), pca.components_.T)
        assert not file["varm/PCs"][4].any()
        np.testing.assert_array_equal(file["uns/pca/variance"][:], pca.explained_variance_)
        np.testing.assert_array_equal(file["uns/pca/variance_ratio"][:], pca.explained_variance_ratio_)
        assert file["uns/pca/params/zero_center"][()]
        assert ("layer" in file["uns/pca/params"]) == (layer is not None)
        assert file["uns/pca"].attrs["encoding-type"] == "dict"
        assert file["obsm/X_pca"].attrs["encoding-type"] == "array"
    if write is write_by_anndata:
        adata = pytest.importorskip("anndata").read_h5ad(tmp_path / "twice.h5ad")
        np.testing.assert_allclose(adata.obsm["X_pca"], values, atol=1e-9)
        assert adata.varm["PCs"].shape == (12, K)
        assert adata.uns["pca"]["params"] == {
            "zero_center": True,
            "use_highly_variable": False,
            **({} if layer is None else {"layer": layer}),
        }


@pytest.mark.parametrize("real", [False, True], ids=["like it", "AnnData"])
def test_an_object_in_memory_gets_the_same(counts, tmp_path, real):
    write_by_hand(tmp_path / "cells.h5ad", counts)
    pca = saved(tmp_path / "cells.h5ad", counts)
    order = np.random.default_rng(1).permutation(12)
    for model in (pca, load_model(tmp_path / "pca.npz")):
        adata = in_memory(counts[:, order], real)
        adata.var.index = [f"gene{column}" for column in order]
        model.to_anndata(adata)
        np.testing.assert_allclose(adata.obsm["X_pca"], scores(pca, counts), atol=1e-9)
        np.testing.assert_array_equal(adata.varm["PCs"][order != 4], pca.components_.T[_without(order)])
        assert not adata.varm["PCs"][order == 4].any()
        assert adata.uns["pca"]["variance"].tolist() == pca.explained_variance_.tolist()
    adata.var.index = [f"other{column}" for column in order]
    with pytest.raises(DataError, match="no columns left"):
        pca.to_anndata(adata)


def _without(order):
    """Places among the genes of the model."""
    kept = order[order != 4]
    return kept - (kept > 4)


def test_what_is_no_anndata_is_refused(counts, tmp_path):
    write_by_hand(tmp_path / "cells.h5ad", counts)
    saved(tmp_path / "cells.h5ad", counts)
    np.save(tmp_path / "cells.npy", counts)
    words = ["--model", tmp_path / "pca.npz", "--out", tmp_path / "out.h5ad"]
    refused = command("transform", tmp_path / "cells.npy", *words)
    assert refused.exit_code == 2
    assert "is for the scores of a .h5ad file" in " ".join(refused.output.split())
    assert not (tmp_path / "out.h5ad").exists()
