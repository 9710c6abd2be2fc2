"""Round time of peers over gRPC, against a bare mutual-TLS socket exchange of the same bytes in the same run.

``python benchmarks/peers.py`` starts 8 processes on a ring over loopback, each sending 1024 x 10 float64 to both its
neighbours a round. Batches of rounds over gRPC and over bare sockets are taken in turns, so that a busy moment hits
both alike. A second run puts a proxy with 20 ms of one-way delay on every link.

``python benchmarks/peers.py --many 24`` starts so many peers at once, each in a Python of its own,
and prints how long all take to start, agree and finish, and the memory of one.
"""

from __future__ import annotations

import argparse
import json
import multiprocessing
import re
import selectors
import socket
import ssl
import statistics
import struct
import sys
import tempfile
import time
from multiprocessing.connection import Connection
from multiprocessing.synchronize import Barrier
from pathlib import Path

import numpy as np

sys.path.insert(0, str(Path(__file__).parents[1] / "tests"))

from eigenmesh.protocol import Run, Setup
from eigenmesh.sites._audit import AuditWriter
from eigenmesh.transports.grpc import CertificateKeyring, Credentials, Endpoint, GrpcTransport
from mesh import Mesh, ring
from ports import free_ports
from transports.authority import Authority
from transports.proxy import Proxy

# Longer than a journal waits before it flushes.
SETTLE_S = 0.5


