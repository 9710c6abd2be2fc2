"""How a site reaches its neighbours: directly or over a relay, and in both cases perhaps through an HTTP proxy.

A relay is a third computer that two sites call when neither can be called. Each makes a connection of TLS to it, with
its own certificate, and says whom it wants to meet. One of the two waits there, the other calls. The relay then joins
the two connections, and inside them the sites begin a second session of TLS, which ends at the sites: the caller is
its client. The relay passes on bytes that it cannot read or change.

    caller                      relay                     the one that waits
      |                           | <--- wait, run, caller --- |
      |                           | ---- waiting ------------> |
      | --- call, run, other ---> |                            |
      |                           | ---- called -------------> |
      |                           | <--- ready --------------- |
      | <-- joined -------------- |                            |
      | <========== TLS, from site to site ==================> |
"""

from __future__ import annotations

import asyncio
import re
import ssl
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any, NamedTuple, cast

from eigenmesh.errors import FrameError, InputError, TransportError
from eigenmesh.protocol import wire
from eigenmesh.protocol.wire import Kind
from eigenmesh.transports.tls.connection import (
    CONNECT_S,
    LEAVE_S,
    WELCOME,
    Connection,
    Credentials,
    deadline,
    logger,
    new_loop,
    parse_address,
    plain_reason,
)
from eigenmesh.words import one_line

# Bytes that are encrypted or decrypted at once.
CHUNK_BYTES = 1 << 18
# Most messages of a caller that are kept until they are read.
MOST_WORDS = 4
# Largest message between a site and a relay before it joins two sites, and largest answer of a proxy.
MAX_WORDS_BYTES, MAX_HEAD_BYTES = 2_048, 16_384
# The first message of a relay, once it has accepted the certificate of a site.
RELAY_WELCOME = b"eigenmesh relay 1"
# What a site asks of a relay, with the name of the run and of the neighbour: to be joined with it if it waits there, or
# to wait for its call. Then the answers.
CALL, WAIT = "call", "wait"
WAITING, CALLED, READY, JOINED, AGAIN = "waiting", "called", "ready", "joined", "again"
ABSENT, REFUSED = "absent", "refused"
# So long a site may wait at a relay. Then it asks again, so that a relay never holds connections that are long dead.
RELAY_WAIT_S = 60.0


class Via(NamedTuple):
    """A relay at which a site meets a neighbour.

    Parameters
    ----------
    relay : the name in its certificate.
    address : its ``host:port``.
    run : the name of the run. Sites that are in several runs meet in the right one.
    """

    relay: str
    address: str
    run: str


class HttpProxy(NamedTuple):
    """The HTTP proxy through which a site makes its connections.

    Parameters
    ----------
    address : its ``host:port``.
    authorization : the value of the header ``Proxy-Authorization``, or empty.
    """

    address: str
    authorization: str = ""


@dataclass(frozen=True)
class Routes:
    """How a site reaches its neighbours. Those that are in neither mapping call this site.

    Parameters
    ----------
    addresses : ``host:port`` of the neighbours that this site calls.
    relays : of the neighbours that this site meets at a relay.
    proxy : for all connections that this site makes.
    """

    addresses: Mapping[str, str] = field(default_factory=dict)
    relays: Mapping[str, Via] = field(default_factory=dict)
    proxy: HttpProxy | None = None


class AbsentError(ConnectionRefusedError):
    """The relay is there, but the neighbour does not wait there."""


class UnwelcomeError(ConnectionResetError):
    """The listener has ended the connection after the handshake, such as for the certificate of this site."""


