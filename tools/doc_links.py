"""Link targets of names in signatures and docstrings: classes of other projects, and ours under their public names."""

from __future__ import annotations

import importlib
import tomllib
import zlib
from collections.abc import Iterable
from pathlib import Path

# Words that docstrings use for a type, and classes that other projects define elsewhere than their public name says.
WORDS = {
    "array": "numpy.ndarray",
    "ndarray": "numpy.ndarray",
    "networkx graph": "networkx.Graph",
    "callable": "collections.abc.Callable",
    "networkx.classes.graph.Graph": "networkx.Graph",
    "networkx.classes.digraph.DiGraph": "networkx.DiGraph",
}
# Header of a Sphinx inventory: format, project and version, before the compressed list of names.
HEADER = (
    "# Sphinx inventory version 2\n# Project: {}\n# Version: \n# The remainder of this file is compressed using zlib.\n"
)


def inventories(listed: Path, folder: Path) -> dict[str, tuple[str, str | None]]:
    """Write the listed names of each project as a Sphinx inventory; returns project -> (its address, inventory)."""
    folder.mkdir(parents=True, exist_ok=True)
    found: dict[str, tuple[str, str | None]] = {}
    for project, entry in tomllib.loads(listed.read_text(encoding="utf-8")).items():
        # The anchor on the page equals the name, which $ stands for.
        lines = [f"{name} py:class 1 {page}#$ -" for page, names in entry["pages"].items() for name in names]
        path = folder / f"{project}.inv"
        path.write_bytes(HEADER.format(project).encode() + zlib.compress("\n".join(lines).encode() + b"\n"))
        found[project] = entry["url"], str(path)
    return found


def public_names(modules: Iterable[str]) -> dict[str, str]:
    """For each class in ``__all__``: the name where it is defined, and its bare name -> its public name.

    If two modules export a class, the first one counts; two classes with the same name have no bare name.
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
