"""A TCP proxy between two peers that delays, stalls, cuts, resets, truncates, doubles and garbles when told to."""

from __future__ import annotations

import asyncio
import socket
import struct
import threading
from collections.abc import Coroutine, Iterator
from contextlib import suppress
from typing import Any, NamedTuple, Self

from eigenmesh.transports.tls.connection import new_loop

CHUNK_BYTES = 1 << 18
STALL_LOOK_S = 0.02


class Fault(NamedTuple):
    """What befalls one connection once so many bytes have passed, both directions together; after that it is over.

    "close" and "reset" do so to both ends; "half" closes the direction that moved last, and "stall" holds both, for
    ``hold_s`` before they are reset, if the ends do not give up before.
    """

    kind: str
    after_bytes: int
    hold_s: float = 0.0


class Proxy:
    """Listens on a port of its own and passes everything on to a target, in a thread of its own.

    Parameters
    ----------
    host, port : where to pass on to.
    delay_s : one-way delay in both directions; order is kept.

    Attributes
    ----------
    address : host:port to dial.
    passed : bytes passed on, both directions together.
    connections : how many have been made.
    faults : one for each new connection; those after the last are let through.
    """

    def __init__(self, host: str, port: int, delay_s: float = 0.0) -> None:
        self._target, self.delay_s = (host, port), delay_s
        self.passed, self.connections = 0, 0
        self.faults: Iterator[Fault] = iter(())
        self._open, self._fault = True, ""
        self._left: int | None = None
        self._stalled: frozenset[str] = frozenset()
        self._writers: set[asyncio.StreamWriter] = set()
        # A slow loop would add to the delay.
        self._loop = new_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, daemon=True)
        self._thread.start()
        self._server = self._call(asyncio.start_server(self._accept, "127.0.0.1", 0, limit=CHUNK_BYTES))
        self.address = f"127.0.0.1:{self._server.sockets[0].getsockname()[1]}"

    def cut(self, restore: bool = True) -> None:
        """Close every connection at once; unless restored, new ones are closed as they come."""
        self._call(self._set_open(restore))

    def restore(self) -> None:
        """Let new connections through again."""
        self._call(self._set_open(True, close=False))

    def truncate_after(self, n_bytes: int) -> None:
        """Pass on so many more bytes, then close every connection; new ones are let through."""
        self._left = n_bytes

    def spoil(self, fault: str) -> None:
        """Do one thing to the next chunk that comes: "double" it, "drop" it or "garble" it."""
        self._fault = fault

    def stall(self, *directions: str) -> None:
        """Hold back everything in these directions, "there" (to the target) and "back", until told otherwise."""
        self._stalled = frozenset(directions)

    def close(self) -> None:
        """End all connections and the thread."""
        if not self._thread.is_alive():
            return
        self._server.close()
        self._call(self._shut())
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join(5.0)
        self._loop.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _call(self, work: Coroutine[Any, Any, Any]) -> Any:
        return asyncio.run_coroutine_threadsafe(work, self._loop).result(60.0)

    async def _set_open(self, value: bool, close: bool = True) -> None:
        self._open = value
        if close:
            self._abort_all()

    async def _shut(self) -> None:
        self._open = False
        self._abort_all()
        own = asyncio.current_task()
        others = [task for task in asyncio.all_tasks() if task is not own]
        for task in others:
            task.cancel()
        await asyncio.gather(*others, return_exceptions=True)

    def _abort_all(self) -> None:
        for writer in list(self._writers):
            writer.transport.abort()

    async def _accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.connections += 1
        if not self._open:
            writer.transport.abort()
            return
        try:
            there = await asyncio.open_connection(*self._target, limit=CHUNK_BYTES)
        except OSError:
            writer.transport.abort()
            return
        self._writers |= {writer, there[1]}
        pumps = self._pump(reader, there[1], "there"), self._pump(there[0], writer, "back")
        try:
            fault = next(self.faults, None)
            if fault is None:
                await asyncio.gather(*pumps)
            else:
                await self._meddled(fault, (reader, there[1]), (there[0], writer))
        except asyncio.CancelledError:
            # The proxy is closed; a server in Python 3.11 logs tasks that end so.
            pass
        finally:
            for pump in pumps:
                pump.close()
            for end in (writer, there[1]):
                self._writers.discard(end)
                end.transport.abort()

    async def _meddled(self, fault: Fault, *ways: tuple[asyncio.StreamReader, asyncio.StreamWriter]) -> None:
        """Pass on as many bytes as the fault allows, in both directions, and then cause it."""
        left, last = fault.after_bytes, ways[0][1]
        over = asyncio.Event()

        async def pump(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            nonlocal left, last
            while not over.is_set() and (data := await reader.read(CHUNK_BYTES)):
                data = data[:left]
                left, last = left - len(data), writer
                writer.write(data)
                await writer.drain()
                if left <= 0:
                    break
            over.set()

        pumps = [asyncio.ensure_future(pump(*way)) for way in ways]
        try:
            if left > 0:
                await over.wait()
            if fault.kind == "half" and not last.transport.is_closing():
                # The end may have gone already.
                with suppress(OSError):
                    last.write_eof()
            await asyncio.sleep(fault.hold_s)
        finally:
            for one in pumps:
                one.cancel()
            await asyncio.gather(*pumps, return_exceptions=True)
        for _, writer in ways:
            if fault.kind != "close" and not writer.transport.is_closing():
                # Closed with this option, a connection is reset: the other end hears no farewell.
                at_once = struct.pack("ii", 1, 0)
                writer.get_extra_info("socket").setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, at_once)
                writer.transport.abort()
            else:
                writer.close()

    async def _pump(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, direction: str) -> None:
        """Read on while earlier chunks wait for their time, so that a delay does not limit the rate."""
        queue: asyncio.Queue[tuple[float, bytes]] = asyncio.Queue()
        sender = asyncio.ensure_future(self._send(queue, writer, direction))
        try:
            while data := await reader.read(CHUNK_BYTES):
                await queue.put((self._loop.time() + self.delay_s, data))
            await queue.put((self._loop.time() + self.delay_s, b""))
            await sender
        except OSError:
            writer.transport.abort()
        finally:
            sender.cancel()

    async def _send(
        self, queue: asyncio.Queue[tuple[float, bytes]], writer: asyncio.StreamWriter, direction: str
    ) -> None:
        while True:
            due, data = await queue.get()
            if due > self._loop.time():
                await asyncio.sleep(due - self._loop.time())
            while direction in self._stalled:
                await asyncio.sleep(STALL_LOOK_S)
            if writer.transport.is_closing():
                return
            if not data:
                if writer.can_write_eof():
                    writer.write_eof()
                return
            data = self._changed(data)
            writer.write(data)
            self.passed += len(data)
            try:
                await writer.drain()
            except OSError:
                return
            if self._left is not None and self._left <= 0:
                self._left = None
                self._abort_all()

    def _changed(self, data: bytes) -> bytes:
        fault, self._fault = self._fault, ""
        if fault == "double":
            data = data + data
        elif fault == "drop":
            data = b""
        elif fault == "garble":
            data = bytes([data[0] ^ 0x55]) + data[1:]
        if self._left is not None:
            data = data[: self._left]
            self._left -= len(data)
        return data
