"""Sites over gRPC in one process, a thread each, with real certificates on loopback; and intruders."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable
from concurrent.futures import ThreadPoolExecutor
from typing import Any, TypeVar

import grpc
import networkx as nx

from eigenmesh.errors import AbortedError
from eigenmesh.transports.grpc import Credentials, GrpcTransport, Neighbour, Run
from eigenmesh.transports.grpc import _wire as wire
from eigenmesh.transports.grpc._security import METHOD
from eigenmesh.transports.grpc._wire import Kind
from ports import free_ports
from transports.authority import Authority

T = TypeVar("T")
RUN_ID = bytes(range(16))


class Sites:
    """The sites of one run; of two neighbours the one of lower rank dials.

    Attributes
    ----------
    via : (dialler, listener) -> address of a proxy in between.
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
        self.settings = {"patience_s": 60.0, "join_s": 300.0, "round_s": 300.0, **settings}

    def address(self, rank: int) -> str:
        return f"127.0.0.1:{self.ports[rank]}"

    def run_of(self, **changes: Any) -> Run:
        fields = {"run_id": RUN_ID, "epoch": 0, "manifest": self.manifest, "max_message_bytes": 64 << 20}
        return Run(**{**fields, **changes})

    def transport(self, rank: int, run: Run | None = None, **settings: Any) -> GrpcTransport:
        neighbours = [
            Neighbour(
                other, self.names[other], self.via.get((rank, other), self.address(other)) if rank < other else None
            )
            for other in sorted(self.graph.neighbors(rank))
        ]
        return GrpcTransport(
            rank,
            self.names,
            neighbours,
            self.credentials[rank],
            run or self.run_of(),
            listen=self.address(rank),
            **{**self.settings, **settings},
        )

    @staticmethod
    def crash(transport: GrpcTransport) -> None:
        """End a transport as a crash would: no farewell, and what its journal has not written yet is lost."""
        streams, journal = transport._streams, transport._journal

        def end_tasks() -> None:
            streams._sessions.stopping = True
            for task in list(streams._tasks):
                task.cancel()

        transport._closed = transport._board.closing = True
        streams._loop.call_soon_threadsafe(end_tasks)
        streams.stop()
        if journal is not None:
            journal._store = lambda batch: None
            journal.close()

    def run(self, work: Callable[[GrpcTransport], T], **settings: Any) -> list[T]:
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


def run_sites(size: int, work: Callable[[GrpcTransport], T], timeout_s: float = 60.0) -> list[T]:
    """Run ``work`` at every site of a complete graph, as ``run_threads`` does."""
    return Sites(nx.complete_graph(size), named="node {}", round_s=timeout_s).run(work)


def hello(name: str, run: Run, needs: int = 0, identity: str = "0" * 32) -> bytes:
    """The greeting of a site; the identity is that of its journal."""
    return wire.encode(Kind.HELLO, run.run_id, run.epoch, needs, 0, wire.text_body(f"{name}\n{run.digest}\n{identity}"))


def data_frame(run: Run, round_: int, *arrays: Any, tag: int = 1) -> bytes:
    """A DATA frame as a site of the run would send it."""
    return wire.encode(Kind.DATA, run.run_id, run.epoch, round_, 0, wire.array_body(arrays, 1 << 40), tag)


def intrude(
    address: str,
    target: str,
    credentials: Credentials | None,
    frames: Iterable[bytes | Callable[[wire.Frame], bytes]],
    wait_s: float = 2.0,
    root: bytes | None = None,
) -> tuple[list[wire.Frame], grpc.StatusCode | None]:
    """Open a stream and send frames as they are; what came back until the stream ended, and its status.

    A function among the frames waits for the first answer and makes a frame of it.
    """
    options = [("grpc.ssl_target_name_override", target), ("grpc.use_local_subchannel_pool", 1)]
    if credentials is None:
        secure = grpc.ssl_channel_credentials(root)
    else:
        secure = grpc.ssl_channel_credentials(root or credentials.authority, credentials.key, credentials.certificate)
    answered, over = threading.Event(), threading.Event()
    got: list[wire.Frame] = []

    def requests():
        for frame in frames:
            if callable(frame):
                if not answered.wait(wait_s) or not got:
                    return
                frame = frame(got[0])
            yield frame
        over.wait(wait_s)

    with grpc.secure_channel(address, secure, options=options) as channel:
        call = channel.stream_stream(METHOD)(requests(), timeout=wait_s + 60.0)
        try:
            for data in call:
                got.append(wire.decode(data, 1 << 30))
                answered.set()
        except grpc.RpcError as error:
            return got, error.code()
        finally:
            answered.set()
            over.set()
    return got, grpc.StatusCode.OK
