"""Imports between the rooms of eigenmesh: ``make imports``.

A room is a package or a top-level module of ``src/eigenmesh``. Imports at the top of a file must point to a room that
comes before its own in ``ROOMS``, so they cannot form a cycle. Imports inside a function (lazy ones) may point
anywhere: with them, an optional dependency, or a room that is rarely needed, is not loaded at the start. Imports only
for type checkers are left out, because they never run.
"""

from __future__ import annotations

import argparse
import ast
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import import_picture

ROOT = Path(__file__).parents[1]
SOURCE = ROOT / "src" / "eigenmesh"
PICTURE = ROOT / "docs" / "images" / "imports.svg"

# From bottom to top.
ROOMS = [
    "errors",
    "words",
    "arrays",
    "atomic_write",
    "model",
    "events",
    "graphs",
    "data",
    "masking",
    "averaging",
    "protocol",
    "transports",
    "networks",
    "metrics",
    "theory",
    "certificate",
    "solvers",
    "iteration",
    "settings",
    "fitting",
    "coordinators",
    "estimator",
    "report",
    "experiments",
    "sites",
    "rehearsal",
    "cli",
    # The public names, for users: nothing inside imports from there.
    "eigenmesh",
    "__main__",
]


@dataclass(frozen=True)
class Import:
    """One import of another room.

    Attributes
    ----------
    importer, imported : str
        Rooms.
    lazy : bool
        Whether it is inside a function.
    place : str
        File and line.
    """

    importer: str
    imported: str
    lazy: bool
    place: str


def room_of(module: str) -> str:
    """Room of a dotted name: ``eigenmesh.data.samples`` -> ``data``."""
    words = module.split(".")
    return words[1] if len(words) > 1 else words[0]


def rooms_found() -> set[str]:
    """Names of all packages and modules at the top of ``src/eigenmesh``, and of its ``__init__``."""
    modules = {path.stem for path in SOURCE.glob("*.py")} - {"__init__"}
    packages = {path.parent.name for path in SOURCE.glob("*/__init__.py")}
    return modules | packages | {"eigenmesh"}


def imports() -> list[Import]:
    """Every import of one room by another that can run."""
    found = []
    rooms = rooms_found()
    for path in sorted(SOURCE.rglob("*.py")):
        importer = room_of(_dotted(path))
        # The public names are loaded on first use; their imports are written out for type checkers.
        typed = path == SOURCE / "__init__.py"
        for node, lazy in _import_nodes(ast.parse(path.read_text(encoding="utf-8")), lazy=False, typed=typed):
            place = f"{path.relative_to(ROOT)}:{node.lineno}"
            found += [Import(importer, room, lazy, place) for room in _targets(node, path, rooms) if room != importer]
    return found


def upward(found: list[Import]) -> list[Import]:
    """Imports at the top of a file that do not point to a lower room."""
    height = {room: position for position, room in enumerate(ROOMS)}
    return [one for one in found if not one.lazy and height[one.imported] >= height[one.importer]]


def cycles(found: list[Import]) -> list[list[str]]:
    """Groups of rooms that import each other, directly or in a circle, at the top of their files."""
    below: dict[str, set[str]] = {room: set() for room in ROOMS}
    for one in found:
        if not one.lazy:
            below[one.importer].add(one.imported)
    reach = {room: _reachable(room, below) for room in ROOMS}
    groups = {frozenset(other for other in reach[room] if room in reach[other]) for room in ROOMS}
    return sorted(sorted(group) for group in groups if group)


def _reachable(start: str, below: dict[str, set[str]]) -> set[str]:
    seen: set[str] = set()
    todo = list(below[start])
    while todo:
        room = todo.pop()
        if room not in seen:
            seen.add(room)
            todo += below[room]
    return seen


def _dotted(path: Path) -> str:
    words = ["eigenmesh", *path.relative_to(SOURCE).with_suffix("").parts]
    return ".".join(words[:-1] if words[-1] == "__init__" else words)


def _import_nodes(node: ast.AST, lazy: bool, typed: bool = False) -> Iterator[tuple[ast.Import | ast.ImportFrom, bool]]:
    """Imports below a node, and whether each is lazy; those for type checkers only if ``typed``, as lazy ones."""
    for child in ast.iter_child_nodes(node):
        if isinstance(child, ast.Import | ast.ImportFrom):
            yield child, lazy
        elif isinstance(child, ast.If) and "TYPE_CHECKING" in ast.unparse(child.test):
            for other in child.body if typed else child.orelse:
                yield from _import_nodes(ast.Module([other], []), lazy=True if typed else lazy, typed=typed)
        else:
            inside = isinstance(child, ast.FunctionDef | ast.AsyncFunctionDef)
            yield from _import_nodes(child, lazy or inside, typed)


def _targets(node: ast.Import | ast.ImportFrom, path: Path, rooms: set[str]) -> set[str]:
    """Rooms that a statement imports."""
    if isinstance(node, ast.Import):
        names = [alias.name for alias in node.names]
    else:
        package = _dotted(path).split(".")
        if path.name != "__init__.py":
            package = package[:-1]
        above = package[: len(package) - node.level + 1] if node.level else []
        module = ".".join([*above, *([node.module] if node.module else [])])
        # `from eigenmesh import graphs` is an import of that room, not of the public names. The version is neither: it
        # is the first thing that the package sets.
        names = [
            f"{module}.{alias.name}" if module == "eigenmesh" and alias.name in rooms else module
            for alias in node.names
            if (module, alias.name) != ("eigenmesh", "__version__")
        ]
    return {room_of(name) for name in names if name.split(".")[0] == "eigenmesh"}


def report(found: list[Import]) -> str:
    """The graph and its problems, as text."""
    lines = []
    for room in reversed(ROOMS):
        always = {one.imported for one in found if one.importer == room and not one.lazy}
        lazy = {one.imported for one in found if one.importer == room} - always
        order = [name for name in reversed(ROOMS) if name in always | lazy]
        names = ", ".join(f"({name})" if name in lazy else name for name in order)
        lines.append(f"{room:>14}  ->  {names or '-'}")
    lines += ["", "in brackets: imported inside functions only"]
    lines.append("cycles: " + ("; ".join(" <-> ".join(group) for group in cycles(found)) or "none"))
    wrong = upward(found)
    lines.append("arrows upwards: " + ("" if wrong else "none"))
    lines += [f"  {one.importer} -> {one.imported}  {one.place}" for one in wrong]
    return "\n".join(lines)


def main() -> int:
    """Print and draw the graph; returns 1 if an arrow points upwards."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--no-picture", action="store_true", help=f"leave {PICTURE.relative_to(ROOT)} as it is")
    wanted = parser.parse_args()
    if unknown := rooms_found() ^ set(ROOMS):
        sys.exit(f"ROOMS and src/eigenmesh differ in: {', '.join(sorted(unknown))}")
    found = imports()
    print(report(found))
    if not wanted.no_picture:
        PICTURE.write_text(import_picture.svg(ROOMS, found), encoding="utf-8")
        print(f"picture: {PICTURE.relative_to(ROOT)}")
    return 1 if upward(found) else 0


if __name__ == "__main__":
    sys.exit(main())
