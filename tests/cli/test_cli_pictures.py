"""Pictures that commands draw: the result by --plot, the run by --plot-network."""

import re

import numpy as np
import pytest


def words_of(path):
    """The texts of an SVG, in order."""
    return re.findall(r"<text[^>]*>([^<]+)</text>", path.read_text(encoding="utf-8"))


@pytest.fixture
def table(tmp_path):
    """A table of three growers."""
    rng = np.random.default_rng(0)
    lines = ["height,weight,age,site"]
    lines += [
        f"{a:.4f},{b:.4f},{c:.4f},{'abc'[row % 3]}" for row, (a, b, c) in enumerate(rng.random((60, 3)) * [9, 3, 1])
    ]
    (tmp_path / "data.csv").write_text("\n".join(lines))
    return tmp_path / "data.csv"


FIT = ("fit", "data.csv", "--table", "label_column=site", "-k", 3, "--seed", 0)


def test_a_fit_draws_its_result_and_on_request_its_run(call, tmp_path, table):
    done = call(*FIT, "--plot", "r.svg", "--plot-network", "n.svg", "--plot-components", "1,3", "--plot-ellipses")
    assert done.exit_code == 0, done.stderr
    words = words_of(tmp_path / "r.svg")
    assert {"Explained variance", "Scores", "Component 1", "Component 3", "a", "b", "c", "height"} <= set(words)
    assert any(re.fullmatch(r"component 3 \([\d.]+%\)", one) for one in words)
    assert "60 samples in 3 groups, ellipses for 95% of each" in words
    assert "Network" not in words
    assert {"Network", "Convergence"} <= set(words_of(tmp_path / "n.svg"))


def test_files_are_groups_and_a_random_split_makes_none(call, tmp_path):
    for name in ("oslo", "bergen"):
        np.save(tmp_path / f"{name}.npy", np.random.default_rng(len(name)).random((20, 4)))
    assert call("fit", "oslo.npy", "bergen.npy", "-k", 2, "--plot", "two.svg").exit_code == 0
    assert {"oslo", "bergen", "40 samples in 2 groups"} <= set(words_of(tmp_path / "two.svg"))
    assert call("fit", "oslo.npy", "-k", 2, "--nodes", 4, "--plot", "one.svg").exit_code == 0
    assert "20 samples" in words_of(tmp_path / "one.svg")


def test_new_samples_are_drawn_on_the_components_of_a_model(call, tmp_path, table):
    assert call(*FIT, "--out", "pca.npz").exit_code == 0
    scores = ("transform", "data.csv", "--model", "pca.npz", "--out", "s.csv", "--table", "label_column=site")
    done = call(*scores, "--plot", "s.svg", "--plot-components", "2,3")
    assert done.exit_code == 0, done.stderr
    assert {"data.csv: 60 samples", "60 samples in 3 groups", "Component 2", "Component 3"} <= set(
        words_of(tmp_path / "s.svg")
    )
    done = call(*scores, "--plot", "s.csv")
    assert (done.exit_code, "s.csv is an input already" in done.stderr) == (2, True)


def test_components_that_were_not_fitted_are_named(call, tmp_path, table):
    done = call(*FIT, "--plot", "r.svg", "--plot-components", "1,9")
    assert done.exit_code == 0
    assert "--plot-components 1,9, but there are 3 components; the picture shows the first two" in done.stderr
    for wrong in ("1,1", "0,1", "1", "a,b", "1,2,3"):
        done = call(*FIT, "--plot", "r.svg", "--plot-components", wrong)
        assert (done.exit_code, "must be two different numbers" in done.stderr) == (2, True)


def test_columns_split_over_sites_have_scores_and_a_report(call, tmp_path):
    X = np.random.default_rng(0).random((40, 6)) * [9, 5, 3, 1, 1, 1]
    for name, part in (("lab", X[:, :2]), ("genes", X[:, 2:])):
        np.savetxt(tmp_path / f"{name}.csv", part, delimiter=",")
    words = ("lab.csv", "genes.csv", "--partition", "features", "-k", 2)
    done = call("fit", *words, "--plot", "r.svg", "--report", "r.html")
    assert done.exit_code == 0, done.stderr
    assert "40 samples" in words_of(tmp_path / "r.svg")
    assert '"nodes": ["all nodes"]' in (tmp_path / "r.html").read_text(encoding="utf-8")
