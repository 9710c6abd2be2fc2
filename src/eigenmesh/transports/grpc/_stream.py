"""One gRPC stream: read as it comes, written in order, ended after what is left to write."""

import asyncio
from collections import deque
from collections.abc import Awaitable, Callable
from typing import Any, Protocol

import grpc
import grpc.aio

LEAVE_S = 1.0


class Channel(Protocol):
    """What a dialled and an accepted stream have in common."""

    def read(self) -> Awaitable[Any]: ...
    def write(self, data: bytes, /) -> Awaitable[None]: ...


class Stream:
    """One open stream; what is put here is written in order."""

    def __init__(self, channel: Channel) -> None:
        self.channel = channel
        self.waiting: deque[bytes] = deque()
        self.news = asyncio.Event()
        self.ending = self.refused = False

    async def work(self, take: Callable[[bytes], None]) -> str:
        """Read and write until the stream ends; why it did."""
        reason = ""
        tasks = [asyncio.create_task(self._read(take)), asyncio.create_task(self._write())]
        try:
            await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
            # The other end may have said its last word before it went; ours is said before this one goes.
            await asyncio.wait(tasks, timeout=LEAVE_S if self.ending else 0)
        finally:
            for task in tasks:
                task.cancel()
            results = await asyncio.gather(*tasks, return_exceptions=True)
        for result in results:
            if isinstance(result, grpc.aio.AioRpcError):
                reason = result.details() or str(result.code())
        return reason

    async def _read(self, take: Callable[[bytes], None]) -> None:
        while isinstance(data := await self.channel.read(), bytes):
            take(data)

    async def _write(self) -> None:
        while True:
            self.news.clear()
            while self.waiting:
                await self.channel.write(self.waiting.popleft())
            if self.ending and not self.waiting:
                if isinstance(self.channel, grpc.aio.StreamStreamCall):
                    await self.channel.done_writing()
                return
            await self.news.wait()