class TlsSession(asyncio.Transport, asyncio.Protocol):
    """TLS over an open connection: the protocol of that connection, and the transport of a ``Connection``.

    Loops have ``start_tls`` for that, but within another session of TLS it fails when connections end, in Python 3.11
    at least. And here bytes that come with the end of the handshake find a ``Connection`` that knows its transport.

    Parameters
    ----------
    outer : the transport of the open connection.
    connection : what gets the decrypted bytes.
    context : settings of TLS.
    name : the client requires this name of the other end; None for the server.
    """

    def __init__(
        self, outer: asyncio.Transport, connection: Connection, context: ssl.SSLContext, name: str | None
    ) -> None:
        super().__init__()
        self._outer, self._protocol = outer, cast(asyncio.Protocol, connection)
        self._in, self._out = ssl.MemoryBIO(), ssl.MemoryBIO()
        self._tls = context.wrap_bio(self._in, self._out, server_side=name is None, server_hostname=name)
        self._handshake: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._closing = False
        self._their_certificate: Any = None

    async def begin(self) -> None:
        """Take over the open connection, and make the handshake. Raises OSError if it fails."""
        self._outer.set_protocol(self)
        self._shake_hands()
        async with deadline(CONNECT_S, "no handshake"):
            await self._handshake

    # The protocol of the open connection.

    def data_received(self, data: bytes) -> None:
        self._in.write(data)
        if not self._handshake.done():
            self._shake_hands()
        if self._handshake.done() and not self._closing:
            self._read()

    def connection_lost(self, error: Exception | None) -> None:
        self._closing = True
        if not self._handshake.done():
            self._handshake.set_exception(error or ConnectionResetError("the connection was closed in the handshake"))
        elif not self._handshake.cancelled() and self._handshake.exception() is None:
            self._protocol.connection_lost(error)

    def _shake_hands(self) -> None:
        try:
            self._tls.do_handshake()
        except ssl.SSLWantReadError:
            self._flush()
        except ssl.SSLError as error:
            # The other end is told by an alert.
            self._flush()
            self._handshake.set_exception(error)
            self._end()
        else:
            self._flush()
            self._their_certificate = self._tls.getpeercert()
            self._protocol.connection_made(self)
            self._handshake.set_result(None)

    def _read(self) -> None:
        while not self._closing:
            try:
                data = self._tls.read(CHUNK_BYTES)
            except ssl.SSLWantReadError:
                break
            except ssl.SSLZeroReturnError:
                data = b""
            except ssl.SSLError as error:
                self._flush()
                logger.info("a connection ends: %s", plain_reason(error))
                data = b""
            if not data:
                self._end()
                break
            self._protocol.data_received(data)
        self._flush()

    def _flush(self) -> None:
        if self._out.pending and not self._outer.is_closing():
            self._outer.write(self._out.read())

    def _end(self) -> None:
        self._closing = True
        if not self._outer.is_closing():
            self._outer.close()

    # The transport of a connection.

    def write(self, data: bytes | bytearray | memoryview) -> None:
        view = memoryview(data)
        for place in range(0, len(view), CHUNK_BYTES):
            self._tls.write(view[place : place + CHUNK_BYTES])
            self._flush()

    def close(self) -> None:
        with suppress(ssl.SSLError):
            self._tls.unwrap()
        self._flush()
        self._end()

    def abort(self) -> None:
        self._closing = True
        self._outer.abort()

    def is_closing(self) -> bool:
        return self._closing

    def set_protocol(self, protocol: asyncio.BaseProtocol) -> None:
        self._protocol = cast(asyncio.Protocol, protocol)

    def get_extra_info(self, name: str, default: Any = None) -> Any:
        if name == "peercert":
            return self._their_certificate
        return self._outer.get_extra_info(name, default)


class Talk:
    """Questions and answers over a connection, one at a time.

    Attributes
    ----------
    is_over : whether the connection has ended.
    """

    def __init__(self, connection: Connection) -> None:
        self.connection = connection
        self._inbox: asyncio.Queue[bytes | None] = asyncio.Queue()
        self._reason, self.is_over = "", False
        connection.take, connection.ended = self._take, self._ended

    def say(self, *lines: str) -> None:
        self.connection.write("\n".join(lines).encode())

    async def hear(self, timeout_s: float) -> bytes:
        """The next message. Raises OSError if there is none in time, or the connection has ended."""
        async with deadline(timeout_s):
            message = await self._inbox.get()
        if message is None:
            self._inbox.put_nowait(None)
            raise ConnectionResetError(self._reason or "the connection was closed")
        return message

    async def hear_lines(self, timeout_s: float) -> list[str]:
        """The lines of the next message."""
        return (await self.hear(timeout_s)).decode(errors="replace").split("\n")

    def _take(self, message: bytes) -> None:
        if self._inbox.qsize() >= MOST_WORDS:
            self.connection.abort("it says more than it was asked")
            return
        self._inbox.put_nowait(message)

    def _ended(self, reason: str) -> None:
        self._reason, self.is_over = reason, True
        self._inbox.put_nowait(None)


