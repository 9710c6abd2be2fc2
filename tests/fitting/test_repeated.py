"""A fit whose seed was drawn can be repeated, bit for bit, with the seed that it names."""

import json

import numpy as np
import pytest
from sklearn.datasets import load_digits
from typer.testing import CliRunner

from eigenmesh import DecentralizedPCA
from eigenmesh.cli import app


@pytest.mark.parametrize("transport", [None, "threads"])
def test_a_drawn_seed_repeats_a_fit(transport):
    X = load_digits().data[:300]
    # Split, graph and start all come from the seed.
    settings = {"n_components": 2, "n_nodes": 5, "topology": "erdos_renyi", "split": "random", "transport": transport}
    first, other = (DecentralizedPCA(**settings).fit(X) for _ in range(2))
    seed = first.result_.seed
    assert 2**62 <= seed < 2**63
    assert seed != other.result_.seed
    again = DecentralizedPCA(**settings, random_state=seed).fit(X)
    assert set(again.weights_.graph.edges) == set(first.weights_.graph.edges)
    assert np.array_equal(again.node_components_, first.node_components_)
    assert again.certificate_.error_bound == first.certificate_.error_bound
    assert again.result_.iterations == first.result_.iterations


def test_the_json_and_the_report_of_a_fit_say_how_to_repeat_it(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)

    def fit(name, *more):
        words = ["fit", "digits", "-k", "2", "--nodes", "4", "--report", f"{name}.html", "--out", f"{name}.npz", *more]
        monkeypatch.setattr("sys.argv", ["eigenmesh", *words])
        assert CliRunner().invoke(app, [*words, "--json", f"{name}.json"]).exit_code == 0
        with np.load(f"{name}.npz") as arrays:
            return json.loads((tmp_path / f"{name}.json").read_text()), arrays["node_components"]

    numbers, first = fit("first")
    assert f"--out first.npz --seed {numbers['seed']}" in (tmp_path / "first.html").read_text()
    again, second = fit("second", "--seed", str(numbers["seed"]))
    assert (again["seed"], again["rounds"], again["bytes"]) == (numbers["seed"], numbers["rounds"], numbers["bytes"])
    assert np.array_equal(first, second)
    assert (tmp_path / "second.html").read_text().count("--seed") == 1
