"""Where names in signatures and docstrings lead to: classes of other projects, and our own under their public names."""

from __future__ import annotations

import importlib
import tomllib
import zlib
from collections.abc import Iterable
from pathlib import Path

# Words that docstrings use in the place of a type, and where other projects define what they offer under another name.
WORDS = {
    "array": "numpy.ndarray",
    "ndarray": "numpy.ndarray",
    "networkx graph": "networkx.Graph",
    "callable": "collections.abc.Callable",
    "networkx.classes.graph.Graph": "networkx.Graph",
    "networkx.classes.digraph.DiGraph": "networkx.DiGraph",
}
# Of a list of names: its format, project and version, and that the rest is compressed.
HEADER = (
    "# Sphinx inventory version 2\n# Project: {}\n# Version: \n# The remainder of this file is compressed using zlib.\n"
)


def inventories(listed: Path, folder: Path) -> dict[str, tuple[str, str | None]]:
    """Write the listed names of each project as Sphinx reads them; project -> its address and that file."""
    folder.mkdir(parents=True, exist_ok=True)
    found: dict[str, tuple[str, str | None]] = {}
    for project, entry in tomllib.loads(listed.read_text(encoding="utf-8")).items():
        # The place on a page is called as the name itself, for which $ stands.
        lines = [f"{name} py:class 1 {page}#$ -" for page, names in entry["pages"].items() for name in names]
        path = folder / f"{project}.inv"
        path.write_bytes(HEADER.format(project).encode() + zlib.compress("\n".join(lines).encode() + b"\n"))
        found[project] = entry["url"], str(path)
    return found


def public_names(modules: Iterable[str]) -> dict[str, str]:
    """Of each class in ``__all__``: where it is defined, and its bare name -> the name under which it is public.

    A class that two modules offer belongs to the first of them; two classes of one name are known by full names only.
    """
    full: dict[str, str] = {}
    bare: dict[str, set[str]] = {}
    for module_name in modules:
        module = importlib.import_module(module_name)
        for name in getattr(module, "__all__", vars(module)):
            value = getattr(module, name)
            if isinstance(value, type) and value.__module__.startswith("eigenmesh"):
                public = full.setdefault(f"{value.__module__}.{value.__qualname__}", f"{module_name}.{name}")
                bare.setdefault(name, set()).add(public)
    return full | {name: one for name, found in bare.items() if len(found) == 1 for one in found}
