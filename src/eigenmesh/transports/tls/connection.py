"""The communication thread: opens, reads, writes and closes TLS connections as the machine asks."""

from __future__ import annotations

import asyncio
import itertools
import logging
import os
import random
import socket
import ssl
import struct
import tempfile
import threading
from collections import Counter
from collections.abc import AsyncIterator, Callable, Coroutine, Iterable, Iterator, Sequence
from contextlib import AbstractContextManager, asynccontextmanager, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

from eigenmesh.errors import InputError, import_extra
from eigenmesh.protocol import wire
from eigenmesh.protocol.effects import Bytes, Closed, Cut, Dial, Opened, Tick, Unreachable, Write
from eigenmesh.protocol.machine import HEARTBEAT_S
from eigenmesh.protocol.peering import backoff_s

if TYPE_CHECKING:
    from eigenmesh.transports.tls.dialling import Dialler, Talk

# The round trip time of a connection, as the kernel has measured it.


# The field tcpi_min_rtt of Linux's struct tcp_info, since 4.6: the shortest recent round trip, in microseconds.
_LEAST = struct.Struct("@I")
LEAST_AT = 148
# The value before the first measurement.
NOT_YET = 2**32 - 1


def round_trip_s(connected: Any) -> float:
    """The shortest round trip of the last five minutes over a TCP socket; 0 if the system does not provide it.

    ``connected`` is the socket of a connection, or None once the connection has ended.

    Kernels answer each other, so it includes neither the work of a site nor the load of its computer. It costs no
    message.
    """
    if connected is None or not hasattr(socket, "TCP_INFO"):
        return 0.0
    try:
        info = connected.getsockopt(socket.IPPROTO_TCP, socket.TCP_INFO, LEAST_AT + _LEAST.size)
    except (OSError, ValueError):
        # The socket is closed.
        return 0.0
    if len(info) < LEAST_AT + _LEAST.size:
        return 0.0
    (least,) = _LEAST.unpack_from(info, LEAST_AT)
    return 0.0 if least == NOT_YET else float(least) / 1e6


# TLS settings from a site's certificates, and plain reasons for refused handshakes.


# Signatures need it. This is the first module of the transport to be imported, so it reports a missing extra.
import_extra("cryptography", "peers", "a link between sites")

# Where Linux lists the open files of a process, including those in memory.
OPEN_FILES = Path("/proc/self/fd")


@dataclass(frozen=True)
class Credentials:
    """What proves a site to the others, in PEM.

    Parameters
    ----------
    key : the private key of the site.
    certificate : its certificate, which names it.
    authority : the certificate of the authority of all sites.
    passphrase : of the key, if it is encrypted. The key is never stored without it.
    """

    key: bytes
    certificate: bytes
    authority: bytes
    passphrase: bytes | None = None

    def for_listening(self) -> ssl.SSLContext:
        """Settings for a listener, which refuses callers without a certificate of the authority."""
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.verify_mode = ssl.CERT_REQUIRED
        # No session tickets: callers would have to store them, and a link that lasts for hours gains nothing.
        context.num_tickets = 0
        return self._fill(context)

    def for_dialling(self) -> ssl.SSLContext:
        """Settings for a caller, which refuses a listener whose certificate has another name than the one called."""
        return self._fill(ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT))

    def _fill(self, context: ssl.SSLContext) -> ssl.SSLContext:
        context.minimum_version = ssl.TLSVersion.TLSv1_3
        context.load_verify_locations(cadata=self.authority.decode())
        with _readable_file(self.certificate + b"\n" + self.key) as name:
            context.load_cert_chain(name, password=self.passphrase)
        return context


def _readable_file(content: bytes) -> AbstractContextManager[str]:
    """The name of a temporary file with this content: Python's TLS can read a key only from a file."""
    return _in_memory(content) if hasattr(os, "memfd_create") and OPEN_FILES.is_dir() else _on_disk(content)


