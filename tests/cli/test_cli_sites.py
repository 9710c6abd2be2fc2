"""audit, status and transform on the command line, and the log of a peer, which strangers cannot fill."""

from __future__ import annotations

import json
import logging
import math
import os
import time
from pathlib import Path

import numpy as np
import pytest
from sklearn.decomposition import PCA

from eigenmesh.cli.site_run import MOST_REFUSALS, REFUSALS_EVERY_S, FewRefusals, logged
from eigenmesh.events import NeighbourStatus
from eigenmesh.model import Model, write_model
from eigenmesh.protocol.effects import Sent
from eigenmesh.sites.audit import AuditWriter
from eigenmesh.sites.network_file import EXAMPLE
from eigenmesh.sites.status import Status, write_status


def _audit_file(shapes, n_samples=500, messages=3, privacy="open", epochs=1, partition="samples"):
    dtypes = ("uint64" if privacy == "masked" else "float64",) * len(shapes)
    with AuditWriter(Path("audit.jsonl"), "bergen", "cohort-1", 64, n_samples, privacy, partition) as writer:
        for epoch in range(epochs):
            for round_ in range(messages):
                writer.record(Sent("oslo", "DATA", epoch, round_, shapes, dtypes, 5120, 5200, "0" * 64, False))


def test_an_audit_without_fault_says_so(call):
    _audit_file(((1, 64, 10),))
    done = call("site", "audit", "audit.jsonl")
    assert done.exit_code == 0, done.output
    for words in (
        "bergen sent 3 messages with 15.4 kB to 1 neighbours",
        "No message had the shape of samples (500 rows of 64)",
        "No message had the shape of a covariance (64 x 64)",
        "No neighbour received more than 30 columns of 64 numbers",
        "1 x 64 x 10 float64",
        "The largest message had 5.1 kB: DATA to oslo.",
    ):
        assert words in done.stdout
    assert done.stderr == ""


@pytest.mark.parametrize(
    ("shapes", "messages", "said"),
    [
        (((1, 64, 64),), 1, "1 messages had the shape of a covariance"),
        (((1, 500, 64),), 2, "2 messages had the shape of samples"),
        (((1, 64, 10),), 6, "oslo received 54 or more columns of 64 numbers"),
    ],
)
def test_an_audit_that_shows_too_much_says_so(call, shapes, messages, said):
    _audit_file(shapes, messages=messages)
    assert said in call("site", "audit", "audit.jsonl").stderr


def test_where_columns_are_split_the_audit_looks_for_loadings(call):
    _audit_file(((1, 499, 10),), partition="features")
    done = call("site", "audit", "audit.jsonl")
    assert "No message had the shape of loadings of this site's 64 columns" in done.stdout
    assert "No message had the shape of a Gram matrix (499 x 499)" in done.stdout
    assert "No neighbour received more than 30 columns of 499 numbers" in done.stdout
    assert done.stderr == ""
    _audit_file(((1, 499, 10),), messages=7, partition="features", privacy="masked")
    assert (
        "All sites now know at most scores of all samples, number of columns"
        in call("site", "audit", "audit.jsonl").stdout
    )
    _audit_file(((1, 64, 5),), partition="features", n_samples=300)
    assert "3 messages had the shape of loadings" in call("site", "audit", "audit.jsonl").stderr
    _audit_file(((1, 499, 10),), messages=7, partition="features", n_samples=500)
    assert "oslo received 64 or more columns of 499 numbers" in call("site", "audit", "audit.jsonl").stderr


def test_a_site_with_few_samples_shows_its_covariance_sooner(call):
    _audit_file(((1, 64, 10),), n_samples=25)
    assert "oslo received 25 or more columns of 64 numbers" in call("site", "audit", "audit.jsonl").stderr


def test_an_audit_of_a_masked_run_says_what_all_sites_know_and_that_nobody_knows_a_number_of_this_one(call):
    # As many columns as would show this site's covariance in an open run: of 25 samples, and of 64 features.
    _audit_file(((1, 64, 10),), n_samples=25, messages=6, privacy="masked")
    done = call("site", "audit", "audit.jsonl")
    assert (done.exit_code, done.stderr) == (0, "")
    for words in (
        "Masked: every number that this site added to a sum was masked; nobody learned a number of this site alone, "
        "unless the others have continued without it.",
        "All sites now know at most N, mean, variances, and the pooled covariance on at most 60 of 64 dimensions, by "
        "60 columns of products.",
        "1 x 64 x 10 uint64",
    ):
        assert words in done.stdout
    assert "can be computed" not in done.stdout
    assert "were lost" not in done.stdout
    (run,) = json.loads(call("site", "audit", "audit.jsonl", "--json").stdout)["runs"]
    assert (run["privacy"], run["by_neighbour"]["oslo"]["columns"]) == ("masked", 60)


