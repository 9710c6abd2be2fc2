"""The communication thread: opens, reads, writes and closes TLS connections as the machine asks."""

import asyncio
import itertools
import logging
import ssl
from collections.abc import Callable, Coroutine, Iterable, Mapping
from typing import Any

from eigenmesh.errors import InputError
from eigenmesh.protocol import HEARTBEAT_S, Bytes, Closed, Cut, Dial, Opened, Tick, Unreachable, Write, wire
from eigenmesh.transports.tls._connection import CONNECT_S, LEAVE_S, WELCOME, Connection
from eigenmesh.transports.tls._listener import Listener
from eigenmesh.transports.tls._security import Credentials, parse_address, plain_reason
from eigenmesh.transports.tls._supervisor import Supervisor

logger = logging.getLogger("eigenmesh.transports.tls")

# A connection that is silent this long is closed. A neighbour sends a heartbeat every second; TCP alone would take a
# quarter of an hour to notice a broken path.
SILENT_S = 30.0


class ConnectionThread:
    """Runs the event loop in its own thread, from construction to ``stop``.

    ``feed`` is called with events, in that thread. ``addresses`` are those of the neighbours that this site calls;
    ``listen`` is the address at which the others call. ``supervisor`` hears of every exception in the thread.
    """

    def __init__(
        self,
        feed: Callable[[Any], None],
        credentials: Credentials,
        addresses: Mapping[str, str],
        listen: str | None,
        max_message_bytes: int,
        max_streams: int,
        supervisor: Supervisor,
    ) -> None:
        self._feed, self._addresses, self._max_streams = feed, addresses, max_streams
        self._supervisor = supervisor
        self._max_bytes = wire.ROOM_BYTES + max(max_message_bytes, wire.MAX_TEXT_BYTES)
        try:
            self._listening, self._dialling = credentials.for_listening(), credentials.for_dialling()
        except (ssl.SSLError, ValueError) as error:
            raise InputError(f"key, certificate and authority do not match: {plain_reason(error)}.") from None
        # Bound here, because a port that is taken is a mistake of the caller, not of the thread.
        self._listener = None if listen is None else Listener(listen, self._listening, self._max_bytes, max_streams)
        self._open: dict[int, Connection] = {}
        self._numbers = itertools.count()
        self._loop = new_loop()
        self._begun, self._stopping = asyncio.Event(), asyncio.Event()
        self._tasks: set[asyncio.Task[None]] = set()
        self.thread = supervisor.thread(self._run, "eigenmesh-streams")
        self.thread.start()

    def call(self, work: Callable[..., None], *values: Any) -> None:
        """Have this thread make a call, after all earlier ones; may be used from any thread."""
        try:
            self._loop.call_soon_threadsafe(work, *values)
        except RuntimeError:
            # The loop has ended, and with it all streams.
            logger.debug("too late for %r.", values)

    def begin(self) -> None:
        """Feed events from now on."""
        self.call(self._begun.set)

    def stop(self, timeout_s: float = 10.0) -> None:
        """Close all streams after everything is written, and end the thread."""
        self.call(self._stopping.set)
        self.thread.join(timeout_s)
        if self.thread.is_alive():
            logger.error("the communication thread did not end within %g s.", timeout_s)

    def perform(self, effects: Iterable[Write | Cut | Dial]) -> None:
        """Carry out effects of the machine; must be called in this thread."""
        for effect in effects:
            if isinstance(effect, Dial):
                if not self._stopping.is_set():
                    self._start(self._dial(effect.neighbour, effect.after_s), f"dial {effect.neighbour}")
            elif (connection := self._open.get(effect.stream)) is not None:
                if isinstance(effect, Write):
                    connection.write(effect.data)
                else:
                    connection.close()

    def round_trip_s(self, stream: int | None) -> float:
        """Round trip time of a stream; 0 if unknown."""
        connection = None if stream is None else self._open.get(stream)
        return 0.0 if connection is None else connection.round_trip_s

    def _run(self) -> None:
        asyncio.set_event_loop(self._loop)
        self._loop.set_exception_handler(self._callback_failed)
        try:
            self._loop.run_until_complete(self._main())
        finally:
            if self._listener is not None:
                self._listener.close()
            self._loop.close()

    def _callback_failed(self, loop: asyncio.AbstractEventLoop, about: dict[str, Any]) -> None:
        """Hear of an exception in a callback of the loop.

        The loop itself closes a connection in which it fails; then the link is made again, as after any other end of a
        connection. An error of the system, such as a reset during a handshake that was given up, is about a connection,
        too. So strangers cannot end the run.
        """
        error = about.get("exception")
        if not isinstance(error, Exception) or isinstance(error, OSError) or "transport" in about:
            logger.warning("%s: %s", about.get("message"), error)
        else:
            self._supervisor.fail(error, "a callback of the communication thread")

    async def _main(self) -> None:
        if self._listener is not None:
            self._start(self._listener.serve(self._start, self._admit), "listen")
        self._start(self._tick(), "tick")
        await self._stopping.wait()
        tasks = list(self._tasks)
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        for connection in list(self._open.values()):
            connection.close()
        # Each ends within LEAVE_S.
        while self._open:
            await asyncio.sleep(0.01)

    def _start(self, work: Coroutine[Any, Any, None], name: str) -> None:
        task = self._loop.create_task(work, name=name)
        self._supervisor.watch(task)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _tick(self) -> None:
        await self._begun.wait()
        while True:
            await asyncio.sleep(HEARTBEAT_S)
            for connection in list(self._open.values()):
                # Count ticks instead of seconds: time in which this process was stopped must not count.
                connection.silent += 1
                connection.look()
                if connection.silent * HEARTBEAT_S > SILENT_S:
                    connection.abort(f"nothing has arrived for {SILENT_S:g} s")
            self._feed(Tick())

    async def _dial(self, neighbour: str, after_s: float) -> None:
        await asyncio.sleep(after_s)
        connection, answered = Connection(self._max_bytes), asyncio.Event()

        def take(message: bytes) -> None:
            if message != WELCOME:
                connection.abort("it is not an eigenmesh peer")
                return
            self._hold(connection, (neighbour,), called=neighbour)
            answered.set()

        def ended(reason: str) -> None:
            self._feed(Unreachable(neighbour, reason or "the connection was closed"))
            answered.set()

        def give_up(reason: str) -> None:
            # The answer may have arrived at the same moment.
            if not answered.is_set():
                connection.ended = lambda reason: None
                if hasattr(connection, "transport"):
                    connection.abort(reason)
                self._feed(Unreachable(neighbour, reason))

        connection.take, connection.ended = take, ended
        host, port = parse_address(self._addresses[neighbour])
        try:
            async with asyncio.timeout(CONNECT_S):
                await self._loop.create_connection(
                    lambda: connection,
                    host,
                    port,
                    ssl=self._dialling,
                    server_hostname=neighbour,
                    ssl_shutdown_timeout=LEAVE_S,
                )
                await answered.wait()
        except TimeoutError:
            give_up(f"no answer within {CONNECT_S:g} s")
        except OSError as error:
            give_up(plain_reason(error))

    async def _admit(self, connection: Connection, names: tuple[str, ...], address: str) -> None:
        """Admit a caller, whose certificate the authority has issued."""
        await self._begun.wait()
        if len(self._open) >= self._max_streams:
            connection.abort("there are too many connections")
        elif not connection.transport.is_closing():
            connection.write(WELCOME)
            self._hold(connection, names, address=address)

    def _hold(self, connection: Connection, names: tuple[str, ...], called: str = "", address: str = "") -> None:
        """Pass the messages of a connection to the machine, until it ends."""
        number = next(self._numbers)

        def ended(reason: str) -> None:
            del self._open[number]
            self._feed(Closed(number, reason))

        connection.take, connection.ended = lambda data: self._feed(Bytes(number, data)), ended
        self._open[number] = connection
        connection.look()
        self._feed(Opened(number, names, called, address))


def new_loop() -> asyncio.AbstractEventLoop:
    """The loop of uvloop, which is faster, if it is installed; it does not exist for Windows."""
    try:
        import uvloop
    except ImportError:
        return asyncio.new_event_loop()
    return uvloop.new_event_loop()
