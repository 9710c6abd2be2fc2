"""The process of a command: exit status, signals, streams, what it says while it works, and how it calls settings."""

from __future__ import annotations

import io
import json
import os
import signal
import subprocess
import sys
import sysconfig
from pathlib import Path

import numpy as np
import pytest
from rich.console import Console

from eigenmesh import __version__
from eigenmesh.cli import messages as messages_module
from eigenmesh.cli.messages import Messages, option_names
from eigenmesh.events import EventLog, Record, Started
from eigenmesh.model import Model, read_model, write_model
from eigenmesh.report.tables import rounds_told
from waiting import until

SCRIPT = Path(sysconfig.get_path("scripts")) / ("eigenmesh.exe" if sys.platform == "win32" else "eigenmesh")
MODULE = [sys.executable, "-m", "eigenmesh"]


def process(words: list[str], folder: Path) -> subprocess.CompletedProcess[str]:
    return subprocess.run(words, cwd=folder, capture_output=True, text=True, timeout=300, check=False)


@pytest.mark.slow
def test_installed_command_fits_and_pipes_json(tmp_path):
    done = process([str(SCRIPT), "fit", "digits", "-k", "2", "--out", "r.npz", "--json", "-"], tmp_path)
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout)["converged"] is True
    with np.load(tmp_path / "r.npz", allow_pickle=False) as arrays:
        assert arrays["components"].shape == (2, 64)


def test_bad_input_ends_with_one_line_and_no_traceback(tmp_path):
    done = process([str(SCRIPT), "fit", "digits", "--solver", "magic", "--out", "r.npz"], tmp_path)
    assert done.returncode == 2
    assert done.stdout == ""
    (line,) = done.stderr.splitlines()
    assert line.startswith("error: unknown solver 'magic'; there are: auto, block-krylov,")
    assert list(tmp_path.iterdir()) == []


@pytest.fixture
def unread():
    """The writing end of a pipe whose reader has left, as ``head`` leaves."""
    reading, writing = os.pipe()
    os.close(reading)
    with os.fdopen(writing) as closed:
        yield closed


ON_PIPES = pytest.mark.skipif(sys.platform == "win32", reason="pipes are of another kind there")


@ON_PIPES
@pytest.mark.parametrize("words", [["--help"], ["graph", "cycle"], ["--version"]])
def test_a_closed_pipe_ends_a_command_quietly(tmp_path, unread, words):
    """As other commands end with ``| head``: by Rich in Typer, by Rich, and by Typer alone."""
    done = subprocess.run([*MODULE, *words], cwd=tmp_path, stdout=unread, stderr=subprocess.PIPE, text=True)
    assert (done.returncode, done.stderr) == (141, "")


FIT = ["fit", "data.csv", "-k", "2", "--nodes", "3"]
SIMULATE = ["simulate", "data.csv", "-k", "1", "--nodes", "3", "--solvers", "block-krylov"]
WRITTEN = {
    "fit": [*FIT, "--out", "r.npz", "--json", "r.json", "--plot", "r.png", "--events", "r.jsonl", "--report", "r.html"],
    "fit with JSON": [*FIT, "--json", "-", "--out", "r.npz", "--plot", "r.png", "--report", "r.html"],
    "fit at threads": [*FIT, "--transport", "threads", "--out", "r.npz", "--report", "r.html"],
    "stream": [*FIT, "--stream", "--batch-rows", "20", "--out", "r.npz", "--plot", "r.png", "--report", "r.html"],
    "demo": ["demo", "--out", "r.d"],
    "graph": ["graph", "cycle", "--plot", "r.png"],
    "compare": ["compare", "data.csv", "--solvers", "block-krylov", "--nodes", "3", "--out", "r.d"],
    "simulate": [*SIMULATE, "--plot", "r.png", "--events", "r.jsonl"],
    "simulate with JSON": [*SIMULATE, "--json", "--events", "r.jsonl"],
    "transform": ["transform", "data.csv", "--model", "model.npz", "--monitor", "--out", "r.csv"],
}


@ON_PIPES
@pytest.mark.slow
@pytest.mark.parametrize("words", WRITTEN.values(), ids=WRITTEN)
def test_a_closed_pipe_loses_no_file(tmp_path, unread, words):
    X = np.random.default_rng(0).standard_normal((60, 4)) * [4, 3, 2, 1]
    np.savetxt(tmp_path / "data.csv", X, delimiter=",", header="a,b,c,d", comments="")
    write_model(tmp_path / "model.npz", Model(np.eye(2, 4), *np.ones((3, 2)), np.zeros(4), n_samples=60))
    done = subprocess.run([*MODULE, *words], cwd=tmp_path, stdout=unread, stderr=subprocess.PIPE, text=True)
    assert "Traceback" not in done.stderr
    assert done.returncode == 141, done.stderr
    wanted = {word for word in words if word.startswith("r.")}
    assert wanted - {file.name for file in tmp_path.iterdir()} == set()


@ON_PIPES
def test_nobody_has_to_read_the_warnings(tmp_path, unread):
    """A fit that ends early says so to nobody, writes its files, and has the status of its own end."""
    words = ["fit", "digits", "-k", "3", "--solver", "fast-pca", "--max-rounds", "300", "--out", "r.npz"]
    done = subprocess.run([*MODULE, *words], cwd=tmp_path, stdout=unread, stderr=unread)
    assert done.returncode == 1
    assert (tmp_path / "r.npz").exists()


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="there is no device that is always full")
def test_an_output_on_a_full_disk_loses_no_file(tmp_path):
    with open("/dev/full", "w") as full:
        words = [*MODULE, "fit", "digits", "-k", "2", "--out", "r.npz"]
        done = subprocess.run(words, cwd=tmp_path, stdout=full, stderr=subprocess.PIPE, text=True)
    assert done.stderr == "error: standard output cannot be written: No space left on device.\n"
    assert done.returncode == 141
    assert (tmp_path / "r.npz").exists()


