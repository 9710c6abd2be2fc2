"""``eigenmesh fit --stream``: batches from folders and files; the answer is that of all samples together."""

from __future__ import annotations

import json

import numpy as np
import pytest
from sklearn.decomposition import PCA

from eigenmesh.events import BatchChecked, EventReader
from problems import angles


def assert_components(path, X, k=2):
    with np.load(path, allow_pickle=False) as arrays:
        assert angles(arrays["components"], PCA(k).fit(X).components_.T).max() < 1e-6
        assert np.allclose(arrays["mean"], X.mean(axis=0), rtol=1e-12)
        return {name: arrays[name] for name in arrays.files}


@pytest.fixture
def folder(write_csv, tmp_path, samples):
    """Four files of rows, and one file that is no table."""
    (tmp_path / "days").mkdir()
    for day, rows in enumerate(np.array_split(samples, 4)):
        write_csv(f"days/day-{day}.csv", rows)
    (tmp_path / "days" / "notes.md").write_text("not a table")
    return "days"


def test_files_of_a_folder_are_batches(call, folder, samples):
    words = ("--stream", "--nodes", 3, "-k", 2, "--out", "r.npz", "--json", "r.json", "--events", "e.jsonl")
    done = call("fit", folder, *words)
    assert done.exit_code == 0, done.output
    assert_components("r.npz", samples)
    with open("r.json") as file:
        numbers = json.load(file)
    assert numbers["n_samples"] == numbers["n_samples_seen"] == 240
    lines = [line for line in done.stdout.splitlines() if line.startswith("day-")]
    assert [line.split(":")[0] for line in lines] == [f"day-{day}.csv" for day in range(4)]
    assert "240 samples" in lines[3]
    assert "variance lost" in lines[3]
    told = [entry.event for entry in EventReader("e.jsonl").new()]
    assert [event.batch for event in told if isinstance(event, BatchChecked)] == [1, 2, 3]


def test_a_file_in_pieces_with_what_a_stream_can_do(call, tmp_path, samples):
    np.save("all.npy", samples)
    words = ("fit", "all.npy", "--stream", "--batch-rows", 100, "-k", 2, "--out", "r.npz")
    done = call(*words, "--averages-per-batch", 2, "--store", tmp_path)
    assert "rows 200 to 299: 240 samples, 2 averages" in done.stdout
    assert_components("r.npz", samples)
    done = call(*words, "--window", 1)
    assert done.exit_code == 0, done.output
    assert_components("r.npz", samples[200:])


def test_folders_are_nodes_and_one_may_lack_a_file(call, folder, samples, write_csv, tmp_path):
    (tmp_path / "other").mkdir()
    write_csv("other/day-2.csv", samples[:30])
    done = call("fit", folder, "other", "--stream", "-k", 2, "--out", "r.npz")
    assert done.exit_code == 0, done.output
    arrays = assert_components("r.npz", np.vstack([samples, samples[:30]]))
    assert arrays["node_components"].shape == (2, 2, 6)


def test_labels_are_nodes(call, write_csv, samples):
    sites = np.array(["a", "b"] * 120)
    path = write_csv("all.csv", samples, sites)
    words = ("fit", path, "--stream", "--batch-rows", 80, "--table", "label_column=site", "--split", "label", "-k", 2)
    done = call(*words, "--out", "r.npz")
    assert done.exit_code == 0, done.output
    assert assert_components("r.npz", samples)["node_components"].shape == (2, 2, 6)


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["days", "--batch-rows", "5"], "--batch-rows needs --stream"),
        (["days", "all.npy", "--stream"], "all.npy is not a folder, but other sources are"),
        (["empty", "--stream"], "empty has no file to read"),
        (["days", "--stream", "--forgetting", "0"], "forgetting = 0.0 must be"),
        (["days", "--stream", "--missing", "mean"], "needs all samples at once"),
        (["days", "--stream", "--privacy", "masked", "--nodes", "2"], "2 nodes cannot be masked"),
        (["days", "--stream", "--split", "label"], "no labels to split by"),
        (["days", "--stream", "--transport", "mpi"], "every node reads its own"),
        (["few.npy", "--stream", "-k", "3"], "are too few"),
        (["days", "--stream", "--table", "weight_column=c0"], "--stream, which counts every row once"),
        (["days", "--stream", "--partition", "features"], "a stream is split by samples"),
        (["days", "--stream", "--covariance", "chunked"], "--covariance cannot be used with --stream"),
    ],
)
def test_bad_input_is_one_line(call, folder, tmp_path, samples, words, message):
    (tmp_path / "empty").mkdir()
    np.save("all.npy", samples)
    np.save("few.npy", samples[:2])
    done = call("fit", *words)
    assert done.exit_code == 2, done.output
    assert message in done.stderr
    assert "Traceback" not in done.output


def test_columns_of_another_name_or_number_are_refused(call, folder, tmp_path):
    file = tmp_path / "days" / "day-2.csv"
    text = file.read_text()
    file.write_text(text.replace("c3", "other", 1))
    assert "the batch lacks column 'c3', which the stream has" in call("fit", folder, "--stream").stderr
    file.write_text("c0,c1\n1,2\n3,4\n")
    assert (
        "the batch lacks columns 'c2', 'c3', 'c4', 'c5', which the stream has" in call("fit", folder, "--stream").stderr
    )
    file.write_text(text.replace("c0,c1", "c1,c0", 1))
    assert call("fit", folder, "--stream").exit_code == 0
