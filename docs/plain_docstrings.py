"""Sphinx extension: docstrings are plain text, and are shown as such.

The code writes ``|C x|``, ``mean_`` and indented equations, and describes a parameter on the line of its name. Here
signs that reStructuredText would take for markup are escaped, equations become literal blocks, and the sections of a
docstring become lists.
"""

from __future__ import annotations

import re
import textwrap
from itertools import pairwise
from typing import Any

LITERAL = re.compile(r"(``.+?``)")
MARKUP = re.compile(r"(\||(?<=\w)_(?!\w))")
ITEM = re.compile(r"(?P<names>\w+(?:, \w+)*) : (?P<text>.+)")
DESCRIBED = ("Parameters", "Attributes")
# Below a type there is a sentence of its own; a description that goes on does not begin like one.
SENTENCE = re.compile(r"[A-Z][a-z]|M where|K;")


def plain(app: Any, what: str, name: str, obj: Any, options: Any, lines: list[str]) -> None:
    """Rewrite a docstring in place."""
    starts = [row - 1 for row, line in enumerate(lines) if row and re.fullmatch(r"-{3,}", line.strip())]
    result = _text(lines[: starts[0]] if starts else lines)
    for start, end in pairwise([*starts, len(lines)]):
        title, body = lines[start].strip(), lines[start + 2 : end]
        section = _items(body) if title in DESCRIBED else body if title == "Examples" else _text(body)
        result += [f".. rubric:: {title}", "", *section, ""]
    lines[:] = result


def skip(app: Any, what: str, name: str, obj: Any, skipped: bool, options: Any) -> bool | None:
    """Leave out what Python writes about the fields of a NamedTuple; its class describes them."""
    return True if str(getattr(obj, "__doc__", "")).startswith("Alias for field number") else None


def _text(lines: list[str]) -> list[str]:
    """Indented paragraphs as literal blocks, the rest with its signs escaped."""
    result: list[str] = []
    for paragraph in re.split(r"\n[ ]*\n", "\n".join(lines)):
        rows = paragraph.split("\n")
        if paragraph.strip() == "::":
            continue
        if rows[0].startswith(" ") or any(row.startswith("  ") for row in rows[1:]):
            result += ["::", "", *textwrap.indent(textwrap.dedent(paragraph), "    ").split("\n"), ""]
        else:
            result += [*(_escaped(row) for row in rows), ""]
    return result


def _items(body: list[str]) -> list[str]:
    """One entry of a list for each ``name : text`` or ``name : type`` with text below."""
    result: list[str] = []
    for row, line in enumerate(body):
        found = ITEM.fullmatch(line)
        if found is None:
            result.append(f"  {_escaped(line.strip())}" if line.strip() else "")
            continue
        below = body[row + 1].strip() if row + 1 < len(body) and body[row + 1].startswith(" ") else ""
        names = ", ".join(f"``{one}``" for one in found["names"].split(", "))
        text = _escaped(found["text"])
        result.append(f"* {names} ({text}):" if SENTENCE.match(below) else f"* {names}: {text}")
    return result


def _escaped(line: str) -> str:
    parts = LITERAL.split(line)
    return "".join(part if part.startswith("``") else MARKUP.sub(r"\\\1", part) for part in parts)


def setup(app: Any) -> dict[str, bool]:
    """Register with Sphinx."""
    app.setup_extension("sphinx.ext.autodoc")
    app.connect("autodoc-process-docstring", plain)
    app.connect("autodoc-skip-member", skip)
    return {"parallel_read_safe": True}
