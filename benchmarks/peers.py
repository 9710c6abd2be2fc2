"""Round time of peers, against a bare mutual-TLS socket exchange of the same bytes in the same run.

``python benchmarks/peers.py`` starts 8 processes on a ring over loopback, each sending 1024 x 10 float64 to both its
neighbours per round. Batches of rounds of peers and over bare sockets alternate, so that a busy moment affects both
equally: the ratio is the median over neighbouring batches, in wall-clock and in processor time. A second run puts a
proxy with 20 ms of one-way delay on every link.

``python benchmarks/peers.py --many 24`` starts 24 peers at once, each in its own Python process, and prints how long
all take to start, agree and finish, and the memory of one.
"""

from __future__ import annotations

import argparse
import itertools
import json
import multiprocessing
import re
import statistics
import sys
import tempfile
import time
from collections.abc import Callable
from multiprocessing.connection import Connection
from multiprocessing.synchronize import Barrier
from pathlib import Path
from typing import Any

import numpy as np

sys.path.insert(0, str(Path(__file__).parents[1] / "tests"))

from bare_sockets import BareRing

from eigenmesh.protocol import Run, Setup
from eigenmesh.sites.audit import AuditWriter
from eigenmesh.transports.tls import CertificateKeyring, Credentials, Endpoint, Routes, TlsTransport
from mesh import Mesh, ring
from ports import free_ports
from transports.authority import Authority
from transports.proxy import Proxy

# Longer than a journal waits before it flushes.
SETTLE_S = 0.5
MOST_RATIO, MOST_LATENCIES = 2.9, 1.3


def work(
    rank: int, size: int, shape: tuple[int, ...], counts: tuple[int, int], plan: dict, folder: Path, barrier: Barrier
) -> None:
    """One peer: both exchanges in turns; the times of all batches go into a file."""
    neighbours, (batches, rounds) = sorted({(rank + 1) % size, (rank - 1) % size}), counts
    names = [f"site{other}" for other in range(size)]
    dialled = {other: plan["peers"][f"{rank}-{other}"] for other in neighbours if rank < other}
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
        masked=plan["masked"],
    )
    transport = TlsTransport(
        Endpoint(
            setup,
            credentials,
            Routes({names[other]: address for other, address in dialled.items()}),
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
    times: dict[str, list[float]] = {"peers": [], "bare": [], "peers cpu": [], "bare cpu": []}

    def timed(kind: str, exchange: Callable[[], Any]) -> Any:
        barrier.wait(120.0)
        began, cpu = time.perf_counter(), time.process_time()
        for _ in range(rounds):
            received = exchange()
        times[kind].append((time.perf_counter() - began) / rounds)
        times[f"{kind} cpu"].append((time.process_time() - cpu) / rounds)
        return received

    with audit, transport:
        links = transport.links(neighbours, neighbours)
        transport.exchange((X,), links)
        masks, numbers = transport.masks(), itertools.count()

        def exchange() -> Any:
            if masks is None:
                return transport.exchange((X,), links)
            # As in an average: the words of each round have a mask of their own, and are on the disk before they leave.
            words = masks.masked(next(numbers), X.view(np.uint64).ravel())
            return transport.exchange((words.reshape(X.shape).view(np.int64),), links)

        for _ in range(batches):
            received = timed("peers", exchange)
            same = [np.array_equal(received[other][0], expected[other]) for other in neighbours]
            if any(same) if masks is not None else not all(same):
                raise SystemExit("a wrong matrix came back, or one without a mask")
            if bare is not None:
                # Pending writes of the journals must not delay the bare exchange.
                time.sleep(SETTLE_S)
                plain = timed("bare", lambda: bare.exchange(X))
                if any(not np.array_equal(plain[other], expected[other]) for other in neighbours):
                    raise SystemExit("a wrong matrix came back")
        barrier.wait(120.0)
    (folder / f"{rank}.json").write_text(json.dumps(times))


def delay(port: int, delay_s: float, pipe: Connection) -> None:
    """A proxy in its own process, so that the links do not wait for each other; it ends on request."""
    with Proxy("127.0.0.1", port, delay_s) as proxy:
        pipe.send(proxy.address)
        pipe.recv()


def measure(
    size: int, shape: tuple[int, ...], counts: tuple[int, int], delay_s: float, journal: bool, masked: bool = False
) -> dict:
    """Seconds per round by kind and batch: wall clock of the slowest peer, and mean processor time per peer."""
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
        plan = {"peers": addresses, "ports": ports, "bare": free_ports(size), "delay_s": delay_s, "journal": journal}
        plan["masked"] = masked
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
    kinds = {"peers": max, "bare": max, "peers cpu": statistics.mean, "bare cpu": statistics.mean}
    return {
        kind: [of_peers(batch) for batch in zip(*(one[kind] for one in taken), strict=True)]
        for kind, of_peers in kinds.items()
    }


def ratio_of(ours: list[float], theirs: list[float]) -> float:
    """The median ratio of batches that followed each other."""
    return statistics.median(one / other for one, other in zip(ours, theirs, strict=True))


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
    """Peak memory of a process; 0 if it has ended."""
    try:
        found = re.search(r"VmHWM:\s+(\d+) kB", Path(f"/proc/{pid}/status").read_text())
    except OSError:
        return 0
    return int(found[1]) if found else 0


def _ms(seconds: list[float]) -> str:
    return f"{1e3 * statistics.median(seconds):.2f} ms"


def main() -> None:
    """Print both ratios; fail if one is above its target."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--peers", type=int, default=8)
    parser.add_argument("--rounds", type=int, default=50)
    parser.add_argument("--batches", type=int, default=15)
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
    for journal, masked in ((False, False), (True, False), (True, True)):
        times = measure(options.peers, shape, (options.batches, options.rounds), 0.0, journal, masked)
        ratio, cpu = ratio_of(times["peers"], times["bare"]), ratio_of(times["peers cpu"], times["bare cpu"])
        # There is no target for masks: each round waits for the disk.
        failed |= ratio > MOST_RATIO and not masked
        what = "with masks, journal and audit" if masked else "with journal and audit" if journal else "without journal"
        print(
            f"loopback, {what}: peers {_ms(times['peers'])}, bare TLS {_ms(times['bare'])} per round: {ratio:.2f} x "
            f"(target {MOST_RATIO}); processor {_ms(times['peers cpu'])}, {_ms(times['bare cpu'])}: {cpu:.2f} x"
        )
    delay_s = options.delay_ms / 1e3
    times = measure(options.peers, shape, (9, max(10, options.rounds // 3)), delay_s, True)
    ratio = statistics.median(times["peers"]) / delay_s
    failed |= ratio > MOST_LATENCIES
    print(f"{options.delay_ms:g} ms a link: {_ms(times['peers'])} per round: {ratio:.2f} x (target {MOST_LATENCIES})")
    raise SystemExit(int(failed))


if __name__ == "__main__":
    main()
