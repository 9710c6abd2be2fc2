"""Streams that have been agreed on: read, write, and make room for the next one."""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Coroutine, Iterable
from dataclasses import dataclass, field
from typing import Any, Protocol

import grpc
import grpc.aio

from eigenmesh.errors import FrameError
from eigenmesh.transports.grpc import _wire as wire
from eigenmesh.transports.grpc._board import Board
from eigenmesh.transports.grpc._link import Letter, Link
from eigenmesh.transports.grpc._wire import Frame

logger = logging.getLogger("eigenmesh.transports.grpc")

LEAVE_S = 1.0


class Stream(Protocol):
    """What a dialled and an accepted stream have in common."""

    def read(self) -> Awaitable[Any]: ...
    def write(self, data: bytes, /) -> Awaitable[None]: ...


@dataclass(eq=False)
class Session:
    """One stream that has been agreed on, until it ends or another takes its place."""

    stream: Stream
    news: asyncio.Event = field(default_factory=asyncio.Event)
    leaving: bool = False
    task: asyncio.Task[None] | None = None


class Sessions:
    """The open streams of a site, at most one per link. Everything here runs in the loop."""

    def __init__(self, board: Board) -> None:
        self.board = board
        self.stopping = False
        self._open: dict[int, Session] = {}

    def __contains__(self, rank: int) -> bool:
        return rank in self._open

    def wake(self, ranks: Iterable[int]) -> None:
        for rank in ranks:
            if (session := self._open.get(rank)) is not None:
                session.news.set()

    def end(self, rank: int) -> None:
        """Close the stream of a link, if there is one; the link may open another."""
        session = self._open.get(rank)
        if session is not None and session.task is not None:
            session.task.cancel()

    async def leave(self) -> None:
        """Close all streams, each when everything is written."""
        self.stopping = True
        for session in self._open.values():
            session.leaving = True
            session.news.set()
        if tasks := [session.task for session in self._open.values() if session.task is not None]:
            await asyncio.wait(tasks, timeout=LEAVE_S)

    async def say(self, link: Link, stream: Stream, letter: Letter) -> None:
        data = wire.acknowledging(letter.frame, link.safe_here)
        self.board.record(link, letter, len(data))
        await stream.write(data)

    async def hear(self, stream: Stream) -> Frame:
        data = await stream.read()
        if not isinstance(data, bytes):
            raise FrameError("the stream ended before a greeting.")
        return wire.decode(data, self.board.run.max_message_bytes)

    async def hold(self, link: Link, stream: Stream, greeting: Frame) -> None:
        """Read and write until the stream ends; it takes the place of an earlier one."""
        rank, name, session = link.neighbour.rank, link.neighbour.name, Session(stream)
        self.end(rank)
        with self.board.changed:
            first = link.meet(greeting.round, greeting.acknowledged, greeting.text.split("\n")[2])
            link.connected = True
            self.board.changed.notify_all()
        if first:
            self.board.on_met(link)
        self._open[rank] = session
        logger.info("link to %s is up; it needs round %d.", name, greeting.round)
        works = (lambda: self._read(link, stream)), (lambda: self._write(link, session))
        session.task = asyncio.create_task(_either(*works))
        reason = ""
        try:
            await session.task
        except (FrameError, grpc.aio.AioRpcError, asyncio.InvalidStateError) as error:
            reason = str(error.details() if isinstance(error, grpc.aio.AioRpcError) else error)
            if isinstance(error, FrameError):
                self.board.refuse(name, reason)
        except asyncio.CancelledError:
            # The stream was closed by the other side or made room for another; only at the end is it us.
            if self.stopping:
                raise
        finally:
            if self._open.get(rank) is session:
                del self._open[rank]
                link.connected = False
            logger.info("link to %s is down. %s", name, reason)

    async def _read(self, link: Link, stream: Stream) -> None:
        while isinstance(data := await stream.read(), bytes):
            self.board.deliver(link, data)

    async def _write(self, link: Link, session: Session) -> None:
        while True:
            session.news.clear()
            data = self.board.next_frame(link)
            if data is not None:
                await session.stream.write(data)
            elif not session.leaving:
                await session.news.wait()
            elif isinstance(session.stream, grpc.aio.StreamStreamCall):
                # The other side ends the stream when it has read everything, and the reader sees that.
                await session.stream.done_writing()
                await session.news.wait()
            else:
                return


async def _either(*works: Callable[[], Coroutine[Any, Any, None]]) -> None:
    """Wait for the first of them, end the others, raise what it raised."""
    tasks = [asyncio.create_task(work()) for work in works]
    try:
        done, _ = await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
        for task in done:
            task.result()
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