@contextmanager
def _in_memory(content: bytes) -> Iterator[str]:
    """A file in memory, in no folder and never on a disk. It is gone when it is closed."""
    with open(os.memfd_create("credentials"), "wb") as file:
        file.write(content)
        file.flush()
        yield str(OPEN_FILES / str(file.fileno()))


@contextmanager
def _on_disk(content: bytes) -> Iterator[str]:
    """A temporary file that only its owner may read."""
    handle, name = tempfile.mkstemp()
    try:
        with open(handle, "wb") as file:
            file.write(content)
        yield name
    finally:
        Path(name).unlink()


def parse_address(address: str) -> tuple[str, int]:
    """Host and port of ``host:port``. An IPv6 address is in brackets."""
    host, _, port = address.rpartition(":")
    return host.strip("[]"), int(port)


def names_of(certificate: dict[str, tuple[tuple[str, str], ...]] | None) -> tuple[str, ...]:
    """The names in a certificate, as ``getpeercert`` gives it."""
    return tuple(name for kind, name in (certificate or {}).get("subjectAltName", ()) if kind == "DNS")


def plain_reason(error: BaseException) -> str:
    """Why a connection failed, without the names of library functions."""
    if isinstance(error, ssl.SSLError) and error.reason:
        words = error.reason.replace("_", " ").lower()
        detail = getattr(error, "verify_message", "")
        return f"{words}: {detail}" if detail else words
    if isinstance(error, OSError) and error.errno:
        return os.strerror(error.errno).lower()
    return str(error) or type(error).__name__


# One TLS connection: it carries messages, each with its length in front.


_LENGTH = struct.Struct("<Q")
# The first message of a listener. It tells the caller that its certificate was accepted.
WELCOME = b"eigenmesh"
# Longest time for a handshake, and for the rest of the data when a connection is closed.
CONNECT_S, LEAVE_S = 10.0, 1.0


def prefixed(message: bytes) -> bytes:
    """A message as it is sent: its length, then its bytes."""
    return _LENGTH.pack(len(message)) + message


class MessageReader:
    """Splits the incoming bytes into messages; none may be longer than ``max_bytes``."""

    def __init__(self, max_bytes: int) -> None:
        self._max_bytes = max_bytes
        self._got, self._end = bytearray(), 0

    def add(self, data: bytes) -> list[bytes]:
        """The messages that are now complete. Raises ValueError if a message is announced that is too long."""
        self._got += data
        whole = []
        while len(self._got) >= (self._end or _LENGTH.size):
            if self._end:
                whole.append(bytes(memoryview(self._got)[_LENGTH.size : self._end]))
                del self._got[: self._end]
                self._end = 0
            else:
                (length,) = _LENGTH.unpack_from(self._got)
                if length > self._max_bytes:
                    raise ValueError(f"a message of {length} bytes is announced; at most {self._max_bytes} are read.")
                self._end = _LENGTH.size + length
        return whole


class Connection(asyncio.Protocol):
    """Reads and writes messages.

    Attributes
    ----------
    take : called with each message. A message that comes before it is set ends the connection.
    ended : called with the reason when the connection has ended.
    silent : ticks since the last byte arrived; counted by the caller.
    """

    transport: asyncio.Transport

    def __init__(self, max_bytes: int) -> None:
        self._incoming, self._reason = MessageReader(max_bytes), ""
        self.take: Callable[[bytes], object] = lambda message: self.abort("it sent a message before it was asked")
        self.ended: Callable[[str], object] = lambda reason: None
        self.silent = 0

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport = cast(asyncio.Transport, transport)

    def data_received(self, data: bytes) -> None:
        self.silent = 0
        try:
            messages = self._incoming.add(data)
        except ValueError as error:
            self.abort(str(error))
            return
        for message in messages:
            self.take(message)

    def connection_lost(self, error: Exception | None) -> None:
        self.ended(self._reason or (plain_reason(error) if error else ""))

    def write(self, message: bytes) -> None:
        if not self.transport.is_closing():
            self.transport.write(prefixed(message))

    def close(self) -> None:
        """End the connection after everything is written."""
        if not self.transport.is_closing():
            self.transport.close()

    def abort(self, reason: str) -> None:
        """End the connection at once, if it is there."""
        self._reason = self._reason or reason
        if hasattr(self, "transport"):
            self.transport.abort()

    @contextmanager
    def until_it_fails(self) -> Iterator[None]:
        """End the connection at once if what is done with it fails."""
        try:
            yield
        except BaseException as error:
            self.abort(plain_reason(error))
            raise


