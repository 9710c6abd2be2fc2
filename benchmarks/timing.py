"""Times measured in turns in one run: their ratios are meaningful even on a busy machine."""

from __future__ import annotations

import time
from collections.abc import Callable

Clock = Callable[[], float]


def seconds(function: Callable[[], object], repeats: int, clock: Clock = time.perf_counter) -> float:
    """Average seconds of one call over ``repeats`` calls."""
    began = clock()
    for _ in range(repeats):
        function()
    return (clock() - began) / repeats


def side_by_side(
    functions: dict[str, Callable[[], object]],
    repeats: int,
    passes: int = 15,
    clock: Clock = time.perf_counter,
    summary: Callable[[list[float]], float] = min,
) -> dict[str, float]:
    """Seconds of a call for each function, the least by default, in turns so that a busy moment affects all."""
    taken: dict[str, list[float]] = {name: [] for name in functions}
    for _ in range(passes):
        for name, function in functions.items():
            taken[name].append(seconds(function, repeats, clock))
    return {name: summary(times) for name, times in taken.items()}
