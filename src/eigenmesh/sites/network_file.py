"""The network file that ``eigenmesh site init`` reads, and what it writes for each site and relay."""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, fields
from functools import cached_property
from importlib.resources import files
from pathlib import Path
from string import Template
from typing import Any

from eigenmesh import __version__, graphs
from eigenmesh.errors import InputError
from eigenmesh.fitting import listed, matching
from eigenmesh.graphs.topologies import TWO_WAY
from eigenmesh.masking import mask_rule
from eigenmesh.protocol import wire
from eigenmesh.settings import AT_SITES, named
from eigenmesh.sites.addresses import LOOPBACK
from eigenmesh.sites.fields import Fields, toml, toml_table
from eigenmesh.sites.site import (
    FINGERPRINTS,
    INCOMING,
    RUN_NAME,
    SCHEDULE,
    Address,
    RelayedLinks,
    RunSettings,
    Schedule,
    Site,
    fingerprints_table,
    in_order,
    read_fingerprints,
    read_relays,
    read_schedule,
    require_name,
    require_network,
)
from eigenmesh.words import canonical

WHAT = "a network file (eigenmesh site init --example prints one)"

STATIC = files("eigenmesh.sites").joinpath("static")
# What ``eigenmesh site init --example`` prints, and what the site.toml of each site is made from.
EXAMPLE = STATIC.joinpath("network.toml").read_text(encoding="utf-8")
TEMPLATE = STATIC.joinpath("site.toml").read_text(encoding="utf-8").removesuffix("\n")
RELAY_TEMPLATE = STATIC.joinpath("relay.toml").read_text(encoding="utf-8").removesuffix("\n")
CONSENT = """\
# The others may continue without a lost site. They then learn more about it: its own numbers.
agrees_to_continue = false       # the run begins once all sites set true
"""


@dataclass(frozen=True)
class NetworkSite:
    """One site of a network file. Without an address its neighbours cannot call it."""

    name: str
    address: Address | None
    listen: Address | None


@dataclass(frozen=True)
class NetworkFile:
    """A network of sites.

    Attributes
    ----------
    path : Path
        The file that describes it.
    run : str
        Name of the run.
    sites : tuple of NetworkSite
        The sites, in order.
    edges : tuple of pairs of str
        The links between them, by names.
    settings : RunSettings
        The settings for all sites.
    fingerprints : mapping
        Those of the keys of all sites, or empty.
    schedule : Schedule
        The members of each batch of a followed run.
    relays : tuple of RelayedLinks
        The relays of links between sites that can only call out.
    """

    path: Path
    run: str
    sites: tuple[NetworkSite, ...]
    edges: tuple[tuple[str, str], ...]
    settings: RunSettings
    fingerprints: Mapping[str, str] = field(default_factory=dict)
    schedule: Schedule = field(default_factory=Schedule)
    relays: tuple[RelayedLinks, ...] = ()

    @property
    def names(self) -> tuple[str, ...]:
        return tuple(site.name for site in self.sites)

    @property
    def relay_names(self) -> tuple[str, ...]:
        return tuple(relay.name for relay in self.relays)

    def site(self, name: str) -> NetworkSite:
        return self.sites[self.names.index(name)]

    def neighbours(self, name: str) -> dict[str, Address | None]:
        """Neighbours of a site, each with the address to call. None for a neighbour that calls this site.

        Of two linked sites, the first in the file calls, unless the other has no address. Neighbours that meet this
        site at a relay are not among them.
        """
        found: dict[str, Address | None] = {}
        relayed = {link for relay in self.relays for link in relay.links}
        for first, second in self.edges:
            if name not in (first, second) or (first, second) in relayed:
                continue
            caller, called = (first, second) if self.site(second).address else (second, first)
            other = second if name == first else first
            found[other] = self.site(called).address if name == caller else None
        return found