def test_an_audit_of_a_masked_run_that_lost_a_site_says_what_became_known_of_it(call):
    _audit_file(((1, 64, 10),), messages=7, privacy="masked", epochs=2)
    said = call("site", "audit", "audit.jsonl").stdout
    assert "the pooled covariance on all 64 dimensions" in said
    assert "Sites were lost during this run, and the others know more about them: their number of samples" in said


def test_an_audit_as_numbers_and_damaged_lines(call):
    _audit_file(((1, 64, 10),))
    with Path("audit.jsonl").open("ab") as file:
        file.write(b'{"at": "2026')
    assert json.loads(call("site", "audit", "audit.jsonl", "--json").stdout)["damaged"] == [5]
    assert "1 lines could not be read (the first is line 5)" in call("site", "audit", "audit.jsonl").stderr


def test_a_changed_audit_ends_with_status_1_and_says_where(call):
    _audit_file(((1, 64, 10),))
    assert "4 lines and no hash is wrong; the last line has SHA-256 " in call("site", "audit", "audit.jsonl").stdout
    lines = Path("audit.jsonl").read_bytes().splitlines(keepends=True)
    Path("audit.jsonl").write_bytes(b"".join([*lines[:2], *lines[3:]]))
    done = call("site", "audit", "audit.jsonl")
    assert (done.exit_code, "the chain of hashes is broken at line 3" in done.stderr) == (1, True)
    assert call("site", "audit", "audit.jsonl", "--json").exit_code == 1


def test_no_audit_file_is_an_error_in_one_line(call):
    done = call("site", "audit", "none.jsonl")
    assert (done.exit_code, done.stderr.count("\n")) == (2, 1)


@pytest.fixture
def site(call):
    Path("network.toml").write_text(EXAMPLE)
    assert call("site", "init", "network.toml", "--out", "mesh").exit_code == 0
    Path("mesh/bergen/out").mkdir()
    return Path("mesh/bergen/site.toml")


def _say(site, **changes):
    oslo = NeighbourStatus("oslo", True, time.time(), changes.pop("waiting", False), 41, 1000, 2000, "", 0.0432)
    changes["waiting_since"] = time.time() - changes.pop("waited_s", 0.0)
    more = {"round": 42, "max_rounds": 5000, "residual": 1e-3, "bytes": 1500, "neighbours": (oslo,), **changes}
    assert write_status(
        site.parent / "out" / "status.json", Status("bergen", "cohort-1", **{"phase": "running", **more})
    )


def test_status_says_how_the_run_goes(call, site):
    _say(site)
    done = call("site", "status", site)
    assert done.exit_code == 0, done.output
    for words in ("bergen", "42 of a budget of 5,000", "1.0e-03", "1.5 kB", "oslo", "up", "43.2 ms", "Running."):
        assert words in done.stdout


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"waiting": True, "waited_s": 12.0}, "Waiting for oslo, for 12 s so far."),
        ({"written": 1e9}, "has written nothing for "),
        ({"pid": 2**22 + 1}, "ended without reporting it"),
        ({"phase": "parked", "message": "Ctrl-C at oslo"}, "The run ended here 0 s ago: parked."),
    ],
)
def test_status_says_what_is_wrong(call, site, changes, said):
    _say(site, **changes)
    assert said in call("site", "status", site).stderr


def test_status_says_why_a_link_is_down_while_that_matters(call, site):
    trouble = (NeighbourStatus("oslo", refusal="its certificate has expired"),)
    _say(site, neighbours=trouble)
    assert "oslo: its certificate has expired" in call("site", "status", site).stderr
    _say(site, neighbours=trouble, phase="done")
    assert call("site", "status", site).stderr == ""


def test_a_neighbours_words_are_shown_as_one_plain_line(call, site):
    forged = "no\x1b[2J\nerror: pay \u202eoslo"
    _say(site, phase="aborted", message=forged)
    shown = call("site", "status", site).output
    assert "aborted: no error: pay oslo" in shown
    assert not {"\x1b", "\u202e"} & set(shown)


def test_status_as_values(call, site):
    _say(site, residual=math.nan, waiting=True)
    found = json.loads(call("site", "status", site, "--json").stdout)
    assert (found["health"], found["waiting_for"], found["residual"]) == ("running", ["oslo"], None)
    assert found["pid"] == os.getpid()


