"""The thread that communicates: one long-lived gRPC stream per link, dialled or accepted, and reopened if it breaks."""

import asyncio
import logging
import threading
import time
from collections.abc import Callable, Coroutine
from typing import Any

from eigenmesh.errors import TransportError
from eigenmesh.transports.grpc import _wire as wire
from eigenmesh.transports.grpc._board import Board
from eigenmesh.transports.grpc._greeting import Compare, Dialler, Listener
from eigenmesh.transports.grpc._security import Credentials
from eigenmesh.transports.grpc._sessions import Sessions
from eigenmesh.transports.grpc._wire import Kind

logger = logging.getLogger("eigenmesh.transports.grpc")

HEARTBEAT_S = 1.0
# A tick that comes later than this was held up by a stop of the whole process, for which no neighbour is to blame.
STOPPED_S = 3.0


class Streams:
    """Runs the loop in a thread of its own, from construction to ``stop``; only that and ``_soon`` are for others."""

    def __init__(self, board: Board, credentials: Credentials, listen: str | None, compare: Compare | None) -> None:
        self.board, self._listen, self._credentials = board, listen, credentials
        self._sessions = Sessions(board)
        self._listener = Listener(self._sessions, compare)
        self._dialler = Dialler(self._sessions, credentials, compare)
        self._loop = new_loop()
        self._loop.set_exception_handler(_quiet)
        self._stopping = asyncio.Event()
        self._started = threading.Event()
        self._error: Exception | None = None
        self._tasks: set[asyncio.Task[None]] = set()
        self.thread = threading.Thread(target=self._run, name=f"eigenmesh-{board.name}", daemon=True)
        board.wake = lambda ranks: self._soon(self._sessions.wake, tuple(ranks))
        board.cut = lambda rank: self._soon(self._sessions.end, rank)
        self.thread.start()
        self._started.wait()
        if self._error is not None:
            self.thread.join()
            raise self._error

    def stop(self, timeout_s: float = 10.0) -> None:
        self._soon(self._stopping.set)
        self.thread.join(timeout_s)
        if self.thread.is_alive():
            logger.error("the communication thread of %s did not end within %g s.", self.board.name, timeout_s)

    def _soon(self, function: Callable[..., Any], *args: Any) -> None:
        try:
            self._loop.call_soon_threadsafe(function, *args)
        except RuntimeError:
            # The loop has ended, and so has everything that the call was for.
            logger.debug("%s: too late for %s.", self.board.name, function)

    def _run(self) -> None:
        asyncio.set_event_loop(self._loop)
        try:
            self._loop.run_until_complete(self._main())
        except Exception as error:
            if self._started.is_set():
                logger.exception("the communication thread of %s failed", self.board.name)
            self._error = error
            self.board.fail(TransportError(f"communication failed: {error}"))
        finally:
            # gRPC may leave calls behind that end only now; an unfinished one would be reported when it is collected.
            left = asyncio.all_tasks(self._loop)
            for task in left:
                task.cancel()
            self._loop.run_until_complete(asyncio.gather(*left, return_exceptions=True))
            self._loop.close()
            self._started.set()

    async def _main(self) -> None:
        if self._listen is not None:
            await self._listener.start(self._listen, self._credentials)
        self._started.set()
        for link in self.board.links.values():
            if link.neighbour.address is not None:
                self._start(self._dialler.keep_open(link, link.neighbour.address))
        self._start(self._tick())
        await self._stopping.wait()
        await self._sessions.leave()
        for task in list(self._tasks):
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        await self._listener.stop()

    def _start(self, work: Coroutine[Any, Any, None]) -> None:
        task = self._loop.create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._ended)

    def _ended(self, task: asyncio.Task[None]) -> None:
        self._tasks.discard(task)
        if not task.cancelled() and task.exception() is not None:
            logger.error("a task of %s failed", self.board.name, exc_info=task.exception())
            self.board.fail(TransportError(f"communication failed at {self.board.name}: {task.exception()!r}"))

    async def _tick(self) -> None:
        """Once a second: a sign of life to every neighbour, and a look at who has given none."""
        last = time.monotonic()
        while True:
            await asyncio.sleep(HEARTBEAT_S)
            now = time.monotonic()
            late = now - last - HEARTBEAT_S
            last = now
            with self.board.changed:
                self._look_around(now, late if late > STOPPED_S else 0.0)
            self._sessions.wake(self.board.links)

    def _look_around(self, now: float, excused_s: float) -> None:
        board = self.board
        waiting = wire.text_body("\n".join(board.links[rank].neighbour.name for rank in board.awaited))
        for rank, link in board.links.items():
            link.heard += excused_s
            link.lost = now - link.heard > (board.patience_s if link.joined else board.join_s)
            # One that is still to be written is sign enough.
            if rank in self._sessions and not any(letter.kind is Kind.HEARTBEAT for letter in link.control):
                board.tell(link, Kind.HEARTBEAT, waiting)
        if any(link.lost for link in board.links.values()):
            board.changed.notify_all()


def new_loop() -> asyncio.AbstractEventLoop:
    """The quicker loop where there is one; there is none for Windows."""
    try:
        import uvloop
    except ImportError:
        return asyncio.new_event_loop()
    return uvloop.new_event_loop()


def _quiet(loop: asyncio.AbstractEventLoop, context: dict[str, Any]) -> None:
    # Loops of several threads share gRPC's wake-up socket; the one that comes second finds it empty.
    if not isinstance(context.get("exception"), BlockingIOError):
        loop.default_exception_handler(context)
