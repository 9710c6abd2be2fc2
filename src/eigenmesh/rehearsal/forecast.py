"""Forecasts a run on a network under given conditions: how long it takes, and how it ends."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from eigenmesh.errors import ParkedError
from eigenmesh.events import Ended, Listener, VirtualTime
from eigenmesh.protocol import Membership
from eigenmesh.protocol.effects import Bytes, Durable, Exchange
from eigenmesh.rehearsal.conditions import Conditions, Fault, drawn_factor
from eigenmesh.rehearsal.simulation import MadeUpProblem, RehearsalLog, Work, work_of
from eigenmesh.rehearsal.world import Disk, LinkTimes, Process, VirtualNetwork, World
from eigenmesh.sites import NetworkFile

# The journal of a real site is flushed to the disk this often.
FLUSH_EVERY_S = 0.1
# Number of starts after which a service manager gives up.
MAX_STARTS = 20
LONGEST_S = 7 * 86400.0
OWN_DISK = "its own disk"


@dataclass(frozen=True)
class SiteForecast:
    """The end of one site: "converged", "not converged", "parked", "ended", "killed" or "running"; why, and when.

    ``rounds`` counts the rounds since the last change of members; ``waits_s`` is the time spent waiting, by the
    neighbour whose message ended the wait.
    """

    end: str
    why: str
    at_s: float
    rounds: int
    starts: int
    computes_s: float
    waits_s: Mapping[str, float]


@dataclass(frozen=True)
class RunForecast:
    """A run in virtual seconds.

    Attributes
    ----------
    run_s : from the start of the sites to the end of the last one.
    rounds_s : from the moment when every site has sent numbers to the last message with numbers.
    error_bound : the certificate's bound on the error of the result; None without a result.
    components : (K, d) of the result; None without a result.
    work : the times that the work of each site was assumed to take.
    links : by sender and receiver: messages, bytes, and messages that were sent again.
    lost_sites, lost_links : sites and links that the result does without.
    unmet : faults that were planned for a time after the end.
    """

    sites: Mapping[str, SiteForecast]
    run_s: float
    rounds_s: float
    error_bound: float | None
    components: np.ndarray | None
    work: Mapping[str, Work]
    links: Mapping[tuple[str, str], tuple[int, int, int]]
    lost_sites: tuple[str, ...]
    lost_links: tuple[tuple[str, str], ...]
    unmet: tuple[Fault, ...]


def forecast(
    network: NetworkFile,
    conditions: Conditions,
    tables: Mapping[str, np.ndarray],
    seed: int = 0,
    listeners: Sequence[Listener] = (),
) -> RunForecast:
    """Play the run of a network on samples (N_i, d) per site.

    If the conditions state the times of all sites, the forecast depends only on the seed. Listeners get the events of
    one of the sites.
    """
    world = ForecastWorld(network, conditions, tables, seed, listeners)
    world.run_through(conditions.faults)
    found = world.forecast()
    seen = found.sites[world.events.observer]
    done = seen.end in ("converged", "not converged")
    world.events.over(Ended("done" if done else seen.end, seen.end == "converged", seen.why))
    return found


class ForecastWorld(World):
    """A world with given times; parked sites stay parked, or are started again after a given time."""

    longest_s = LONGEST_S

    def __init__(
        self,
        network: NetworkFile,
        conditions: Conditions,
        tables: Mapping[str, np.ndarray],
        seed: int,
        listeners: Sequence[Listener] = (),
    ) -> None:
        settings, self._conditions = network.settings, conditions
        self.max_starts = 1 if conditions.restart_parked_s is None else MAX_STARTS
        self._work = work_of(conditions.hosts, tables, settings)
        self.events = RehearsalLog(network.names, conditions.faults, listeners, lambda: self.time.now)
        self._fit = MadeUpProblem(network, tables, self._work, conditions.hosts, self.events)
        time = VirtualTime(seed)
        self.links = LinkTimes(time, conditions.links)
        super().__init__(
            VirtualNetwork(time, self.running, self.links.latency_s, self.links.travel_s),
            self._fit,
            network.names,
            network.edges,
            patience_s=settings.patience_s,
            join_s=settings.join_s,
            round_s=settings.round_s + settings.join_s,
            on_loss=settings.on_loss,
            masked=settings.masked,
        )
        # Masked numbers are flushed at once.
        wait_s = 0.0 if settings.masked else FLUSH_EVERY_S
        self._disk_s = {site: wait_s + host.disk_ms / 1e3 for site, host in conditions.hosts.items()}
        self._asked_at: dict[str, float] = {}
        self._first_sent: dict[str, float] = {}
        self._last_sent = 0.0
        self._ended_at = dict.fromkeys(self.sites, 0.0)
        self._errors: dict[str, Exception | None] = {}
        self._rounds = dict.fromkeys(self.sites, 0)
        self._computes_s = dict.fromkeys(self.sites, 0.0)
        self._waits_s: dict[str, dict[str, float]] = {site: defaultdict(float) for site in self.sites}
        self.events.begin(conditions)

    def sync_s(self, site: str) -> float:
        return self._disk_s[site]

    def restart_s(self, disk: Disk) -> float:
        return self._conditions.restart_parked_s or 0.0

    def work_s(self, process: Process) -> float:
        taken, self._fit.owed_s[process.site] = self._fit.owed_s[process.site], 0.0
        taken *= drawn_factor(self._conditions.hosts[process.site], self.time.random)
        self._computes_s[process.site] += taken
        return taken

    def asks(self, process: Process, question: Any) -> None:
        self._asked_at[process.site] = self.time.now
        if isinstance(question, Exchange) and question.send_to:
            self._first_sent.setdefault(process.site, self.time.now)
            self._last_sent = self.time.now

    def answered(self, process: Process, event: Any) -> None:
        site, waited = process.site, self.time.now - self._asked_at[process.site]
        self._rounds[site] = process.machine.epoch.round
        if isinstance(event, Bytes):
            names = self.network.connections[event.stream].names
            self._waits_s[site][names[1 - names.index(site)]] += waited
        elif isinstance(event, Durable):
            self._waits_s[site][OWN_DISK] += waited

    def ended(self, process: Process) -> None:
        self._ended_at[process.site], self._errors[process.site] = self.time.now, process.error
        super().ended(process)

    def start(self, process: Process) -> None:
        self.events.up(process.site)
        super().start(process)

    def crash(self, site: str, down_s: float, notice_s: tuple[float, float]) -> bool:
        self.events.down(site)
        return super().crash(site, down_s, notice_s)

    def gone(self, site: str) -> None:
        self._ended_at[site] = self.time.now
        super().gone(site)

    def forecast(self) -> RunForecast:
        """The forecast, after the run was played."""
        lost = max(self.results, key=len, default=())
        found = next(iter(self.results.get(lost, {}).values()), None)
        links = self.links
        return RunForecast(
            sites={site: self._site(site) for site in self.sites},
            run_s=self.time.now,
            rounds_s=self._last_sent - max(self._first_sent.values(), default=0.0),
            error_bound=None if found is None else float(found.result.certificate.error_bound),
            components=None if found is None else found.result.components,
            work=self._work,
            links={way: (links.messages[way], links.bytes[way], links.resent[way]) for way in links.latency_s},
            lost_sites=Membership(self._some_member(lost), self.sites, self.edges, lost).missing,
            lost_links=lost,
            unmet=tuple(fault for fault in self._conditions.faults if fault.at_s > self.time.now),
        )

    def _some_member(self, lost: tuple[tuple[str, str], ...]) -> str:
        return next(iter(self.results.get(lost, ())), self.sites[0])

    def _site(self, site: str) -> SiteForecast:
        return SiteForecast(
            *self._end(site),
            self._ended_at[site] if site in self.ends else self.time.now,
            self._rounds[site],
            self._starts[site],
            self._computes_s[site],
            dict(sorted(self._waits_s[site].items(), key=lambda item: -item[1])),
        )

    def _end(self, site: str) -> tuple[str, str]:
        results = [found[site] for found in self.results.values() if site in found]
        if self.ends.get(site) == "result" and results:
            return ("converged" if results[-1].result.converged else "not converged"), ""
        if site not in self.ends:
            return "running", f"after {LONGEST_S / 86400:g} days"
        if self.ends[site] == "killed":
            return "killed", ""
        error = self._errors.get(site)
        return ("parked" if isinstance(error, ParkedError) else "ended"), str(error)