def test_status_before_the_first_start(call, site):
    done = call("site", "status", site)
    assert (done.exit_code, done.stderr.count("\n")) == (2, 1)
    assert "no peer has been started here yet" in done.stderr


NAMES = np.array([f"c{column}" for column in range(6)])


def _save_model(X, names=True, scale=False, **more):
    factor = X.std(axis=0, ddof=1) if scale else np.ones(X.shape[1])
    pca = PCA(3).fit(X / factor)
    values = {
        "components": pca.components_,
        "explained_variance": pca.explained_variance_,
        "explained_variance_ratio": pca.explained_variance_ratio_,
        "singular_values": pca.singular_values_,
        "mean": X.mean(axis=0),
        "scale": factor if scale else None,
        "feature_names": tuple(NAMES) if names else None,
    }
    write_model("model.npz", Model(**{**values, **more}))
    return pca, factor


@pytest.mark.parametrize("kind", ["npz", "npy", "csv"])
@pytest.mark.parametrize("scale", [False, True])
def test_scores_are_those_of_pca(call, write_csv, samples, kind, scale):
    pca, factor = _save_model(samples, scale=scale)
    write_csv("new.csv", samples[:50] + 1.0)
    done = call("transform", "new.csv", "--model", "model.npz", "--out", f"scores.{kind}")
    assert done.exit_code == 0, done.output
    if kind == "csv":
        assert Path("scores.csv").read_text().startswith("pc1,pc2,pc3\n")
        scores = np.loadtxt("scores.csv", delimiter=",", skiprows=1)
    elif kind == "npy":
        scores = np.load("scores.npy")
    else:
        with np.load("scores.npz") as archive:
            scores = archive["scores"]
    assert np.allclose(scores, pca.transform((samples[:50] + 1.0) / factor), atol=1e-12)


def test_whitened_scores_have_unit_variance(call, write_csv, samples):
    _save_model(samples)
    write_csv("new.csv", samples)
    assert call("transform", "new.csv", "--model", "model.npz", "--out", "s.npy", "--whiten").exit_code == 0
    assert np.allclose(np.load("s.npy").var(axis=0, ddof=1), 1.0)


def test_the_model_of_fit_can_be_used(call, write_csv, samples):
    write_csv("all.csv", samples, np.arange(len(samples)) % 4)
    words = (
        "fit",
        "all.csv",
        "--table",
        "label_column=site",
        "--split",
        "label",
        "-k",
        "3",
        "--scale",
        "--out",
        "model.npz",
    )
    assert call(*words).exit_code == 0
    done = call("transform", "all.csv", "--table", "label_column=site", "--model", "model.npz", "--out", "s.npz")
    assert done.exit_code == 0, done.output
    with np.load("s.npz") as found:
        assert (found["labels"] == np.arange(len(samples)) % 4).all()
        expected = PCA(3).fit_transform((samples - samples.mean(axis=0)) / samples.std(axis=0))
        assert np.allclose(np.abs(found["scores"]), np.abs(expected), atol=1e-5)


def test_a_missing_entry_counts_as_the_mean_where_asked_for(call, write_csv, samples):
    pca, _ = _save_model(samples)
    holed = samples[:5].copy()
    holed[2, 1] = np.nan
    write_csv("new.csv", holed)
    done = call("transform", "new.csv", "--model", "model.npz", "--out", "s.npy")
    assert done.exit_code == 2
    assert "line 4 of new.csv, column 1 ('c1'), is nan" in done.stderr
    assert call("transform", "new.csv", "--model", "model.npz", "--out", "s.npy", "--missing", "mean").exit_code == 0
    holed[2, 1] = samples[:, 1].mean()
    assert np.allclose(np.load("s.npy"), pca.transform(holed))


def test_large_and_sparse_files_are_projected_piece_by_piece(call, samples, monkeypatch):
    from scipy import sparse

    monkeypatch.setattr("eigenmesh.data.scores.PIECE_BYTES", 7 * 8 * 6)
    pca, _ = _save_model(samples, names=False)
    np.save("new.npy", samples)
    sparse.save_npz("new.npz", sparse.csr_array(samples))
    for name in ("new.npy", "new.npz"):
        assert call("transform", name, "--model", "model.npz", "--out", "s.npy").exit_code == 0
        assert np.allclose(np.load("s.npy"), pca.transform(samples), atol=1e-12)