class Dialler:
    """Opens connections to neighbours, in a running loop. All waits are bounded by the caller or by CONNECT_S.

    Parameters
    ----------
    credentials : of this site.
    routes : to the neighbours.
    """

    def __init__(self, credentials: Credentials, routes: Routes) -> None:
        try:
            self.answering, self._calling = credentials.for_listening(), credentials.for_dialling()
        except (ssl.SSLError, ValueError) as error:
            raise InputError(f"key, certificate and authority do not match: {plain_reason(error)}.") from None
        self.routes = routes

    async def meet(self, neighbour: str, connection: Connection) -> Talk:
        """Connect to a neighbour, as the client of TLS, until it has accepted this site. Raises OSError if not."""
        talk = Talk(connection)
        with connection.until_it_fails():
            async with deadline(CONNECT_S):
                await self._call(neighbour, connection)
                # In TLS 1.3 the listener checks the caller's certificate last: only its first message shows that it was
                # accepted.
                try:
                    welcome = await talk.hear(CONNECT_S)
                except ConnectionResetError as error:
                    raise UnwelcomeError(str(error)) from None
            if welcome != WELCOME or talk.is_over:
                raise ConnectionError("it is not an eigenmesh peer, or it has left")
        return talk

    async def _call(self, neighbour: str, connection: Connection) -> None:
        via = self.routes.relays.get(neighbour)
        if via is None:
            await self._connect(self.routes.addresses[neighbour], neighbour, connection)
            return
        talk = await self._asked(via, CALL, neighbour)
        with talk.connection.until_it_fails():
            if await self._expect(via, talk, JOINED, ABSENT, CONNECT_S) == ABSENT:
                raise AbsentError(f"it is not at the relay {via.relay} yet")
            await TlsSession(talk.connection.transport, connection, self._calling, neighbour).begin()

    async def wait(self, neighbour: str, waiting: Callable[[], None]) -> Talk | None:
        """Wait at the relay until a neighbour calls; None if it has not called in the time that the relay grants.

        ``waiting`` is called once the relay has agreed.
        """
        via = self.routes.relays[neighbour]
        talk = await self._asked(via, WAIT, neighbour)
        with talk.connection.until_it_fails():
            await self._expect(via, talk, WAITING, AGAIN, CONNECT_S)
            waiting()
            if await self._expect(via, talk, CALLED, AGAIN, RELAY_WAIT_S + CONNECT_S) == AGAIN:
                talk.connection.close()
                return None
        return talk

    async def answer(self, talk: Talk, connection: Connection) -> None:
        """Take the call for which ``wait`` has waited, as the server of TLS. Raises OSError if it fails."""
        with talk.connection.until_it_fails():
            # The caller begins only after this word, and what it sends then must meet TLS here: nothing may be awaited
            # between the two.
            talk.say(READY)
            await TlsSession(talk.connection.transport, connection, self.answering, None).begin()

    async def _asked(self, via: Via, what: str, neighbour: str) -> Talk:
        """A connection to a relay that has accepted this site, which has asked to be joined with a neighbour."""
        talk = Talk(Connection(MAX_WORDS_BYTES))
        try:
            with talk.connection.until_it_fails():
                await self._connect(via.address, via.relay, talk.connection)
                if await talk.hear(CONNECT_S) != RELAY_WELCOME:
                    raise ConnectionError("it is not a relay of this version of eigenmesh")
        except OSError as error:
            raise ConnectionError(f"the relay {via.relay} at {via.address}: {plain_reason(error)}") from None
        talk.say(what, via.run, neighbour)
        return talk

    async def _expect(self, via: Via, talk: Talk, one: str, other: str, timeout_s: float) -> str:
        """The relay's answer, which must be one of two words."""
        try:
            word, *more = await talk.hear_lines(timeout_s)
            if word not in (one, other):
                refused = word == REFUSED and more
                raise ConnectionError(one_line(more[0]) if refused else f"it answers {one_line(word)!r}, not {one!r}")
        except OSError as error:
            raise ConnectionError(f"the relay {via.relay} at {via.address}: {plain_reason(error)}") from None
        return word

    async def _connect(self, address: str, name: str, connection: Connection) -> None:
        """TLS to an address whose certificate must have this name."""
        if self.routes.proxy is not None:
            plain = await self._tunnel(self.routes.proxy, address)
            try:
                await TlsSession(plain, connection, self._calling, name).begin()
            except BaseException:
                plain.abort()
                raise
            return
        await asyncio.get_running_loop().create_connection(
            lambda: connection,
            *parse_address(address),
            ssl=self._calling,
            server_hostname=name,
            ssl_handshake_timeout=CONNECT_S,
            ssl_shutdown_timeout=LEAVE_S,
        )

    async def _tunnel(self, proxy: HttpProxy, address: str) -> asyncio.Transport:
        """A connection through a proxy, which passes on all bytes from now on: CONNECT, RFC 9110."""
        reader = asyncio.StreamReader(MAX_HEAD_BYTES)
        lines = [f"CONNECT {address} HTTP/1.1", f"Host: {address}"]
        lines += [f"Proxy-Authorization: {proxy.authorization}"] * bool(proxy.authorization)
        try:
            async with deadline(CONNECT_S):
                plain, _ = await asyncio.get_running_loop().create_connection(
                    lambda: asyncio.StreamReaderProtocol(reader), *parse_address(proxy.address)
                )
            try:
                plain.write("\r\n".join([*lines, "", ""]).encode())
                async with deadline(CONNECT_S):
                    await _require_tunnel(reader, address)
            except BaseException:
                plain.abort()
                raise
        except OSError as error:
            raise ConnectionError(f"the proxy {proxy.address}: {plain_reason(error)}") from None
        return plain


