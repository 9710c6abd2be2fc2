"""Threads and tasks of a site whose exceptions are never lost: each ends the run, with its reason in the log."""

import asyncio
import logging
import threading
from collections.abc import Callable

logger = logging.getLogger("eigenmesh.transports.tls")


class Supervisor:
    """Runs the threads and tasks of one run at one site.

    Attributes
    ----------
    error : the exception with which the first of them ended; None while all is well.
    on_failure : called with that exception, in the thread in which it happened.
    """

    def __init__(self) -> None:
        self.error: BaseException | None = None
        self.on_failure: Callable[[BaseException], object] = lambda error: None
        self._lock = threading.Lock()

    def thread(self, work: Callable[[], object], name: str) -> threading.Thread:
        """A thread, not started yet, that does this work."""

        def supervised() -> None:
            try:
                work()
            except BaseException as error:
                self.fail(error, f"the thread {name}")

        return threading.Thread(target=supervised, name=name, daemon=True)

    def watch(self, task: asyncio.Task[None]) -> None:
        """Report the exception of a task, if it ends with one."""

        def ended(task: asyncio.Task[None]) -> None:
            error = None if task.cancelled() else task.exception()
            if error is not None:
                self.fail(error, f"the task {task.get_name()}")

        task.add_done_callback(ended)

    def fail(self, error: BaseException, who: str) -> None:
        """Report an exception that nobody has handled; only the first counts, and all are logged."""
        reason = f"{type(error).__name__}: {error}"
        logger.error("%s has ended the run: %s", who, reason, exc_info=error)
        with self._lock:
            first = self.error is None
            self.error = self.error or error
        if first:
            self.on_failure(error)

    def check(self) -> None:
        """Raise the exception with which a thread or a task has ended, if one has."""
        if self.error is not None:
            # A fresh traceback for each raise.
            raise self.error.with_traceback(None)
