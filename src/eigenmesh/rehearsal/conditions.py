"""The conditions under which a run is rehearsed: links, hosts, outages and kills, read from a short TOML file."""

from __future__ import annotations

import math
import os
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, replace
from importlib.resources import files
from operator import attrgetter
from pathlib import Path
from random import Random
from typing import Any, NamedTuple, TypeVar

from eigenmesh.errors import InputError
from eigenmesh.events import LinkLatency
from eigenmesh.settings import between, named
from eigenmesh.sites.fields import Fields, at_least
from eigenmesh.sites.site import in_order

Edges = tuple[tuple[str, str], ...]
WHAT = "a file of conditions (eigenmesh site rehearse --example prints one)"
MOST = 1e9
FROM_0, ABOVE_0 = at_least(0, MOST), between(0, MOST)
# Of the numbers of links and hosts, those that may not be 0 or that have a bound of their own.
ALLOWED = {"bandwidth_mbit": ABOVE_0, "loss": at_least(0, 1), "slowdown": ABOVE_0, "spread": at_least(0, 10)}

# What ``eigenmesh site rehearse --example`` prints.
EXAMPLE = files("eigenmesh.rehearsal").joinpath("static", "conditions.toml").read_text(encoding="utf-8")


class Fault(NamedTuple):
    """A fault at time ``at_s``, for ``for_s``: at a site, or on the link from it to ``other``.

    Conditions have three kinds: the "stall" of a link, the "crash" of a site, and the "kill" of one that never comes
    back.
    """

    kind: str
    at_s: float
    site: str
    other: str = ""
    for_s: float = 0.0


@dataclass(frozen=True)
class LinkQuality:
    """A link in one direction: latency, jitter and overhead per message, bandwidth, and the share of lost packets.

    The overhead is that of TLS, journal and audit at both ends; docs/benchmarks.md explains how it was measured.
    """

    latency_ms: float = 20.0
    jitter_ms: float = 0.0
    bandwidth_mbit: float = 100.0
    loss: float = 0.0
    overhead_ms: float = 4.0


@dataclass(frozen=True)
class Host:
    """The computer of a site: its times in ms, or how many times slower than this computer it is.

    The time of each piece of work is multiplied by a log-normal number, ``exp(spread * normal)``.
    """

    slowdown: float = 1.0
    product_ms: float | None = None
    set_up_ms: float = 0.0
    disk_ms: float = 5.0
    spread: float = 0.0


Kind = TypeVar("Kind", LinkQuality, Host)


def drawn_factor(host: Host, random: Random) -> float:
    """A random factor for the time of the next piece of work."""
    return math.exp(host.spread * random.gauss(0.0, 1.0)) if host.spread else 1.0


@dataclass(frozen=True)
class Conditions:
    """Links by their two sites in the order of the network, hosts by name, and faults with their times."""

    links: Mapping[tuple[str, str], LinkQuality]
    hosts: Mapping[str, Host]
    faults: tuple[Fault, ...] = ()
    restart_parked_s: float | None = None

    @classmethod
    def usual(cls, sites: Iterable[str], edges: Edges) -> Conditions:
        """The defaults for all links and hosts, without faults."""
        return cls(dict.fromkeys(edges, LinkQuality()), dict.fromkeys(sites, Host()))

    @property
    def latencies(self) -> list[LinkLatency]:
        """The round trip time of each link, as events."""
        return [LinkLatency(*ends, 2e-3 * link.latency_ms) for ends, link in self.links.items()]


