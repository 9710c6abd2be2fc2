"""The command line starts light: a command's module, and what it needs, is imported when the command is called."""

from __future__ import annotations

import subprocess
import sys

import numpy as np
import pytest

from eigenmesh.cli.app import COMMANDS, SITE_COMMANDS, lazy_commands

ALL = {**COMMANDS, **{f"site {name}": entry for name, entry in SITE_COMMANDS.items()}}
HEAVY = ("numpy", "scipy", "networkx", "sklearn", "matplotlib", "torch", "cryptography", "dask", "mpi4py")


def imported(code: str) -> set[str]:
    """Heavy modules, and modules of commands, that are there after some code has run in a new process."""
    listing = "import sys; print(*(set(sys.modules)), file=sys.stderr)"
    done = subprocess.run([sys.executable, "-c", f"{code}\n{listing}"], capture_output=True, text=True, check=True)
    modules = done.stderr.split()
    commands = {name for name, (module, _) in ALL.items() if f"eigenmesh.cli.{module}" in modules}
    return {name for name in (*HEAVY, "typer", "rich") if name in modules} | commands


CALL = (
    "from eigenmesh.cli import app\ntry:\n    app({words!r})\nexcept SystemExit as end:\n    assert end.code == 0, end"
)


@pytest.mark.parametrize("words", ["--help", "--version", "site --help"])
def test_help_and_version_import_no_command_and_nothing_heavy(words):
    assert imported(CALL.format(words=words.split())) == {"typer", "rich"}


def test_a_command_imports_its_own_module_and_no_other_command():
    assert imported(CALL.format(words=["graph", "--help"])) & set(ALL) == {"graph"}
    # A relay is in the module of peers.
    assert imported(CALL.format(words=["site", "run", "--help"])) & set(ALL) == {"site relay", "site run"}


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


@pytest.mark.parametrize("command", [*lazy_commands(COMMANDS).values(), *lazy_commands(SITE_COMMANDS).values()])
def test_every_command_loads_and_is_called_by_its_name(command):
    loaded = command.loaded()
    assert loaded.name == command.name
    assert loaded.help
    assert len(command.help) < 90


def test_an_operator_has_the_commands_of_a_site_and_nobody_else_has(call):
    commands = "approve audit check combine init key pin rehearse relay renew revoke run sign status summarise withdraw"
    assert " ".join(sorted(SITE_COMMANDS)) == commands
    for name in SITE_COMMANDS:
        assert call("site", name, "--help").exit_code == 0
        assert f"No such command '{name}'" in call(name).stderr


def test_the_help_of_a_fit_is_at_most_three_times_as_long_as_that_of_everything(call):
    everything, fit = (len(call(*words, "--help").output) for words in ((), ("fit",)))
    assert fit <= 3 * everything


def test_all_commands_together_have_few_options():
    tables = (lazy_commands(table).values() for table in (COMMANDS, SITE_COMMANDS))
    commands = [command.loaded() for table in tables for command in table]
    assert sum(one.param_type_name == "option" for command in commands for one in command.params) <= 160
