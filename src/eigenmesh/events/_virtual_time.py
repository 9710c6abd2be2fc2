"""Virtual time, which jumps from one planned action to the next: hours of a run take a second, and replay exactly."""

import heapq
from collections.abc import Callable
from random import Random
from typing import Any


class VirtualTime:
    """A clock, the actions planned on it, and one random number generator.

    Actions at the same time run in the order in which they were planned, so the seed determines everything.
    """

    def __init__(self, seed: int) -> None:
        self.now = 0.0
        self.random = Random(seed)
        self._planned: list[tuple[float, int, Callable[..., object], tuple[Any, ...]]] = []
        self._count = 0

    def after(self, delay_s: float, action: Callable[..., object], *arguments: Any) -> None:
        """Plan an action for ``delay_s`` from now."""
        self.at(self.now + delay_s, action, *arguments)

    def at(self, time: float, action: Callable[..., object], *arguments: Any) -> None:
        """Plan an action; if its time has passed, it runs next."""
        self._count += 1
        heapq.heappush(self._planned, (max(time, self.now), self._count, action, arguments))

    def run(self, until: float, is_over: Callable[[], bool] = lambda: False) -> bool:
        """Run the actions until none is planned, the time is up, or ``is_over``; False if the time was up."""
        while self._planned and not is_over():
            if self._planned[0][0] > until:
                return False
            self.now, _, action, arguments = heapq.heappop(self._planned)
            action(*arguments)
        return True
