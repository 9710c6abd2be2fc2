"""Waiting for what must happen, however busy the machine is."""

from __future__ import annotations

import time
from collections.abc import Callable

# Far beyond what anything takes on a machine that has time: it ends a test that would else never end.
LIMIT_S = 300.0
EVERY_S = 0.02


def until(condition: Callable[[], object], otherwise: str | Callable[[], str], limit_s: float = LIMIT_S) -> None:
    """Wait until the condition holds; fail with these words if it never does."""
    end = time.monotonic() + limit_s
    while not condition():
        assert time.monotonic() < end, otherwise if isinstance(otherwise, str) else otherwise()
        time.sleep(EVERY_S)
