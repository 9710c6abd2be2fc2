"""One site of a network, as its ``site.toml`` describes it."""

from __future__ import annotations

import dataclasses
import hashlib
import json
import os
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path
from types import MappingProxyType
from typing import Any

from eigenmesh.data import Block, CovarianceKind, Table, TableOptions, read_table
from eigenmesh.data._columns import aligned
from eigenmesh.data._files import all_files_of
from eigenmesh.data._scores_file import scores_file
from eigenmesh.data._table_options import require_distinct
from eigenmesh.errors import InputError, UnreadableFileError
from eigenmesh.graphs import Weights, metropolis
from eigenmesh.sites._fingerprints import TABLE as FINGERPRINTS
from eigenmesh.sites._fingerprints import read_fingerprints
from eigenmesh.sites._names import Address, in_order, require_name, require_run, site_graph
from eigenmesh.sites._out_folder import LEAST_AUDIT_BYTES, OutFolder
from eigenmesh.sites._schedule import TABLES as SCHEDULE
from eigenmesh.sites._schedule import Schedule, read_schedule
from eigenmesh.sites._settings import RunSettings
from eigenmesh.sites._toml_fields import Fields

WHAT = "a site.toml (eigenmesh site init makes one for each site)"
# X.509 files of a site, and its settings.
CERTIFICATE_FILE, KEY_FILE, AUTHORITY_FILE, REQUEST_FILE = "cert.pem", "key.pem", "ca.pem", "request.pem"
SITE_FILE = "site.toml"
# Next to the file of trusted authorities: the certificates that they have revoked.
REVOKED_FILE = "revoked.pem"
# The folder of the authority (no site may have its name), the authority's key and its log of certificates.
CA_FOLDER, CA_KEY, ISSUED_FILE = "ca", "ca.key", "issued.jsonl"
# In the place of an address, if the neighbour calls this site.
INCOMING = "incoming"
TABLES = ("neighbours", "tls", "data", "out", "settings", FINGERPRINTS)
FIELDS = ("name", "run", "sites", "edges", "listen", "metrics_port", "agrees_to_continue", *TABLES, *SCHEDULE)
TLS_FIELDS = ("certificate", "key", "ca")


@dataclass(frozen=True)
class TlsFiles:
    """Paths of the site's X.509 certificate with its chain, of its key, and of the trusted authorities."""

    certificate: Path
    key: Path
    ca: Path


@dataclass(frozen=True)
class DataFile:
    """The file of the site's samples, and how to read it; sites may differ in both, and in ``covariance``.

    Columns are put in the order of ``feature_names``. If the file has no column names, these become the names.
    """

    file: Path
    table: TableOptions = field(default_factory=TableOptions)
    feature_names: tuple[str, ...] | None = None
    covariance: str = "auto"


@dataclass(frozen=True)
class Site:
    """A site: its name, links, files and settings.

    ``sites`` and ``edges`` are the whole graph, needed for its diameter, trees and spectrum. ``neighbours`` has the
    address of each neighbour that this site calls, and None for a neighbour that calls ``listen``. ``fingerprints``
    are those of the keys of all sites, or empty. ``agrees_to_continue`` means that this site agrees that a masked run
    continues without a lost site, this one included, although the others then learn more about it. ``batch`` is the
    number of the batch in a followed run.
    """

    path: Path
    name: str
    run: str
    sites: tuple[str, ...]
    edges: tuple[tuple[str, str], ...]
    neighbours: Mapping[str, Address | None]
    listen: Address | None
    tls: TlsFiles
    data: DataFile
    out: OutFolder
    settings: RunSettings
    metrics_port: int | None = None
    fingerprints: Mapping[str, str] = field(default_factory=dict)
    agrees_to_continue: bool = False
    schedule: Schedule = field(default_factory=Schedule)
    batch: int | None = None

    def in_batch(self, batch: int) -> Site:
        """The site in one batch of a followed run: with the members of the batch, and the links between them."""
        members = self.schedule.members(self.sites, batch)
        neighbours = {name: address for name, address in self.neighbours.items() if name in members}
        return replace(
            self,
            batch=batch,
            sites=members,
            edges=tuple(edge for edge in self.edges if set(edge) <= set(members)),
            neighbours=MappingProxyType(neighbours),
            listen=self.listen if None in neighbours.values() else None,
            fingerprints=MappingProxyType({name: self.fingerprints[name] for name in members if self.fingerprints}),
            out=replace(self.out, version=batch, scores=None),
        )

    @property
    def run_and_batch(self) -> str:
        """The name of the run, with the batch if there is one, to show to people."""
        return self.run if self.batch is None else f"{self.run}, batch {self.batch}"

    @cached_property
    def weights(self) -> Weights:
        """Metropolis weights on the graph 0 .. M - 1, in the order of ``sites``; the same at every site."""
        return metropolis(site_graph(self.sites, self.edges))