def read_network_file(path: str | os.PathLike[str]) -> NetworkFile:
    """Read and check a network file.

    Parameters
    ----------
    path : path
        The file, such as ``eigenmesh site init --example`` prints it.

    Returns
    -------
    NetworkFile
        The network. What is wrong in the file is an error that names the line or the field, and the fix.
    """
    fields = Fields.read(Path(path), WHAT)
    fields.require_known(["run", "edges", "topology", "site", "relay", "settings", FINGERPRINTS, *SCHEDULE])
    run = fields.value("run", RUN_NAME, default="run-1")
    sites = _sites(fields)
    settings = RunSettings.from_fields(fields.table("settings"))
    names = tuple(site.name for site in sites)
    edges = _edges(fields, names, settings.asked.seed or 0)
    with_address = [site.name for site in sites if site.address]
    if with_address and not edges:
        raise InputError(f"{fields.path}: {with_address[0]} has an address, but there are no links; add edges.")
    pins, schedule = read_fingerprints(fields, names), read_schedule(fields, names, edges, settings)
    without = {site.name for site in sites if not site.address}
    unreached = tuple(edge for edge in edges if set(edge) <= without)
    relays = read_relays(fields, names, edges, unreached)
    for link in unreached:
        if not any(link in relay.links for relay in relays):
            fix = "add one, or a [[relay]] that both can call"
            raise InputError(f"{fields.path}: {' and '.join(link)} are linked, but neither has an address; {fix}.")
    return NetworkFile(fields.path, run, sites, edges, settings, pins, schedule, relays)


def _sites(fields: Fields) -> tuple[NetworkSite, ...]:
    tables = fields.tables("site")
    if not tables:
        raise InputError(f"{fields.path} has no sites; add a table [[site]] with name and address for each site.")
    found: dict[str, NetworkSite] = {}
    for table in tables:
        table.require_known(["name", "address", "listen"])
        name = table.text("name")
        table.checked("name", require_name, name)
        if name in found:
            raise table.wrong("name", "is used by another site; names must be unique.")
        address, listen = (table.parsed(key, Address.parse) for key in ("address", "listen"))
        if address is None and listen is not None:
            raise table.error("listen", "is given without address; add the address at which others reach the site.")
        if address is not None and listen is None:
            listen = everywhere(address)
        found[name] = NetworkSite(name, address, listen)
    return tuple(found.values())


def everywhere(address: Address) -> Address:
    """The same port on all interfaces of a computer; a loopback address stays one."""
    return address if address.host in LOOPBACK else Address("::" if ":" in address.host else "0.0.0.0", address.port)


def _edges(fields: Fields, names: tuple[str, ...], seed: int) -> tuple[tuple[str, str], ...]:
    if "edges" in fields and "topology" in fields:
        raise InputError(f"{fields.path} has edges and topology; give one of them, or none if sites exchange files.")
    if "edges" in fields:
        edges = fields.pairs("edges")
        fields.checked("edges", require_network, names, edges)
        return in_order(names, edges)
    if "topology" not in fields:
        return ()
    name = fields.value("topology", named("topology", TWO_WAY))
    graph = fields.checked("topology", graphs.topology, name, len(names), seed=seed)
    return in_order(names, [(names[a], names[b]) for a, b in graph.edges])


def relay_toml(network: NetworkFile, name: str, fingerprints: Mapping[str, str] | None = None) -> str:
    """The ``relay.toml`` of a relay: where it listens, the links that it carries, and the fingerprints of the sites."""
    relay = next(one for one in network.relays if one.name == name)
    return Template(RELAY_TEMPLATE).substitute(
        name=name,
        listen=relay.listen or everywhere(relay.address),
        sites=toml(network.names),
        links=toml(relay.links),
        fingerprints=fingerprints_table(fingerprints or network.fingerprints),
    )


def site_toml(network: NetworkFile, name: str, fingerprints: Mapping[str, str] | None = None) -> str:
    """The ``site.toml`` of one site: the graph, the addresses that it calls, the settings and the fingerprints."""
    listen, neighbours, settings = network.site(name).listen, network.neighbours(name), network.settings
    called = {other: str(address or INCOMING) for other, address in neighbours.items()}
    is_called = listen is not None and None in neighbours.values()
    must_agree = settings.masked and settings.on_loss == "continue"
    shared = [
        toml_table("settings", settings.words, "the same at all sites"),
        toml_table("settings.solver_parameters", settings.solver_parameters),
        toml_table("settings.exponents", settings.exponents, "range of a column: its values are within 2^e"),
        *network.schedule.lines(),
        *(relay.table for relay in network.relays),
        fingerprints_table(fingerprints or network.fingerprints),
    ]
    return Template(TEMPLATE).substitute(
        name=name,
        run=network.run,
        sites=toml(network.names),
        edges=toml(network.edges),
        listen=f'# Where neighbours call this site.\nlisten = "{listen}"\n\n' if is_called else "",
        consent=CONSENT if must_agree else "",
        neighbours=toml_table("neighbours", called, "an address to call, or incoming for one that calls this site"),
        shared="\n".join(filter(None, shared)),
    )


