"""Components, scores and variances of scanpy, of the version that is installed, beside ours: ``make peer-tests``."""

import anndata
import numpy as np
import pandas as pd
import pytest
import scanpy as sc
from scipy import sparse

from eigenmesh import DecentralizedPCA, load_model

K = 8


@pytest.fixture(params=["dense", "sparse"])
def adata(request):
    """Cells of three sites and of five kinds, with logarithms of counts per 10,000."""
    rng = np.random.default_rng(0)
    kinds = rng.gamma(0.5, 2.0, (5, 300))
    counts = rng.poisson(kinds[rng.integers(0, 5, 400)]).astype(np.float64)
    obs = pd.DataFrame({"site": pd.Categorical(np.array(["oslo", "bergen", "bodo"])[np.arange(400) % 3])})
    obs.index, var = (
        [f"cell{row}" for row in range(400)],
        pd.DataFrame(index=[f"gene{column}" for column in range(300)]),
    )
    made = anndata.AnnData(sparse.csr_matrix(counts) if request.param == "sparse" else counts, obs=obs, var=var)
    sc.pp.normalize_total(made, target_sum=1e4)
    sc.pp.log1p(made)
    return made


def require_same(ours, theirs):
    """The same scores, loadings and variances, but for signs; scanpy rounds to float32."""
    signs = np.sign(np.sum(ours.varm["PCs"] * theirs.varm["PCs"], axis=0))
    scale = np.abs(theirs.obsm["X_pca"]).max()
    np.testing.assert_allclose(ours.varm["PCs"] * signs, theirs.varm["PCs"], atol=1e-4)
    np.testing.assert_allclose(ours.obsm["X_pca"] * signs, theirs.obsm["X_pca"], atol=1e-4 * scale)
    for name in ("variance", "variance_ratio"):
        np.testing.assert_allclose(ours.uns["pca"][name], theirs.uns["pca"][name], rtol=1e-4)


def test_the_results_are_those_of_scanpy_over_all_sites(adata):
    theirs = adata.copy()
    sc.pp.pca(theirs, n_comps=K, svd_solver="arpack")
    pca = DecentralizedPCA(K, random_state=0).fit(adata, nodes="site")
    assert pca.node_names_ == ("bergen", "bodo", "oslo")
    pca.to_anndata(adata)
    require_same(adata, theirs)


def test_a_layer_and_highly_variable_genes(adata, tmp_path):
    adata.layers["centred"] = adata.X.copy()
    adata.layers["centred"] *= 2
    theirs = adata.copy()
    sc.pp.highly_variable_genes(theirs, n_top_genes=120)
    sc.pp.pca(theirs, n_comps=K, svd_solver="arpack", layer="centred", mask_var="highly_variable")
    genes = theirs.var_names[theirs.var.highly_variable]
    DecentralizedPCA(K, random_state=0).fit(adata, nodes="site", layer="centred", columns=genes).save(tmp_path / "pca")
    load_model(tmp_path / "pca").to_anndata(adata)
    require_same(adata, theirs)
    assert adata.uns["pca"]["params"]["layer"] == "centred"


def test_scanpy_goes_on_from_our_results(adata):
    theirs = adata.copy()
    sc.pp.pca(theirs, n_comps=K, svd_solver="arpack")
    DecentralizedPCA(K, random_state=0).fit(adata, nodes="site").to_anndata(adata)
    for one in (adata, theirs):
        sc.pp.neighbors(one, n_neighbors=10)
    ours, other = (one.obsp["distances"].astype(bool) for one in (adata, theirs))
    # Neighbours at equal distances may be others.
    assert (ours != other).nnz < 0.01 * other.nnz
