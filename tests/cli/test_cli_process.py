"""The installed command as its users run it: a process of its own."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import sysconfig
from pathlib import Path

import numpy as np
import pytest

from eigenmesh import __version__

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


@pytest.mark.skipif(sys.platform == "win32", reason="pipes are of another kind there")
@pytest.mark.parametrize("words", [["--help"], ["graph", "cycle"], ["--version"]])
def test_a_closed_pipe_ends_a_command_quietly(tmp_path, words):
    """As other commands end with ``| head``: by Rich in Typer, by Rich, and by Typer alone."""
    reading, writing = os.pipe()
    os.close(reading)
    with os.fdopen(writing) as closed:
        done = subprocess.run([*MODULE, *words], cwd=tmp_path, stdout=closed, stderr=subprocess.PIPE, text=True)
    assert (done.returncode, done.stderr) == (141, "")


def test_module_is_the_same_command(tmp_path):
    assert process([*MODULE, "--version"], tmp_path).stdout == f"eigenmesh {__version__}\n"
    done = process([*MODULE, "--help"], tmp_path)
    assert done.returncode == 0
    for word in ("demo", "fit", "graph"):
        assert word in done.stdout


def test_help_teaches_every_command(call):
    for command, words in {
        "demo": ("eigenmesh demo", "--split", "--out"),
        "fit": ("eigenmesh fit", "Data", "Network", "Method", "Output", "--by-label", "--json", "Exit status"),
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
    limits = ["--max-rounds", "100000000", "--step-size", "1e-9", "--out", "r.npz"]
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
    load = "from eigenmesh.cli._app import COMMANDS, LazyCommand; [LazyCommand(name).loaded() for name in COMMANDS]"
    check = f"{load}; import sys; print(sorted({{'matplotlib', 'torch', 'mpi4py', 'cryptography'}} & set(sys.modules)))"
    assert process([sys.executable, "-c", check], tmp_path).stdout == "[]\n"