def read_site(path: str | os.PathLike[str]) -> Site:
    """Read and check a site.toml; paths in it are relative to its folder."""
    fields = Fields.read(Path(path), WHAT)
    fields.require_known(FIELDS)
    name, run = fields.text("name"), fields.text("run")
    fields.checked("name", require_name, name)
    fields.checked("run", require_run, run)
    sites = _names(fields)
    if name not in sites:
        raise fields.wrong("name", f"is not in sites ({', '.join(sites)}); correct the name or the list.")
    edges = fields.pairs("edges")
    fields.checked("edges", site_graph, sites, edges)
    edges = in_order(sites, edges)
    neighbours = _neighbours(fields, name, edges)
    listen = _listen(fields, neighbours)
    tls = fields.table("tls", required=True)
    tls.require_known(TLS_FIELDS)
    out = _out(fields.table("out"))
    table = fields.table("settings")
    settings = RunSettings.from_fields(table)
    settings.require_hidden(len(sites), table)
    schedule = read_schedule(fields, sites, edges)
    for batch in schedule.changes:
        settings.require_hidden(len(schedule.members(sites, batch)), table)
    return Site(
        path=fields.path,
        name=name,
        run=run,
        sites=sites,
        edges=edges,
        neighbours=MappingProxyType(neighbours),
        listen=listen,
        tls=TlsFiles(*(_path(tls, key) for key in TLS_FIELDS)),
        data=_data(fields.table("data", required=True)),
        out=out,
        settings=settings,
        metrics_port=fields.whole("metrics_port", 1, most=65535) if "metrics_port" in fields else None,
        fingerprints=MappingProxyType(read_fingerprints(fields, sites)),
        agrees_to_continue=fields.flag("agrees_to_continue", False),
        schedule=schedule,
    )


def read_samples(data: DataFile) -> Table:
    """The table in the file, with its columns in the order of ``feature_names``, if given."""
    table = read_table(data.file, **vars(data.table))
    if data.feature_names is None:
        return table
    names = data.feature_names
    source = aligned(table.source, len(names), names, str(data.file), "data.feature_names")
    return replace(table, source=Block(source, names=names))


def fingerprint(data: DataFile) -> str:
    """JSON with the SHA-256 of each file and the options it is read with.

    It is never sent: with the hash, another site could confirm a guess about the data.
    """
    digests = []
    try:
        for path in all_files_of(data.file):
            with path.open("rb") as file:
                digests.append(hashlib.file_digest(file, "sha256").hexdigest())
        usual = vars(TableOptions())
        read_with = {name: how for name, how in vars(data.table).items() if how != usual[name]}
        return json.dumps({"sha256": digests, "read_with": read_with})
    except OSError as error:
        raise UnreadableFileError(f"{data.file} cannot be read: {error.strerror}; see [data] in site.toml.") from error


def _names(fields: Fields) -> tuple[str, ...]:
    sites = fields.texts("sites")
    for name in sites:
        fields.checked("sites", require_name, name)
    twice = next((name for name in sites if sites.count(name) > 1), None)
    if twice is not None:
        raise fields.error("sites", f"names {twice!r} twice; names must be unique.")
    return sites


def _neighbours(fields: Fields, name: str, edges: tuple[tuple[str, str], ...]) -> dict[str, Address | None]:
    linked = [second if first == name else first for first, second in edges if name in (first, second)]
    table = fields.table("neighbours")
    for other in table.content:
        if other not in linked:
            raise table.error(other, f"is not linked to {name} by edges; add the link, or remove the neighbour.")
    found: dict[str, Address | None] = {}
    for other in linked:
        if other not in table:
            add = f'add {other} = "host:port" to call it, or "{INCOMING}" if it calls.'
            raise InputError(f"{fields.path}: {other} is linked to {name} but not in [neighbours]; {add}")
        text = table.text(other)
        found[other] = None if text == INCOMING else table.checked(other, Address.parse, text)
    return found


def _listen(fields: Fields, neighbours: Mapping[str, Address | None]) -> Address | None:
    """The address at which neighbours call this site; None if this site calls all of them."""
    listen = fields.checked("listen", Address.parse, fields.text("listen")) if "listen" in fields else None
    callers = [neighbour for neighbour, address in neighbours.items() if address is None]
    if callers and listen is None:
        who = ", ".join(callers)
        raise InputError(f'{fields.path}: listen is missing, but {who} will call this site; add listen = "host:port".')
    return listen if callers else None


def _out(fields: Fields) -> OutFolder:
    fields.require_known(["folder", "scores", "audit_bytes"])
    folder = _path(fields, "folder", "out")
    scores = fields.checked("scores", scores_file, folder / fields.text("scores")) if "scores" in fields else None
    audit_bytes = fields.whole("audit_bytes", LEAST_AUDIT_BYTES) if "audit_bytes" in fields else None
    return OutFolder(folder, scores=scores, audit_bytes=audit_bytes)


def _data(fields: Fields) -> DataFile:
    # What a model knows is not for a site to say.
    known = [one.name for one in dataclasses.fields(TableOptions) if one.name != "among"]
    fields.require_known(["file", *known, "feature_names", "covariance"])
    given: dict[str, Any] = {key: fields.columns(key) for key in ("columns", "drop") if key in fields}
    given |= {key: fields.column(key) for key in known if key.endswith("_column") and key in fields}
    given |= {key: fields.text(key) for key in ("header", "delimiter", "decimal", "encoding", "layer") if key in fields}
    categories = fields.table("categories")
    given["categories"] = {column: categories.texts(column) for column in categories.content}
    names = fields.texts("feature_names") if "feature_names" in fields else None
    fields.checked("feature_names", require_distinct, names or (), "it")
    kinds = ("auto", *(kind.value for kind in CovarianceKind))
    table = fields.checked("", TableOptions.of, **given)
    return DataFile(_path(fields, "file"), table, names, fields.text("covariance", "auto", kinds))


def _path(fields: Fields, key: str, default: str | None = None) -> Path:
    """A path, relative to the folder of the file that names it."""
    return fields.path.parent / Path(fields.text(key, default)).expanduser()
