"""Solvers with their settings from what was typed."""

from collections import Counter
from dataclasses import fields, replace
from typing import Any

from eigenmesh._lookup import canonical_name
from eigenmesh.errors import InputError
from eigenmesh.experiments._settings import Method
from eigenmesh.solvers import SOLVERS


def parse_methods(text: str) -> list[Method]:
    """Methods from ``name:field=value,field=value,name``: a part without a colon or an equals sign is a new name."""
    parts: list[tuple[str, dict[str, Any]]] = []
    for part in (piece.strip() for piece in text.split(",")):
        name, colon, setting = part.partition(":")
        if not colon and "=" in part:
            name, setting = "", part
        if name or not (setting and parts):
            parts.append((canonical_name("solver", name or part, SOLVERS), {}))
        if setting or colon:
            _add_setting(*parts[-1], setting)
    methods = [Method(name, SOLVERS[name](**settings)) for name, settings in parts]
    if len(set(methods)) < len(methods):
        raise InputError(f"--solvers {text} names a solver twice with the same settings; leave one out.")
    names = Counter(method.label for method in methods)
    return [
        replace(method, label=f"{method.label} ({method.words})") if names[method.label] > 1 else method
        for method in methods
    ]


def _add_setting(name: str, settings: dict[str, Any], text: str) -> None:
    field, equals, value = (piece.strip() for piece in text.partition("="))
    if not equals or not value:
        raise InputError(f"settings of a solver are written {name}:field=value; got {text!r}.")
    field = canonical_name(f"setting of {name}", field, [known.name for known in fields(SOLVERS[name])])
    settings[field] = _value(name, field, value)


def _value(name: str, field: str, text: str) -> Any:
    if text.lower() in ("auto", "none"):
        return "auto" if text.lower() == "auto" else None
    for kind in (int, float):
        try:
            return kind(text)
        except ValueError:
            continue
    raise InputError(f"{field} of {name} must be a number, or auto where it can be; got {text!r}.")
