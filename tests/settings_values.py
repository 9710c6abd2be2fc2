"""A value for every setting of the table, for tests that vary each of them and have none of their own."""

import json
from typing import Any

from eigenmesh.settings import SETTINGS

CANDIDATES = [3, 0.25, True, "other"]


def another(name: str) -> Any:
    """A value that is allowed and is not the default."""
    row = SETTINGS[name]
    names = [known for one in row.allowed for known in one.known]
    accepted = (value for value in [*CANDIDATES, *names] if any(one.accepts(value) for one in row.allowed))
    return next(value for value in accepted if value != row.default)


def shown(value: Any) -> str:
    """A plain value as messages about different settings show it."""
    return "none" if value is None else json.dumps(value)
