"""``eigenmesh fit``: right answers in files, the right words and the right exit status."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
import scipy.sparse
from sklearn.decomposition import PCA

from eigenmesh import StopReason
from eigenmesh.data import RandomSplit, Shards
from eigenmesh.estimator.pca import DecentralizedPCA
from eigenmesh.events import Ended, EventReader, Record, Started
from eigenmesh.networks import Traffic

TOL = 1e-6
PROMISED = {
    "solver",
    "n_components",
    "nodes",
    "converged",
    "stop_reason",
    "iterations",
    "rounds",
    "messages",
    "matrices",
    "bytes",
    "residuals",
    "error_bound",
    "explained_variance",
    "explained_variance_ratio",
    "wall_s",
    "data",
    "n_samples",
    "n_features",
    "topology",
    "split",
    "seed",
    "tol",
}


def assert_components(found: np.ndarray, X: np.ndarray) -> None:
    """Every row is within TOL of scikit-learn's component, by the sine of the angle."""
    true = PCA(len(found), svd_solver="full").fit(X).components_
    along = np.sum(found * true, axis=1, keepdims=True)
    assert np.linalg.norm(found - along * true, axis=1).max() < TOL


@pytest.mark.parametrize("suffix", [".csv", ".npy", ".npz", "sparse.npz"])
def test_one_file_gives_the_components_of_scikit_learn(call, write_csv, tmp_path, samples, suffix):
    path = tmp_path / f"data{suffix}"
    match suffix:
        case ".csv":
            write_csv(path.name, samples)
        case ".npy":
            np.save(path, samples)
        case ".npz":
            np.savez(path, X=samples)
        case _:
            scipy.sparse.save_npz(path, scipy.sparse.csr_array(samples))
    done = call("fit", path, "-k", 2, "--out", "r.npz", "--json", "r.json")
    assert done.exit_code == 0, done.output
    pooled = PCA(2).fit(samples)
    with np.load("r.npz", allow_pickle=False) as arrays:
        assert_components(arrays["components"], samples)
        assert arrays["node_components"].shape == (10, 2, 6)
        for node in arrays["node_components"]:
            assert_components(node, samples)
        np.testing.assert_allclose(arrays["mean"], pooled.mean_, atol=1e-12)
        np.testing.assert_allclose(arrays["explained_variance"], pooled.explained_variance_, rtol=1e-9)
        np.testing.assert_allclose(arrays["explained_variance_ratio"], pooled.explained_variance_ratio_, rtol=1e-9)
        np.testing.assert_allclose(arrays["singular_values"], pooled.singular_values_, rtol=1e-9)
        assert "scale" not in arrays.files
        if suffix == ".csv":
            assert arrays["feature_names"].tolist() == [f"c{column}" for column in range(6)]


def test_json_has_what_is_promised_and_counts_the_whole_fit(call, tmp_path, samples):
    np.save(tmp_path / "data.npy", samples)
    done = call("fit", "data.npy", "-k", 2, "--nodes", 4, "--seed", 5, "--topology", "cycle", "--json", "r.json")
    assert done.exit_code == 0
    numbers = json.loads((tmp_path / "r.json").read_text())
    assert set(numbers) >= PROMISED
    assert (numbers["nodes"], numbers["n_samples"], numbers["n_features"]) == (4, 240, 6)
    assert (numbers["topology"], numbers["split"], numbers["seed"], numbers["tol"]) == ("cycle", "random", 5, 1e-6)
    assert numbers["converged"] is True
    assert numbers["stop_reason"] == "converged"
    assert numbers["error_bound"] <= 1e-6

    same = DecentralizedPCA(2, topology="cycle", random_state=5).fit(Shards.from_array(samples, 4, RandomSplit(5)))
    for name, sent in vars(same.traffic_).items():
        assert numbers[name] == sent
    assert sum(numbers["rounds_by_phase"].values()) == numbers["rounds"]
    assert numbers["rounds_by_phase"]["set-up"] > 0


