"""A relay that writes down what it passes on, or dies on the way; sites that write down what they send."""

from __future__ import annotations

import os
import signal
from pathlib import Path

import numpy as np

from processes import command

# Words with fewer different bytes, such as zeros and small counts, may come about by chance.
LEAST_BYTES = 6


def recording_relay(notes: Path, die_after_bytes: int, *words: str) -> None:
    """``eigenmesh site relay`` by somebody curious: all that passes goes to a file for each connection.

    Once so many bytes have passed, the process is killed; 0 for never.
    """
    from eigenmesh.sites.relay import RelayedEnd

    passed_on, seen = RelayedEnd.data_received, 0

    def noted(end: RelayedEnd, data: bytes) -> None:
        nonlocal seen
        with open(notes / f"{os.getpid()}-{id(end)}", "ab") as file:
            file.write(data)
        seen += len(data)
        if die_after_bytes and seen > die_after_bytes:
            os.kill(os.getpid(), signal.SIGKILL)
        passed_on(end, data)

    RelayedEnd.data_received = noted  # type: ignore[method-assign]
    command(*words)


def noting_site(notes: Path, *words: str) -> None:
    """``eigenmesh site run`` in a process that writes down every message before it is encrypted."""
    from eigenmesh.transports.tls.connection import Connection

    write = Connection.write

    def noted(connection: Connection, message: bytes) -> None:
        with open(notes / str(os.getpid()), "ab") as file:
            file.write(message)
        write(connection, message)

    Connection.write = noted  # type: ignore[method-assign]
    command(*words)


def words_at_all_places(data: bytes) -> np.ndarray:
    """All words of 8 bytes in a text, wherever they begin."""
    each = [np.frombuffer(data[place : place + (len(data) - place) // 8 * 8], "<u8") for place in range(8)]
    return np.unique(np.concatenate(each))


def telling(words: np.ndarray) -> np.ndarray:
    """Those of some words that do not come about by chance."""
    unlike = np.sort(np.ascontiguousarray(words, "<u8").view(np.uint8).reshape(-1, 8), axis=1)
    return words[(np.diff(unlike, axis=1) > 0).sum(axis=1) + 1 >= LEAST_BYTES]
