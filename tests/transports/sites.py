"""Sites over TLS in one process, a thread each, with real certificates on loopback; and intruders."""

from __future__ import annotations

import socket
import ssl
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, TypeVar

import networkx as nx

from eigenmesh.errors import AbortedError
from eigenmesh.protocol import Run, Setup, wire
from eigenmesh.protocol.setup import Instance, Topic, make_statement
from eigenmesh.protocol.wire import Kind
from eigenmesh.transports.tls import CertificateKeyring, Credentials, Endpoint, HttpProxy, Routes, TlsTransport, Via
from eigenmesh.transports.tls.connection import WELCOME, MessageReader, parse_address, prefixed
from ports import free_ports
from transports.authority import Authority

T = TypeVar("T")
RUN_ID = bytes(range(16))


class Sites:
    """The sites of one run; of two neighbours the one of lower rank dials.

    Attributes
    ----------
    via : (dialler, listener) -> address of a proxy in between.
    relay : address of the relay that carries all links, if there is one; ``via`` has proxies on the way to it.
    http_proxy : for all calls, if there is one.
    settings : for every transport.
    """

    def __init__(self, graph: nx.Graph, manifest: str = "manifest", named: str = "site{}", **settings: Any) -> None:
        self.graph = graph
        self.names = [named.format(rank) for rank in range(len(graph))]
        self.ports = free_ports(len(self.names))
        self.authority = Authority()
        self.credentials = [self.authority.issue(name) for name in self.names]
        self.manifest = manifest
        self.via: dict[tuple[int, int], str] = {}
        self.relay = ""
        self.http_proxy: HttpProxy | None = None
        self.settings = {"patience_s": 60.0, "join_s": 300.0, "round_s": 300.0, "on_loss": "abort", **settings}

    def address(self, rank: int) -> str:
        return f"127.0.0.1:{self.ports[rank]}"

    def run_of(self, **changes: Any) -> Run:
        fields = {"run_id": RUN_ID, "manifest": self.manifest, "max_message_bytes": 64 << 20}
        return Run(**{**fields, **changes})

    def transport(
        self,
        rank: int,
        run: Run | None = None,
        journal: Path | None = None,
        on_sent: Any = None,
        keyring: CertificateKeyring | None = None,
        **settings: Any,
    ) -> TlsTransport:
        dialled = [other for other in self.graph.neighbors(rank) if rank < other]
        setup = Setup(
            self.names[rank],
            tuple(self.names),
            tuple((self.names[one], self.names[other]) for one, other in self.graph.edges),
            frozenset(self.names[other] for other in dialled),
            run or self.run_of(),
            keyring or CertificateKeyring(self.credentials[rank]),
            **{**self.settings, **settings},
        )
        if self.relay:
            near = self.graph.neighbors(rank)
            relays = {self.names[o]: Via("relay", self.via.get((rank, o), self.relay), "test") for o in near}
            routes = Routes(relays=relays, proxy=self.http_proxy)
        else:
            addresses = {self.names[other]: self.via.get((rank, other), self.address(other)) for other in dialled}
            routes = Routes(addresses, proxy=self.http_proxy)
        return TlsTransport(
            Endpoint(setup, self.credentials[rank], routes, listen=self.address(rank), journal=journal, on_sent=on_sent)
        )

    @staticmethod
    def crash(transport: TlsTransport) -> None:
        """End a transport as a crash would: no farewell, and what its journal has not written yet is lost."""
        endpoint = transport.endpoint
        streams, journal = endpoint._streams, endpoint._journal

        def hush() -> None:
            for connection in streams._open.values():
                connection.abort("a crash")

        endpoint._closed = True
        endpoint._feed = streams._feed = lambda event: None
        streams._loop.call_soon_threadsafe(hush)
        streams.stop()
        if journal is not None:
            journal._store = lambda batch: None
            journal.close()

    def run(self, work: Callable[[TlsTransport], T], **settings: Any) -> list[T]:
        """Run ``work`` at every site; results by rank, or the error of the site that failed first."""

        def guarded(rank: int) -> T:
            with self.transport(rank, **settings) as transport:
                return work(transport)

        with ThreadPoolExecutor(len(self.names)) as pool:
            futures = [pool.submit(guarded, rank) for rank in range(len(self.names))]
            errors = [error for error in (future.exception(300.0) for future in futures) if error is not None]
        own = [error for error in errors if not isinstance(error, AbortedError)]
        if errors:
            raise (own or errors)[0]
        return [future.result() for future in futures]


def run_sites(size: int, work: Callable[[TlsTransport], T], timeout_s: float = 60.0) -> list[T]:
    """Run ``work`` at every site of a complete graph, as ``run_threads`` does."""
    return Sites(nx.complete_graph(size), named="node {}", round_s=timeout_s).run(work)


def hello(name: str, run: Run, credentials: Credentials, needs: int = 0, epoch: int = 0, instance: Any = None) -> bytes:
    """The greeting of a site, with a statement about its process that its key has signed."""
    about = [*(instance or Instance("0" * 32, 1, "0")), ""]
    keyring = CertificateKeyring(credentials)
    statement = make_statement(keyring, run.run_id, Topic.INSTANCE, name, about)
    text = f"{name}\n{run.digest}\n{statement.text}"
    return wire.encode(Kind.HELLO, run.id_of(()), epoch, needs, 0, wire.text_body(text))


def data_frame(run: Run, round_: int, *arrays: Any, tag: int = 1) -> bytes:
    """A DATA frame as a site of the run would send it."""
    return wire.encode(Kind.DATA, run.id_of(()), 0, round_, 0, wire.array_body(arrays, 1 << 40), tag)


def intrude(
    address: str,
    target: str,
    credentials: Credentials | None,
    frames: Iterable[bytes | Callable[[wire.Frame], bytes]],
    wait_s: float = 2.0,
    root: bytes | None = None,
) -> tuple[list[wire.Frame], bool]:
    """Open a connection and send frames as they are; what came back until it ended, and whether it was let in at all.

    A function among the frames waits for the first answer and makes a frame of it.
    """
    got: list[wire.Frame] = []
    is_in = False
    try:
        with connected(address, target, credentials, root, wait_s) as secure:
            answers = messages_of(secure)
            is_in = next(answers, b"") == WELCOME
            for frame in frames if is_in else ():
                if callable(frame):
                    got.append(wire.decode(next(answers), 1 << 30))
                    frame = frame(got[0])
                secure.sendall(prefixed(frame))
            got.extend(wire.decode(message, 1 << 30) for message in answers)
    except (OSError, StopIteration):
        # It was cut off, or nothing more came in time.
        pass
    return got, is_in


def connected(
    address: str, target: str, credentials: Credentials | None, root: bytes | None = None, wait_s: float = 60.0
) -> ssl.SSLSocket:
    """A connection to a site, with or without a certificate."""
    if credentials is None:
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
        context.load_verify_locations(cadata=(root or b"").decode())
    else:
        context = Credentials(credentials.key, credentials.certificate, root or credentials.authority).for_dialling()
    plain = socket.create_connection(parse_address(address), wait_s)
    return context.wrap_socket(plain, server_hostname=target)


def messages_of(secure: ssl.SSLSocket) -> Iterator[bytes]:
    """What comes over a connection, to its end."""
    incoming = MessageReader(1 << 30)
    while data := secure.recv(1 << 16):
        yield from incoming.add(data)