class BareRing:
    """The floor: length and bytes over TLS sockets to both neighbours, one poll loop, nothing else."""

    def __init__(self, rank: int, dial: dict[int, str], accept: list[int], port: int, credentials: Path) -> None:
        server = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        client = ssl.create_default_context(cafile=str(credentials / "authority.pem"))
        for context in (server, client):
            context.load_cert_chain(credentials / f"{rank}.pem", credentials / f"{rank}.key")
            context.load_verify_locations(credentials / "authority.pem")
        server.verify_mode = ssl.CERT_REQUIRED
        listener = socket.create_server(("127.0.0.1", port))
        self.sockets: dict[int, ssl.SSLSocket] = {}
        for other, address in dial.items():
            plain = _dial(address)
            plain.sendall(bytes([rank]))
            self.sockets[other] = client.wrap_socket(plain, server_hostname=f"site{other}")
        for _ in accept:
            plain, _ = listener.accept()
            other = plain.recv(1)[0]
            self.sockets[other] = server.wrap_socket(plain, server_side=True)
        listener.close()
        self._got = {other: bytearray() for other in self.sockets}
        self._selector = selectors.DefaultSelector()
        for other, secure in self.sockets.items():
            plain_options = (socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            secure.setsockopt(*plain_options)
            secure.setblocking(False)
            self._selector.register(secure, selectors.EVENT_READ, other)

    def exchange(self, matrix: np.ndarray) -> dict[int, np.ndarray]:
        """Send to and receive from both neighbours, reading and writing as the sockets allow."""
        frame = struct.pack("<Q", matrix.nbytes) + matrix.tobytes()
        left = {other: memoryview(frame) for other in self.sockets}
        for other in self.sockets:
            self._write(other, left)
        while left or any(len(got) < len(frame) for got in self._got.values()):
            for key, events in self._selector.select(10.0):
                if events & selectors.EVENT_WRITE:
                    self._write(key.data, left)
                if events & selectors.EVENT_READ:
                    self._read(key.data)
        received = {other: np.frombuffer(got[8 : len(frame)]).reshape(matrix.shape) for other, got in self._got.items()}
        for got in self._got.values():
            del got[: len(frame)]
        return received

    def _write(self, other: int, left: dict[int, memoryview]) -> None:
        secure = self.sockets[other]
        try:
            while left[other]:
                left[other] = left[other][secure.send(left[other]) :]
            del left[other]
            self._selector.modify(secure, selectors.EVENT_READ, other)
        except (ssl.SSLWantWriteError, ssl.SSLWantReadError):
            self._selector.modify(secure, selectors.EVENT_READ | selectors.EVENT_WRITE, other)

    def _read(self, other: int) -> None:
        # Also what belongs to the next round, or a neighbour that is ahead would keep the loop awake.
        try:
            while data := self.sockets[other].recv(1 << 17):
                self._got[other] += data
        except (ssl.SSLWantReadError, ssl.SSLWantWriteError):
            return
        raise SystemExit("a neighbour has left")


def _dial(address: str) -> socket.socket:
    host, port = address.split(":")
    for _ in range(200):
        try:
            return socket.create_connection((host, int(port)), timeout=30.0)
        except OSError:
            time.sleep(0.05)
    raise SystemExit(f"{address} does not answer")


def work(
    rank: int, size: int, shape: tuple[int, ...], counts: tuple[int, int], plan: dict, folder: Path, barrier: Barrier
) -> None:
    """One peer: both exchanges in turns; the times of all batches go into a file."""
    neighbours = sorted({(rank + 1) % size, (rank - 1) % size})
    names = [f"site{other}" for other in range(size)]
    dialled = {other: plan["grpc"][f"{rank}-{other}"] for other in neighbours if rank < other}
    credentials = Credentials(
        (folder / f"{rank}.key").read_bytes(),
        (folder / f"{rank}.pem").read_bytes(),
        (folder / "authority.pem").read_bytes(),
    )
    audit = AuditWriter(folder / f"{rank}.audit.jsonl", names[rank], "benchmark", shape[1], 1)
    ring = sorted({tuple(sorted((one, (one + 1) % size))) for one in range(size)})
    setup = Setup(
        names[rank],
        tuple(names),
        tuple((names[one], names[other]) for one, other in ring),
        frozenset(names[other] for other in dialled),
        Run(bytes(16), "benchmark", 1 << 24),
        CertificateKeyring(credentials),
    )
    transport = GrpcTransport(
        Endpoint(
            setup,
            credentials,
            {names[other]: address for other, address in dialled.items()},
            listen=f"127.0.0.1:{plan['ports'][rank]}",
            journal=folder / f"{rank}.journal" if plan["journal"] else None,
            on_sent=audit.record if plan["journal"] else None,
        )
    )
    bare = None
    if not plan["delay_s"]:
        dial = {other: f"127.0.0.1:{plan['bare'][other]}" for other in neighbours if rank < other}
        bare = BareRing(rank, dial, [other for other in neighbours if rank > other], plan["bare"][rank], folder)
    X = np.random.default_rng(rank).standard_normal(shape)
    expected = {other: np.random.default_rng(other).standard_normal(shape) for other in neighbours}
    times: dict[str, list[float]] = {"grpc": [], "bare": []}
    with audit, transport:
        links = transport.links(neighbours, neighbours)
        transport.exchange((X,), links)
        batches, rounds = counts
        for _ in range(batches):
            barrier.wait(120.0)
            began = time.perf_counter()
            for _ in range(rounds):
                received = transport.exchange((X,), links)
            times["grpc"].append((time.perf_counter() - began) / rounds)
            if any(not np.array_equal(received[other][0], expected[other]) for other in neighbours):
                raise SystemExit("a wrong matrix came back")
            if bare is not None:
                # What the journals still write must not hold the bare exchange up.
                time.sleep(SETTLE_S)
                barrier.wait(120.0)
                began = time.perf_counter()
                for _ in range(rounds):
                    plain = bare.exchange(X)
                times["bare"].append((time.perf_counter() - began) / rounds)
                if any(not np.array_equal(plain[other], expected[other]) for other in neighbours):
                    raise SystemExit("a wrong matrix came back")
        barrier.wait(120.0)
    (folder / f"{rank}.json").write_text(json.dumps(times))


def delay(port: int, delay_s: float, pipe: Connection) -> None:
    """A proxy in a process of its own, so that the links do not wait for each other; ends when told."""
    with Proxy("127.0.0.1", port, delay_s) as proxy:
        pipe.send(proxy.address)
        pipe.recv()


def measure(size: int, shape: tuple[int, ...], counts: tuple[int, int], delay_s: float, journal: bool) -> dict:
    """Seconds a round by kind: for each batch the slowest peer, of these the median."""
    authority = Authority()
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        (folder / "authority.pem").write_bytes(authority.pem)
        for rank in range(size):
            own = authority.issue(f"site{rank}")
            (folder / f"{rank}.key").write_bytes(own.key)
            (folder / f"{rank}.pem").write_bytes(own.certificate)
        ports = free_ports(size)
        edges = {(min(rank, (rank + 1) % size), max(rank, (rank + 1) % size)) for rank in range(size)}
        context = multiprocessing.get_context("spawn")
        pipes = {edge: context.Pipe() for edge in edges} if delay_s else {}
        proxies = [
            context.Process(target=delay, args=(ports[high], delay_s, theirs), daemon=True)
            for (_, high), (_, theirs) in pipes.items()
        ]
        for proxy in proxies:
            proxy.start()
        addresses = {
            f"{low}-{high}": pipes[low, high][0].recv() if delay_s else f"127.0.0.1:{ports[high]}"
            for low, high in edges
        }
        plan = {"grpc": addresses, "ports": ports, "bare": free_ports(size), "delay_s": delay_s, "journal": journal}
        barrier = context.Barrier(size)
        processes = [
            context.Process(target=work, args=(rank, size, shape, counts, plan, folder, barrier), daemon=True)
            for rank in range(size)
        ]
        for process in processes:
            process.start()
        for process in processes:
            process.join(300.0)
        for ours, _ in pipes.values():
            ours.send("end")
        for proxy in proxies:
            proxy.join(10.0)
        if any(process.exitcode for process in processes):
            raise SystemExit("a peer failed")
        taken = [json.loads((folder / f"{rank}.json").read_text()) for rank in range(size)]
    return {
        kind: statistics.median(max(batch) for batch in zip(*(times[kind] for times in taken), strict=True))
        for kind in ("grpc", "bare")
        if taken[0][kind]
    }


def run_many(count: int) -> tuple[float, float]:
    """Seconds until all peers of a ring have their results, and the largest memory of any, in MB."""
    X = np.random.default_rng(0).standard_normal((50 * count, 64)) * np.linspace(1, 3, 64)
    parts = {f"site{number}": X[number::count] for number in range(count)}
    with tempfile.TemporaryDirectory() as name, Mesh(Path(name), parts, ring(list(parts)), join_s=600) as mesh:
        began = time.perf_counter()
        mesh.start_anew()
        peak_kb = 0
        while any(process.poll() is None for process in mesh.running.values()):
            peak_kb = max(peak_kb, *(_peak_kb(process.pid) for process in mesh.running.values()))
            time.sleep(0.2)
        taken = time.perf_counter() - began
        if set(mesh.wait().values()) != {0}:
            raise SystemExit("a peer failed")
        mesh.assert_exact()
    return taken, peak_kb / 1e3


def _peak_kb(pid: int) -> int:
    """The most that a process has had in memory; 0 if it has ended."""
    try:
        found = re.search(r"VmHWM:\s+(\d+) kB", Path(f"/proc/{pid}/status").read_text())
    except OSError:
        return 0
    return int(found[1]) if found else 0


def main() -> None:
    """Print both ratios; fail if one is beyond its target."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--peers", type=int, default=8)
    parser.add_argument("--rounds", type=int, default=100)
    parser.add_argument("--batches", type=int, default=9)
    parser.add_argument("--delay-ms", type=float, default=20.0)
    parser.add_argument("--features", type=int, default=1024)
    parser.add_argument("--components", type=int, default=10)
    parser.add_argument("--many", type=int, default=0, metavar="N")
    options = parser.parse_args()
    if options.many:
        seconds, megabytes = run_many(options.many)
        print(f"{options.many} peers: all done after {seconds:.1f} s, at most {megabytes:.0f} MB each")
        return
    shape = (1, options.features, options.components)
    failed = False
    for journal in (False, True):
        times = measure(options.peers, shape, (options.batches, options.rounds), 0.0, journal)
        ratio = times["grpc"] / times["bare"]
        failed |= ratio > 3
        what = "with journal and audit" if journal else "without journal"
        print(
            f"loopback, {what}: gRPC {1e3 * times['grpc']:.2f} ms, bare TLS {1e3 * times['bare']:.2f} ms per round: "
            f"{ratio:.2f} x (target 3)"
        )
    delay_s = options.delay_ms / 1e3
    times = measure(options.peers, shape, (3, max(10, options.rounds // 3)), delay_s, True)
    ratio = times["grpc"] / delay_s
    failed |= ratio > 1.3
    print(f"{options.delay_ms:g} ms a link: {1e3 * times['grpc']:.2f} ms per round: {ratio:.2f} x (target 1.3)")
    raise SystemExit(int(failed))


if __name__ == "__main__":
    main()
