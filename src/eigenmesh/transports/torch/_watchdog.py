"""How nodes under torch.distributed learn that another one has given up."""

from __future__ import annotations

import signal
import threading
import time
from collections.abc import Callable, Sequence
from types import FrameType
from typing import Any

from eigenmesh.errors import AbortedError
from eigenmesh.transports.torch._group import Group

REASON, TOLD, LATE = "reason", "told", "late"
# How often a node looks whether another one has given up.
POLL_S = 0.1
# How long a node that gives up waits for the others to know; the store may end with its process.
TELL_WITHIN_S = 1.0
# How far apart nodes may reach a deadline and still count as having waited for the same.
LATE_WITHIN_S = 0.5


class Watch:
    """Looks in the group's store for another node's reason, and wakes this node when there is one.

    A wait of gloo cannot be ended from outside but by breaking the links, and that is how this node is woken.
    """

    def __init__(self, group: Group) -> None:
        self._group = group
        self._end = threading.Event()
        # Taken again by the handler of a signal that comes while it is held.
        self._lock = threading.RLock()
        self._failure: tuple[int, str] | None = None
        self._thread = threading.Thread(target=self._run, name="eigenmesh watch", daemon=True)
        self._thread.start()

    @property
    def told(self) -> bool:
        """Whether a node, this one or another, has given up."""
        return self._failure is not None

    def check(self) -> None:
        """Raise if a node is known to have given up."""
        if self._failure is not None:
            rank, reason = self._failure
            raise AbortedError(f"node {rank} ended the run: {reason}")

    def look(self) -> None:
        """Look in the store now, and raise if a node has given up."""
        self._read()
        self.check()

    def tell(self, reason: str) -> None:
        """Leave the reason for the others, unless there is one already; break this node's links."""
        self._read()
        if self._failure is None:
            self._failure = (self._group.rank, reason)
            try:
                self._group.store.compare_set(REASON, "", f"{self._group.rank} {reason}")
                self._wait_until_told()
            except RuntimeError:
                # The store has ended with the process that held it; broken links are all that the others will see.
                pass
        self._group.break_links()

    def _wait_until_told(self) -> None:
        deadline = time.monotonic() + TELL_WITHIN_S
        others = [rank for rank in range(self._group.size) if rank != self._group.rank]
        left = len(others) - len(self._group.gone(others))
        while self._group.store.add(TOLD, 0) < left and time.monotonic() < deadline:
            time.sleep(0.01)

    def waiting(self, kind: str, ranks: Sequence[int]) -> dict[int, str]:
        """After a deadline: which of the ranks have waited in vain too, and for what kind of message."""
        store, until = self._group.store, time.monotonic() + LATE_WITHIN_S
        keys = {rank: f"{LATE}/{rank}" for rank in ranks}
        present: list[int] = []
        try:
            store.set(f"{LATE}/{self._group.rank}", kind)
            while len(present) < len(keys) and time.monotonic() < until:
                time.sleep(0.02)
                present = [rank for rank, key in keys.items() if store.check([key])]
            return {rank: store.get(keys[rank]).decode() for rank in present}
        except RuntimeError:
            return {}

    def hear_out(self, kind: str, ranks: Sequence[int]) -> None:
        """After connections to these ranks closed: raise the reason if one comes; wait longer if one met a deadline."""
        store, until = self._group.store, time.monotonic() + LATE_WITHIN_S
        marked = False
        try:
            while time.monotonic() < until:
                self.look()
                if not marked and any(store.check([f"{LATE}/{rank}"]) for rank in ranks):
                    marked = True
                    store.set(f"{LATE}/{self._group.rank}", kind)
                    until += LATE_WITHIN_S + TELL_WITHIN_S
                time.sleep(0.02)
        except RuntimeError:
            # No store, no reason.
            return

    def stop(self) -> None:
        """End the thread."""
        self._end.set()
        self._thread.join()

    def _run(self) -> None:
        while not self._end.wait(POLL_S):
            if self._failure is None and not self._read():
                return
            if self._failure is not None:
                self._group.break_links()
                return

    def _read(self) -> bool:
        """Take over another node's reason if there is one; whether the store could be read."""
        with self._lock:
            if self._failure is not None:
                return True
            try:
                store: Any = self._group.store
                if store.check([REASON]):
                    rank, _, reason = store.get(REASON).decode(errors="replace").partition(" ")
                    self._failure = (int(rank), reason)
                    store.add(TOLD, 1)
            except RuntimeError:
                return False
            return True


class TerminationNotice:
    """Has the first SIGTERM raise an error in the main thread, where nothing else handles it.

    torchrun sends SIGTERM to all ranks a tenth of a second after one has died, and the default is to end without a
    word. A second SIGTERM ends the process as ever.
    """

    def __init__(self, raise_error: Callable[[], None]) -> None:
        self._raise_error = raise_error
        main = threading.current_thread() is threading.main_thread()
        self._installed = main and signal.getsignal(signal.SIGTERM) is signal.SIG_DFL
        if self._installed:
            signal.signal(signal.SIGTERM, self._handle)

    def _handle(self, number: int, frame: FrameType | None) -> None:
        self.stop()
        self._raise_error()

    def stop(self) -> None:
        """Leave SIGTERM as it was found."""
        if self._installed and threading.current_thread() is threading.main_thread():
            signal.signal(signal.SIGTERM, signal.SIG_DFL)
