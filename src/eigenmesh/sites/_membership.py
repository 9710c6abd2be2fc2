"""Which sites go on when some are lost: every survivor comes to the same view, without a server."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable
from typing import Any

import networkx as nx

from eigenmesh.errors import InputError, TransportError

Link = tuple[str, str]


class Membership:
    """One site's view of the links that are lost, and what it has heard of the views of others.

    A view is a set of lost links; a site that died has lost all of its own. Views only grow, and sites that can still
    talk join theirs, so all who are connected come to the same one. It is *agreed* once every member, that is every
    site that the links left over join to this one, is known to have it. A run after that takes part of every member
    in every round, so a view that grows even then stops the run and is agreed on anew: what is wrong here costs time
    and never an answer.

    Parameters
    ----------
    name : this site.
    sites, edges : the graph that the run began with.
    lost : links that were lost before.
    """

    def __init__(self, name: str, sites: Iterable[str], edges: Iterable[Link], lost: Iterable[Link] = ()) -> None:
        self.name, self.sites, self.edges = name, tuple(sites), tuple(_ordered(edge) for edge in edges)
        self._lost: set[Link] = set()
        self._reports: dict[str, tuple[int, str]] = {}
        self.lose(lost)

    def lose(self, links: Iterable[Link]) -> bool:
        """Take links for lost; True if any is news."""
        news = {_ordered(link) for link in links} - self._lost
        unknown = news - set(self.edges)
        if unknown:
            raise InputError(f"{sorted(unknown)} are no links of this network.")
        self._lost |= news
        self._reports[self.name] = (len(self._lost), self.digest)
        return bool(news)

    def hear(self, text: str) -> bool:
        """Join a view that another site has sent; True if it changed anything."""
        lost, reports = _parsed(text, self.sites, self.edges)
        changed = self.lose(lost)
        for site, report in reports.items():
            if site != self.name and report > self._reports.get(site, (-1, "")):
                self._reports[site] = report
                changed = True
        return changed

    def text(self) -> str:
        """This site's view and what it knows of those of others, to send to its neighbours."""
        return json.dumps({"lost": sorted(self._lost), "reports": {k: list(v) for k, v in self._reports.items()}})

    @property
    def lost(self) -> tuple[Link, ...]:
        """Lost links, sorted."""
        return tuple(sorted(self._lost))

    @property
    def epoch(self) -> int:
        """Number of the view: how many links are lost. It grows whenever the view does."""
        return len(self._lost)

    @property
    def digest(self) -> str:
        """What the view is recognised by."""
        return hashlib.sha256(json.dumps(self.lost).encode()).hexdigest()[:32]

    @property
    def members(self) -> tuple[str, ...]:
        """Sites that the links left over join to this one, itself too, in the order of the network."""
        graph = nx.Graph()
        graph.add_nodes_from(self.sites)
        graph.add_edges_from(self.links)
        joined = nx.node_connected_component(graph, self.name)
        return tuple(site for site in self.sites if site in joined)

    @property
    def links(self) -> tuple[Link, ...]:
        """Links that are left, in the order of the network."""
        return tuple(edge for edge in self.edges if edge not in self._lost)

    def has_link(self, neighbour: str) -> bool:
        """Whether the link to a neighbour is left."""
        return _ordered((self.name, neighbour)) in self.links

    @property
    def agreed(self) -> bool:
        """Whether every member is known to have this view."""
        mine = self._reports[self.name]
        return all(self._reports.get(site) == mine for site in self.members)

    @property
    def missing(self) -> tuple[str, ...]:
        """Sites that are not members any more."""
        members = self.members
        return tuple(site for site in self.sites if site not in members)

    def require_majority(self) -> None:
        """Raise unless more than half of all sites are members: of a network in two parts at most one goes on."""
        members = self.members
        if 2 * len(members) <= len(self.sites):
            raise TransportError(
                f"only {len(members)} of {len(self.sites)} sites can still reach each other ({', '.join(members)}); "
                f"without {', '.join(self.missing)} there is no majority, so no result is given here; a majority that "
                "is elsewhere has gone on without this site. If there is none, start the run anew when all are back."
            )


def _ordered(link: Iterable[str]) -> Link:
    first, second = sorted(link)
    return first, second


def _parsed(
    text: str, sites: tuple[str, ...], edges: tuple[Link, ...]
) -> tuple[list[Link], dict[str, tuple[int, str]]]:
    """A view as another site sent it, with every field checked."""
    try:
        content: Any = json.loads(text)
        lost = [_ordered((_site(a, sites), _site(b, sites))) for a, b in content["lost"]]
        reports = {_site(k, sites): (int(n), str(digest)[:32]) for k, (n, digest) in content["reports"].items()}
        if not set(lost) <= set(edges) or any(not 0 <= n <= len(edges) for n, _ in reports.values()):
            raise ValueError("it has links that this network does not have")
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError, OverflowError) as error:
        raise TransportError(f"a neighbour's view of the network cannot be read: {error!r}") from error
    return lost, reports


def _site(name: Any, sites: tuple[str, ...]) -> str:
    if name not in sites:
        raise ValueError(f"{name!r} is no site of this network")
    return str(name)
