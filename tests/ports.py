"""Ports for servers of tests."""

from __future__ import annotations

import itertools
import os
import socket

# Below those that the system gives to clients, a stretch for each process, and in turn, so that none comes twice soon.
FIRST, STRETCH, STRETCHES = 10_000, 100, 200
_places = itertools.count()


def free_ports(count: int) -> list[int]:
    """Ports that nobody listens on now."""
    start = FIRST + STRETCH * (os.getpid() % STRETCHES)
    found: list[int] = []
    for _ in range(STRETCH):
        port = start + next(_places) % STRETCH
        with socket.socket() as trial:
            trial.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            try:
                trial.bind(("127.0.0.1", port))
            except OSError:
                continue
        found.append(port)
        if len(found) == count:
            return found
    raise AssertionError("no free ports")
