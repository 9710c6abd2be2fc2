"""The real driver of TLS links under faults: loopback connections that close, are reset or stall at any byte.

Rehearsals replace the driver, so they cannot find what is wrong in it. Here real sites exchange numbers while every
connection between them meets a fault: in the TCP handshake, in that of TLS, before or in the greetings, within a
message. A tick comes every few milliseconds, so that it meets connections in every state.
"""

from __future__ import annotations

import itertools
import os
import threading
from contextlib import ExitStack, suppress
from unittest.mock import patch

import networkx as nx
import numpy as np

from eigenmesh.errors import TransportError
from eigenmesh.transports.tls import TlsTransport
from eigenmesh.transports.tls.connection import Supervisor, parse_address
from transports.proxy import Fault, Proxy
from transports.sites import Sites
from waiting import until

KINDS = ("close", "reset", "half", "stall")
# Both TLS handshakes take about 4,000 bytes, and greetings as many; beyond that are the rounds.
FARTHEST_BYTES = 20_000
TLS = "eigenmesh.transports.tls"
SHAPE = (1, 40, 3)


class FaultyRun:
    """Two or three sites, each linked to all others, in one process; over a relay if ``sites.relay`` has its address.

    ``faults`` befall the connections of every link, or those of its two ends to the relay, one after the other; then
    all is well again, and the run must end as if nothing had happened. With ``parks``, one site parks the run in the
    middle instead, and all must end.
    """

    def __init__(self, seed: int, faults: int, parks: bool = False) -> None:
        self.rng = np.random.default_rng(seed)
        self.sites = Sites(nx.complete_graph(int(self.rng.integers(2, 4))), patience_s=20.0)
        self.faults, self.park_in_round = faults, int(self.rng.integers(0, 20)) if parks else None
        self.rounds, self.connections = [0] * len(self.sites.names), 0
        self.errors: dict[int, BaseException] = {}
        self.proxies: list[Proxy] = []
        self.supervisors: list[Supervisor] = []

    def fault(self) -> Fault:
        kind = str(self.rng.choice(KINDS))
        # As often in the first bytes, where connections are made, as in all others.
        most = int(self.rng.choice([0, 600, 6_000, FARTHEST_BYTES]))
        hold_s = float(self.rng.uniform(0.0, 0.15)) if kind in ("half", "stall") else 0.0
        return Fault(kind, int(self.rng.integers(0, most + 1)), hold_s)

    def play(self) -> None:
        """Run to the end; raises AssertionError if anything hangs, is lost or is left over."""
        threads, sockets = set(threading.enumerate()), _sockets()
        # Over a relay there are two handshakes.
        connect_s = float(self.rng.choice([1.0 if self.sites.relay else 0.05, 10.0]))
        with ExitStack() as stack:
            for name, seconds in {
                f"{TLS}.connection.HEARTBEAT_S": 0.003,
                f"{TLS}.connection.SILENT_S": 0.1,
                f"{TLS}.connection.CONNECT_S": connect_s,
                f"{TLS}.dialling.CONNECT_S": connect_s,
                f"{TLS}.dialling.LEAVE_S": 0.1,
                f"{TLS}.connection.LEAVE_S": 0.1,
                "eigenmesh.protocol.peering.BACKOFF_S": (0.001, 0.01),
            }.items():
                stack.enter_context(patch(name, seconds))
            for caller, called in self.sites.graph.edges:
                for ends in ((caller, called), (called, caller)) if self.sites.relay else ((caller, called),):
                    target = parse_address(self.sites.relay or self.sites.address(called))
                    proxy = stack.enter_context(Proxy(*target))
                    proxy.faults = iter([self.fault() for _ in range(self.faults)])
                    self.sites.via[ends] = proxy.address
                    self.proxies.append(proxy)
            workers = [threading.Thread(target=self._guarded, args=(rank,)) for rank in range(len(self.rounds))]
            for worker in workers:
                worker.start()
            until(lambda: not any(worker.is_alive() for worker in workers), lambda: f"hung at rounds {self.rounds}")
            self.connections = sum(proxy.connections for proxy in self.proxies)
        if self.park_in_round is not None:
            assert all(isinstance(error, TransportError) for error in self.errors.values()), self.errors
            assert len(self.errors) == len(self.rounds)
        else:
            assert not self.errors, self.errors
            assert len(set(self.rounds)) == 1
        for supervisor in self.supervisors:
            assert supervisor.error is None, f"a task or thread has ended: {supervisor.error!r}"
        left = set(threading.enumerate()) - threads
        assert not left, left
        assert _sockets() <= sockets, f"{_sockets() - sockets} sockets are still open"

    def _guarded(self, rank: int) -> None:
        try:
            with self.sites.transport(rank) as transport:
                self.supervisors.append(transport.endpoint._supervisor)
                self._work(transport)
        except BaseException as error:
            self.errors[rank] = error

    def _work(self, transport: TlsTransport) -> None:
        rank, near, machine = transport.rank, transport.neighbours, transport.endpoint.machine
        links, over = transport.links(near, near), 0.0
        for round_ in itertools.count():
            if over:
                break
            if rank == 0 and round_ == self.park_in_round:
                transport.park("a test.")
            # The first site says when all is well again.
            well = self.park_in_round is None and all(proxy.connections > self.faults for proxy in self.proxies)
            mine = float(rank == 0 and well)
            numbers = np.random.default_rng([rank, round_]).standard_normal(SHAPE)
            over = mine
            for sender, (theirs, word) in transport.exchange((numbers, np.array([mine])), links).items():
                expected = np.random.default_rng([sender, round_]).standard_normal(SHAPE)
                assert np.array_equal(theirs, expected), f"round {round_} of {sender} is wrong"
                over = max(over, float(word[0]))
            self.rounds[rank] += 1
        last = machine._last_tick
        until(lambda: machine._last_tick > last, f"the tick of site {rank} is dead")


def _sockets() -> int:
    """The number of open sockets of this process; 0 where the system does not list them."""
    count = 0
    for number in os.listdir("/proc/self/fd") if os.path.isdir("/proc/self/fd") else ():
        with suppress(OSError):
            count += os.readlink(f"/proc/self/fd/{number}").startswith("socket")
    return count
