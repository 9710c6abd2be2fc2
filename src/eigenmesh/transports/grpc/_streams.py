"""The thread that communicates: gRPC streams that are opened, read, written and ended as the machine says."""

import asyncio
import itertools
import logging
import threading
from collections.abc import Callable, Coroutine, Iterable, Mapping
from typing import Any

import grpc
import grpc.aio

from eigenmesh.errors import InputError
from eigenmesh.protocol import HEARTBEAT_S, Bytes, Closed, Cut, Dial, Opened, Tick, Unreachable, Write
from eigenmesh.transports.grpc._security import METHOD, Credentials, dialling_options, listening_options
from eigenmesh.transports.grpc._stream import LEAVE_S, Channel, Stream

logger = logging.getLogger("eigenmesh.transports.grpc")

CONNECT_S = 10.0


class Streams:
    """Runs the loop in a thread of its own, from construction to ``stop``.

    ``feed`` takes events, in that thread. ``addresses`` are those of the neighbours that this site dials, ``listen`` is
    the address for the others.
    """

    def __init__(
        self,
        feed: Callable[[Any], None],
        credentials: Credentials,
        addresses: Mapping[str, str],
        listen: str | None,
        max_message_bytes: int,
        max_streams: int,
    ) -> None:
        self._feed, self._credentials, self._addresses = feed, credentials, addresses
        self._max_message_bytes, self._max_streams = max_message_bytes, max_streams
        self._open: dict[int, Stream] = {}
        self._numbers = itertools.count()
        self._loop = new_loop()
        self._loop.set_exception_handler(_quiet)
        self._begun, self._stopping = asyncio.Event(), asyncio.Event()
        self._started = threading.Event()
        self._tasks: set[asyncio.Task[None]] = set()
        self.error: Exception | None = None
        self.thread = threading.Thread(target=self._run, args=(listen,), name="eigenmesh-streams", daemon=True)
        self.thread.start()
        self._started.wait()
        if self.error is not None:
            self.thread.join()
            raise self.error

    def call(self, work: Callable[..., None], *values: Any) -> None:
        """Have the thread of the streams call something, after all that it was given before; from any thread."""
        try:
            self._loop.call_soon_threadsafe(work, *values)
        except RuntimeError:
            # The loop has ended, and so have the streams.
            logger.debug("too late for %r.", values)

    def begin(self) -> None:
        """Feed events from now on."""
        self.call(self._begun.set)

    def stop(self, timeout_s: float = 10.0) -> None:
        """End all streams after what is to be written, and the thread."""
        self.call(self._stopping.set)
        self.thread.join(timeout_s)
        if self.thread.is_alive():
            logger.error("the communication thread did not end within %g s.", timeout_s)

    def perform(self, effects: Iterable[Write | Cut | Dial]) -> None:
        """Do what the machine says; in the thread of the streams."""
        for effect in effects:
            if isinstance(effect, Dial):
                if not self._stopping.is_set():
                    self._start(self._dial(effect.neighbour, effect.after_s))
            elif (stream := self._open.get(effect.stream)) is not None:
                if isinstance(effect, Write):
                    stream.waiting.append(effect.data)
                else:
                    stream.ending, stream.refused = True, effect.refused
                stream.news.set()

    def _run(self, listen: str | None) -> None:
        asyncio.set_event_loop(self._loop)
        try:
            self._loop.run_until_complete(self._main(listen))
        except Exception as error:
            if self._started.is_set():
                logger.exception("the communication thread failed")
            self.error = error
        finally:
            # gRPC may leave calls behind that end only now; one that is cancelled prints its traceback, and an
            # unfinished one is reported when it is collected.
            left = asyncio.all_tasks(self._loop)
            if left:
                self._loop.run_until_complete(asyncio.wait(left, timeout=LEAVE_S))
            for task in left:
                task.cancel()
            self._loop.run_until_complete(asyncio.gather(*left, return_exceptions=True))
            self._loop.close()
            self._started.set()

    async def _main(self, listen: str | None) -> None:
        server = await self._listen(listen) if listen is not None else None
        self._started.set()
        self._start(self._tick())
        await self._stopping.wait()
        for stream in self._open.values():
            stream.ending = True
            stream.news.set()
        if self._open:
            await asyncio.wait([asyncio.ensure_future(self._all_closed())], timeout=LEAVE_S)
        for task in list(self._tasks):
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        if server is not None:
            await server.stop(LEAVE_S)

    async def _all_closed(self) -> None:
        while self._open:
            await asyncio.sleep(0.01)

    def _start(self, work: Coroutine[Any, Any, None]) -> None:
        task = self._loop.create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _tick(self) -> None:
        await self._begun.wait()
        while True:
            await asyncio.sleep(HEARTBEAT_S)
            self._feed(Tick())

    async def _dial(self, neighbour: str, after_s: float) -> None:
        await asyncio.sleep(after_s)
        options = dialling_options(self._max_message_bytes, neighbour)
        address, credentials = self._addresses[neighbour], self._credentials.for_dialling()
        try:
            async with grpc.aio.secure_channel(address, credentials, options=options) as channel:
                call = channel.stream_stream(METHOD)()
                try:
                    # The listener answers as soon as the handshake is over, so nothing is said to nobody.
                    await asyncio.wait_for(call.wait_for_connection(), CONNECT_S)
                except (grpc.aio.AioRpcError, TimeoutError, OSError, asyncio.InvalidStateError) as error:
                    details = error.details() if isinstance(error, grpc.aio.AioRpcError) else str(error)
                    self._feed(Unreachable(neighbour, details or f"no answer within {CONNECT_S:g} s"))
                    return
                await self._hold(call, (neighbour,), neighbour)
        except asyncio.CancelledError:
            raise
        except Exception as error:
            logger.exception("the link to %s failed", neighbour)
            self._feed(Unreachable(neighbour, repr(error)))

    async def _listen(self, address: str) -> grpc.aio.Server:
        _, service, method = METHOD.split("/")
        handler = grpc.stream_stream_rpc_method_handler(self._accept)
        server = grpc.aio.server(
            handlers=[grpc.method_handlers_generic_handler(service, {method: handler})],
            options=listening_options(self._max_message_bytes),
            maximum_concurrent_rpcs=self._max_streams,
        )
        try:
            server.add_secure_port(address, self._credentials.for_listening())
        except RuntimeError as error:
            why = "the port is taken, the address is not this machine's, or key and certificate do not fit"
            raise InputError(f"cannot listen on {address}: {why} ({error}).") from None
        await server.start()
        return server

    async def _accept(self, _: object, context: Any) -> None:
        """A stream that somebody with a certificate of the authority has opened."""
        found = context.auth_context().get("x509_subject_alternative_name", [])
        names = tuple(name.decode(errors="replace") for name in found)
        await self._begun.wait()
        await context.send_initial_metadata(())
        if await self._hold(context, names, address=context.peer()):
            await context.abort(grpc.StatusCode.PERMISSION_DENIED, "refused")

    async def _hold(self, channel: Channel, names: tuple[str, ...], called: str = "", address: str = "") -> bool:
        """Serve a stream to its end; whether the machine has refused it."""
        number = next(self._numbers)
        stream = self._open[number] = Stream(channel)
        reason = ""
        self._feed(Opened(number, names, called, address))
        try:
            reason = await stream.work(lambda data: self._feed(Bytes(number, data)))
        finally:
            del self._open[number]
            self._feed(Closed(number, reason))
        return stream.refused


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
