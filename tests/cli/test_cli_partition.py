"""Columns split over nodes, on the command line."""

import json

import numpy as np
import pytest
from sklearn.decomposition import PCA

from eigenmesh import load_model

pytestmark = [
    pytest.mark.filterwarnings("ignore::eigenmesh.errors.DataWarning"),
    pytest.mark.filterwarnings("ignore:X does not have valid feature names"),
]


@pytest.fixture
def files(samples, tmp_path):
    """Four columns in one file and two in another, both with ids."""
    for name, part in (("lab", samples[:, :4]), ("genes", samples[:, 4:])):
        head = ",".join(["patient", *(f"{name}{column}" for column in range(part.shape[1]))])
        rows = [",".join([f"P{row}", *map(repr, values)]) for row, values in enumerate(part.tolist())]
        (tmp_path / f"{name}.csv").write_text("\n".join([head, *rows]) + "\n")
    return tmp_path


def require_true(path, samples):
    model, true = load_model(path), PCA(2).fit(samples)
    signs = np.sign(np.sum(model.components_ * true.components_, axis=1))
    np.testing.assert_allclose(model.components_ * signs[:, np.newaxis], true.components_, atol=1e-8)
    np.testing.assert_allclose(model.model_.scores * signs, true.transform(samples), atol=1e-7)


@pytest.mark.parametrize("engine", [(), ("--transport", "threads", "--out", "node-{rank}.npz")])
def test_files_of_columns(call, files, samples, engine):
    words = ("--partition", "features", "--table", "id_column=patient", "-k", 2, "--seed", 1, "--json", "-")
    done = call("fit", "lab.csv", "genes.csv", *words, *(engine or ("--out", "pca.npz")))
    assert done.exit_code == 0, done.output
    assert json.loads(done.stdout)["n_samples"] == len(samples)
    if not engine:
        require_true(files / "pca.npz", samples)
        return
    parts = [load_model(files / f"node-{rank}.npz") for rank in range(2)]
    assert [part.components_.shape for part in parts] == [(2, 4), (2, 2)]
    assert "loadings of 4 of 6 columns" in parts[0].warnings_[0]
    together = parts[0].transform(samples[:, :4]) + parts[1].transform(samples[:, 4:])
    np.testing.assert_allclose(together, parts[0].model_.scores, atol=1e-7)


def test_one_table_is_split_by_columns(call, samples, write_csv, tmp_path):
    path = write_csv("all.csv", samples)
    words = ("--partition", "features", "--nodes", 3, "-k", 2, "--out", "pca.npz", "--plot", "run.png")
    done = call("fit", path, *words)
    assert done.exit_code == 0, done.output
    assert "2 columns per node" in done.output
    require_true(tmp_path / "pca.npz", samples)


def test_rows_in_another_order_are_refused_before_anything_is_written(call, files):
    lines = (files / "genes.csv").read_text().splitlines()
    (files / "genes.csv").write_text("\n".join([*lines[:7], lines[8], lines[7], *lines[9:]]) + "\n")
    words = ("--partition", "features", "--table", "id_column=patient", "-k", 2, "--out", "pca.npz")
    done = call("fit", "lab.csv", "genes.csv", *words)
    assert done.exit_code == 2
    assert "at node 1 (genes) from row 6 on" in done.stderr
    assert not (files / "pca.npz").exists()
    assert call("fit", "lab.csv", "--partition", "rows").exit_code == 2
