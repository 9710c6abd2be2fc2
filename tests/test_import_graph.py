"""Imports between the rooms of the package point down and form no cycle."""

from __future__ import annotations

import ast
import re
from pathlib import Path

import pytest

import import_graph
import import_picture
from import_graph import Import


@pytest.fixture(scope="module")
def found() -> list[Import]:
    return import_graph.imports()


def test_every_room_has_its_place_in_the_order():
    assert sorted(import_graph.rooms_found()) == sorted(import_graph.ROOMS)


def test_the_house_table_lists_every_room_from_top_to_bottom():
    page = (Path(__file__).parents[1] / "docs" / "contributing.md").read_text(encoding="utf-8")
    table = re.search(r"^\| room \|.*?\n\n", page, re.MULTILINE | re.DOTALL)[0]
    listed = re.findall(r"^\| `(\S+)` \| \S", table, re.MULTILINE)
    names = {"eigenmesh": "__init__.py"}
    for room in import_graph.rooms_found() - set(names):
        names[room] = f"{room}/" if (import_graph.SOURCE / room).is_dir() else f"{room}.py"
    assert listed == [names[room] for room in reversed(import_graph.ROOMS)]


def test_files_and_tables_to_add_something_to_are_there():
    page = (Path(__file__).parents[1] / "docs" / "contributing.md").read_text(encoding="utf-8")
    rows = re.findall(r"^\|.* in `(\S+\.py)`, (.*) \|$", page, re.MULTILINE)
    assert len(rows) == 4
    for file, where in rows:
        text = (import_graph.SOURCE / file).read_text(encoding="utf-8")
        tables = re.findall("`([A-Z_]+)`", where)
        assert tables, where
        for table in tables:
            assert re.search(rf"^{table}\b", text, re.MULTILINE), f"{file} has no {table}"


def test_no_arrow_points_upwards(found):
    wrong = {(one.importer, one.imported): one.place for one in import_graph.upward(found)}
    assert wrong == {}


def test_there_is_no_cycle(found):
    assert import_graph.cycles(found) == []


def test_upward_arrows_and_cycles_are_found():
    made = [
        Import("data", "errors", False, "a"),
        Import("errors", "data", False, "b"),
        Import("errors", "cli", True, "c"),
    ]
    assert [one.place for one in import_graph.upward(made)] == ["b"]
    assert import_graph.cycles(made) == [["data", "errors"]]


def test_lazy_imports_are_told_apart_and_those_for_type_checkers_left_out():
    text = """
from typing import TYPE_CHECKING
import eigenmesh.data.samples
if TYPE_CHECKING:
    from eigenmesh.cli import app
class Late:
    def load(self):
        from eigenmesh import graphs, __version__
try:
    from eigenmesh import solvers
except ImportError:
    pass
"""
    path = import_graph.SOURCE / "fitting" / "_made_up.py"
    nodes = import_graph._import_nodes(ast.parse(text), lazy=False)
    seen = {(room, lazy) for node, lazy in nodes for room in import_graph._targets(node, path, {"graphs", "solvers"})}
    assert seen == {("data", False), ("graphs", True), ("solvers", False)}


def test_the_picture_has_every_room_and_no_arrow_that_follows_from_others(found):
    rooms = ["errors", "data", "cli"]
    made = [Import("data", "errors", False, ""), Import("cli", "data", False, ""), Import("cli", "errors", False, "")]
    picture = import_picture.svg(rooms, made)
    assert all(f">{room}</text>" in picture for room in rooms)
    assert picture.count('class="import"') == 2
    assert import_picture.svg(import_graph.ROOMS, found).count("<text") == len(import_graph.ROOMS) + 1