# The manifest: everything that all sites of a run must agree on before it starts, as one text.
#
# It contains no path and no address, and the number of samples only where all sites have the same samples.


PROTOCOL = 3
# Versions that compute the same, bit by bit: 0.1.2 and 0.1.7, or 1.2 and 1.7. So they may be mixed.
SERIES = ".".join(__version__.split(".")[: 2 if __version__.startswith("0.") else 1])
# Settings that all sites must have in common, but that are not in the request for a fit. With ``min_new_samples`` it is
# so only in runs that are followed.
SITE_SETTINGS = [one.name for one in fields(RunSettings) if one.name in AT_SITES and AT_SITES[one.name].agree]
# A manifest is sent in one control message.
MAX_BYTES = 1 << 20


@dataclass(frozen=True)
class Manifest:
    """The description of a run as JSON values. Sites that agree have the same ``text``."""

    content: dict[str, Any]

    @classmethod
    def of(
        cls, site: Site, n_features: int, feature_names: Sequence[str] | None, n_samples: int | None = None
    ) -> Manifest:
        """The manifest of this site, for data with these columns, or with these samples where columns are split."""
        settings = site.settings
        named = None if feature_names is None else listed(feature_names)
        shared: dict[str, Any] = {"n_features": n_features, "feature_names": named}
        if settings.partition == "features":
            shared = {"n_samples": n_samples}
        relayed = {" - ".join(link): relay.name for relay in site.relays for link in relay.links if link in site.edges}
        followed = {} if site.batch is None else {"batch": site.batch, "min_new_samples": settings.min_new_samples}
        return cls(
            {
                "protocol": PROTOCOL,
                "eigenmesh": SERIES,
                "wire": wire.VERSION,
                "run": site.run,
                "sites": listed(site.sites),
                "edges": listed([" - ".join(edge) for edge in site.edges]),
                "relays": relayed or None,
                "fingerprints": dict(site.fingerprints) or None,
                **shared,
                **matching.common_settings(settings.request()),
                **{name: getattr(settings, name) for name in SITE_SETTINGS if name != "min_new_samples"},
                "exponents": dict(settings.exponents) or None,
                "masks": mask_rule(len(site.sites)) if settings.masked else None,
                **followed,
            }
        )

    @classmethod
    def parse(cls, text: str) -> Manifest:
        """The manifest in a text from another site. Raises InputError if it is not one."""
        if len(text) > MAX_BYTES:
            raise InputError(f"a manifest of {len(text)} characters is too long; at most {MAX_BYTES} are read.")
        try:
            content = json.loads(text)
            canonical(content)
        except (ValueError, RecursionError) as error:
            raise InputError(f"the manifest is not plain JSON: {error}") from error
        if not isinstance(content, dict):
            raise InputError(f"the manifest is not a JSON object but a {type(content).__name__}.")
        return cls(content)

    @cached_property
    def text(self) -> str:
        """Canonical JSON: sorted keys, no white space, ASCII."""
        return canonical(self.content)

    @cached_property
    def digest(self) -> str:
        return hashlib.sha256(self.text.encode()).hexdigest()

    def batches_to(self, other: Manifest) -> int:
        """How many batches the other manifest is ahead in the same followed run; 0 if they are of different runs."""
        (run, batch), (their_run, theirs) = (
            (one.content.get("run"), one.content.get("batch")) for one in (self, other)
        )
        return theirs - batch if run == their_run and type(batch) is type(theirs) is int else 0

    @property
    def run_id(self) -> bytes:
        """16 bytes that identify the run, the same at all sites with the same manifest."""
        return hashlib.sha256(f"eigenmesh run\n{self.digest}".encode()).digest()[:16]


def differences(ours: Manifest, theirs: Manifest) -> list[str]:
    """The fields that differ between two manifests, with both values. Empty if and only if the digests are equal."""
    return matching.differences(ours.content, theirs.content)
