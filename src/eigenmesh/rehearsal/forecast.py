"""Forecasts a run on a network under given conditions: how long it takes, and how it ends."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from eigenmesh.errors import ParkedError
from eigenmesh.events import Ended, Listener
from eigenmesh.protocol.membership import Membership
from eigenmesh.rehearsal.conditions import Conditions, Fault
from eigenmesh.rehearsal.fits import FitProblem, work_of
from eigenmesh.rehearsal.virtual_time import LinkTimes, VirtualTime, Work, WorkClock
from eigenmesh.rehearsal.world import LONGEST_S, VirtualNetwork, World
from eigenmesh.sites.network_file import NetworkFile


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
    settings, sites = network.settings, network.names
    time = VirtualTime(seed)
    links = LinkTimes(time, conditions.links)
    work = WorkClock(conditions.hosts, work_of(conditions.hosts, tables, settings))
    largest = settings.largest_message(next(iter(tables.values())).shape[1])
    world = World(
        VirtualNetwork(time, links.latency_s, links.travel_s),
        FitProblem(sites, network.edges, settings.request(), lambda process: tables[process.site], work, largest),
        sites,
        network.edges,
        conditions,
        work,
        listeners,
        patience_s=settings.patience_s,
        join_s=settings.join_s,
        round_s=settings.round_s + settings.join_s,
        on_loss=settings.on_loss,
        masked=settings.masked,
    )
    world.run_through(conditions.faults)
    found = _told(world, links)
    seen = found.sites[world.events.observer]
    done = seen.end in ("converged", "not converged")
    world.events.log.emit(Ended("done" if done else seen.end, seen.end == "converged", seen.why))
    return found


def _told(world: World, links: LinkTimes) -> RunForecast:
    """The forecast, after the run was played."""
    lost = max(world.results, key=len, default=())
    members = world.results.get(lost, {})
    found = next(iter(members.values()), None)
    sheets = world.sheets.values()
    sent = [sheet.first_sent for sheet in sheets if sheet.first_sent < math.inf]
    return RunForecast(
        sites={site: _of_site(world, site) for site in world.sites},
        run_s=world.time.now,
        rounds_s=max(sheet.last_sent for sheet in sheets) - max(sent, default=0.0),
        error_bound=None if found is None else float(found.result.certificate.error_bound),
        components=None if found is None else found.result.components,
        work=world.work.work,
        links={way: (links.messages[way], links.bytes[way], links.resent[way]) for way in links.latency_s},
        lost_sites=Membership(next(iter(members), world.sites[0]), world.sites, world.edges, lost).missing,
        lost_links=lost,
        unmet=tuple(fault for fault in world.conditions.faults if fault.at_s > world.time.now),
    )


def _of_site(world: World, site: str) -> SiteForecast:
    sheet = world.sheets[site]
    return SiteForecast(
        *_end(world, site),
        sheet.ended_at if site in world.ends else world.time.now,
        sheet.rounds,
        world.starts[site],
        sheet.computes_s,
        dict(sorted(sheet.waits_s.items(), key=lambda item: -item[1])),
    )


def _end(world: World, site: str) -> tuple[str, str]:
    """How a site has ended, and why."""
    results = [found[site] for found in world.results.values() if site in found]
    if world.ends.get(site) == "result" and results:
        return ("converged" if results[-1].result.converged else "not converged"), ""
    if site not in world.ends:
        return "running", f"after {LONGEST_S / 86400:g} days"
    if world.ends[site] == "killed":
        return "killed", ""
    error = world.sheets[site].error
    return ("parked" if isinstance(error, ParkedError) else "ended"), str(error)
