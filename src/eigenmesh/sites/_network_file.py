"""The description of a network that ``eigenmesh init`` reads: sites, links and what the run shall do."""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path

from eigenmesh import graphs
from eigenmesh.errors import InputError
from eigenmesh.sites._names import Address, in_order, require_name, require_run, site_graph
from eigenmesh.sites._settings import RunSettings
from eigenmesh.sites._toml_fields import Fields

WHAT = "the description of a network (eigenmesh init --example prints one)"
DEFAULT_RUN = "run-1"
LOOPBACK = ("127.0.0.1", "localhost", "::1")

EXAMPLE = """\
# The network that `eigenmesh init network.toml --out mesh` makes keys, certificates and settings for.
run = "cohort-1"                  # a name for the run; a new run takes a new name

# Who is linked to whom: pairs of names, or a topology such as "cycle", "complete" or "grid".
edges = [["oslo", "bergen"], ["bergen", "trondheim"], ["trondheim", "oslo"]]
# topology = "cycle"

[[site]]
name = "oslo"                     # the name in the certificate
address = "pca.oslo.example:7400" # where the others reach it

[[site]]
name = "bergen"
address = "pca.bergen.example:7400"
# listen = "10.0.0.7:7400"        # where it listens, if not on this port of all its interfaces

[[site]]
name = "trondheim"                # without an address: it calls its neighbours, nobody calls it

[settings]                        # the same at all sites
n_components = 5
solver = "block-krylov"
averaging = "tree"                # or "polynomial"; see the page on the threat model for who sees what
tol = 1e-6
max_rounds = 5000
scale = false                     # true: divide each column by its pooled standard deviation
missing = "error"                 # "mean": put the pooled mean where an entry is missing
seed = 0
dtype = "float64"
patience_s = 300                  # how long a silent neighbour is waited for
join_s = 3600                     # how long a neighbour is waited for that has not started yet
on_loss = "wait"                  # then: "wait" parks the run, "abort" ends it, "continue" goes on without it
"""


@dataclass(frozen=True)
class NetworkSite:
    """One site of the description; without an address nobody can call it."""

    name: str
    address: Address | None
    listen: Address | None


@dataclass(frozen=True)
class NetworkFile:
    """A network as described: sites in order, links between them, settings for all."""

    path: Path
    run: str
    sites: tuple[NetworkSite, ...]
    edges: tuple[tuple[str, str], ...]
    settings: RunSettings

    @property
    def names(self) -> tuple[str, ...]:
        """Names of the sites, in order."""
        return tuple(site.name for site in self.sites)

    def site(self, name: str) -> NetworkSite:
        """The site of that name."""
        return self.sites[self.names.index(name)]

    def neighbours(self, name: str) -> dict[str, Address | None]:
        """Neighbours of a site, each with the address to call it at; None for one that calls in.

        Of two linked sites the one that comes first calls, unless the other cannot be called.
        """
        found: dict[str, Address | None] = {}
        for first, second in self.edges:
            if name not in (first, second):
                continue
            caller, called = (first, second) if self.site(second).address else (second, first)
            other = second if name == first else first
            found[other] = self.site(called).address if name == caller else None
        return found


def read_network_file(path: str | os.PathLike[str]) -> NetworkFile:
    """Read and check a description; every error names the line or the field, and the fix."""
    fields = Fields.read(Path(path), WHAT)
    fields.require_known(["run", "edges", "topology", "site", "settings"])
    run = fields.text("run", DEFAULT_RUN)
    fields.checked("run", require_run, run)
    sites = _sites(fields)
    settings = RunSettings.from_fields(fields.table("settings"))
    edges = _edges(fields, tuple(site.name for site in sites), settings.seed)
    described = NetworkFile(fields.path, run, sites, edges, settings)
    _require_reachable(described)
    return described


def _sites(fields: Fields) -> tuple[NetworkSite, ...]:
    tables = fields.tables("site")
    if not tables:
        raise InputError(f"{fields.path} has no sites; add a table [[site]] with a name and an address for each.")
    found: dict[str, NetworkSite] = {}
    for table in tables:
        table.require_known(["name", "address", "listen"])
        name = table.text("name")
        table.checked("name", require_name, name)
        if name in found:
            raise table.wrong("name", "is taken by another site; names must be unique.")
        address = _address(table, "address")
        listen = _address(table, "listen") or (None if address is None else _everywhere(address))
        if address is None and listen is not None:
            raise table.error("listen", "needs an address at which the others reach the site; add address.")
        found[name] = NetworkSite(name, address, listen)
    return tuple(found.values())


def _everywhere(address: Address) -> Address:
    """Where a site listens that can be called at this address."""
    if address.host in LOOPBACK:
        return address
    return Address("::" if ":" in address.host else "0.0.0.0", address.port)


def _address(table: Fields, key: str) -> Address | None:
    return table.checked(key, Address.parse, table.text(key)) if key in table else None


def _edges(fields: Fields, names: tuple[str, ...], seed: int) -> tuple[tuple[str, str], ...]:
    if ("edges" in fields) == ("topology" in fields):
        raise InputError(f"{fields.path} must have either edges or topology; give one of them.")
    if "edges" in fields:
        edges = fields.pairs("edges")
        fields.checked("edges", site_graph, names, edges)
        return in_order(names, edges)
    name = fields.text("topology", choices=tuple(graphs.TOPOLOGIES))
    graph = fields.checked("topology", graphs.topology, name, len(names), seed=seed)
    return in_order(names, [(names[a], names[b]) for a, b in graph.edges])


def _require_reachable(described: NetworkFile) -> None:
    for first, second in described.edges:
        if not described.site(first).address and not described.site(second).address:
            raise InputError(
                f"{described.path}: {first} and {second} are linked, but neither has an address; give one to either."
            )
