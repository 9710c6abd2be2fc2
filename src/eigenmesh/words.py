"""Readable numbers, canonical JSON, simple HTML, and text of other sites made safe to show."""

from __future__ import annotations

import json
import re
import unicodedata
from collections.abc import Iterable, Mapping, Sequence
from functools import lru_cache
from html import escape
from typing import Any, TypeVar

from eigenmesh.errors import InputError, UnknownNameError

# Escape sequences that a terminal would execute: CSI and OSC with their arguments, and two-character sequences.
_ESCAPES = re.compile(r"(?:\x1b\[|\x9b)[0-?]*[ -/]*[@-~]?|(?:\x1b\]|\x9d)[^\x07\x1b\x9c]*(?:\x07|\x1b\\|\x9c)?|\x1b.?")
MAX_FOREIGN_CHARACTERS = 2000


def readable_bytes(count: float) -> str:
    """A number of bytes with a readable unit: 1.5 MB."""
    for unit in ("B", "kB", "MB", "GB"):
        if count < 1000:
            return f"{count:.0f} B" if unit == "B" else f"{count:.1f} {unit}"
        count /= 1000
    return f"{count:.1f} TB"


def listed(names: Sequence[object], most: int = 10) -> str:
    """Names for a message: all of them, or the first ``most`` and how many more there are."""
    more = f" and {len(names) - most} more" if len(names) > most else ""
    return ", ".join(map(str, names[:most])) + more


def node_list(ranks: Sequence[int]) -> str:
    """Ranks for an error message: "node 3", "nodes 3, 5", or the first of many."""
    return f"node{'s' if len(ranks) > 1 else ''} {listed(ranks, 8)}"


def canonical(value: Any) -> str:
    """The one JSON text of a value, which all sites hash and sign: sorted keys, no white space, ASCII."""
    return json.dumps(value, sort_keys=True, separators=(",", ":"), allow_nan=False)


def html_table(head: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """A plain table for a notebook, from plain text."""

    def line(tag: str, cells: Sequence[str]) -> str:
        return "<tr>" + "".join(f"<{tag}>{escape(cell)}</{tag}>" for cell in cells) + "</tr>"

    body = "".join(line("td", row) for row in rows)
    return f"<table><thead>{line('th', head)}</thead><tbody>{body}</tbody></table>"


def html_paragraphs(sentences: Sequence[str]) -> str:
    """Plain sentences for a notebook."""
    return "".join(f"<p>{escape(sentence)}</p>" for sentence in sentences)


def one_line(text: str, most: int = MAX_FOREIGN_CHARACTERS) -> str:
    """Text of another site as one line of at most ``most`` characters, safe to print in a terminal.

    Escape sequences, control characters (C0, C1), and characters that are invisible or change the direction of writing
    are removed; each run of white space, with line and paragraph ends, becomes one space.
    """
    # Cut before the search for escape sequences, so that a huge text costs no more than a short one.
    cut = text[: 4 * most]
    spaced = re.sub(r"[\s\u2028\u2029]+", " ", _ESCAPES.sub("", cut))
    plain = "".join(letter for letter in spaced if unicodedata.category(letter)[0] != "C").strip()
    return plain if len(plain) <= most and cut == text else f"{plain[: most - 3]}..."


def said_by(sender: str, text: str) -> str:
    """A message of another site on one line, after the name in its certificate, so that it cannot pose as another."""
    return f"{sender} says: {one_line(text)}"


# Look up names that people type: hyphens, underscores, spaces and capitals make no difference.


T = TypeVar("T")


def lookup(kind: str, name: object, table: Mapping[str, T], also: str = "") -> T:
    """The entry with this name, in any spelling. Error messages name the ``kind``, and what is ``also`` allowed."""
    return table[canonical_name(kind, name, table, also)]


def canonical_name(kind: str, name: object, known: Iterable[str], also: str = "") -> str:
    """The name as the library writes it: ``FAST_PCA`` is "fast-pca". ``kind`` and ``also`` as for ``lookup``."""
    known = sorted(known)
    if isinstance(name, type) and also:
        raise InputError(f"{kind} = {name.__name__} is a class; give an object of it, such as {name.__name__}().")
    if not isinstance(name, str):
        raise InputError(f"{kind} = {name!r} must be {f'{also} or ' if also else ''}a name: {', '.join(known)}.")
    found = find_name(name, known)
    if found is None:
        raise UnknownNameError(kind, name, known)
    return found


def find_name(name: str, known: Iterable[str]) -> str | None:
    """The known name that equals this one in any spelling, or None."""
    return next((other for other in known if _plain(other) == _plain(name)), None)


@lru_cache(1024)
def _plain(name: str) -> str:
    return "".join(name.split()).replace("-", "").replace("_", "").casefold()
