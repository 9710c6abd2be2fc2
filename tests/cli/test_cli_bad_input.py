"""Input that cannot be worked with: status 2, one clear line, and not a byte written."""

from __future__ import annotations

import os
import sys
from pathlib import Path

import numpy as np
import pytest

from eigenmesh.model import Model, write_model

FIT = ("fit", "data.csv", "--out", "r.npz", "--json", "r.json", "--plot", "r.png")


@pytest.fixture
def folder(write_csv, tmp_path, samples):
    """Good files and bad ones."""
    write_csv("data.csv", samples)
    write_csv("few.csv", samples[:4])
    write_csv("narrow.csv", samples[:, :4])
    write_csv("constant.csv", np.ones((20, 3)))
    one_constant = samples.copy()
    one_constant[:, 3] = 2.0
    write_csv("one_constant.csv", one_constant)
    holed = samples.copy()
    holed[17, 2] = np.nan
    write_csv("holed.csv", holed)
    (tmp_path / "header.csv").write_text("a,b\n")
    write_model(tmp_path / "model.npz", Model(np.eye(2, 6), *np.ones((3, 2)), np.zeros(6)))
    (tmp_path / "words.csv").write_text("a,b\n1,two\n3,4\n")
    (tmp_path / "broken.npy").write_bytes(b"not an array")
    (tmp_path / "apart.txt").write_text("0 1\n2 3\n")
    (tmp_path / "three.txt").write_text("0 1\n1 2\n")
    (tmp_path / "report.docx").write_text("x")
    return tmp_path


@pytest.mark.parametrize(
    ("words", "said"),
    [
        ((*FIT, "-k", "0"), ("0", "of at least 1")),
        ((*FIT, "-k", "-3"), ("-3", "of at least 1")),
        ((*FIT, "-k", "1.5"), ("1.5", "between 0 and 1")),
        ((*FIT, "-k", "many"), ("many", "whole number")),
        ((*FIT, "-k", "inf"), ("inf", "whole number")),
        ((*FIT, "-k", "7"), ("--components = 7", "at most 6", "number of features", "fewer")),
        (("fit", "few.csv", "-k", "5", "--out", "r.npz"), ("--components = 5", "at most 3", "samples less one")),
        (("fit", "holed.csv", "--out", "r.npz"), ("is NaN", "column 2 ('c2')", "--missing mean")),
        ((*FIT, "--topology", "apart.txt"), ("2 components", "2, 3", "add links")),
        ((*FIT, "--topology", "ring"), ("'ring'", "cycle", "erdos_renyi")),
        ((*FIT, "--topology", "links.txt"), ("links.txt cannot be read: No such file", "give the path")),
        ((*FIT, "--topology", "three.txt", "--nodes", "5"), ("three.txt links 3 nodes", "--nodes 5", "leave out")),
        ((*FIT, "--solver", "slow-pca"), ("'slow-pca'", "fast-pca", "Did you mean")),
        ((*FIT, "--split", "evenly"), ("'evenly'", "contiguous", "random")),
        ((*FIT, "--split", "dirichlet:x"), ("dirichlet:0.1", "'x'")),
        ((*FIT, "--split", "label"), ("no labels", "--table label_column")),
        ((*FIT, "--table", "label_column=age"), ("'age'", "c0, c1")),
        ((*FIT, "--weights", "equal"), ("'equal'", "metropolis")),
        ((*FIT, "--averaging", "mean"), ("'mean'", "chebyshev", "tree")),
        ((*FIT, "--covariance", "big"), ("'big'", "auto", "matrix-free")),
        ((*FIT, "--missing", "drop"), ("'drop'", "error, mean")),
        ((*FIT, "--solver", "fast-pca:step_size=big"), ("big", "auto")),
        ((*FIT, "--solver", "fast-pca:step_size=-1"), ("step_size = -1", "above 0")),
        ((*FIT, "--solver", "fast-pca,oi"), ("--solver fast-pca,oi names 2 solvers",)),
        ((*FIT, "--tol", "0"), ("tol = 0", "between 0 and 1")),
        ((*FIT, "--nodes", "1000"), ("1000", "240 samples")),
        (("fit", "digitz", "--out", "r.npz"), ("'digitz'", "mnist", "Did you mean 'digits'?")),
        (("fit", "digits", "--table", "label_column=x", "--out", "r.npz"), ("its own labels", "leave out")),
        (("fit", "synthetic:d=3,gab=1", "--out", "r.npz"), ("'gab'", "Did you mean 'gap'?")),
        (("fit", "none.csv", "--out", "r.npz"), ("none.csv does not exist", ".parquet")),
        (("fit", "report.docx", "--out", "r.npz"), ("'.docx'", ".csv")),
        (("fit", "broken.npy", "--out", "r.npz"), ("broken.npy cannot be read",)),
        (("fit", "words.csv", "--out", "r.npz"), ("'two'", "line 2")),
        (("fit", "data.csv", "narrow.csv", "--out", "r.npz"), ("narrow.csv lacks columns 'c4', 'c5'", "data.csv")),
        (("fit", "data.csv", "few.csv", "--nodes", "3", "--out", "r.npz"), ("2 files", "not 3", "leave out --nodes")),
        (("fit", "data.csv", "few.csv", "--split", "label", "--out", "r.npz"), ("2 files", "leave out --split")),
        (("fit", "data.csv", "few.csv", "--topology", "three.txt", "--out", "r.npz"), ("2 files", "not 3")),
        (("fit", "data.csv", "digits", "--out", "r.npz"), ("digits is a data set", "only this data set")),
        (
            ("fit", "model.npz", "--out", "r.npz"),
            ("model.npz is a saved model", "eigenmesh transform", "--model model.npz"),
        ),
        (("plan", "data.csv", "--costs", "latency_ms=-1"), ("--costs latency_ms=-1 must be a number 0 or more",)),
        (("plan", "data.csv", "--costs", "bandwidth_mbit=0"), ("bandwidth_mbit=0 must be a number above 0",)),
        ((*FIT, "--costs", "gflops=nan"), ("gflops=nan must be a number above 0",)),
        ((*FIT, "--costs", "latency_ms=9,memory_gb=-2"), ("memory_gb=-2 must be a number above 0",)),
        ((*FIT, "--costs", "latency=9"), ("unknown cost 'latency'", "latency_ms")),
        ((*FIT, "--table", "header"), ("--table header must be a name and its value",)),
        ((*FIT, "--table", "sep=;"), ("unknown property of tables 'sep'", "delimiter")),
        (
            (*FIT, "--topology", "star", "--weights", "push", "--averaging", "gossip"),
            ("gossip needs weights", 'use --weights "balanced", or --averaging "tree"'),
        ),
        (("plan", "model.npz"), ("model.npz is a saved model", "eigenmesh transform")),
        (("fit", "header.csv", "--out", "r.npz"), ("header.csv has columns but no samples",)),
        (("fit", "header.csv", "--split", "label", "--table", "label_column=b", "--out", "r.npz"), ("but no samples",)),
        (("fit", "header.csv", "--stream", "--out", "r.npz"), ("n_samples = 0",)),
        (("fit", "constant.csv", "--out", "r.npz"), ("total variance is zero",)),
        (("fit", "one_constant.csv", "--scale", "--out", "r.npz"), ("--scale", "column 3 ('c3')", "drop")),
    ],
)
def test_bad_input_is_refused_in_one_line_and_nothing_is_written(call, folder, words, said):
    before = set(os.listdir(folder))
    done = call(*words)
    assert done.exit_code == 2, done.output
    assert done.stderr.startswith("error: ")
    assert done.stderr.count("\n") == 1
    for fragment in said:
        assert fragment in done.stderr
    assert set(os.listdir(folder)) == before


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("--out", "none/r.npz"), ("there is no folder none", "make it first")),
        (("--json", "none/r.json"), ("there is no folder none",)),
        (("--plot", "none/r.png"), ("there is no folder none",)),
        (("--out", "few.csv/r.npz"), ("there is no folder few.csv",)),
        (("--json", "."), ("it is a folder",)),
        (("--out", "r.txt"), ("r.txt", ".npz")),
        (("--plot", "r.gif"), ("'.gif'", ".png, .svg, .pdf")),
        (("--json", "data.csv"), ("data.csv is an input already",)),
        (("--json", "r.png", "--plot", "r.png"), ("r.png is an output already",)),
    ],
)
def test_output_paths_are_checked_before_any_data_are_read(call, folder, monkeypatch, words, said):
    monkeypatch.setattr("eigenmesh.fitting.Spread.of_words", lambda *_: pytest.fail("data were read"))
    before = {name: (folder / name).read_bytes() for name in os.listdir(folder)}
    done = call("fit", "data.csv", *words)
    assert done.exit_code == 2, done.output
    for fragment in said:
        assert fragment in done.stderr
    assert {name: (folder / name).read_bytes() for name in os.listdir(folder)} == before