@pytest.mark.parametrize("words", [(), ("--transport", "threads")], ids=["simulation", "threads"])
def test_the_last_record_of_the_events_is_the_traffic(call, tmp_path, samples, words):
    np.save(tmp_path / "x.npy", samples)
    done = call("fit", "x.npy", "-k", "2", "--nodes", "4", "--json", "fit.json", "--events", "fit.jsonl", *words)
    assert done.exit_code == 0, done.output
    assert "wrote fit.jsonl" in done.stdout
    numbers = json.loads(Path("fit.json").read_text())
    events = [entry.event for entry in EventReader("fit.jsonl").new()]
    last = [event for event in events if isinstance(event, Record)][-1]
    assert {name: getattr(last, name) for name in vars(Traffic())} == {name: numbers[name] for name in vars(Traffic())}
    (started,) = (event for event in events if isinstance(event, Started))
    assert (last.bound, started.solver) == (numbers["error_bound"], numbers["solver"])
    assert events[-1] == Ended("done", True, StopReason.CONVERGED.words)


def test_plan_results_and_files_are_told_on_standard_output(call, tmp_path, samples):
    np.save(tmp_path / "data.npy", samples)
    done = call("fit", "data.npy", "-k", 2, "--out", "r.npz")
    for words in ("240 samples of 6 features", "10 nodes", "diameter", "beta", "formed", "kB beyond the data"):
        assert words in done.stdout
    for words in ("sin(angle) at most", "rounds", "messages", "matrices", "Converged in", "wrote r.npz"):
        assert words in done.stdout
    assert done.stderr == ""


def test_several_files_are_a_node_each_and_links_go_by_their_names(call, write_csv, tmp_path, samples):
    sizes = {"north": slice(0, 100), "south": slice(100, 220), "islands": slice(220, 240)}
    for name, rows in sizes.items():
        write_csv(f"{name}.csv", samples[rows])
    # A path with the islands in the middle, which the files have last.
    (tmp_path / "links.txt").write_text("islands north\nislands south\n")
    files = [f"{name}.csv" for name in sizes]
    done = call("fit", *files, "-k", 2, "--topology", "links.txt", "--out", "r.npz", "--json", "r.json")
    assert done.exit_code == 0, done.output
    with np.load("r.npz", allow_pickle=False) as arrays:
        assert_components(arrays["components"], samples)
        assert arrays["node_names"].tolist() == list(sizes)
    numbers = json.loads((tmp_path / "r.json").read_text())
    assert numbers["nodes"] == 3
    assert numbers["split"] == "one node per file"
    assert "20 to 120 samples per node" in done.stdout


def test_split_by_label_has_one_node_a_label(call, write_csv, samples):
    labels = np.array(["a", "b", "c"])[np.digitize(samples[:, 0], [-0.5, 0.5])]
    write_csv("data.csv", samples, labels)
    done = call(
        "fit",
        "data.csv",
        "--table",
        "label_column=site",
        "--split",
        "label",
        "-k",
        2,
        "--out",
        "r.npz",
        "--json",
        "r.json",
    )
    assert done.exit_code == 0, done.output
    with np.load("r.npz", allow_pickle=False) as arrays:
        assert arrays["node_names"].tolist() == ["a", "b", "c"]
        assert_components(arrays["components"], samples)
    with open("r.json") as file:
        assert json.load(file)["split"] == "label"


def test_dirichlet_split_uses_the_labels_of_a_data_set(call):
    done = call("fit", "digits", "-k", 1, "--split", "dirichlet:0.3", "--nodes", 5, "--out", "r.npz", "-q")
    assert done.exit_code == 0, done.output
    from sklearn.datasets import load_digits

    with np.load("r.npz") as arrays:
        assert arrays["node_components"].shape[0] == 5
        assert_components(arrays["components"], load_digits().data)


def test_sizes_say_how_many_nodes_there_are(call):
    done = call("fit", "synthetic:d=5,k=2,n=100", "-k", 2, "--split", "sizes:20,30,50", "--json", "-")
    assert done.exit_code == 0
    assert json.loads(done.stdout)["nodes"] == 3


def test_scaled_data_give_the_components_of_standardised_data(call, tmp_path, samples):
    np.save(tmp_path / "data.npy", samples * [1, 10, 100, 1, 1, 1])
    done = call("fit", "data.npy", "-k", 2, "--scale", "--out", "r.npz")
    assert done.exit_code == 0
    with np.load("r.npz") as arrays:
        np.testing.assert_allclose(arrays["scale"], (samples * [1, 10, 100, 1, 1, 1]).std(axis=0))
        assert_components(arrays["components"], (samples - samples.mean(axis=0)) / samples.std(axis=0))


