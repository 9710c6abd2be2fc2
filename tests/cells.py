"""AnnData files of made-up counts, for tests."""

import numpy as np
import pytest
from scipy import sparse


def write_by_anndata(path, counts):
    """By the library itself; it is no part of the tests' environment, because it asks for an older pandas."""
    anndata, pandas = pytest.importorskip("anndata"), pytest.importorskip("pandas")
    site = pandas.Categorical(np.array(["north", "south", "west"])[np.arange(90) % 3])
    obs = pandas.DataFrame({"site": site, "count": np.arange(90) % 4}, index=[f"cell{row}" for row in range(90)])
    var = pandas.DataFrame(index=[f"gene{column}" for column in range(12)])
    adata = anndata.AnnData(sparse.csr_matrix(counts), obs=obs, var=var)
    adata.layers["dense"] = counts + 1
    adata.layers["by columns"] = sparse.csc_matrix(counts)
    (adata.write_zarr if path.suffix == ".zarr" else adata.write_h5ad)(path)


def in_memory(counts, real=False):
    """An AnnData object of 90 cells; or, where the library cannot be installed, an object that has the same parts."""
    pandas = pytest.importorskip("pandas")
    site = pandas.Categorical(np.array(["north", "south", "west"])[np.arange(90) % 3])
    obs = pandas.DataFrame({"site": site, "count": np.arange(90) % 4}, index=[f"cell{row}" for row in range(90)])
    var = pandas.DataFrame(index=[f"gene{column}" for column in range(counts.shape[1])])
    kind = pytest.importorskip("anndata").AnnData if real else LikeAnnData
    return kind(sparse.csr_matrix(counts), obs=obs, var=var, layers={"dense": counts + 1.0})


class LikeAnnData:
    """What is used of an AnnData object; a view of it for each cell is slow, and none is made."""

    obs = var = X = None
    isbacked = is_view = False

    def __init__(self, X, obs, var, layers):
        self.X, self.obs, self.var, self.layers = X, obs, var, layers
        self.obsm, self.varm, self.uns = {}, {}, {}

    @property
    def shape(self):
        return len(self.obs), len(self.var)

    @property
    def obs_names(self):
        return self.obs.index

    @property
    def var_names(self):
        return self.var.index

    def __len__(self):
        return len(self.obs)

    def __getitem__(self, row):
        raise AssertionError("one cell after another")


def write_by_hand(path, counts):
    """As the specification of AnnData's files has it."""
    if path.suffix == ".zarr":
        file = pytest.importorskip("zarr").open_group(path, mode="w", zarr_format=2)
        put(file, counts)
    else:
        with pytest.importorskip("h5py").File(path, "w") as file:
            put(file, counts)


def put(file, counts):
    file["layers/dense"] = counts + 1
    for name, matrix in (("X", sparse.csr_matrix(counts)), ("layers/by columns", sparse.csc_matrix(counts))):
        group = file.create_group(name)
        group.attrs.update({"encoding-type": f"{matrix.format}_matrix", "shape": list(matrix.shape)})
        for part in ("data", "indices", "indptr"):
            group[part] = getattr(matrix, part)
    for name, what, length in (("obs", "cell", 90), ("var", "gene", 12)):
        group = file.create_group(name)
        group.attrs["_index"] = "_index"
        group["_index"] = text([f"{what}{number}" for number in range(length)], file)
    file["obs/count"] = np.arange(90) % 4
    file["obs/site/codes"] = (np.arange(90) % 3).astype(np.int8)
    file["obs/site/categories"] = text(["north", "south", "west"], file)


def text(words, file):
    """Words as the library of the file takes them."""
    return words if type(file).__module__.startswith("h5py") else np.array(words)