async def _require_tunnel(reader: asyncio.StreamReader, address: str) -> None:
    """Read the answer of a proxy. Raises OSError unless it has made the connection."""
    try:
        head = await reader.readuntil(b"\r\n\r\n")
    except (asyncio.IncompleteReadError, asyncio.LimitOverrunError):
        head = b""
    found = re.match(rb"HTTP/1\.[01] (\d{3})([^\r\n]*)", head)
    if found is None:
        raise ConnectionError("it does not answer as an HTTP proxy")
    if not found.group(1).startswith(b"2"):
        said = one_line(b"".join(found.groups()).decode(errors="replace"))
        fix = "; write http://user:password@host:port" if found.group(1) == b"407" else ""
        raise ConnectionError(f"it refuses a connection to {address}: {said}{fix}")
    # What is here already: TLS begins with this site's words.
    reader.feed_eof()
    if await reader.read():
        raise ConnectionError("it sends bytes before this site does")


# Questions to a neighbour outside any run.


async def _answer(
    dialler: Dialler, neighbour: str, question: bytes, max_bytes: int, timeout_s: float
) -> tuple[dict[str, Any], bytes]:
    """The certificate of a neighbour, and its answer to a question; without a question it is not waited for."""
    connection = Connection(max_bytes)
    async with deadline(timeout_s):
        talk, answer = await dialler.meet(neighbour, connection), b""
        try:
            if question:
                connection.write(question)
                answer = await talk.hear(timeout_s)
            return connection.transport.get_extra_info("peercert"), answer
        finally:
            connection.transport.abort()


def certificate_of(neighbour: str, routes: Routes, credentials: Credentials, timeout_s: float) -> dict[str, Any]:
    """The certificate of a neighbour that is up and has accepted that of this site. Raises OSError otherwise.

    Parameters
    ----------
    neighbour : its name, which its certificate must have.
    routes : to the neighbours.
    credentials : of this site.
    timeout_s : deadline of everything together.
    """
    with asyncio.Runner(loop_factory=new_loop) as runner:
        return runner.run(_answer(Dialler(credentials, routes), neighbour, b"", wire.MAX_TEXT_BYTES, timeout_s))[0]


def manifest_of(neighbour: str, routes: Routes, credentials: Credentials, run_id: bytes, timeout_s: float) -> str:
    """The manifest of a neighbour that is up, without joining its run. Raises TransportError if it sends none.

    Parameters
    ----------
    neighbour, routes, credentials, timeout_s : as for ``certificate_of``.
    run_id : of the run that is asked about.
    """
    question = wire.encode(Kind.MANIFEST, run_id, 0, 0, 0, wire.text_body(""))
    largest = wire.OVERHEAD_BYTES + wire.MAX_TEXT_BYTES
    try:
        with asyncio.Runner(loop_factory=new_loop) as runner:
            _, answer = runner.run(_answer(Dialler(credentials, routes), neighbour, question, largest, timeout_s))
        frame = wire.decode(answer, 0)
    except OSError as error:
        raise TransportError(f"{neighbour} sent no manifest: {plain_reason(error)}.") from None
    except FrameError as error:
        raise TransportError(f"{neighbour} answered, but not with a manifest: {error}") from None
    if frame.kind is not Kind.MANIFEST:
        raise TransportError(f"{neighbour} sent no manifest; install the same eigenmesh at both sites.")
    return frame.text