def test_missing_entries_count_as_the_mean_where_asked(call, write_csv, samples):
    holed = samples.copy()
    holed[::7, 2] = np.nan
    write_csv("data.csv", holed)
    done = call("fit", "data.csv", "-k", 2, "--missing", "mean", "--out", "r.npz")
    assert done.exit_code == 0, done.output
    filled = np.where(np.isnan(holed), np.nanmean(holed, axis=0), holed)
    with np.load("r.npz") as arrays:
        assert_components(arrays["components"], filled)


def test_share_of_the_variance_takes_as_many_components_as_scikit_learn(call, tmp_path, samples):
    np.save(tmp_path / "data.npy", samples)
    done = call("fit", "data.npy", "-k", "0.8", "--json", "-")
    assert done.exit_code == 0
    numbers = json.loads(done.stdout)
    assert numbers["n_components"] == PCA(0.8, svd_solver="full").fit(samples).n_components_
    assert sum(numbers["explained_variance_ratio"]) >= 0.8


def test_default_number_of_components_fits_narrow_data(call):
    done = call("fit", "synthetic:d=3,k=1,n=200", "--json", "-")
    assert json.loads(done.stdout)["n_components"] == 3


def test_json_on_standard_output_has_it_to_itself(call):
    done = call("fit", "digits", "-k", 2, "--json", "-")
    assert done.exit_code == 0
    assert json.loads(done.stdout)["data"] == "digits"
    assert "sin(angle) at most" in done.stderr


def test_quiet_says_nothing(call):
    done = call("fit", "digits", "-k", 2, "--quiet", "--out", "r.npz")
    assert (done.exit_code, done.stdout, done.stderr) == (0, "", "")


def test_run_that_does_not_converge_writes_says_so_and_exits_with_1(call, tmp_path):
    done = call(
        "fit", "digits", "-k", 3, "--max-rounds", 5, "--out", "r.npz", "--json", "r.json", "--plot", "r.png", "--quiet"
    )
    assert done.exit_code == 1
    assert "not converged (max rounds)" in done.stderr
    assert "Raise --max-rounds" in done.stderr
    numbers = json.loads((tmp_path / "r.json").read_text())
    assert numbers["converged"] is False
    assert numbers["stop_reason"] == "max_rounds"
    assert numbers["error_bound"] > 1e-6
    assert (tmp_path / "r.npz").exists()
    assert (tmp_path / "r.png").read_bytes().startswith(b"\x89PNG")


def test_a_masked_fit_says_what_it_has_shown_in_words_and_as_json(call, tmp_path, samples):
    np.save(tmp_path / "data.npy", samples)
    done = call("fit", "data.npy", "-k", 2, "--privacy", "masked", "--json", "r.json")
    told = json.loads((tmp_path / "r.json").read_text())["privacy"]
    assert (told["mode"], told["of_one_site"]) == ("masked", "nothing, if all nodes follow the protocol")
    assert "Masked: nobody has learned a number of any single node, if all nodes follow the protocol" in done.stdout
    assert f"All nodes now know {told['of_all_samples']}." in done.stdout


def test_every_solver_averaging_weight_and_covariance_is_understood(call, tmp_path, samples):
    np.save(tmp_path / "data.npy", samples)
    for words in (
        ("--averaging", "chebyshev"),
        ("--averaging", "gossip", "--topology", "complete"),
        ("--averaging", "integers"),
        ("--privacy", "masked", "--transport", "threads"),
        ("--weights", "best_constant"),
        ("--covariance", "matrix-free"),
        ("--covariance", "chunked"),
        ("--solver", "fast-pca:step_size=0.3"),
        ("--topology", "erdos-renyi"),
    ):
        done = call("fit", "data.npy", "-k", 2, "--out", "r.npz", *words)
        assert done.exit_code == 0, (words, done.output)
        with np.load("r.npz") as arrays:
            assert_components(arrays["components"], samples)