@asynccontextmanager
async def deadline(timeout_s: float, what: str = "no answer") -> AsyncIterator[None]:
    """Raises TimeoutError with a reason if the work takes longer."""
    try:
        async with asyncio.timeout(timeout_s):
            yield
    except TimeoutError:
        raise TimeoutError(f"{what} within {timeout_s:g} s") from None


# The port of a site: it admits callers with a certificate of the authority, and limits handshakes with others.


logger = logging.getLogger("eigenmesh.transports.tls")

Work = Coroutine[Any, Any, None]
# Pause after a failed accept, such as when the process has no file descriptors left.
PAUSE_S = 0.1


class Listener:
    """Accepts callers at ``address``; at most ``most`` callers from one host may be in their handshake."""

    def __init__(self, address: str, context: ssl.SSLContext, max_bytes: int, most: int) -> None:
        self._context, self._max_bytes, self._most = context, max_bytes, most
        self._in_handshake: Counter[str] = Counter()
        self._socket = bound(address)

    async def serve(
        self, start: Callable[[Work, str], None], admit: Callable[[Connection, tuple[str, ...], str], Work]
    ) -> None:
        """Accept callers until this task is cancelled; ``start`` gets the work of each handshake, and a name.

        After a handshake ``admit`` gets the connection, the names in its certificate, and its address.
        """
        loop = asyncio.get_running_loop()
        while True:
            try:
                caller, (host, port, *_) = await loop.sock_accept(self._socket)
            except OSError as error:
                logger.debug("no caller can be accepted: %s", error)
                await asyncio.sleep(PAUSE_S)
                continue
            if self._in_handshake[host] < self._most:
                self._in_handshake[host] += 1
                start(self._greet(caller, host, port, admit), f"greet {host}:{port}")
            else:
                caller.close()

    def close(self) -> None:
        """Close the port."""
        self._socket.close()

    async def _greet(self, caller: socket.socket, host: str, port: int, admit: Callable[..., Work]) -> None:
        connection = Connection(self._max_bytes)
        try:
            await asyncio.get_running_loop().connect_accepted_socket(
                lambda: connection,
                caller,
                ssl=self._context,
                ssl_handshake_timeout=CONNECT_S,
                ssl_shutdown_timeout=LEAVE_S,
            )
        except OSError as error:
            logger.warning("refused a TLS handshake from %s: %s", host, plain_reason(error))
            caller.close()
            return
        finally:
            self._in_handshake -= Counter([host])
        await admit(connection, names_of(connection.transport.get_extra_info("peercert")), f"{host}:{port}")


def bound(address: str) -> socket.socket:
    """A socket that listens at ``host:port``."""
    host, port = parse_address(address)
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    try:
        listener = socket.create_server((host, port), family=family, backlog=128, dualstack_ipv6=host == "::")
    except OSError as error:
        fix = "is a peer running there already? If not, give another port, or an address of this machine"
        raise InputError(f"cannot listen on {address}: {plain_reason(error)}; {fix}.") from None
    listener.setblocking(False)
    return listener


# Threads and tasks of a site whose exceptions are never lost: each ends the run, with its reason in the log.