def test_folder_that_cannot_be_written_to_is_refused_before_the_run(call, folder, monkeypatch):
    monkeypatch.setattr("eigenmesh.fitting.Spread.of_words", lambda *_: pytest.fail("data were read"))
    # The superuser may write into any folder but those of the kernel.
    locked = folder / "locked"
    locked.mkdir(mode=0o500)
    if os.access(locked, os.W_OK):
        locked = Path("/proc")
    if not locked.is_dir() or sys.platform == "win32":
        pytest.skip("no folder here is closed to this user")
    done = call("fit", "data.csv", "--out", locked / "r.npz")
    assert done.exit_code == 2
    assert f"cannot write {locked / 'r.npz'}" in done.stderr
    assert "choose another folder" in done.stderr


def test_picture_without_matplotlib_is_refused_before_the_run(call, folder, monkeypatch):
    monkeypatch.setitem(sys.modules, "matplotlib.figure", None)
    done = call("fit", "data.csv", "--plot", "r.png")
    assert done.exit_code == 2
    assert "pip install 'eigenmesh[report]'" in done.stderr
    assert not (folder / "r.png").exists()


@pytest.mark.parametrize(
    "words", [("fit",), ("fit", "digits", "--nodes", "0"), ("fit", "digits", "--speed", "9"), ("go",)]
)
def test_usage_errors_have_status_2(call, words):
    assert call(*words).exit_code == 2


def test_interrupt_is_one_word_and_status_130(call, folder, monkeypatch):
    def interrupted(*_, **__):
        raise KeyboardInterrupt

    monkeypatch.setattr("eigenmesh.cli.fit.run_fit", interrupted)
    done = call("fit", "data.csv", "--out", "r.npz")
    assert done.exit_code == 130
    assert done.stderr == "interrupted.\n"
    assert not (folder / "r.npz").exists()


def test_errors_that_are_nobodys_input_go_on_up(call, folder, monkeypatch):
    def broken(*_, **__):
        raise RuntimeError("a bug")

    monkeypatch.setattr("eigenmesh.cli.fit.run_fit", broken)
    done = call("fit", "data.csv")
    assert isinstance(done.exception, RuntimeError)