@ON_PIPES
@pytest.mark.slow
def test_the_first_line_is_enough_for_head(tmp_path):
    words = " ".join([*MODULE, "fit", "digits", "-k", "2", "--out", "r.npz"])
    done = process(["sh", "-c", f"{words} | head -1"], tmp_path)
    assert done.stdout.startswith("data")
    assert done.stderr == ""
    assert read_model(tmp_path / "r.npz").components.shape == (2, 64)


def test_module_is_the_same_command(tmp_path):
    assert process([*MODULE, "--version"], tmp_path).stdout == f"eigenmesh {__version__}\n"
    done = process([*MODULE, "--help"], tmp_path)
    assert done.returncode == 0
    for word in ("demo", "fit", "graph"):
        assert word in done.stdout


def test_help_teaches_every_command(call):
    for command, words in {
        "demo": ("eigenmesh demo", "--split", "--out"),
        "fit": ("eigenmesh fit", "Data", "Network", "Method", "Output", "--split", "--json", "Exit status"),
        "graph": ("eigenmesh graph", "--weights", "diameter"),
    }.items():
        done = call(command, "--help")
        assert done.exit_code == 0
        for word in ("Examples:", *words):
            assert word in done.stdout
        # That of --help itself is all that may be said to take a value.
        assert done.stdout.lower().count("<bool>") <= 1


@pytest.mark.slow
@pytest.mark.skipif(sys.platform == "win32", reason="signals are of another kind there")
def test_ctrl_c_ends_a_run_with_130_and_no_files(tmp_path):
    words = ["fit", "synthetic:kind=equal,d=300,k=8,n=2000", "-k", "8", "--topology", "path", "--nodes", "40"]
    limits = ["--max-rounds", "100000000", "--solver", "fast-pca:step_size=1e-9", "--out", "r.npz"]
    running = subprocess.Popen(
        [*MODULE, *words, *limits], cwd=tmp_path, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )
    for line in running.stdout:
        if "covariance" in line:
            break
    os.kill(running.pid, signal.SIGINT)
    _, said = running.communicate(timeout=300)
    assert running.returncode == 130
    assert said.endswith("interrupted.\n")
    assert list(tmp_path.iterdir()) == []


@pytest.mark.slow
def test_no_command_imports_an_optional_dependency_before_it_runs(tmp_path):
    tables = "lazy_commands({**COMMANDS, **SITE_COMMANDS})"
    load = f"from eigenmesh.cli.app import *; [one.loaded() for one in {tables}.values()]"
    check = f"{load}; import sys; print(sorted({{'matplotlib', 'torch', 'mpi4py', 'cryptography'}} & set(sys.modules)))"
    assert process([sys.executable, "-c", check], tmp_path).stdout == "[]\n"


STARTED = Started("fast-pca", "tree", ("a", "b"), (("a", "b"),), 8, 2, 1e-6, 5000)
RECORD = Record(40, 50, 600, 80, 2_500_000, 0.125, np.nan, 0.1)


def report(listener) -> None:
    log = EventLog(listener)
    for event in (STARTED, RECORD):
        log.emit(event)


def make_voice(terminal: bool, quiet: bool = False) -> tuple[Messages, io.StringIO]:
    said = io.StringIO()
    console = Console(file=said, force_terminal=terminal, width=120, highlight=False)
    return Messages(console, console, quiet), said


def test_terminal_shows_live_progress():
    messages, said = make_voice(terminal=True)
    with messages.waiting("fitting") as tell:
        report(rounds_told(tell))
        # The line is drawn some times per second.
        until(lambda: "round 50 of a budget of 5,000, residual 1.2e-01, 2.5 MB sent" in said.getvalue(), "no line")


def test_log_gets_a_line_now_and_then(monkeypatch):
    messages, said = make_voice(terminal=False)
    with messages.waiting("fitting") as tell:
        report(rounds_told(tell))
        assert said.getvalue() == ""
        tell("the end", at_once=True)
        assert said.getvalue() == "the end\n"
    monkeypatch.setattr(messages_module, "LINE_EVERY_S", 0.0)
    with messages.log() as log:
        for event in (STARTED, RECORD):
            log.emit(event)
    assert said.getvalue() == "the end\nround 50 of a budget of 5,000, residual 1.2e-01, 2.5 MB sent\n"


def test_quiet_has_no_progress_but_alerts():
    messages, said = make_voice(terminal=True, quiet=True)
    with messages.waiting("fitting") as tell:
        tell("round 1", at_once=True)
    messages.print("result")
    assert said.getvalue() == ""
    messages.alert("careful", style="yellow")
    assert "careful" in said.getvalue()


def test_square_brackets_in_messages_are_not_markup():
    messages, said = make_voice(terminal=False)
    messages.alert("pip install 'eigenmesh[report]' in [bold]", style="red")
    assert said.getvalue() == "pip install 'eigenmesh[report]' in [bold]\n"


@pytest.mark.parametrize(
    ("library", "command_line"),
    [
        ('drop it, or pass missing="mean"', "drop it, or use --missing mean"),
        ("Raise max_rounds, or n_components = 3.", "Raise --max-rounds, or --components = 3."),
        ("Raise max_rounds.", "Raise --max-rounds."),
        ("n_nodes.csv and my_n_nodes and runs/n_nodes stay", "n_nodes.csv and my_n_nodes and runs/n_nodes stay"),
    ],
)
def test_settings_are_called_as_on_the_command_line(library, command_line):
    assert option_names(library) == command_line
