"""Peers that hold other columns of the same samples: real processes, over mutual TLS."""

import json

import numpy as np
import pytest
from sklearn.datasets import load_digits

from eigenmesh.metrics import largest_angle
from eigenmesh.model import read_model
from eigenmesh.sites.audit import summary
from mesh import Mesh, ring

pytest.importorskip("cryptography")

WIDTHS = {"oslo": 30, "bergen": 9, "bodo": 25}
BAD_INPUT, ENDED = 2, 4


@pytest.fixture
def parts():
    X = load_digits().data[:150]
    return dict(zip(WIDTHS, np.split(X, np.cumsum(list(WIDTHS.values()))[:-1], axis=1), strict=True))


def headers_of(parts):
    return {name: ["patient", *(f"{name}{column}" for column in range(part.shape[1]))] for name, part in parts.items()}


def with_ids(parts):
    return {name: np.hstack([np.arange(len(part))[:, np.newaxis] + 1000, part]) for name, part in parts.items()}


def made(tmp_path, parts):
    mesh = Mesh(tmp_path, with_ids(parts), ring(list(parts)), headers_of(parts), partition="features")
    for name in parts:
        mesh.edit(name, r"# id_column = .*", 'id_column = "patient"')
    return mesh


@pytest.mark.slow
def test_each_site_gets_all_scores_and_the_loadings_of_its_own_columns(tmp_path, parts):
    mesh, X = made(tmp_path, parts), np.hstack(list(parts.values()))
    mesh.start()
    assert set(mesh.wait().values()) == {0}, [mesh.said(name) for name in parts]
    models = {name: read_model(mesh.out(name) / "result.npz") for name in parts}
    V = np.concatenate([model.components for model in models.values()], axis=1).T
    centred = X - X.mean(axis=0)
    assert largest_angle(V[np.newaxis], np.linalg.svd(centred)[2][:3].T) < 1e-8
    for name, model in models.items():
        assert model.components.shape == (3, WIDTHS[name])
        assert (model.scores == models["oslo"].scores).all()
        np.testing.assert_allclose(model.scores, centred @ V, atol=1e-6)
        assert model.warnings
        assert mesh.numbers(name)["manifest"]["n_samples"] == 150
        written = (mesh.out(name) / "scores.csv").read_text().splitlines()
        assert written[1].startswith("1000")
        assert len(written) == 151
        sent = [json.loads(line) for line in (mesh.out(name) / "audit.jsonl").read_text().splitlines()]
        shapes = {tuple(shape) for line in sent for shape in line.get("shapes", ())}
        assert any(149 in shape for shape in shapes)
        assert not [shape for shape in shapes if set(shape) & {30, 9, 25, 64}], "a vector of loadings"
        (run,) = summary(mesh.out(name) / "audit.jsonl").runs
        assert (run.masked, run.loading_shaped, run.sample_shaped) == (True, 0, 0)
        assert mesh.numbers(name)["privacy"]["of_all_samples"].startswith("scores of all samples")


@pytest.mark.slow
def test_other_rows_are_refused_and_only_their_site_learns_where(tmp_path, parts):
    mesh = made(tmp_path, parts)
    path = mesh.folder("bodo") / "data.csv"
    lines = path.read_text().splitlines()
    path.write_text("\n".join([*lines[:41], lines[42], lines[41], *lines[43:]]))
    mesh.start()
    ended = mesh.wait()
    assert 0 not in ended.values()
    assert "from row 40 on" in mesh.said("bodo")
    assert all("row 40" not in mesh.said(name) for name in ("oslo", "bergen"))


@pytest.mark.slow
def test_another_number_of_rows_is_refused_by_the_manifest(tmp_path, parts):
    parts["bodo"] = parts["bodo"][:-1]
    mesh = made(tmp_path, parts)
    mesh.start()
    assert set(mesh.wait().values()) <= {BAD_INPUT, ENDED}
    assert "n_samples: 149 here, 150 there" in mesh.said("bodo")
