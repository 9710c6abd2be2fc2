"""The network file that ``eigenmesh site init`` reads, and the ``site.toml`` that it writes for each site."""

import json
import os
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from eigenmesh import graphs
from eigenmesh.errors import InputError
from eigenmesh.graphs._topologies import TWO_WAY
from eigenmesh.sites._fingerprints import TABLE as FINGERPRINTS
from eigenmesh.sites._fingerprints import read_fingerprints, section
from eigenmesh.sites._names import Address, in_order, require_name, require_run, site_graph
from eigenmesh.sites._schedule import Schedule
from eigenmesh.sites._settings import RunSettings
from eigenmesh.sites._site import AUTHORITY_FILE, CERTIFICATE_FILE, INCOMING, KEY_FILE
from eigenmesh.sites._toml_fields import Fields

WHAT = "a network file (eigenmesh site init --example prints one)"
LOOPBACK = ("127.0.0.1", "localhost", "::1")

EXAMPLE = """\
# `eigenmesh site init network.toml --out mesh` makes keys, certificates and settings for this network.
run = "cohort-1"                  # name of the run; use a new name for a new run

# Links between sites: pairs of names, or a topology such as "cycle", "complete" or "grid".
edges = [["oslo", "bergen"], ["bergen", "trondheim"], ["trondheim", "oslo"]]
# topology = "cycle"

[[site]]
name = "oslo"                     # the name in the certificate
address = "pca.oslo.example:7400" # where the others reach it

[[site]]
name = "bergen"
address = "pca.bergen.example:7400"
# listen = "10.0.0.7:7400"        # where it listens; by default on this port of all its interfaces

[[site]]
name = "trondheim"                # no address: it calls its neighbours, and they never call it

[settings]                        # the same at all sites
n_components = 5
partition = "samples"             # "features": each site has its own columns of the same samples, in the same order
solver = "block-krylov"
tol = 1e-6
max_rounds = 5000
scale = false                     # true: divide each column by its pooled standard deviation
missing = "error"                 # "mean": replace missing entries by the pooled mean
patience_s = 300                  # how long to wait for a silent neighbour
join_s = 3600                     # how long to wait for a neighbour to start
round_s = 3600                    # how long a neighbour may be alive and send no numbers
on_loss = "wait"                  # then: "wait" parks the run, "abort" ends it, "continue" finishes without it
privacy = "masked"                # nobody sees a site's numbers, only sums over all; "open": neighbours see them
min_samples = 0                   # at all sites together; with fewer, the run ends before anything else is sent
min_samples_per_site = 0
# every_s, batch_rows and min_new_samples are for `eigenmesh site run --follow`
"""


@dataclass(frozen=True)
class NetworkSite:
    """One site of a network file; without an address its neighbours cannot call it.

    ``joins`` and ``leaves`` are batches of a followed run; ``heir`` is the site that counts its samples afterwards.
    """

    name: str
    address: Address | None
    listen: Address | None
    joins: int = 0
    leaves: int | None = None
    heir: str | None = None


