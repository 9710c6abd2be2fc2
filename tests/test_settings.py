"""The table of settings: every row is whole, and everything that is derived from it says the same."""

import sys
from dataclasses import fields
from pathlib import Path

import pytest
import typer

from eigenmesh.cli import app
from eigenmesh.cli.options import READ_BY_HAND
from eigenmesh.settings import AT_SITES, OF_REQUESTS, SETTINGS, Request

ROOT = Path(__file__).parents[1]


@pytest.mark.parametrize("name", SETTINGS)
def test_a_row_is_whole(name):
    row = SETTINGS[name]
    assert row.text.endswith(".")
    assert ". " not in row.text, "one sentence; the rest is more"
    for front in ("estimator", "command", "site"):
        row.require(name, row.default_at(front))
    assert bool(row.elsewhere) == bool(row.because)
    assert set(row.elsewhere) <= ({"command"} if row.command else set()) | ({"site"} if row.site else set())


def test_a_request_has_the_settings_and_their_defaults():
    # The seed is called random_state by users, and at_most is for the command, which asks for a few components.
    assert {one.name for one in fields(Request)} == OF_REQUESTS - {"random_state"} | {"seed", "at_most"}
    assert Request.parse(**{name: SETTINGS[name].default for name in OF_REQUESTS}) == Request()


def test_every_option_of_the_command_is_there_with_the_default_of_the_table():
    command = typer.main.get_command(app).commands["fit"].loaded()
    options = {option: one for one in command.params for option in one.opts}
    for name, row in SETTINGS.items():
        for option in filter(None, row.command.split(", ")):
            assert option in options, name
    plain = OF_REQUESTS - READ_BY_HAND
    for name in {"solver", "topology", "weights", *(name for name in plain if SETTINGS[name].command)}:
        assert options[SETTINGS[name].command].default == SETTINGS[name].default_at("command"), name


def test_tables_in_the_docs_are_those_of_the_rows(monkeypatch):
    monkeypatch.syspath_prepend(str(ROOT / "tools"))
    import settings_tables

    assert {found for page in settings_tables.PAGES for found in named_in(page, settings_tables)} == set(
        settings_tables.TABLES
    )
    for page in settings_tables.PAGES:
        text = page.read_text(encoding="utf-8")
        assert settings_tables.renewed(text) == text, f"run make pages, or {sys.executable} tools/settings_tables.py"


def named_in(page, tables):
    return [found[1] for found in tables.TABLE.finditer(page.read_text(encoding="utf-8"))]


def test_fields_of_sites_have_one_row_each():
    assert len(AT_SITES) == sum(bool(row.site) for row in SETTINGS.values())
