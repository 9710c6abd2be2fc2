"""A relay: it joins connections of two sites that can only call out, and passes on bytes that it cannot read.

It knows the sites of one network, and which links it carries, from its ``relay.toml``. Callers prove with their
certificates which sites they are. Everything that is kept for a caller is bounded, and so is every wait; what is passed
on is not kept, because the end that reads slowly sets the pace of the end that writes. The conversation with a site is
drawn at the top of ``transports/tls/dialling.py``.
"""

from __future__ import annotations

import asyncio
import logging
import os
import ssl
from collections import Counter
from collections.abc import Coroutine, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple

from cryptography import x509

from eigenmesh.errors import InputError
from eigenmesh.sites.addresses import Address, MetricsFile, require_name
from eigenmesh.sites.authority import RevocationList, load_credentials
from eigenmesh.sites.fields import Fields
from eigenmesh.sites.prometheus import Gauge
from eigenmesh.sites.site import FINGERPRINTS, RUN_NAME, TlsFiles, read_fingerprints, read_tls
from eigenmesh.transports.tls.connection import CONNECT_S, LEAVE_S, Connection, Listener, plain_reason
from eigenmesh.transports.tls.dialling import (
    ABSENT,
    AGAIN,
    CALL,
    CALLED,
    JOINED,
    MAX_WORDS_BYTES,
    READY,
    REFUSED,
    RELAY_WAIT_S,
    RELAY_WELCOME,
    WAIT,
    WAITING,
    Talk,
)
from eigenmesh.transports.tls.keyring import key_fingerprint
from eigenmesh.words import one_line, readable_bytes

logger = logging.getLogger(__name__)

# Most connections of one site for each of its links. A run needs two: the link, and a new call over it.
MOST_PER_LINK = 8
# A site that waits has to answer a call within this time.
READY_S = 5.0
# Two sites that are joined send heartbeats every second. A pair that is silent for longer is parted.
IDLE_S = 60.0
# Bytes that wait to be sent to the slower of two sites before the faster one is no longer read.
BUFFER_BYTES = 64 << 10


@dataclass(frozen=True)
class RelayFile:
    """A relay, as its ``relay.toml`` describes it.

    Attributes
    ----------
    path : Path
        The file.
    name : str
        The name in the certificate of the relay.
    listen : Address
        Where sites call it.
    sites : tuple of str
        All sites of the network.
    links : frozenset of pairs
        The links that it carries.
    tls : TlsFiles
        Its certificate and key, and the authorities of the sites.
    fingerprints : mapping
        Those of the keys of all sites, or empty.
    metrics : MetricsFile or None
        Where Prometheus finds its numbers.
    """

    path: Path
    name: str
    listen: Address
    sites: tuple[str, ...]
    links: frozenset[frozenset[str]]
    tls: TlsFiles
    fingerprints: Mapping[str, str]
    metrics: MetricsFile | None = None

    def most_of(self, name: str) -> int:
        """Most connections of a site at a time; 0 for one that is in no link."""
        return MOST_PER_LINK * sum(name in link for link in self.links)


def read_relay(path: str | os.PathLike[str]) -> RelayFile:
    """Read and check a relay.toml. What is wrong is an error that names the line, the field and the fix."""
    fields = Fields.read(Path(path), "a relay.toml (eigenmesh site init makes one for each relay of a network)")
    fields.require_known(["name", "listen", "sites", "links", "tls", "metrics", "metrics_token", FINGERPRINTS])
    name, sites, links = fields.text("name"), fields.texts("sites"), fields.pairs("links")
    fields.checked("name", require_name, name)
    if name in sites:
        raise fields.wrong("name", "is the name of a site; a relay needs another one.")
    for link in links:
        if len(set(link)) < 2 or not set(link) <= set(sites):
            raise fields.error("links", f"has {' - '.join(link)}, which is not a pair of sites ({', '.join(sites)}).")
    listen = fields.checked("listen", Address.parse, fields.text("listen"))
    tls = read_tls(fields.table("tls", required=True))
    pairs, fingerprints = frozenset(map(frozenset, links)), read_fingerprints(fields, sites)
    return RelayFile(fields.path, name, listen, sites, pairs, tls, fingerprints, MetricsFile.read(fields))


class Meeting(NamedTuple):
    """Two sites of a run that are to be joined."""

    run: str
    caller: str
    waits: str


@dataclass
class Waiting:
    """A site that waits for a call.

    Attributes
    ----------
    ready : whether the site has answered the call; False if it has gone.
    over : set when it is no longer needed.
    """

    talk: Talk
    ready: asyncio.Future[bool] = field(default_factory=lambda: asyncio.get_running_loop().create_future())
    over: asyncio.Event = field(default_factory=asyncio.Event)