@dataclass(frozen=True)
class NetworkFile:
    """A network: its sites in order, the links between them, the settings for all, and fingerprints of known keys."""

    path: Path
    run: str
    sites: tuple[NetworkSite, ...]
    edges: tuple[tuple[str, str], ...]
    settings: RunSettings
    fingerprints: Mapping[str, str] = field(default_factory=dict)

    @property
    def names(self) -> tuple[str, ...]:
        return tuple(site.name for site in self.sites)

    def site(self, name: str) -> NetworkSite:
        return self.sites[self.names.index(name)]

    @property
    def schedule(self) -> Schedule:
        return Schedule(
            {site.name: site.joins for site in self.sites if site.joins},
            {site.name: site.leaves for site in self.sites if site.leaves is not None},
            {site.name: site.heir for site in self.sites if site.heir is not None},
        )

    def neighbours(self, name: str) -> dict[str, Address | None]:
        """Neighbours of a site, each with the address to call; None for a neighbour that calls this site.

        Of two linked sites, the first in the file calls, unless the other has no address.
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
    """Read and check a network file; every error names the line or the field, and the fix."""
    fields = Fields.read(Path(path), WHAT)
    fields.require_known(["run", "edges", "topology", "site", "settings", FINGERPRINTS])
    run = fields.text("run", "run-1")
    fields.checked("run", require_run, run)
    sites = _sites(fields)
    table = fields.table("settings")
    settings = RunSettings.from_fields(table)
    settings.require_hidden(len(sites), table)
    edges = _edges(fields, tuple(site.name for site in sites), settings.asked.seed or 0)
    pins = read_fingerprints(fields, tuple(site.name for site in sites))
    network = NetworkFile(fields.path, run, sites, edges, settings, pins)
    fields.checked("site", network.schedule.require_usable, network.names, edges)
    for first, second in edges:
        if not network.site(first).address and not network.site(second).address:
            raise InputError(f"{fields.path}: {first} and {second} are linked, but neither has an address; add one.")
    return network


def _sites(fields: Fields) -> tuple[NetworkSite, ...]:
    tables = fields.tables("site")
    if not tables:
        raise InputError(f"{fields.path} has no sites; add a table [[site]] with name and address for each site.")
    found: dict[str, NetworkSite] = {}
    for table in tables:
        table.require_known(["name", "address", "listen", "joins", "leaves", "heir"])
        name = table.text("name")
        table.checked("name", require_name, name)
        if name in found:
            raise table.wrong("name", "is used by another site; names must be unique.")
        address, listen = _address(table, "address"), _address(table, "listen")
        if address is None and listen is not None:
            raise table.error("listen", "is given without address; add the address at which others reach the site.")
        if address is not None and listen is None:
            # The same port on all interfaces; a loopback address stays one.
            everywhere = Address("::" if ":" in address.host else "0.0.0.0", address.port)
            listen = address if address.host in LOOPBACK else everywhere
        leaves = table.whole("leaves", 1) if "leaves" in table else None
        heir = table.text("heir") if "heir" in table else None
        found[name] = NetworkSite(name, address, listen, table.whole("joins", 0, 0), leaves, heir)
    return tuple(found.values())


def _address(table: Fields, key: str) -> Address | None:
    return table.checked(key, Address.parse, table.text(key)) if key in table else None


def _edges(fields: Fields, names: tuple[str, ...], seed: int) -> tuple[tuple[str, str], ...]:
    if ("edges" in fields) == ("topology" in fields):
        raise InputError(f"{fields.path} must have edges or topology; give exactly one of them.")
    if "edges" in fields:
        edges = fields.pairs("edges")
        fields.checked("edges", site_graph, names, edges)
        return in_order(names, edges)
    name = fields.text("topology", choices=tuple(TWO_WAY))
    graph = fields.checked("topology", graphs.topology, name, len(names), seed=seed)
    return in_order(names, [(names[a], names[b]) for a, b in graph.edges])


def site_toml(network: NetworkFile, name: str, fingerprints: Mapping[str, str] | None = None) -> str:
    """The ``site.toml`` of one site: the graph, the addresses that it calls, the settings and the fingerprints."""
    listen, neighbours = network.site(name).listen, network.neighbours(name)
    lines = [
        f"# {name}: settings of this site for `eigenmesh site run site.toml`. Paths are relative to this file.",
        f"name = {_value(name)}",
        f"run = {_value(network.run)}",
        "",
        "# The whole network by names; the same at all sites.",
        f"sites = {_value(list(network.names))}",
        f"edges = {_value([list(edge) for edge in network.edges])}",
        "",
    ]
    if listen is not None and None in neighbours.values():
        lines += ["# Where neighbours call this site.", f"listen = {_value(str(listen))}", ""]
    lines += ["# metrics_port = 9400            # Prometheus metrics, on 127.0.0.1 only"]
    if network.settings.masked and network.settings.on_loss == "continue":
        lines += ["# The others may continue without a lost site. They then learn more about it: its own numbers."]
        lines += ["agrees_to_continue = false       # the run begins once all sites set true"]
    lines += [""]
    lines += ["[neighbours]                     # an address to call, or incoming for one that calls this site"]
    lines += [f"{other} = {_value(str(address or INCOMING))}" for other, address in neighbours.items()]
    lines += ["", "[tls]", f'certificate = "{CERTIFICATE_FILE}"', f'key = "{KEY_FILE}"', f'ca = "{AUTHORITY_FILE}"', ""]
    lines += [
        "[data]",
        'file = "data.csv"                # any file that eigenmesh fit reads; it is never sent',
        '# columns = ["age", "bmi"]       # use these, in this order; the same at all sites',
        '# drop = ["address"]             # or leave these out',
        '# id_column = "patient"          # names the samples in scores; not a feature',
        '# label_column = "diagnosis"     # another column that is not a feature',
        '# weight_column = "count"        # how many samples a row stands for; not a feature',
        '# categories.sex = ["f", "m"]    # one column of 0 and 1 per level; the same levels at all sites',
        '# header = "yes"                 # the first line has names, even if all are numbers, as years are; or "no"',
        '# delimiter = ";"                # delimiter and decimal are detected if left out',
        '# decimal = ","',
        '# feature_names = ["age", "bmi"] # what the columns must be called, in this order',
        "",
        "[out]",
        'folder = "out"                   # result, audit, status and journal',
        'scores = "scores.csv"            # scores of this site\'s own samples, which stay here; or .npz, .npy',
        "",
        "[settings]                       # the same at all sites",
    ]
    # TOML cannot express None. Where None is allowed it is the default, so it can be left out.
    lines += [f"{key} = {_value(value)}" for key, value in network.settings.words.items() if value is not None]
    if parameters := network.settings.solver_parameters:
        lines += ["", "[settings.solver_parameters]"]
        lines += [f"{key} = {_value(value)}" for key, value in parameters.items()]
    lines += network.schedule.lines()
    if pins := fingerprints or network.fingerprints:
        lines += ["", *section(pins)]
    return "\n".join(lines) + "\n"


def _value(value: Any) -> str:
    """A value in TOML: numbers, strings and lists look the same as in JSON."""
    return json.dumps(value, ensure_ascii=False)
