"""``eigenmesh reproduce``: page, pictures and tables; kept runs; missing data and bad input."""

from __future__ import annotations

import csv
import os
import re
import signal
import subprocess
import sys

import pytest

from eigenmesh.experiments import catalogue
from eigenmesh.experiments import runs as _runs
from waiting import LIMIT_S, until

SMALL = ("--trials", 1, "--rounds", 60, "--jobs", 1)
EIGHT = ["OI", "SeqPM", "SeqDistPM", "S-DOT", "SA-DOT", "DeEPCA", "DSA", "FAST-PCA"]


@pytest.fixture(autouse=True)
def fewer_panels(monkeypatch):
    """One gap, one split and two graphs of each are enough to see what a command does."""
    monkeypatch.setattr(catalogue, "GAPS", (0.8,))
    monkeypatch.setattr(catalogue, "SPLITS", {"label": "by label"})


@pytest.fixture
def no_data(monkeypatch, tmp_path):
    """No MNIST, no CIFAR-10, and no way to get them."""
    (tmp_path / "empty").mkdir()
    monkeypatch.setenv("EIGENMESH_DATA", str(tmp_path / "empty"))
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "empty"))

    def nowhere(archive):
        raise _runs.UnreadableFileError(f"{archive.file} was not found; put it into {tmp_path / 'empty'}")

    monkeypatch.setattr(_runs, "find_archive", nowhere)


@pytest.mark.slow
def test_figure_1_makes_a_page_with_the_numbers_of_its_table(call, tmp_path):
    done = call("reproduce", "fig1", *SMALL, "--out", "r")
    assert done.exit_code == 0, done.output
    names = {path.name for path in (tmp_path / "r").iterdir()}
    assert names == {"cache", "fig1.html", "fig1.png", "fig1.svg", "fig1-costs.csv", "fig1-errors.csv"}
    assert len(list((tmp_path / "r" / "cache").iterdir())) == 2 * 8
    html = (tmp_path / "r" / "fig1.html").read_text(encoding="utf-8")
    assert all(f">{label}</td>" in html for label in EIGHT)
    with open(tmp_path / "r" / "fig1-costs.csv", newline="") as file:
        rows = list(csv.DictReader(file))
    assert {row["part"] for row in rows} == {panel.title for panel in catalogue.figure_1().panels}
    (oi,) = [row for row in rows if (row["part"], row["solver"]) == ("Erdős–Rényi, gap 0.8", "OI")][:1]
    (shown,) = re.findall(r">OI</td><td></td><td>([^<]*)</td>", html)[:1]
    assert shown == (oi["rounds"] or "-")
    assert "supported" in done.stdout
    assert "16 of 16 runs are done" in done.stderr


@pytest.mark.slow
def test_second_run_makes_nothing_and_says_the_same(call, tmp_path):
    words = ("reproduce", "fig2", *SMALL, "--out", "r")
    assert call(*words).exit_code == 0
    page = (tmp_path / "r" / "fig2.html").read_bytes()
    files = {path: path.stat().st_mtime_ns for path in (tmp_path / "r" / "cache").iterdir()}
    gone = sorted(files)[5]
    gone.unlink()
    done = call(*words)
    assert done.exit_code == 0
    assert (tmp_path / "r" / "fig2.html").read_bytes() == page
    again = {path: path.stat().st_mtime_ns for path in (tmp_path / "r" / "cache").iterdir()}
    assert {path for path in files if again[path] != files[path]} == {gone}


@pytest.mark.slow
def test_missing_data_are_named_and_the_rest_is_made(call, tmp_path, no_data):
    done = call("reproduce", "all", *SMALL, "--out", "r", "-q")
    assert done.exit_code == 1
    assert "left out: mnist.npz was not found; put it into" in done.stderr
    html = (tmp_path / "r" / "all.html").read_text(encoding="utf-8")
    assert "CIFAR-10, K = 5 is not shown. cifar10_gray.npz was not found; put it into" in html
    assert (tmp_path / "r" / "fig1.png").exists()
    assert (tmp_path / "r" / "fig2.png").exists()
    assert not (tmp_path / "r" / "fig3.png").exists()


def test_nothing_but_missing_data_still_makes_a_page(call, tmp_path, no_data):
    done = call("reproduce", "fig3", *SMALL, "--out", "r", "-q")
    assert done.exit_code == 1
    assert "mnist.npz was not found" in (tmp_path / "r" / "fig3.html").read_text(encoding="utf-8")


@pytest.mark.slow
def test_unlike_nodes_in_a_small_version(call, tmp_path):
    done = call("reproduce", "unlike", "--quick", "--rounds", 40, "--jobs", 1, "--out", "r")
    assert done.exit_code == 0, done.output
    html = (tmp_path / "r" / "unlike.html").read_text(encoding="utf-8")
    for words in ("block Krylov", "tracked subspace", "digits by label, path", "of 3", "40 rounds per run"):
        assert words in html
    assert {path.name for path in (tmp_path / "r").glob("*.png")} == {"unlike-digits.png"}
    with open(tmp_path / "r" / "unlike-costs.csv", newline="") as file:
        best = [(row["part"], row["solver"]) for row in csv.DictReader(file)]
    assert len(best) == 3 * 8 * 4


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["fig4"], "unknown experiment 'fig4'; there are: all, fig1, fig2, fig3, unlike"),
        (["fig1", "--quick"], "--quick can only be used with unlike"),
        (["fig1", "--out", "file/r"], "cannot create the folder file/r"),
    ],
)
def test_bad_input_is_one_line(call, tmp_path, words, message):
    (tmp_path / "file").write_text("")
    done = call("reproduce", *words)
    assert done.exit_code == 2
    assert message in done.stderr
    assert "Traceback" not in done.output


def test_counts_are_checked(call):
    for option in ("--trials", "--rounds", "--jobs"):
        assert call("reproduce", "fig1", option, 0).exit_code == 2


@pytest.mark.slow
@pytest.mark.skipif(sys.platform == "win32", reason="signals are of another kind there")
@pytest.mark.parametrize("end", ["SIGINT", "SIGKILL"])
def test_workers_end_with_the_command_and_what_is_done_is_kept(tmp_path, end):
    words = ["reproduce", "fig1", "--trials", "50", "--rounds", "1000", "--jobs", "2", "--out", "r"]
    running = subprocess.Popen(
        [sys.executable, "-m", "eigenmesh", *words], cwd=tmp_path, stderr=subprocess.PIPE, text=True
    )
    kept = tmp_path / "r" / "cache"
    until(lambda: len(list(kept.glob("*.npz"))) > 3, "nothing is kept")
    children = subprocess.run(["pgrep", "-P", str(running.pid)], capture_output=True, text=True, check=False)
    os.kill(running.pid, getattr(signal, end))
    # Read until the last process that could write is gone, workers and their helper too.
    _, said = running.communicate(timeout=LIMIT_S)
    if end == "SIGINT":
        assert running.returncode == 130
        assert said.endswith("interrupted.\n")
    assert "Traceback" not in said
    assert len(list(kept.glob("*.npz"))) > 3
    until(
        lambda: not any(os.path.exists(f"/proc/{child}") for child in children.stdout.split()),
        "workers outlive their parent",
    )


def test_help_teaches(call):
    done = call("reproduce", "--help")
    assert done.exit_code == 0
    for words in ("Examples:", "fig1", "unlike", "--trials", "EIGENMESH_DATA", "Exit status"):
        assert words in done.stdout
