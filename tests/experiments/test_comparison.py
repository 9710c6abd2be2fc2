"""``eigenmesh.compare``: the frames, the plot and the command say the same."""

import csv

import matplotlib.figure
import numpy as np
import pytest
from typer.testing import CliRunner

import eigenmesh
from eigenmesh.cli import app
from eigenmesh.errors import InputError, UnknownNameError
from eigenmesh.solvers import BlockKrylov, FastPCA, OrthogonalIteration, TrackedSubspace

SETTINGS = {"topology": "cycle", "n_nodes": 5, "random_state": 0}


@pytest.fixture(scope="module")
def samples():
    return np.random.default_rng(0).standard_normal((240, 6)) * [4, 3, 2, 1, 1, 1]


@pytest.fixture(scope="module")
def found(samples):
    solvers = ["block-krylov", FastPCA(step_size=0.05), OrthogonalIteration()]
    return eigenmesh.compare(samples, solvers, 2, max_rounds=400, **SETTINGS)


def test_costs_have_a_row_per_solver_and_error(found):
    costs = found.costs
    assert list(costs.columns[:4]) == ["solver", "settings", "centralised", "error"]
    krylov = costs[costs["solver"] == "block-krylov"]
    assert krylov["error"].tolist() == [1e-2, 1e-4, 1e-6, 1e-10]
    assert (np.diff(krylov["rounds"]) >= 0).all()
    assert set(costs[costs["centralised"]]["solver"]) == {"oi"}
    errors = found.errors
    for solver, unit in (("block-krylov", "bytes"), ("fast-pca", "matrices")):
        own = errors[errors["solver"] == solver]
        reached = own[own["error"] <= 1e-4][unit].iloc[0]
        row = costs[(costs["solver"] == solver) & (costs["error"] == 1e-4)]
        assert row[unit].item() == reached
        assert row["least_error"].item() == own["error"].min()
    slow = eigenmesh.compare(np.eye(6), ["fast-pca"], 1, n_nodes=3, max_rounds=5, random_state=0).costs
    assert slow["rounds"].isna().all()


def test_all_have_the_same_truth_network_and_start(samples):
    twice = eigenmesh.compare(samples, {"one": "tracked-subspace", "other": TrackedSubspace()}, 2, **SETTINGS)
    one, other = (curve.error for curve in twice.curves)
    assert np.array_equal(one, other)
    assert [method.label for method in twice.methods] == ["one", "other"]


def test_the_plot_has_the_solvers_and_takes_axes(found):
    labels = {line.get_label() for line in found.plot().axes[0].lines}
    assert labels == {"block-krylov", "fast-pca", "oi (centralised)"}
    figure = matplotlib.figure.Figure()
    axes = figure.subplots()
    assert found.plot("bytes", ax=axes) is figure
    assert {line.get_label() for line in axes.lines} == {"block-krylov", "fast-pca"}
    assert "<table" in found._repr_html_()


def test_the_command_writes_the_same_points(tmp_path, samples, monkeypatch):
    monkeypatch.chdir(tmp_path)
    np.save(tmp_path / "data.npy", samples)
    words = ["data.npy", "-k", "2", "--nodes", "5", "--topology", "cycle", "--max-rounds", "400"]
    done = CliRunner().invoke(app, ["compare", *words, "--solvers", "block-krylov", "--out", "r"])
    assert done.exit_code == 0, done.stderr
    with open(tmp_path / "r" / "errors.csv", newline="") as file:
        read = list(csv.DictReader(file))
    own = eigenmesh.compare(samples, ["block-krylov"], 2, max_rounds=400, **SETTINGS).curves[0]
    assert [int(row["rounds"]) for row in read] == own.rounds.tolist()
    np.testing.assert_allclose([float(row["error"]) for row in read], own.error, rtol=1e-5)
    assert {row["trial"] for row in read} == {"0"}


@pytest.mark.parametrize(
    ("solvers", "settings", "kind", "words"),
    [
        ("block-krylov", {}, InputError, "must be a list of solvers"),
        ([], {}, InputError, "solvers is empty"),
        (["magic"], {}, UnknownNameError, "unknown solver 'magic'"),
        ([BlockKrylov(), "block-krylov"], {}, InputError, "one twice with the same settings"),
        (["oi"], {"tol": 1e-3}, InputError, "no parameter tol for all solvers"),
        (["oi"], {"toplogy": "cycle"}, TypeError, "toplogy"),
    ],
)
def test_what_cannot_be_compared_is_refused(samples, solvers, settings, kind, words):
    with pytest.raises(kind, match=words):
        eigenmesh.compare(samples, solvers, 2, **settings)


def test_a_history_is_a_frame(samples):
    result = eigenmesh.DecentralizedPCA(2, random_state=0).fit(samples).result_
    frame = result.history_frame
    assert tuple(frame.columns) == eigenmesh.Record._fields
    assert frame["rounds"].tolist() == [record.rounds for record in result.history]
