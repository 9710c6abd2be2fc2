"""Which sites continue when some are lost: all remaining sites reach the same view, without a server."""

import hashlib
import json
from collections.abc import Iterable
from typing import Any

import networkx as nx

from eigenmesh.errors import InputError, TransportError

Link = tuple[str, str]


class Membership:
    """One site's view of the lost links, and what it knows about the views of others.

    A view is a set of lost links; a dead site has lost all of its links. Views only grow, and sites that are connected
    merge theirs, so they all reach the same one. A *member* is a site that the remaining links connect to this one. The
    view is *agreed* once every member is known to have it. Every round needs every member, so a view that grows later
    stops the run and is agreed on again: an error here costs time but never gives a wrong result.

    ``name`` is this site, ``sites`` and ``edges`` the graph at the start, ``lost`` the links that were lost before.
    """

    def __init__(self, name: str, sites: Iterable[str], edges: Iterable[Link], lost: Iterable[Link] = ()) -> None:
        self.name, self.sites, self.edges = name, tuple(sites), tuple(_ordered(edge) for edge in edges)
        self._lost: set[Link] = set()
        self._reports: dict[str, tuple[int, str]] = {}
        self.lose(lost)

    def lose(self, links: Iterable[Link]) -> bool:
        """Add lost links; True if any is new."""
        new = {_ordered(link) for link in links} - self._lost
        unknown = new - set(self.edges)
        if unknown:
            raise InputError(f"{sorted(unknown)} are not links of this network.")
        self._lost |= new
        self._reports[self.name] = (len(self._lost), self.digest)
        return bool(new)

    def merge(self, text: str) -> bool:
        """Merge a view that another site has sent, after a check of every field; True if that changed anything."""
        try:
            content: Any = json.loads(text)
            lost = {_ordered((str(a), str(b))) for a, b in content["lost"]}
            reports = {str(site): (int(n), str(digest)[:32]) for site, (n, digest) in content["reports"].items()}
            if not lost <= set(self.edges) or any(not 0 <= n <= len(self.edges) for n, _ in reports.values()):
                raise ValueError("it has links that are not in this network")
            if not reports.keys() <= set(self.sites):
                raise ValueError("it has sites that are not in this network")
        except (ValueError, KeyError, TypeError, AttributeError, RecursionError, OverflowError) as error:
            raise TransportError(f"a neighbour's view of the network cannot be read: {error!r}") from error
        changed = self.lose(lost)
        for site, report in reports.items():
            if site != self.name and report > self._reports.get(site, (-1, "")):
                self._reports[site] = report
                changed = True
        return changed

    def to_json(self) -> str:
        return json.dumps({"lost": sorted(self._lost), "reports": {k: list(v) for k, v in self._reports.items()}})

    @property
    def lost(self) -> tuple[Link, ...]:
        """Lost links, sorted."""
        return tuple(sorted(self._lost))

    @property
    def epoch(self) -> int:
        """Number of lost links; it grows whenever the view does."""
        return len(self._lost)

    @property
    def digest(self) -> str:
        return hashlib.sha256(json.dumps(self.lost).encode()).hexdigest()[:32]

    @property
    def members(self) -> tuple[str, ...]:
        """Sites that the remaining links connect to this one, including itself, in the order of the network."""
        graph = nx.Graph()
        graph.add_nodes_from(self.sites)
        graph.add_edges_from(self.links)
        connected = nx.node_connected_component(graph, self.name)
        return tuple(site for site in self.sites if site in connected)

    @property
    def links(self) -> tuple[Link, ...]:
        """Remaining links, in the order of the network."""
        return tuple(edge for edge in self.edges if edge not in self._lost)

    def has_link(self, neighbour: str) -> bool:
        return _ordered((self.name, neighbour)) in self.links

    @property
    def agreed(self) -> bool:
        """Whether every member is known to have this view."""
        mine = self._reports[self.name]
        return all(self._reports.get(site) == mine for site in self.members)

    @property
    def missing(self) -> tuple[str, ...]:
        """Sites that are no longer members."""
        members = self.members
        return tuple(site for site in self.sites if site not in members)

    def require_majority(self) -> None:
        """Raise unless more than half of all sites are members: if the network splits, at most one part continues."""
        members = self.members
        if 2 * len(members) <= len(self.sites):
            raise TransportError(
                f"only {len(members)} of {len(self.sites)} sites can still reach each other ({', '.join(members)}); "
                "there is no majority, so there is no result here. Start the run again unless the others continue."
            )


def _ordered(link: Iterable[str]) -> Link:
    first, second = sorted(link)
    return first, second
