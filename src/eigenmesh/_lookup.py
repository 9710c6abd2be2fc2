"""Look up names that people type: hyphens, underscores, spaces and capitals make no difference."""

from collections.abc import Iterable, Mapping
from typing import TypeVar

from eigenmesh.errors import InputError, UnknownNameError

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


def _plain(name: str) -> str:
    return "".join(name.split()).replace("-", "").replace("_", "").casefold()
