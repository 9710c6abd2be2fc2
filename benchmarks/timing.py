"""Ratios of times taken in one run: what a noisy machine can still tell."""

from __future__ import annotations

import time
from collections.abc import Callable


def seconds(function: Callable[[], object], repeats: int) -> float:
    """Average seconds of one call over ``repeats`` calls."""
    began = time.perf_counter()
    for _ in range(repeats):
        function()
    return (time.perf_counter() - began) / repeats


def side_by_side(functions: dict[str, Callable[[], object]], repeats: int, passes: int = 15) -> dict[str, float]:
    """Least seconds of a call for each function, taken in turns so that a busy moment hits all alike."""
    least = dict.fromkeys(functions, float("inf"))
    for _ in range(passes):
        for name, function in functions.items():
            least[name] = min(least[name], seconds(function, repeats))
    return least
