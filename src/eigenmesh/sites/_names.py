"""Names and addresses of sites."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import networkx as nx

from eigenmesh.errors import GraphError, InputError
from eigenmesh.graphs import from_networkx, require_connected

# "ca" is the folder of the certificate authority, next to the folders of the sites.
RESERVED = ("ca",)
_NAME = re.compile(r"[a-z]([a-z0-9-]{0,61}[a-z0-9])?")
_RUN = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,63}")


def require_name(name: str) -> None:
    """Raise unless the name of a site is valid in an X.509 certificate and as a folder."""
    if not _NAME.fullmatch(name):
        rule = "use 1 to 63 lower-case letters, digits and hyphens, starting with a letter, not ending with a hyphen."
        raise InputError(f"{name!r} is not a valid site name; {rule}")
    if name in RESERVED:
        raise InputError(f"{name!r} is reserved for the folder of the certificate authority; choose another name.")


def require_run(run: str) -> None:
    if not _RUN.fullmatch(run):
        rule = "use 1 to 64 letters, digits, dots, hyphens and underscores, starting with a letter or digit."
        raise InputError(f"{run!r} is not a valid run name; {rule}")


@dataclass(frozen=True)
class Address:
    """Host and port of a site."""

    host: str
    port: int

    @classmethod
    def parse(cls, text: str) -> Address:
        """``host:port``; an IPv6 address is in brackets, ``[::1]:7400``."""
        found = re.fullmatch(r"(?:\[([0-9A-Fa-f:.%]+)\]|([A-Za-z0-9._-]+)):(\d{1,5})", text)
        if not found or not 1 <= int(found.group(3)) <= 65535:
            raise InputError(f"{text!r} is not an address; write host:port with a port from 1 to 65535.")
        return cls(found.group(1) or found.group(2), int(found.group(3)))

    def __str__(self) -> str:
        host = f"[{self.host}]" if ":" in self.host else self.host
        return f"{host}:{self.port}"


def site_graph(sites: Sequence[str], edges: Iterable[tuple[str, str]]) -> nx.Graph:
    """The graph on 0 .. M - 1 in the order of ``sites``; it must be connected."""
    graph = nx.Graph()
    graph.add_nodes_from(sites)
    for first, second in edges:
        for name in (first, second):
            if name not in graph:
                raise GraphError(f"the link {first} - {second} names {name!r}, which is not a site; add or correct it.")
        if first == second:
            raise GraphError(f"the link {first} - {second} joins a site to itself; remove it.")
        if graph.has_edge(first, second):
            raise GraphError(f"the link {first} - {second} is given twice; remove one.")
        graph.add_edge(first, second)
    numbered = from_networkx(graph)
    require_connected(numbered)
    return numbered


def in_order(sites: Sequence[str], edges: Iterable[tuple[str, str]]) -> tuple[tuple[str, str], ...]:
    """Links sorted by the order of ``sites``; the two ends of each link are sorted in the same way."""
    place = {name: number for number, name in enumerate(sites)}
    pairs = [sorted(edge, key=place.__getitem__) for edge in edges]
    return tuple((a, b) for a, b in sorted(pairs, key=lambda pair: (place[pair[0]], place[pair[1]])))
