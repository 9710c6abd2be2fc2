"""Certificates for components of any tool: bounds against the truth, and what is said about them."""

from __future__ import annotations

import numpy as np
import pytest
from sklearn.datasets import load_digits
from sklearn.decomposition import PCA, IncrementalPCA

from cells import write_by_hand
from eigenmesh import DecentralizedPCA, certify
from eigenmesh.data import read_components, read_table
from eigenmesh.data.formats.plink import Variant, save_plink
from eigenmesh.errors import DataError, EigenmeshError, InputError, UnreadableFileError
from eigenmesh.model import read_model
from genotypes import write_bed

X = load_digits().data[:, 1:]
X = X[:, X.std(axis=0) > 0]
VALUES, VECTORS = (pair[..., ::-1] for pair in np.linalg.eigh(np.cov(X.T)))
TRUE = VECTORS.T
K = 5


def sines(given):
    units, true = given / np.linalg.norm(given, axis=1, keepdims=True), TRUE[: len(given)]
    return np.linalg.norm(units - np.sum(units * true, axis=1, keepdims=True) * true, axis=1)


@pytest.mark.parametrize(
    "tool",
    [
        PCA(K),
        PCA(K, svd_solver="randomized", iterated_power=0, random_state=0),
        IncrementalPCA(K),
        DecentralizedPCA(K, n_nodes=3, tol=1e-2),
    ],
    ids=["exact", "randomized", "incremental", "ours"],
)
def test_bounds_are_above_the_truth_and_near_it(tool):
    fitted = tool.fit(X)
    compared = certify(X, fitted, n_nodes=4, topology="cycle")
    true = sines(fitted.components_)
    assert (compared.error_bounds >= true).all()
    assert (compared.error_bounds <= true + 1e-8).all()
    assert compared.mean_distance < 1e-12


def test_length_sign_and_orientation_do_not_matter():
    scaled = TRUE[:K] * np.array([[3], [-1], [0.5], [-7], [1]])
    for given in (scaled, scaled.T):
        compared = certify(X, given)
        assert compared.error_bound < 1e-8
        assert compared.nearest == (0, 1, 2, 3, 4)
        assert any("length 0.5 to 7" in sentence for sentence in compared.words)


def test_components_in_another_order_and_one_left_out_are_named():
    compared = certify(X, TRUE[[0, 2, 1, 3, 5]])
    assert compared.nearest == (0, 2, 1, 3, 5)
    assert [bound < 1e-8 for bound in compared.error_bounds] == [True, False, False, True, False]
    assert compared.rows[4][2] == "component 6"


def test_components_that_are_turned_among_each_other_span_the_true_space():
    turn = np.linalg.qr(np.random.default_rng(0).standard_normal((K, K)))[0]
    compared = certify(X, turn @ TRUE[:K])
    assert compared.error_bound > 0.1
    assert compared.span_bound < 1e-8
    assert any("Together they span the true space" in sentence for sentence in compared.words)


def test_directions_within_a_cluster_are_as_good_as_any_other():
    rng = np.random.default_rng(0)
    axes = np.diag(np.sqrt([9.0, 4, 4, 1, 0.5]))
    rows = np.vstack([axes, -axes]) @ np.linalg.qr(rng.standard_normal((5, 5)))[0]
    true = np.linalg.svd(rows)[2]
    turned = np.vstack([true[0], true[1] * 0.6 + true[2] * 0.8])
    compared = certify(rows, turned, n_nodes=3, topology="complete")
    assert compared.error_bound < 1e-6
    assert compared.rows[1][2] == "the cluster 2, 3"


def test_components_of_samples_that_were_not_centred_are_told():
    compared = certify(X, np.linalg.svd(X)[2][:3], mean=np.zeros(X.shape[1]))
    assert compared.nearest[0] is None
    assert any("away from the pooled mean" in sentence for sentence in compared.words)


