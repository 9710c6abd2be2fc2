"""A site that is killed where it masks, and whose arithmetic has changed when it is started again."""

from __future__ import annotations

import hashlib
import json
import os
import signal
from pathlib import Path

import numpy as np

from eigenmesh.protocol.rounds import JournalledMasks
from processes import command


def masking_command(notes: Path, kill_at: int, changed_below: int, *words: str) -> None:
    """``command`` in a process that notes what it masks, and is killed at the average of that number.

    Its own numbers are off by one unit in averages below ``changed_below``, as those of another processor may be.
    """
    masked = JournalledMasks.masked

    def noted(masks: JournalledMasks, number: int, own: np.ndarray) -> np.ndarray:
        own = own + np.uint64(number < changed_below)
        left = masked(masks, number, own)
        digests = [hashlib.sha256(array.tobytes()).hexdigest() for array in (own, left)]
        with notes.open("a", encoding="utf-8") as file:
            file.write(json.dumps([number, *digests]) + "\n")
        if number == kill_at:
            os.kill(os.getpid(), signal.SIGKILL)
        return left

    JournalledMasks.masked = noted  # type: ignore[method-assign]
    command(*words)
