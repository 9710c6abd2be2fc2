"""Virtual time: one clock, the times of links, and the times of work, for sites and for the nodes of a simulation.

Virtual time jumps from one planned action to the next: hours of a run take a second, and replay exactly.
"""

from __future__ import annotations

import heapq
import math
import time
from collections import Counter, defaultdict
from collections.abc import Callable, Mapping
from random import Random
from statistics import median
from typing import Any, NamedTuple

import numpy as np

from eigenmesh.arrays import Array
from eigenmesh.data import Covariance
from eigenmesh.rehearsal.conditions import Host, LinkQuality, drawn_factor

N_TIMED = 9


class VirtualTime:
    """A clock, the actions planned on it, and one random number generator.

    Actions at the same time run in the order in which they were planned, so the seed determines everything.
    """

    def __init__(self, seed: int) -> None:
        self.now = 0.0
        self.random = Random(seed)
        self._planned: list[tuple[float, int, Callable[..., object], tuple[Any, ...]]] = []
        self._count = 0

    def after(self, delay_s: float, action: Callable[..., object], *arguments: Any) -> None:
        """Plan an action for ``delay_s`` from now."""
        self.at(self.now + delay_s, action, *arguments)

    def at(self, time: float, action: Callable[..., object], *arguments: Any) -> None:
        """Plan an action; if its time has passed, it runs next."""
        self._count += 1
        heapq.heappush(self._planned, (max(time, self.now), self._count, action, arguments))

    def run(self, until: float, is_over: Callable[[], bool] = lambda: False) -> bool:
        """Run the actions until none is planned, the time is up, or ``is_over``; False if the time was up."""
        while self._planned and not is_over():
            if self._planned[0][0] > until:
                return False
            self.now, _, action, arguments = heapq.heappop(self._planned)
            action(*arguments)
        return True


# How long messages take over links of known latency, bandwidth and loss.


PACKET_BYTES = 1448
# TCP waits at least this long plus a round trip before it sends the end of a message again; then twice as long.
RESEND_S = 0.2
MAX_RESENDS = 15


class LinkTimes:
    """Travel times of messages, in both directions of every link, with counts of messages and bytes.

    Attributes
    ----------
    messages, bytes, resent : by sender and receiver; ``resent`` counts messages of which a packet was lost.
    """

    def __init__(self, time: VirtualTime, links: Mapping[tuple[str, str], LinkQuality]) -> None:
        self._time = time
        self._links = {way: link for (one, other), link in links.items() for way in ((one, other), (other, one))}
        self._free_at = dict.fromkeys(self._links, 0.0)
        self.messages: Counter[tuple[str, str]] = Counter()
        self.bytes: Counter[tuple[str, str]] = Counter()
        self.resent: Counter[tuple[str, str]] = Counter()

    @property
    def latency_s(self) -> dict[tuple[str, str], float]:
        return {way: link.latency_ms / 1e3 for way, link in self._links.items()}

    def travel_s(self, way: tuple[str, str], n_bytes: int) -> float:
        """Seconds until a message arrives: it waits for earlier messages, is sent, and travels."""
        return self.arrival_s(way, n_bytes, self._time.now) - self._time.now

    def arrival_s(self, way: tuple[str, str], n_bytes: int, leaves_at: float, again: bool = True) -> float:
        """When a message arrives. With ``again`` lost packets are sent again; otherwise a lost message gives inf."""
        link, random = self._links[way], self._time.random
        self.messages[way] += n_bytes > 0
        self.bytes[way] += n_bytes
        gone_at = max(leaves_at, self._free_at[way]) + 8e-6 * n_bytes / link.bandwidth_mbit
        self._free_at[way] = gone_at
        late_s = (link.overhead_ms + link.latency_ms + link.jitter_ms * random.random()) / 1e3
        if not again:
            return gone_at + late_s if random.random() >= _any_lost(link, n_bytes) else math.inf
        return gone_at + late_s + self._resend_s(way, link, n_bytes)

    def _resend_s(self, way: tuple[str, str], link: LinkQuality, n_bytes: int) -> float:
        """The delay by lost packets: at first any packet of the message, then the one that is sent again."""
        any_lost = _any_lost(link, n_bytes)
        wait_s, total_s = RESEND_S + 2e-3 * link.latency_ms, 0.0
        for attempt in range(MAX_RESENDS):
            if self._time.random.random() >= (link.loss if attempt else any_lost):
                break
            self.resent[way] += not attempt
            total_s += wait_s * 2**attempt
        return total_s


