"""Nodes compare what must be the same at all of them before any number is sent: settings, columns, network, version."""

from __future__ import annotations

import dataclasses
import hashlib
import json
import math
from collections.abc import Mapping, Sequence
from enum import Enum
from typing import Any

import numpy as np

from eigenmesh import __version__
from eigenmesh.averaging import name_of
from eigenmesh.errors import InputError
from eigenmesh.settings import SETTINGS, Request
from eigenmesh.transports import Transport
from eigenmesh.words import canonical, node_list

# Lists that are longer than this as text are replaced by digests of their parts.
MAX_LIST_BYTES = 200_000
MAX_PARTS = 512
MAX_VALUE_CHARACTERS = 120
MAX_DEPTH = 3

Path = tuple[str, ...]


def require_same_settings(transport: Transport | None, settings: Mapping[str, Any]) -> None:
    """Raise at every node unless all nodes have the same settings, and name those that differ.

    Every node sends one digest. Only if digests differ do the nodes send the settings themselves. Nodes without names
    of features take those of the others.

    Parameters
    ----------
    transport : Transport or None
        None, or a transport whose nodes have compared their settings when they connected, leaves nothing to compare.
    settings : mapping
        JSON values by name, such as those of ``described``.
    """
    if transport is None or transport.compares_settings:
        return
    text = canonical({"eigenmesh": __version__, **settings}).encode()
    digests = transport.all_gather(np.frombuffer(hashlib.sha256(text).digest(), np.uint8))
    if (digests == digests[0]).all():
        return
    length = int(transport.all_gather(np.array([len(text)], np.int64)).max())
    texts = transport.all_gather(np.frombuffer(text.ljust(length), np.uint8))
    found = _between_nodes([json.loads(row.tobytes()) for row in texts])
    if found:
        raise InputError(f"nodes have different settings: {'; '.join(found)}. Give all nodes the same.")


def _between_nodes(each: Sequence[dict[str, Any]]) -> list[str]:
    """What differs from the settings that most nodes have, with both values and the nodes that have them."""
    names = next((one["feature_names"] for one in each if one.get("feature_names") is not None), None)
    ranks_of: dict[str, list[int]] = {}
    for rank, one in enumerate(each):
        named = one if one.get("feature_names") is not None else {**one, "feature_names": names}
        ranks_of.setdefault(canonical(named), []).append(rank)
    (usual, most), *others = sorted(ranks_of.items(), key=lambda found: -len(found[1]))
    found = []
    for text, ranks in others:
        found += differences(json.loads(text), json.loads(usual), f"at {node_list(ranks)}", f"at {node_list(most)}")
    return found


def common_settings(request: Request) -> dict[str, Any]:
    """The settings of a request that must be the same at all nodes, as JSON values."""
    own = {name for name, row in SETTINGS.items() if not row.agree}
    common = {one.name: described(getattr(request, one.name)) for one in dataclasses.fields(request)}
    names = {
        "solver": request.solver and request.solver.name,
        "averaging": request.averaging and name_of(request.averaging),
    }
    common |= {name: {**(common[name] or {}), "name": given or "auto"} for name, given in names.items()}
    return {name: value for name, value in common.items() if name not in own}


def described(value: Any) -> Any:
    """A setting as JSON values: the same text in every process if, and only if, the setting is the same."""
    if isinstance(value, Enum):
        return described(value.value)
    if isinstance(value, np.generic):
        return described(value.item())
    if isinstance(value, float) and not math.isfinite(value):
        return repr(value)
    if value is None or isinstance(value, bool | int | float | str):
        return value
    if isinstance(value, np.ndarray):
        content = hashlib.sha256(np.ascontiguousarray(value).tobytes()).hexdigest()
        return f"{value.dtype}{list(value.shape)} {content[:32]}"
    if isinstance(value, Mapping):
        return {str(key): described(one) for key, one in value.items()}
    if isinstance(value, Sequence):
        return [described(one) for one in value]
    # Not repr, which may have an address in memory.
    name = getattr(value, "__qualname__", None) or getattr(value, "name", None) or type(value).__qualname__
    if dataclasses.is_dataclass(value):
        fields = {field.name: getattr(value, field.name) for field in dataclasses.fields(value)}
    else:
        fields = getattr(value, "__dict__", {})
    return {"name": str(name), **{key: described(one) for key, one in fields.items()}}


def listed(values: Sequence[str]) -> Any:
    """The values; or, if the list is long, digests of parts of it, so that a difference can still be located."""
    texts = [str(value) for value in values]
    if len(canonical(texts)) <= MAX_LIST_BYTES:
        return texts
    size = -(-len(texts) // MAX_PARTS)
    parts = {start: texts[start : start + size] for start in range(0, len(texts), size)}
    digests = {
        f"{at} to {at + len(part) - 1}": hashlib.sha256(canonical(part).encode()).hexdigest()[:32]
        for at, part in parts.items()
    }
    return {"count": len(texts), "parts": digests}


def differences(ours: dict[str, Any], theirs: dict[str, Any], here: str = "here", there: str = "there") -> list[str]:
    """The fields that differ, with both values and where they are; empty if and only if both have the same text."""
    mine, other = _flat(ours), _flat(theirs)
    found = []
    for path in sorted({*mine, *other}):
        if path in mine and path in other and canonical(mine[path]) == canonical(other[path]):
            continue
        name = _short(".".join(path))[1:-1]
        if isinstance(mine.get(path), list) and isinstance(other.get(path), list):
            what, shown = _first_difference(mine[path], other[path], name)
        else:
            what, shown = "", [_short(one[path]) if path in one else "nothing" for one in (mine, other)]
        found.append(f"{name}: {what}{shown[0]} {here}, {shown[1]} {there}")
    return found


def _first_difference(ours: list[Any], theirs: list[Any], name: str) -> tuple[str, list[str]]:
    what = "column" if name == "feature_names" else "entry"
    for position, (mine, other) in enumerate(zip(ours, theirs, strict=False)):
        if canonical(mine) != canonical(other):
            return f"{what} {position} is ", [_short(mine), _short(other)]
    return "", [f"{len(ours)} of them", f"{len(theirs)}"]


def _flat(content: dict[str, Any], before: Path = ()) -> dict[Path, Any]:
    """Nested objects flattened to one, by path. The depth is bounded, because the content may be another site's."""
    flat: dict[Path, Any] = {}
    for key, value in content.items():
        path = (*before, key)
        if isinstance(value, dict) and value and len(path) < MAX_DEPTH:
            flat.update(_flat(value, path))
        else:
            flat[path] = value
    return flat


def _short(value: Any) -> str:
    """A value for an error message, on one line of bounded length, because it may come from another site."""
    text = f"{len(value)} values" if isinstance(value, list) else "none" if value is None else canonical(value)
    return text if len(text) <= MAX_VALUE_CHARACTERS else f"{text[: MAX_VALUE_CHARACTERS - 4]}...{text[-1]}"