class RelayedEnd(asyncio.Protocol):
    """One end of two joined connections: what arrives here is written to the other end, which sets the pace."""

    other: RelayedEnd

    def __init__(self, connection: Connection) -> None:
        self.transport = connection.transport
        loop = asyncio.get_running_loop()
        self.passed, self.heard, self._time = 0, loop.time(), loop.time
        self.lost: asyncio.Future[str] = loop.create_future()

    def begin(self, other: RelayedEnd) -> None:
        """Take over the connection. Both ends do so in one step."""
        self.other = other
        self.transport.set_write_buffer_limits(high=BUFFER_BYTES)
        self.transport.set_protocol(self)

    def data_received(self, data: bytes) -> None:
        self.passed, self.heard = self.passed + len(data), self._time()
        if not self.other.transport.is_closing():
            self.other.transport.write(data)

    def pause_writing(self) -> None:
        self.other.transport.pause_reading()

    def resume_writing(self) -> None:
        self.other.transport.resume_reading()

    def connection_lost(self, error: Exception | None) -> None:
        if not self.lost.done():
            self.lost.set_result(plain_reason(error) if error else "")


class Relay:
    """The service of a relay.

    Parameters
    ----------
    described : its ``relay.toml``.

    Attributes
    ----------
    held : how many connections each site has now.
    joined : how many pairs were joined since the start.
    refused : how many callers with a certificate were refused.
    """

    def __init__(self, described: RelayFile) -> None:
        self.described = described
        credentials = load_credentials(described.tls, described.name)
        try:
            context = credentials.for_listening()
        except (ssl.SSLError, ValueError) as error:
            raise InputError(f"key, certificate and authority do not match: {plain_reason(error)}.") from None
        self._revoked = RevocationList(described.tls.ca)
        most = 4 * len(described.links) + 16
        self._listener = Listener(str(described.listen), context, MAX_WORDS_BYTES, most)
        self._waiting: dict[Meeting, Waiting] = {}
        self._tasks: set[asyncio.Task[None]] = set()
        self.held: Counter[str] = Counter()
        self.joined = self.refused = self._passed = 0
        # Those that are joined now.
        self._ends: set[RelayedEnd] = set()

    @property
    def passed(self) -> int:
        """How many bytes joined sites have sent each other since the start."""
        # A copy, as another thread may ask.
        return self._passed + sum(end.passed for end in list(self._ends))

    def gauges(self) -> Iterator[Gauge]:
        """The numbers of this relay for Prometheus."""
        own = {"relay": self.described.name}
        held = [
            ({**own, "site": name}, self.held[name]) for name in self.described.sites if self.described.most_of(name)
        ]
        yield Gauge("relay_connections", "Connections that a site has now.", held)
        numbers = {
            "pairs": ("Pairs of sites that are joined now.", len(self._ends) / 2),
            "joined": ("Pairs that were joined since the start.", self.joined),
            "passed_bytes": ("Bytes that joined sites have sent each other.", self.passed),
            "refused": ("Callers with a certificate that were refused.", self.refused),
        }
        for name, (words, number) in numbers.items():
            yield Gauge(f"relay_{name}", words, [(own, number)])

    async def serve(self) -> None:
        """Join sites until this task is cancelled."""
        asyncio.get_running_loop().set_exception_handler(_callback_failed)
        try:
            await self._listener.serve(self._start, self._admit)
        finally:
            self._listener.close()
            for task in list(self._tasks):
                task.cancel()
            await asyncio.gather(*self._tasks, return_exceptions=True)
            # What was closed before is gone after this time. A loop that is closed earlier may wait for ever.
            await asyncio.sleep(LEAVE_S)

    def _start(self, work: Coroutine[Any, Any, None], name: str) -> None:
        task = asyncio.get_running_loop().create_task(work, name=name)
        self._tasks.add(task)
        task.add_done_callback(self._ended)

    def _ended(self, task: asyncio.Task[None]) -> None:
        self._tasks.discard(task)
        error = None if task.cancelled() else task.exception()
        if error is not None:
            # A defect that one caller meets must not end the links of others.
            logger.error("the task %s has failed: %s", task.get_name(), error, exc_info=error)

    async def _admit(self, connection: Connection, names: tuple[str, ...], address: str) -> None:
        """Serve a caller, whose certificate an authority of the sites has issued."""
        who = one_line(f"{', '.join(names) or 'no name'} at {address}")
        name, refusal = names[0] if len(names) == 1 else "", self._refusal(connection, names)
        if refusal:
            self.refused += 1
            logger.warning("refused %s: %s", who, refusal)
            connection.abort(refusal)
            return
        talk = Talk(connection)
        self.held[name] += 1
        try:
            connection.write(RELAY_WELCOME)
            if self.held[name] > (most := self.described.most_of(name)):
                self._refuse(talk, who, f"it has {most} connections already")
            else:
                await self._serve(talk, name, who)
        except OSError as error:
            logger.debug("%s has gone: %s", who, plain_reason(error))
        except asyncio.CancelledError:
            connection.abort("the relay is stopped")
            raise
        finally:
            self.held[name] -= 1
            connection.close()

    def _refusal(self, connection: Connection, names: tuple[str, ...]) -> str:
        """Why a caller is not one of the sites, or empty."""
        described = self.described
        if len(names) != 1 or described.most_of(names[0]) == 0:
            return "its certificate does not name one site of the links that this relay carries"
        secure = connection.transport.get_extra_info("ssl_object")
        certificate = x509.load_der_x509_certificate(secure.getpeercert(True))
        if self._revoked.is_revoked(certificate):
            return "its certificate is revoked"
        if described.fingerprints.get(names[0], known := key_fingerprint(certificate)) != known:
            return "its key is not the one that is pinned"
        return ""

    def _refuse(self, talk: Talk, who: str, reason: str) -> None:
        self.refused += 1
        logger.warning("refused %s: %s", who, reason)
        talk.say(REFUSED, reason)

    async def _serve(self, talk: Talk, name: str, who: str) -> None:
        lines = await talk.hear_lines(CONNECT_S)
        if len(lines) != 3 or lines[0] not in (CALL, WAIT) or not RUN_NAME.accepts(lines[1]):
            self._refuse(talk, who, "it does not speak as a site of this version of eigenmesh")
            return
        what, run, other = lines
        if frozenset((name, other)) not in self.described.links:
            between = one_line(f"{name} - {other}")
            fix = "all sites must name the same relay for it, as network.toml does"
            self._refuse(talk, who, f"this relay does not carry the link {between}; {fix}")
        elif what == WAIT:
            await self._wait(talk, Meeting(run, other, name))
        else:
            await self._call(talk, Meeting(run, name, other))

    async def _wait(self, talk: Talk, meeting: Meeting) -> None:
        """Keep a site until it is called; then until it is no longer needed."""
        mine, before = Waiting(talk), self._waiting.get(meeting)
        if before is not None:
            # The same site again: its earlier connection is dead, or will not be missed.
            before.talk.connection.abort("it waits over another connection")
        self._waiting[meeting] = mine
        try:
            talk.say(WAITING)
            try:
                answer = await talk.hear_lines(RELAY_WAIT_S)
            except TimeoutError:
                if self._waiting.get(meeting) is mine:
                    talk.say(AGAIN)
                    return
                # It was called just now.
                answer = await talk.hear_lines(READY_S)
            if answer == [READY] and self._waiting.get(meeting) is not mine and not mine.ready.done():
                mine.ready.set_result(True)
                await mine.over.wait()
        finally:
            if self._waiting.get(meeting) is mine:
                del self._waiting[meeting]
            if not mine.ready.done():
                mine.ready.set_result(False)

    async def _call(self, talk: Talk, meeting: Meeting) -> None:
        """Join a caller with the site that waits for it, if it is there, until one of them leaves."""
        waiting = self._waiting.pop(meeting, None)
        if waiting is None:
            talk.say(ABSENT)
            return
        try:
            waiting.talk.say(CALLED)
            # One that does not answer is not there, whatever its connection says.
            await asyncio.wait({waiting.ready}, timeout=READY_S)
            if talk.is_over or not waiting.ready.done() or not waiting.ready.result() or waiting.talk.is_over:
                waiting.talk.connection.abort("it did not answer a call")
                talk.say(ABSENT)
                return
            talk.say(JOINED)
            await self._pass_on(meeting, self._end(talk.connection), self._end(waiting.talk.connection))
        finally:
            waiting.over.set()

    def _end(self, connection: Connection) -> RelayedEnd:
        return RelayedEnd(connection)

    async def _pass_on(self, meeting: Meeting, caller: RelayedEnd, called: RelayedEnd) -> None:
        """Pass on bytes between two ends until one is lost, or both are silent."""
        caller.begin(called)
        called.begin(caller)
        self._ends |= {caller, called}
        self.joined += 1
        between = f"{meeting.caller} - {meeting.waits}, run {meeting.run}"
        logger.info("%s: joined.", between)
        time, reason = asyncio.get_running_loop().time, ""
        began, ends = time(), {caller.lost, called.lost}
        try:
            while not (await asyncio.wait(ends, timeout=IDLE_S / 4, return_when=asyncio.FIRST_COMPLETED))[0]:
                if time() - max(caller.heard, called.heard) > IDLE_S:
                    reason = f"nothing was sent for {IDLE_S:g} s"
                    break
            for meant, end in (meeting.caller, caller), (meeting.waits, called):
                if end.lost.done():
                    reason = reason or f"{meant} has left. {end.lost.result()}".rstrip()
        finally:
            for end in (caller, called):
                # What is on its way is still written, for LEAVE_S at most.
                if not end.transport.is_closing():
                    end.transport.close()
            await asyncio.wait(ends, timeout=2 * LEAVE_S)
            for end in (caller, called):
                if not end.lost.done():
                    end.transport.abort()
            self._ends -= {caller, called}
            self._passed += caller.passed + called.passed
            sizes = f"{readable_bytes(caller.passed)} there and {readable_bytes(called.passed)} back"
            logger.info("%s: parted after %.0f s, %s. %s", between, time() - began, sizes, reason)


def _callback_failed(loop: asyncio.AbstractEventLoop, about: dict[str, Any]) -> None:
    """Hear of an exception in a callback of the loop, which closes the connection in which it failed."""
    logger.warning("%s: %s", about.get("message"), about.get("exception"))