def _any_lost(link: LinkQuality, n_bytes: int) -> float:
    """The probability that at least one packet of a message is lost."""
    return 1.0 - (1.0 - link.loss) ** -(-n_bytes // PACKET_BYTES)


# How long work takes: as stated in the conditions, or as measured on this computer.


class Work(NamedTuple):
    """Seconds that a site needs: for its moments and covariance, and for one product with the solver's block."""

    set_up_s: float
    product_s: float


def work_on(host: Host, work_here: Callable[[], Work]) -> Work:
    """The work of a host: as the conditions state it, or else as it is measured here, times the slowdown."""
    if host.product_ms is not None:
        return Work(host.set_up_ms / 1e3, host.product_ms / 1e3)
    return Work(*(host.slowdown * seconds for seconds in work_here()))


def product_s(covariance: Covariance, columns: int) -> float:
    """The median time of a product of a covariance with a block of so many columns on this computer."""
    block = covariance.place(np.random.default_rng(0).standard_normal((1, covariance.n_features, columns)))
    taken = []
    for _ in range(N_TIMED):
        began = time.perf_counter()
        covariance.apply(block)
        taken.append(time.perf_counter() - began)
    return median(taken)


class TimedCovariance:
    """A covariance whose products take virtual time.

    Parameters
    ----------
    covariance : Covariance
        What multiplies.
    timed : callable
        Called with the product and its block: multiplies, and lets virtual time pass.
    """

    def __init__(self, covariance: Covariance, timed: Callable[[Callable[[Array], Array], Array], Array]) -> None:
        self._covariance, self._timed = covariance, timed

    def apply(self, X: Array) -> Array:
        """The product with X."""
        return self._timed(self._covariance.apply, X)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._covariance, name)


class WorkClock:
    """The time of work that the solvers of sites have done already, but that has not passed in virtual time yet.

    The set-up and the products take what the conditions state. Other work of a site takes the time that its thread
    needs here, times the slowdown of its host. Where the time of products is stated, nothing is measured, so that the
    outcome depends only on the seed.

    Parameters
    ----------
    hosts : mapping
        The computers of the sites by name. Sites without one work in no time.
    work : mapping
        The times of set-up and product of each host.
    """

    def __init__(self, hosts: Mapping[str, Host], work: Mapping[str, Work]) -> None:
        self._hosts, self.work = hosts, work
        measured = {site: host.slowdown for site, host in hosts.items() if host.product_ms is None}
        self._slowdown: dict[str, float] = defaultdict(float, measured)
        self._owed_s: dict[str, float] = defaultdict(float)
        self._clock: dict[str, float] = {}

    def taken_s(self, site: str, random: Random) -> float:
        """The time of the work since the last call, times a random factor."""
        owed_s = self._owed_s.pop(site, 0.0)
        return owed_s * drawn_factor(self._hosts[site], random) if site in self._hosts else owed_s

    def set_up(self, site: str, make: Callable[[], Any]) -> Any:
        """Prepare a fit, which takes the time of the set-up however long it takes here."""
        slowdown, self._slowdown[site] = self._slowdown[site], 0.0
        try:
            made = make()
        finally:
            self._slowdown[site] = slowdown
        self.lap(site)
        self._owed_s[site] += self.work[site].set_up_s if site in self.work else 0.0
        return made

    def multiply(self, site: str, product: Callable[[Array], Array], X: Array) -> Array:
        """Multiply, which takes the time of a product."""
        return self.pause(site, product, X, self.work[site].product_s if site in self.work else 0.0)

    def pause(self, site: str, work: Callable[[Any], Any], about: Any, stated_s: float = 0.0) -> Any:
        """Do work that takes a stated time, and count what the thread has computed before it as measured."""
        self._owed_s[site] += self._slowdown[site] * self.lap(site)
        done = work(about)
        self.lap(site)
        self._owed_s[site] += stated_s
        return done

    def lap(self, site: str) -> float:
        """Seconds that the thread of a site has computed since the last call."""
        before, self._clock[site] = self._clock.get(site, math.inf), time.thread_time()
        return max(0.0, self._clock[site] - before)
