"""How long messages take over links of known latency, bandwidth and loss."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Mapping

from eigenmesh.events import VirtualTime
from eigenmesh.rehearsal._conditions import LinkQuality

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