@pytest.mark.parametrize(("whole", "converged"), [(True, True), (False, True), (True, False)])
def test_limitations_of_a_model_are_warned_of(call, write_csv, samples, whole, converged):
    _save_model(samples, whole=whole, converged=converged)
    write_csv("new.csv", samples)
    done = call("transform", "new.csv", "--model", "model.npz", "--out", "s.npy")
    assert done.exit_code == 0
    assert ("sites were lost" in done.stderr) != whole
    assert ("before it reached the tolerance" in done.stderr) != converged
    assert ("warning: model.npz: " in done.stderr) == (not whole or not converged)


def test_an_order_that_cannot_be_checked_is_said(call, samples):
    _save_model(samples)
    np.save("new.npy", samples)
    done = call("transform", "new.npy", "--model", "model.npz", "--out", "s.npy")
    assert done.exit_code == 0
    assert "could not be checked" in done.stderr


@pytest.mark.parametrize(
    ("changes", "words", "said"),
    [
        ({"feature_names": (*NAMES[:5], "age")}, (), ("new.csv lacks column 'age', which the model has",)),
        ({"components": np.eye(5)[:3], "mean": np.zeros(5), "feature_names": None}, (), ("6 col", "has 5")),
        ({}, ("--model", "none.npz"), ("none.npz does not exist", "eigenmesh fit --out")),
        ({}, ("--model", "other.npz"), ("other.npz is not a model", "no components, no explained_variance")),
        ({}, ("--model", "damaged.npz"), ("damaged.npz is damaged or was edited", "fit again")),
        ({}, ("--out", "s.txt"), ("s.txt", ".npz, .npy, .csv")),
        ({}, ("--out", "none/s.npy"), ("there is no folder none",)),
        ({}, ("--out", "new.csv"), ("new.csv is an input already",)),
        ({}, ("--missing", "drop"), ("'drop'", "error, least-squares, mean")),
    ],
)
def test_what_does_not_fit_is_refused_in_one_line_and_nothing_is_written(
    call, write_csv, samples, changes, words, said
):
    _save_model(samples, **changes)
    np.savez("other.npz", mean=np.zeros(6))
    with np.load("model.npz") as arrays:
        np.savez("damaged.npz", **{**arrays, "mean": arrays["mean"] + 1})
    write_csv("new.csv", samples)
    before = {path: path.read_bytes() for path in Path().iterdir()}
    done = call(
        "transform",
        "new.csv",
        *(() if "--model" in words else ("--model", "model.npz")),
        *(() if "--out" in words else ("--out", "s.npy")),
        *words,
    )
    assert done.exit_code == 2, done.output
    assert done.stderr.startswith("error: ")
    assert done.stderr.count("\n") == 1
    for fragment in said:
        assert fragment in done.stderr
    assert {path: path.read_bytes() for path in Path().iterdir()} == before


def _record(text, *args):
    return logging.LogRecord("eigenmesh", logging.WARNING, "", 0, text, args, None)


def test_refused_strangers_are_counted_and_not_all_listed():
    now = [0.0]
    few = FewRefusals(lambda: now[0])
    said = [few.filter(_record("refused a TLS handshake: %s", "no certificate")) for _ in range(1000)]
    assert sum(said) == MOST_REFUSALS
    assert few.filter(_record("link to %s is up", "oslo"))
    now[0] += REFUSALS_EVERY_S
    record = _record("refused a TLS handshake: %s", "expired")
    assert few.filter(record)
    assert record.getMessage() == "refused a TLS handshake: expired (and 980 more before that)"
    again = _record("refused a TLS handshake: %s", "expired")
    assert few.filter(again)
    assert again.getMessage() == "refused a TLS handshake: expired"


def test_every_kind_of_refusal_is_bounded_and_one_does_not_hide_the_other():
    few = FewRefusals(lambda: 0.0)
    said = [
        few.filter(_record("%s", f"refused mallory at ipv4:127.0.0.1:{port}: no greeting.")) for port in range(1000)
    ]
    assert sum(said) == MOST_REFUSALS
    assert few.filter(_record("refused a TLS handshake: %s", "expired"))


def test_a_line_of_the_log_is_one_plain_object(tmp_path):
    with logged(tmp_path / "peer.log"):
        logging.getLogger("eigenmesh.test").warning("link to oslo: %s", 'no\x1b[31m\n{"level": "INFO"}')
    (line,) = (tmp_path / "peer.log").read_text().splitlines()
    assert json.loads(line)["message"] == 'link to oslo: no {"level": "INFO"}'


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="there is no disk that is always full")
def test_a_full_disk_neither_ends_the_run_nor_prints_tracebacks(capsys):
    with logged(Path("/dev/full")):
        logging.getLogger("eigenmesh").warning("a line that is lost")
    assert capsys.readouterr().err == ""
