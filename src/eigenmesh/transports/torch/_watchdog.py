"""How nodes under torch.distributed learn that another one has failed."""

import signal
import threading
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from types import FrameType
from typing import Any

from eigenmesh.errors import AbortedError
from eigenmesh.transports.torch._group import Group

REASON, READ, LATE = "reason", "read", "late"
# How often a node checks whether another one has failed.
POLL_S = 0.1
# How long a failing node waits until the others have read its reason: the store may end with its process.
PUBLISH_WITHIN_S = 1.0
# Two deadlines at most this far apart belong to the same wait.
LATE_WITHIN_S = 0.5


class AbortWatch:
    """A thread that polls the group's store for the reason of another node's failure, and then wakes this node.

    A wait of gloo ends early only if its links break, so this node is woken by breaking its links.
    """

    def __init__(self, group: Group) -> None:
        self._group = group
        self._end = threading.Event()
        # Re-entrant, because a signal handler may need it while the main thread holds it.
        self._lock = threading.RLock()
        self._failure = ""
        self._thread = threading.Thread(target=self._run, name="eigenmesh watch", daemon=True)
        self._thread.start()

    def check(self) -> None:
        if self._failure:
            raise AbortedError(self._failure)

    def poll(self) -> None:
        """Read the store now, and raise if a node has failed."""
        self._read()
        self.check()

    def publish(self, reason: str) -> None:
        """Put the reason in the store, unless there is one already; then break this node's links."""
        self._read()
        if not self._failure:
            self._failure = f"node {self._group.rank} ended the run: {reason}"
            # If the store has ended with its process, the others will only see broken links.
            with suppress(RuntimeError):
                self._group.store.compare_set(REASON, "", f"{self._group.rank} {reason}")
                self._wait_until_read()
        self._group.break_links()

    def _wait_until_read(self) -> None:
        deadline = time.monotonic() + PUBLISH_WITHIN_S
        others = [rank for rank in range(self._group.size) if rank != self._group.rank]
        left = len(others) - len(self._group.gone(others))
        while self._group.store.add(READ, 0) < left and time.monotonic() < deadline:
            time.sleep(0.01)

    def late_ranks(self, kind: str, ranks: Sequence[int]) -> dict[int, str]:
        """After a deadline: the ranks that missed it, too, and the kind of message that each waited for."""
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

    def wait_for_reason(self, kind: str, ranks: Sequence[int]) -> None:
        """After connections to these ranks closed: raise their reason if it appears; wait longer if one was late."""
        store, until = self._group.store, time.monotonic() + LATE_WITHIN_S
        marked = False
        with suppress(RuntimeError):
            while time.monotonic() < until:
                self.poll()
                if not marked and any(store.check([f"{LATE}/{rank}"]) for rank in ranks):
                    marked = True
                    store.set(f"{LATE}/{self._group.rank}", kind)
                    until += LATE_WITHIN_S + PUBLISH_WITHIN_S
                time.sleep(0.02)

    def stop(self) -> None:
        self._end.set()
        self._thread.join()

    def _run(self) -> None:
        while not self._end.wait(POLL_S):
            if not self._failure and not self._read():
                return
            if self._failure:
                self._group.break_links()
                return

    def _read(self) -> bool:
        """Take the reason of another node's failure, if there is one; False if the store cannot be read."""
        with self._lock:
            if self._failure:
                return True
            try:
                store: Any = self._group.store
                if store.check([REASON]):
                    rank, _, reason = store.get(REASON).decode(errors="replace").partition(" ")
                    self._failure = f"node {rank} ended the run: {reason}"
                    store.add(READ, 1)
            except RuntimeError:
                return False
            return True


class SigtermHandler:
    """Makes the first SIGTERM raise an error in the main thread, unless something else handles it.

    torchrun sends SIGTERM to all ranks a tenth of a second after one has died; by default they would end without a
    message. A second SIGTERM ends the process as usual.
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
        if self._installed and threading.current_thread() is threading.main_thread():
            signal.signal(signal.SIGTERM, signal.SIG_DFL)