def read_conditions(path: str | os.PathLike[str], sites: tuple[str, ...], edges: Edges) -> Conditions:
    """Read and check the conditions of a network; every error names the line or the field, and the fix."""
    fields = Fields.read(Path(path), WHAT)
    fields.require_known(["restart_parked_s", "links", "link", "sites", "site", "outage", "kill"])
    parked = fields.value("restart_parked_s", FROM_0, default=None)
    names = _NamesInNetwork(sites, edges)
    faults = [*_outages(fields, names), *_kills(fields, names)]
    link, links = _each(fields, "links", "link", "between", names.link, LinkQuality())
    host, hosts = _each(fields, "sites", "site", "name", names.site, Host())
    return Conditions(
        {edge: links.get(edge, link) for edge in edges},
        {site: hosts.get(site, host) for site in sites},
        tuple(sorted(faults, key=attrgetter("at_s"))),
        parked,
    )


@dataclass(frozen=True)
class _NamesInNetwork:
    """The names that a file may use: the sites and links of the network."""

    sites: tuple[str, ...]
    edges: Edges

    def site(self, table: Fields, key: str) -> str:
        return str(table.value(key, named("site", self.sites)))

    def link(self, table: Fields, key: str) -> tuple[str, str]:
        ends = table.texts(key)
        known = set(ends) <= set(self.sites) and len(set(ends)) == 2
        link = in_order(self.sites, [(ends[0], ends[1])])[0] if known else None
        if link not in self.edges or link is None:
            links = ", ".join(f"{first} - {second}" for first, second in self.edges)
            raise table.wrong(key, f"is not a link of the network; its links are: {links}.")
        return link


def _each(
    fields: Fields, general: str, one: str, key: str, name_of: Callable[[Fields, str], Any], usual: Kind
) -> tuple[Kind, dict[Any, Kind]]:
    """What the table ``general`` says of all links or sites, and the tables ``one`` of some of them, by name."""
    known: list[str] = sorted(vars(usual))
    fields.table(general).require_known(known)
    for_all = _changed(usual, fields.table(general))
    found: dict[Any, Kind] = {}
    for table in fields.tables(one):
        table.require_known([key, *known])
        name = name_of(table, key)
        if name in found:
            raise table.wrong(key, f"has a table already; write one per {one}.")
        found[name] = _changed(for_all, table)
    return for_all, found


def _changed(usual: Kind, table: Fields) -> Kind:
    """A link or a host with the values that a table gives."""
    if "slowdown" in table and "product_ms" in table:
        raise table.wrong("slowdown", "has no effect together with product_ms; keep one of them.")
    if "set_up_ms" in table and "product_ms" not in table:
        raise table.wrong("set_up_ms", "needs product_ms as well; add it, or give slowdown instead.")
    given = {name: table.value(name, ALLOWED.get(name, FROM_0)) for name in vars(usual) if name in table}
    # A time of products replaces a slowdown, and the other way round.
    instead: dict[str, Any] = {"slowdown": {"product_ms": None}, "product_ms": {"set_up_ms": 0.0}}
    implied = {name: value for cause in instead.keys() & given.keys() for name, value in instead[cause].items()}
    return replace(usual, **{**implied, **given})


def _outages(fields: Fields, names: _NamesInNetwork) -> Iterable[Fault]:
    for table in fields.tables("outage"):
        table.require_known(["link", "site", "at_s", "for_s"])
        if ("link" in table) == ("site" in table):
            raise InputError(f"{table.line('')}: an outage needs either link or site; give exactly one of them.")
        at_s, for_s = table.value("at_s", FROM_0), table.value("for_s", ABOVE_0)
        if "link" in table:
            links = [names.link(table, "link")]
        else:
            site = names.site(table, "site")
            links = [link for link in names.edges if site in link]
        yield from (Fault("stall", at_s, *link, for_s) for link in links)


def _kills(fields: Fields, names: _NamesInNetwork) -> Iterable[Fault]:
    for table in fields.tables("kill"):
        table.require_known(["site", "at_s", "restart_after_s"])
        site, at_s = names.site(table, "site"), table.value("at_s", FROM_0)
        if "restart_after_s" in table:
            yield Fault("crash", at_s, site, "", table.value("restart_after_s", FROM_0))
        else:
            yield Fault("kill", at_s, site)
