"""The command line starts light: a command's module, and what it needs, is imported when the command is called."""

from __future__ import annotations

import subprocess
import sys

import numpy as np
import pytest

from eigenmesh.cli._app import COMMANDS, LazyCommand

HEAVY = ("numpy", "scipy", "networkx", "sklearn", "matplotlib", "torch", "cryptography", "dask", "mpi4py")


def imported(code: str) -> set[str]:
    """Heavy modules, and modules of commands, that are there after some code has run in a new process."""
    listing = "import sys; print(*(set(sys.modules)), file=sys.stderr)"
    done = subprocess.run([sys.executable, "-c", f"{code}\n{listing}"], capture_output=True, text=True, check=True)
    modules = done.stderr.split()
    commands = {name for name in COMMANDS if f"eigenmesh.cli._{name}" in modules}
    return {name for name in (*HEAVY, "typer", "rich") if name in modules} | commands


CALL = (
    "from eigenmesh.cli import app\ntry:\n    app({words!r})\nexcept SystemExit as end:\n    assert end.code == 0, end"
)


@pytest.mark.parametrize("word", ["--help", "--version"])
def test_help_and_version_import_no_command_and_nothing_heavy(word):
    assert imported(CALL.format(words=[word])) == {"typer", "rich"}


def test_a_command_imports_its_own_module_and_no_other_command():
    assert imported(CALL.format(words=["graph", "--help"])) & set(COMMANDS) == {"graph"}


def test_a_fit_of_a_file_does_without_scikit_learn(tmp_path):
    np.save(tmp_path / "data.npy", np.random.default_rng(0).standard_normal((30, 4)))
    words = ["fit", str(tmp_path / "data.npy"), "-k", "1", "--nodes", "3", "--quiet"]
    assert imported(CALL.format(words=words)) == {"fit", "typer", "rich", "numpy", "scipy", "networkx"}


@pytest.mark.parametrize("name", ["mpi", "torch"])
def test_a_launcher_looks_for_its_engine_without_importing_it(name):
    look = f"with suppress(MissingExtraError):\n    TRANSPORTS[{name!r}].launcher(2)"
    names = "from contextlib import suppress\nfrom eigenmesh.errors import MissingExtraError"
    assert not imported(f"{names}\nfrom eigenmesh.transports import TRANSPORTS\n{look}") & {"torch", "mpi4py"}


def test_the_package_itself_is_light_and_needs_no_typer_and_no_rich():
    assert imported("import eigenmesh") == set()


@pytest.mark.parametrize("name", COMMANDS)
def test_every_command_loads_and_is_called_by_its_name(name):
    loaded = LazyCommand(name).loaded()
    assert loaded.name == name
    assert loaded.help
    assert len(COMMANDS[name]) < 90
