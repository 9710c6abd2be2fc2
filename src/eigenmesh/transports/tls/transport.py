"""Peers of different organisations: mutual TLS, no server, nothing executable on the wire."""

from __future__ import annotations

import hashlib
import time
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, NamedTuple

from eigenmesh import arrays as ea
from eigenmesh.errors import InputError, MembersChangedError
from eigenmesh.masking import Masks
from eigenmesh.protocol import Begin, Compare, Exchange, JournalledMasks, Keys, LinkStatus, MembersChanged, Sign, wire
from eigenmesh.transports.base import Arrays, Links, Transport, in_library_of
from eigenmesh.transports.tls.endpoint import Endpoint


class TransportStatus(NamedTuple):
    """The status of a site: its next round, whether it still replays its journal, and the sites it waits for.

    ``round_trips_s`` are the round trip times of packets, one per link; 0 if unknown.
    """

    round: int
    replaying: bool
    waiting_for: tuple[str, ...]
    journal_problem: str
    links: tuple[LinkStatus, ...]
    round_trips_s: tuple[float, ...]


@dataclass(frozen=True)
class TaggedLinks(Links):
    """Links of one kind of round, with its tag, the same at all sites."""

    tag: int = 0


class TlsTransport(Transport):
    """The links of one site in one epoch, over mutual TLS; ranks are indices among the members."""

    compares_settings: ClassVar[bool] = True

    def __init__(self, endpoint: Endpoint) -> None:
        self.endpoint, self.members = endpoint, endpoint.members
        self._rank, self._size = self.members.index(endpoint.setup.name), len(self.members)
        self._linked = {self.members.index(name): name for name in endpoint.machine.links}
        self._kinds_of_round = self._drawn = 0
        self._masks: JournalledMasks | None = None

    @property
    def neighbours(self) -> tuple[int, ...]:
        """Ranks of the sites that are linked to this one."""
        return tuple(self._linked)

    @property
    def begun(self) -> bool:
        """Whether a neighbour has sent numbers, to this process or before a restart."""
        with self.endpoint.lock:
            return any(link.next_in > 0 for link in self.endpoint.machine.links.values())

    def private_bytes(self, count: int) -> bytes:
        self._drawn += 1
        place = f"{self.endpoint.secret} {self.endpoint.lost} {self._drawn}"
        return hashlib.shake_256(place.encode()).digest(count)

    def masks(self) -> Masks | None:
        """Masks of the current epoch, from keys that the members have signed; None in a run without masks."""
        if not self.endpoint.setup.masked:
            return None
        self._masks = JournalledMasks(self.endpoint.machine, self.endpoint.ask, self._ask(Keys()))
        return self._masks

    def links(self, send_to: Sequence[int], receive_from: Sequence[int]) -> Links:
        """Prepare a kind of round; only neighbours can be linked."""
        strangers = sorted({*send_to, *receive_from} - self._linked.keys())
        if strangers:
            raise InputError(f"sites {strangers} are not neighbours of {self.endpoint.setup.name!r}.")
        self._kinds_of_round += 1
        return TaggedLinks(tuple(send_to), tuple(receive_from), self._kinds_of_round)

    def exchange(self, arrays: Arrays, links: Links) -> dict[int, Arrays]:
        own = [ea.to_numpy(array) for array in arrays]
        body = wire.array_body(own, self.endpoint.setup.run.max_message_bytes)
        to, from_ = (tuple([self._linked[rank] for rank in ranks]) for ranks in (links.send_to, links.receive_from))
        answer = self._ask(Exchange(body, getattr(links, "tag", 0), to, from_))
        self.sent.add(len(to), sum([array.nbytes for array in own]))
        return {rank: in_library_of(arrays, answer.frames[self._linked[rank]].arrays) for rank in links.receive_from}

    def compare(self, stage: str) -> None:
        """Sign what this site has heard so far, and wait until all members have.

        Raises TransportError if one was told other numbers than this one. Does nothing in a run without masks.
        """
        if self._masks is not None:
            self._ask(Compare(stage, self._masks.news()))

    def sign(self, digest: str) -> dict[str, str]:
        """Sign the digest of the result, and wait until all members have; returns their statements by name.

        In a masked run they also sign what they have heard.
        """
        return dict(self._ask(Sign(digest, () if self._masks is None else self._masks.news())).statements)

    def _ask(self, event: Exchange | Keys | Compare | Sign) -> Any:
        answer = self.endpoint.ask(event)
        if isinstance(answer, MembersChanged):
            raise MembersChangedError("sites were lost, and the others have agreed to continue.", answer.lost)
        return answer

    def next_epoch(self, start: bytes) -> TlsTransport:
        """Start again with the remaining members, from an estimate that survives a crash."""
        self.endpoint.ask(Begin(start))
        return TlsTransport(self.endpoint)

    def check(self) -> None:
        """Raise the error that has ended the run, if there is one."""
        self.endpoint.check()

    def status(self) -> TransportStatus:
        """The status of the site and its links."""
        with self.endpoint.lock:
            machine, now = self.endpoint.machine, time.monotonic()
            links = machine.status(now)
            trips = tuple(self.endpoint.round_trip_s(link.name) for link in links)
            problem = self.endpoint.journal_problem
            return TransportStatus(machine.round, machine.replaying, machine.waiting_for, problem, links, trips)

    def abort(self, reason: str) -> None:
        self.endpoint.stop(reason)

    def park(self, reason: str) -> None:
        """Park the run at every site; when all are started again, they resume from their journals."""
        self.endpoint.stop(reason, parks=True)

    def close(self) -> None:
        """Wait until the neighbours have all they need, then release everything; may be called more than once."""
        self.endpoint.close()