class Supervisor:
    """Runs the threads and tasks of one run at one site.

    Attributes
    ----------
    error : the exception with which the first of them ended, or None while all is well.
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

    def supervise(self, task: asyncio.Task[None]) -> None:
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


# A connection that is silent this long is closed. A neighbour sends a heartbeat every second; TCP alone would take a
# quarter of an hour to notice a broken path.
SILENT_S = 30.0


class ConnectionThread:
    """Runs the event loop in its own thread, from construction to ``stop``.

    Parameters
    ----------
    feed : called with events, in that thread.
    dialler : opens connections to the neighbours that this site calls, or meets at a relay.
    waits : the neighbours whose calls this site waits for at a relay.
    listen : the address at which the other neighbours call, if there are any.
    max_message_bytes : most bytes of arrays in a message.
    max_streams : most connections at a time.
    supervisor : hears of every exception in the thread.
    """

    def __init__(
        self,
        feed: Callable[[Any], None],
        dialler: Dialler,
        waits: Sequence[str],
        listen: str | None,
        max_message_bytes: int,
        max_streams: int,
        supervisor: Supervisor,
    ) -> None:
        self._feed, self._waits, self._max_streams = feed, waits, max_streams
        self._supervisor = supervisor
        self._max_bytes = wire.OVERHEAD_BYTES + max(max_message_bytes, wire.MAX_TEXT_BYTES)
        self._dialler = dialler
        # Bound here, because a port that is taken is a mistake of the caller, not of the thread.
        self._listener = None if listen is None else Listener(listen, dialler.answering, self._max_bytes, max_streams)
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
        return 0.0 if connection is None else round_trip_s(connection.transport.get_extra_info("socket"))

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

        The loop itself closes a connection in which it fails. Then the link is made again, as after any other end of a
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
        for neighbour in self._waits:
            self._start(self._wait(neighbour), f"wait for {neighbour}")
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
        # Connections that were given up just now need some turns of the loop: closed earlier, it may wait for them.
        await asyncio.sleep(0.05)

    def _start(self, work: Coroutine[Any, Any, None], name: str) -> None:
        task = self._loop.create_task(work, name=name)
        self._supervisor.supervise(task)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _tick(self) -> None:
        await self._begun.wait()
        while True:
            await asyncio.sleep(HEARTBEAT_S)
            for connection in list(self._open.values()):
                # Count ticks instead of seconds: time in which this process was stopped must not count.
                connection.silent += 1
                if connection.silent * HEARTBEAT_S > SILENT_S:
                    connection.abort(f"nothing has arrived for {SILENT_S:g} s")
            self._feed(Tick())

    async def _dial(self, neighbour: str, after_s: float) -> None:
        await asyncio.sleep(after_s)
        connection = Connection(self._max_bytes)
        try:
            await self._dialler.meet(neighbour, connection)
        except OSError as error:
            self._feed(Unreachable(neighbour, plain_reason(error)))
        else:
            self._hold(connection, (neighbour,), called=neighbour)

    async def _wait(self, neighbour: str) -> None:
        """Wait for calls of a neighbour at the relay, again and again, as a listener does at its port."""
        await self._begun.wait()
        relay, attempts = self._dialler.routes.relays[neighbour].relay, itertools.count()

        def waiting() -> None:
            nonlocal attempts
            attempts = itertools.count()
            self._feed(Unreachable(neighbour, f"it has not called at the relay {relay} yet"))

        while True:
            try:
                talk = await self._dialler.wait(neighbour, waiting)
            except OSError as error:
                self._feed(Unreachable(neighbour, plain_reason(error)))
                await asyncio.sleep(backoff_s(next(attempts), random.Random()))
                continue
            if talk is not None:
                self._start(self._take_call(talk, relay), f"greet {neighbour}")

    async def _take_call(self, talk: Talk, relay: str) -> None:
        connection = Connection(self._max_bytes)
        try:
            await self._dialler.answer(talk, connection)
        except OSError as error:
            logger.warning("refused a TLS handshake over the relay %s: %s", relay, plain_reason(error))
            return
        await self._admit(connection, names_of(connection.transport.get_extra_info("peercert")), f"the relay {relay}")

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
        self._feed(Opened(number, names, called, address))


def new_loop() -> asyncio.AbstractEventLoop:
    """The loop of uvloop, which is faster, if it is installed. It does not exist for Windows."""
    try:
        import uvloop
    except ImportError:
        return asyncio.new_event_loop()
    return uvloop.new_event_loop()
