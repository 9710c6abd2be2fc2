"""Names on the command line: hyphen, underscore and case make no difference, and files keep the library's spelling."""

import json

import numpy as np
import pytest

SETTINGS = {
    "--solver": ("fast-pca:step_size=auto", "FAST_PCA:Step-Size=AUTO"),
    "--topology": ("erdos_renyi", "Erdos-Renyi"),
    "--weights": ("max_degree", "Max-Degree"),
    "--averaging": ("polynomial", "Polynomial"),
    "--covariance": ("matrix-free", "Matrix_Free"),
    "--missing": ("mean", "Mean"),
    "--split": ("contiguous", "CONTIGUOUS"),
}


def words(which):
    return [word for option, names in SETTINGS.items() for word in (option, names[which])]


@pytest.mark.parametrize("transport", [[], ["--transport", "Threads"]], ids=["simulated", "threads"])
def test_fit(call, tmp_path, samples, transport):
    np.save(tmp_path / "all.npy", samples)
    found = []
    for which in (0, 1):
        done = call(
            "fit", "all.npy", "-k", "2", "--nodes", "4", "--seed", "0", *words(which), *transport, "--json", "-"
        )
        assert done.exit_code == 0, done.stderr
        found.append(json.loads(done.stdout))
    ours, theirs = found
    same = ("weights", "topology", "averaging", "solver", "covariance", "missing", "rounds", "bytes", "error_bound")
    assert {name: ours[name] for name in same} == {name: theirs[name] for name in same}
    assert ours["solver_parameters"] == theirs["solver_parameters"] == {"step_size": "auto"}
    assert theirs["transport"] == ("threads" if transport else None)


def test_data_sets(call):
    done = call("fit", "Digits", "-k", "1", "--json", "-")
    assert json.loads(done.stdout)["data"] == "digits"


def test_compare(call, tmp_path):
    text = "FAST_PCA:Step-Size=AUTO,OI"
    options = ["-k", "1", "--max-rounds", "60", "--out", "r"]
    done = call("compare", "digits", "--solvers", text, "--cost", "Matrices", *options)
    assert done.exit_code == 0, done.stderr
    table = (tmp_path / "r" / "costs.csv").read_text()
    assert "fast-pca" in table
    assert "oi" in table


@pytest.mark.parametrize("topology", ["binary_tree", "Binary-Tree", "BINARY TREE"])
def test_graph(call, topology):
    done = call("graph", topology, "--nodes", "7", "--weights", "Best-Constant")
    assert done.exit_code == 0, done.stderr
    assert "binary_tree, best_constant weights" in done.stdout


@pytest.mark.parametrize(
    ("typed", "message"),
    [
        (("graph", "Erdos-Reny"), "unknown topology (and no file) 'Erdos-Reny'"),
        (("graph", "cycle", "--weights", "Metro"), "unknown weights 'Metro'"),
        (("fit", "digits", "--topology", "ring"), "unknown topology (and no file) 'ring'"),
        (("fit", "digits", "--missing", "drop"), "unknown policy for missing entries 'drop'"),
        (("fit", "digits", "--covariance", "full"), "unknown covariance 'full'"),
        (("fit", "digits", "--averaging", "trees"), "unknown averaging 'trees'"),
        (("compare", "digits", "--solvers", "FAST-PAC"), "Did you mean 'fast-pca'?"),
        (("compare", "digits", "--solvers", "fast-pca:step=1"), "unknown setting of fast-pca 'step'"),
        (("compare", "digits", "--cost", "money"), "unknown unit of cost 'money'"),
        (("reproduce", "Fig9"), "unknown experiment 'Fig9'"),
        (("launch", "--transport", "Smoke", "--", "fit", "digits"), "unknown transport 'Smoke'"),
        (("graph", "ring-road"), "unknown topology (and no file) 'ring-road'"),
    ],
)
def test_unknown_names_are_refused(call, typed, message):
    done = call(*typed)
    assert done.exit_code == 2
    assert message in done.stderr.replace("\n", " ")