@pytest.mark.parametrize(
    ("given", "error", "words"),
    [
        (TRUE[:K, :-2], DataError, "one of both must be"),
        (np.vstack([TRUE[:2], np.zeros_like(TRUE[0])]), InputError, "component 3 of components is zero"),
        (np.full((2, X.shape[1]), np.nan), InputError, "finite"),
        (TRUE[0], InputError, "one component in each row"),
    ],
)
def test_what_are_no_components_is_refused(given, error, words):
    with pytest.raises(error, match=words):
        certify(X, given)


def test_more_components_than_the_samples_have_are_refused():
    with pytest.raises(EigenmeshError, match="leave the last ones out"):
        certify(X[:4], TRUE[:5])


def saved_by_model(path, names):
    pca = DecentralizedPCA(K, n_nodes=3).fit(X)
    pca.feature_names_in_ = np.array(names, dtype=object)
    pca.save(path)


def as_table_of_features(path, names):
    lines = [",".join([name, *map(repr, map(float, row))]) for name, row in zip(names, TRUE[:K].T, strict=True)]
    # The order of the lines does not matter.
    path.write_text("\n".join(["feature,pc1,pc2,pc3,pc4,pc5", *lines[::-1]]) + "\n")


@pytest.mark.parametrize(
    ("name", "write"),
    [
        ("c.npy", lambda path, names: np.save(path, TRUE[:K])),
        ("c.npz", lambda path, names: np.savez(path, components_=TRUE[:K], mean_=X.mean(axis=0), other=np.eye(3))),
        ("model.npz", saved_by_model),
        ("loadings.csv", as_table_of_features),
    ],
)
def test_files_of_components_are_read(tmp_path, name, write):
    names = [f"f{column}" for column in range(X.shape[1])]
    write(tmp_path / name, names)
    np.savetxt(tmp_path / "data.csv", X, delimiter=",", header=",".join(names), comments="", fmt="%.17g")
    table = read_table(tmp_path / "data.csv")
    compared = certify(table.source, tmp_path / name)
    assert compared.error_bound < 1e-6
    assert (compared.mean_distance is None) == (name in ("c.npy", "loadings.csv"))


def test_weights_of_alleles_are_those_of_the_genotypes(tmp_path):
    rng = np.random.default_rng(0)
    copies = rng.binomial(2, rng.uniform(0.2, 0.8, (3, 24)).repeat(20, axis=0)).astype(float)
    variants = [Variant("1", f"rs{at}", str(at), ("A", "G") if at % 2 else ("T", "C")) for at in range(24)]
    write_bed(tmp_path / "all", copies, [f"s{row}" for row in range(60)], variants)
    table = read_table(tmp_path / "all.bed")
    pca = DecentralizedPCA(2, n_nodes=3, scale="binomial").fit(table.source)
    pca.save(tmp_path / "pca.npz")
    scores = pca.transform(table.source)
    save_plink(tmp_path / "all.eigenvec", tmp_path / "all.bed", read_model(tmp_path / "pca.npz"), scores)
    given = tmp_path / "all.eigenvec.allele"
    assert certify(table.source, given, scale="binomial", n_nodes=3).error_bound < 1e-6


def test_loadings_of_cells_are_read(tmp_path):
    h5py = pytest.importorskip("h5py")
    counts = np.random.default_rng(0).poisson(3.0, (90, 12)).astype(float)
    write_by_hand(tmp_path / "cells.h5ad", counts)
    with pytest.raises(UnreadableFileError, match="scanpy"):
        read_components(tmp_path / "cells.h5ad")
    with h5py.File(tmp_path / "cells.h5ad", "r+") as file:
        file["varm/PCs"] = PCA(3).fit(counts).components_.T
    cells = read_table(tmp_path / "cells.h5ad")
    assert certify(cells.source, tmp_path / "cells.h5ad", n_nodes=3).error_bound < 1e-6


def test_features_that_the_file_does_not_have_are_named(tmp_path):
    as_table_of_features(tmp_path / "loadings.csv", [f"g{column}" for column in range(X.shape[1])])
    names = ",".join(f"f{column}" for column in range(X.shape[1]))
    np.savetxt(tmp_path / "data.csv", X, delimiter=",", header=names, comments="")
    with pytest.raises(DataError, match="but not 'f0'"):
        certify(read_table(tmp_path / "data.csv").source, tmp_path / "loadings.csv")
