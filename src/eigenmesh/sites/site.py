"""One site of a network, as its ``site.toml`` describes it."""

from __future__ import annotations

import dataclasses
import hashlib
import json
import os
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

from eigenmesh.averaging import Integers, Tree
from eigenmesh.certificate import COLUMNS as PROBE_COLUMNS
from eigenmesh.data import Block, Table, TableOptions, aligned, all_files_of, read_table, require_distinct, scores_file
from eigenmesh.errors import (
    AtFirstUse,
    DataError,
    EigenmeshError,
    GraphError,
    InputError,
    UnknownNameError,
    file_errors,
)
from eigenmesh.fitting import largest_sum, one_sum_reveals_no_more, require_goes_with
from eigenmesh.graphs import Weights, metropolis
from eigenmesh.iteration import FIRST_BLOCK
from eigenmesh.masking import MIN_SITES
from eigenmesh.protocol.membership import reached_from
from eigenmesh.settings import AT_SITES, FLAG, SETTINGS, Allowed, OnLoss, Partition, Request, parse, whole
from eigenmesh.sites.addresses import (
    Address,
    MetricsFile,
    ProxyAddress,
    RelayedLinks,
    in_order,
    read_relays,
    require_name,
)
from eigenmesh.sites.fields import COLUMNS, NA_VALUES, TEXT, Fields, toml_table
from eigenmesh.solvers import SOLVERS, BlockKrylov, OneSum, Solver

if TYPE_CHECKING:
    import networkx as nx
else:
    nx = AtFirstUse("networkx")


# Settings that all sites of a run must have in common.


# TLS writes at most a C int of bytes at once; this leaves room for the header of a frame. A sender refuses a larger
# message, with its size.
MAX_MESSAGE_BYTES = (1 << 31) - (1 << 20)
EXPONENT = whole(-500, 500)
RUN_NAME = Allowed(
    "a name of 1 to 64 letters, digits, dots, hyphens and underscores, starting with a letter or digit",
    lambda value: isinstance(value, str) and re.fullmatch(r"[A-Za-z0-9][A-Za-z0-9._-]{0,63}", value) is not None,
)


@dataclass(frozen=True)
class RunSettings:
    """Settings of a run, as the table ``eigenmesh.settings.AT_SITES`` describes them.

    Attributes
    ----------
    asked : Request
        The settings of the fit.
    partition, on_loss, .. : object
        Those of sites alone, under the names of the table.
    exponents : mapping
        Ranges of columns by name, for sums in files: ``|x_j| <= 2^e_j``.
    """

    asked: Request
    partition: Partition
    patience_s: float
    join_s: float
    round_s: float
    on_loss: OnLoss
    every_s: float
    batch_rows: int
    min_new_samples: int
    min_samples_per_site: int
    exponents: Mapping[str, int] = field(default_factory=dict)

    @classmethod
    def from_fields(cls, fields: Fields) -> RunSettings:
        """Read and check the table ``[settings]``."""
        fields.require_known([*AT_SITES, "solver_parameters", "exponents"])
        values = {key: fields.setting(key, row) for key, row in AT_SITES.items()}
        solver = _solver(fields, values.pop("solver")) or "auto"
        own = {one.name: values.pop(one.name) for one in dataclasses.fields(cls) if one.name in values}
        # Every other average shows the numbers of all sites to every site: see the threat model.
        asked = Request.parse(solver=solver, averaging=Tree(), random_state=values.pop("seed"), **values)
        ranges = fields.table("exponents")
        return cls(asked, **own, exponents={name: ranges.value(name, EXPONENT) for name in ranges.content})

    def require_hidden(self, count: int, fields: Fields) -> None:
        """Raise where masks would hide nothing, or the solver cannot go with them, for this many sites."""
        if self.masked and count < MIN_SITES:
            why = "with two sites each finds the other's numbers by subtraction, so masks hide nothing"
            raise fields.error("privacy", f'must be "open": {why}; write that if acceptable, or add a third site.')
        if self.masked:
            try:
                require_goes_with(self.solver or BlockKrylov(), Integers())
            except InputError as error:
                default = "" if "privacy" in fields else " (the default for three sites or more)"
                raise fields.error("privacy", f'= "masked"{default}: {error} Or write privacy = "open".') from error

    @property
    def masked(self) -> bool:
        return self.asked.masked

    @property
    def solver(self) -> Solver | None:
        """The solver that the file names; None for "auto"."""
        return self.asked.solver

    def method(self, length: int) -> Solver:
        """The solver that a fit of vectors of this length uses."""
        wanted, by_rows = self.asked.n_components, self.partition == "samples"
        if self.solver is None and self.masked and by_rows:
            first = wanted if isinstance(wanted, int) else FIRST_BLOCK
            return OneSum() if one_sum_reveals_no_more(length, first) else BlockKrylov()
        return self.solver or BlockKrylov()

    @property
    def words(self) -> dict[str, Any]:
        """The settings as a file has them. None for what is left out there."""
        own = vars(self)
        words = {key: own[key] if key in own else getattr(self.asked, key) for key in AT_SITES}
        return {**words, "solver": "auto" if self.solver is None else self.solver.name}

    @property
    def solver_parameters(self) -> dict[str, Any]:
        """The parameters of the solver that are not its defaults."""
        if self.solver is None:
            return {}
        usual = vars(SOLVERS[self.solver.name]())
        return {name: value for name, value in vars(self.solver).items() if value != usual[name]}

    def request(self, covariance: str = "auto") -> Request:
        """The request for the fit at a site. Each site chooses how it holds its covariance."""
        return replace(self.asked, covariance=parse("covariance", covariance))

    def largest_message(self, length: int) -> int:
        """Bytes of the largest message: of an iteration, the PCA certificate, the moments or a check.

        ``length`` is the length of a vector: d, or N where columns are split.
        """
        d, wanted = length, self.asked.n_components
        # To explain a share of the variance may take all components.
        k = min(wanted, d) if isinstance(wanted, int) else d
        solver = self.method(d)
        iteration, sums = int(solver.largest_message(k, d)), solver.traits.sums_covariances
        # Moments have up to three numbers per column; as integers, each takes two words.
        pooled = max(largest_sum(d, squares=not sums), 2 * (3 * d + 1))
        return min(8 * (max(iteration, d * max(k, PROBE_COLUMNS), pooled) + 4096), MAX_MESSAGE_BYTES)


def _solver(fields: Fields, name: str) -> Solver | None:
    """The solver of this name, with the parameters in the table below; None for "auto"."""
    below = fields.table("solver_parameters")
    if name == "auto":
        if below.content:
            raise fields.error("solver_parameters", 'are those of a solver: name it, solver = "...".')
        return None
    known = [known.name for known in dataclasses.fields(SOLVERS[name])]
    for key, value in below.content.items():
        if key not in known:
            raise UnknownNameError(f"parameter of {name} in {below.line(key)}", key, known or ["none"])
        if not isinstance(value, bool | int | float | str):
            raise below.wrong(key, "must be a number, a string, true or false.")
    try:
        solver: Solver = SOLVERS[name](**below.content)
    except (EigenmeshError, TypeError) as error:
        raise fields.error("solver_parameters", f"do not fit {name}: {error}") from error
    return solver


def require_network(sites: Sequence[str], edges: Sequence[tuple[str, str]]) -> None:
    """Raise unless these links connect all sites, each given once."""
    seen: set[frozenset[str]] = set()
    for first, second in edges:
        for name in (first, second):
            if name not in sites:
                raise GraphError(f"the link {first} - {second} names {name!r}, which is not a site; add or correct it.")
        if first == second:
            raise GraphError(f"the link {first} - {second} joins a site to itself; remove it.")
        if {first, second} in seen:
            raise GraphError(f"the link {first} - {second} is given twice; remove one.")
        seen.add(frozenset((first, second)))
    if apart := sorted(set(sites) - reached_from(sites[0], edges)):
        raise GraphError(f"no links lead from {sites[0]} to {', '.join(apart)}; add links between them.")


def site_graph(sites: Sequence[str], edges: Iterable[tuple[str, str]]) -> nx.Graph:
    """The graph on 0 .. M - 1 in the order of ``sites``."""
    number = {name: number for number, name in enumerate(sites)}
    graph = nx.Graph()
    graph.add_nodes_from((at, {"name": name}) for name, at in number.items())
    graph.add_edges_from((number[first], number[second]) for first, second in edges)
    return graph


def require_links(path: Path, edges: Sequence[tuple[str, str]]) -> None:
    """Raise where sites have no links, and so exchange files."""
    if not edges:
        raise InputError(f"{path} has no links, so its sites exchange files: eigenmesh site key; or add edges.")


# The members of each batch of a followed run: sites that join, sites that leave, and heirs of their samples.


# The tables of a site.toml, and what they say.
SCHEDULE = {"joins": "first batch of a site", "leaves": "first batch without it", "heirs": "who counts its samples"}


@dataclass(frozen=True)
class Schedule:
    """The changes of membership. All sites must know a change before the batch that it begins with.

    Attributes
    ----------
    joins : the first batch with the site; 0 for sites that are not named.
    leaves : the first batch without the site.
    heirs : for a site that leaves, the site that counts its samples from then on. Without one they are removed.
    """

    joins: Mapping[str, int] = field(default_factory=dict)
    leaves: Mapping[str, int] = field(default_factory=dict)
    heirs: Mapping[str, str] = field(default_factory=dict)

    def members(self, sites: Sequence[str], batch: int) -> tuple[str, ...]:
        """The sites of a batch, in the order of the network."""
        return tuple(name for name in sites if self.joins.get(name, 0) <= batch < self.leaves.get(name, batch + 1))

    @property
    def changes(self) -> tuple[int, ...]:
        """Batch 0, and all batches whose members differ from those of the batch before."""
        return tuple(sorted({0, *self.joins.values(), *self.leaves.values()}))

    def handed_over(self, name: str, batch: int) -> tuple[str, ...]:
        """The sites whose samples this site counts in this batch, because it is their heir."""
        return tuple(left for left, heir in self.heirs.items() if heir == name and self.leaves[left] <= batch)

    def require_usable(self, sites: Sequence[str], edges: Sequence[tuple[str, str]]) -> None:
        """Raise unless the members of every batch form a connected graph, and every heir is present in time."""
        for name in (*self.joins, *self.leaves, *self.heirs, *self.heirs.values()):
            if name not in sites:
                raise InputError(f"{name!r} is not a site of this network ({', '.join(sites)}).")
        for name in self.leaves:
            if self.leaves[name] <= self.joins.get(name, 0):
                raise InputError(f"{name} leaves in batch {self.leaves[name]}, before it joins; give a later batch.")
        for name, heir in self.heirs.items():
            if name not in self.leaves or heir not in self.members(sites, self.leaves[name]):
                raise InputError(f"{heir} cannot be the heir of {name}: it must be a member when {name} leaves.")
        for batch in self.changes:
            members = self.members(sites, batch)
            if not members:
                raise InputError(f"no site is in batch {batch}; let sites join earlier or leave later.")
            if not edges:
                continue
            require_network(members, [edge for edge in edges if set(edge) <= set(members)])

    def lines(self) -> list[str]:
        """The tables of a site.toml."""
        every = "the same at all sites"
        return [toml_table(name, getattr(self, name), f"{words}; {every}") for name, words in SCHEDULE.items()]


def read_schedule(
    fields: Fields, sites: Sequence[str], edges: Sequence[tuple[str, str]], settings: RunSettings
) -> Schedule:
    """The tables ``[joins]``, ``[leaves]`` and ``[heirs]``. The settings must hide the numbers of all members."""
    joins, leaves, heirs = (fields.table(name) for name in SCHEDULE)
    schedule = Schedule(
        {name: joins.value(name, whole(0)) for name in joins.content},
        {name: leaves.value(name, whole(1)) for name in leaves.content},
        {name: heirs.text(name) for name in heirs.content},
    )
    fields.checked("leaves", schedule.require_usable, sites, edges)
    for batch in schedule.changes:
        settings.require_hidden(len(schedule.members(sites, batch)), fields.table("settings"))
    return schedule


# Fingerprints of the sites' keys: with them not even the certificate authority can impersonate a site.
#
# They are in the ``site.toml`` of every site, and in ``network.toml`` once all keys exist. A fingerprint is the
# SHA-256 of the public key in a certificate, so renewing a certificate does not change it.


FINGERPRINTS = "fingerprints"
_FINGERPRINT = re.compile(r"[0-9a-f]{64}")


def read_fingerprints(fields: Fields, sites: tuple[str, ...]) -> dict[str, str]:
    """The table ``[fingerprints]``: it has all sites, or none."""
    table = fields.table(FINGERPRINTS)
    for name in table.content:
        if name not in sites:
            raise table.error(name, f"is not a site of this network ({', '.join(sites)}); correct or remove it.")
        if not _FINGERPRINT.fullmatch(table.text(name)):
            raise table.wrong(
                name, "is not a fingerprint (64 characters of 0-9 and a-f); eigenmesh site pin writes it."
            )
    missing = [name for name in sites if name not in table.content]
    if table.content and missing:
        raise InputError(
            f"{fields.path} has fingerprints, but not of {', '.join(missing)}; add them with: eigenmesh site pin "
            f"{fields.path} {missing[0]}-cert.pem"
        )
    return {name: str(table.content[name]) for name in sites if name in table.content}


def fingerprints_table(fingerprints: Mapping[str, str]) -> str:
    """The table ``[fingerprints]`` of a site.toml or network.toml."""
    return toml_table(FINGERPRINTS, fingerprints, "of the keys of all sites; the same at all of them")


# The folder that the runs of a site write to, and the names of their files.


# Smallest allowed limit for an audit file: a smaller file would not hold one run.
LEAST_AUDIT_BYTES = 100_000


@dataclass(frozen=True)
class OutFolder:
    """The folder that runs write to, and the names of their files.

    ``run`` is part of the names of files that belong to one run only. ``scores`` is the file for the scores of this
    site's own samples, None if they are not wanted. ``version`` is the batch of a followed run whose result is written.
    The audit continues in a new file after ``audit_bytes``, if given.
    """

    folder: Path
    run: str = ""
    scores: Path | None = None
    version: int | None = None
    audit_bytes: int | None = None

    @property
    def result(self) -> Path:
        return self._version.with_suffix(".npz")

    @property
    def numbers(self) -> Path:
        """PCA certificate, cost, settings and manifest of the result."""
        return self._version.with_suffix(".json")

    @property
    def batches(self) -> Path:
        """The folder with the results of the batches of a followed run."""
        return self.folder / "batches"

    @property
    def _version(self) -> Path:
        return self.folder / "result" if self.version is None else self.batches / f"{self.version:06d}"

    @property
    def resume(self) -> Path:
        """The folder from which the run can be resumed."""
        return self.folder / f"resume-{self.run}"

    @property
    def journal(self) -> Path:
        """Everything that the site has received and sent, from which it resumes after a crash."""
        return self.resume / "journal"

    @property
    def audit(self) -> Path:
        return self.folder / "audit.jsonl"

    @property
    def events(self) -> Path:
        return self.folder / "events.jsonl"

    @property
    def status(self) -> Path:
        return self.folder / "status.json"


class FileNames:
    """Names of the files of a site and of the certificate authority."""

    CERTIFICATE, KEY, AUTHORITY, REQUEST = "cert.pem", "key.pem", "ca.pem", "request.pem"
    SITE, RELAY = "site.toml", "relay.toml"
    # Next to the file of trusted authorities: the certificates that they have revoked.
    REVOKED = "revoked.pem"
    # The folder of the authority, whose name no site may have, with its key and its log of certificates.
    CA_FOLDER, CA_KEY, ISSUED = "ca", "ca.key", "issued.jsonl"


WHAT = "a site.toml (eigenmesh site init makes one for each site)"
# In the place of an address, if the neighbour calls this site.
INCOMING = "incoming"
TABLES = ("neighbours", "tls", "data", "out", "settings", FINGERPRINTS)
FIELDS = (
    "name",
    "run",
    "sites",
    "edges",
    "listen",
    "relay",
    "proxy",
    "metrics",
    "metrics_token",
    "agrees_to_continue",
    "approve",
    *TABLES,
    *SCHEDULE,
)
TLS_FIELDS = ("certificate", "key", "ca")
PASSPHRASE = "passphrase"


@dataclass(frozen=True)
class TlsFiles:
    """Paths of the site's X.509 certificate with its chain, of its key, and of the trusted authorities.

    ``passphrase`` is the path of a file with that of the key, if it has one and nobody is there to type it.
    """

    certificate: Path
    key: Path
    ca: Path
    passphrase: Path | None = None


@dataclass(frozen=True)
class DataFile:
    """The file of the site's samples, and how to read it. Sites may differ in both, and in ``covariance``.

    Columns are put in the order of ``feature_names``. If the file has no column names, these become the names.
    """

    file: Path
    table: TableOptions = field(default_factory=TableOptions)
    feature_names: tuple[str, ...] | None = None
    covariance: str = "auto"


@dataclass(frozen=True)
class Site:
    """A site: its name, links, files and settings.

    Attributes
    ----------
    path : Path
        The ``site.toml``.
    name, run : str
        Names of the site and of the run.
    sites, edges : tuple
        The whole graph by names. Its diameter, trees and spectrum need it.
    neighbours : mapping
        The address of each neighbour that this site calls, and None for a neighbour that calls ``listen``. Neighbours
        that it meets at a relay are not in it.
    listen : Address or None
        Where neighbours call this site.
    tls, data, out : TlsFiles, DataFile, OutFolder
        Its files.
    settings : RunSettings
        The settings that all sites of the run have in common.
    metrics : MetricsFile or None
        Where Prometheus finds the numbers of the status.
    fingerprints : mapping
        Those of the keys of all sites, or empty.
    agrees_to_continue : bool
        Whether this site agrees that a masked run continues without a lost site, this one included. The others then
        learn more about the lost site.
    approve : bool
        Whether a run starts only with a person's approval of its manifest.
    schedule : Schedule
        The members of each batch of a followed run.
    batch : int or None
        The number of the batch in a followed run.
    relays : tuple of RelayedLinks
        All relays of the network.
    proxy : ProxyAddress or None
        The HTTP proxy for all calls of this site.
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
    metrics: MetricsFile | None = None
    fingerprints: Mapping[str, str] = field(default_factory=dict)
    agrees_to_continue: bool = False
    approve: bool = False
    schedule: Schedule = field(default_factory=Schedule)
    batch: int | None = None
    relays: tuple[RelayedLinks, ...] = ()
    proxy: ProxyAddress | None = None

    @property
    def met_at_relays(self) -> dict[str, RelayedLinks]:
        """The relay at which this site meets a neighbour, for each neighbour that it cannot call directly."""
        met = {}
        for relay in self.relays:
            for link in relay.links:
                if self.name in link and link in self.edges:
                    (other,) = set(link) - {self.name}
                    met[other] = relay
        return met

    @property
    def called(self) -> tuple[str, ...]:
        """The neighbours that this site calls. At a relay, the first of the two in the order of the network calls."""
        order = self.sites.index
        met = [name for name in self.met_at_relays if order(self.name) < order(name)]
        return (*(name for name, address in self.neighbours.items() if address is not None), *met)

    def in_batch(self, batch: int) -> Site:
        """The site in one batch of a followed run: with the members of the batch, and the links between them."""
        members = self.schedule.members(self.sites, batch)
        neighbours = {name: address for name, address in self.neighbours.items() if name in members}
        return replace(
            self,
            batch=batch,
            sites=members,
            edges=tuple(edge for edge in self.edges if set(edge) <= set(members)),
            neighbours=neighbours,
            listen=self.listen if None in neighbours.values() else None,
            fingerprints={name: self.fingerprints[name] for name in members if self.fingerprints},
            out=replace(self.out, version=batch, scores=None),
        )

    @property
    def run_and_batch(self) -> str:
        """The name of the run, with the batch if there is one, to show to people."""
        return self.run if self.batch is None else f"{self.run}, batch {self.batch}"

    @cached_property
    def weights(self) -> Weights:
        """Metropolis weights on the graph 0 .. M - 1, in the order of ``sites``, the same at every site."""
        require_links(self.path, self.edges)
        return metropolis(site_graph(self.sites, self.edges))


def read_site(path: str | os.PathLike[str]) -> Site:
    """Read and check a site.toml.

    Parameters
    ----------
    path : path
        The file. Paths in it are relative to its folder.

    Returns
    -------
    Site
        The site. What is wrong in the file is an error that names the line, the field and the fix.
    """
    fields = Fields.read(Path(path), WHAT)
    fields.require_known(FIELDS)
    name, run = fields.text("name"), fields.value("run", RUN_NAME)
    fields.checked("name", require_name, name)
    sites = _names(fields)
    if name not in sites:
        raise fields.wrong("name", f"is not in sites ({', '.join(sites)}); correct the name or the list.")
    edges = fields.pairs("edges")
    if edges:
        fields.checked("edges", require_network, sites, edges)
    edges = in_order(sites, edges)
    relays = read_relays(fields, sites, edges)
    neighbours = _neighbours(fields, name, edges, relays)
    settings = RunSettings.from_fields(fields.table("settings"))
    return Site(
        path=fields.path,
        name=name,
        run=run,
        sites=sites,
        edges=edges,
        neighbours=neighbours,
        listen=_listen(fields, neighbours),
        tls=read_tls(fields.table("tls", required=True)),
        data=_data(fields.table("data", required=True)),
        out=_out(fields.table("out")),
        settings=settings,
        metrics=MetricsFile.read(fields),
        fingerprints=read_fingerprints(fields, sites),
        agrees_to_continue=fields.value("agrees_to_continue", FLAG, default=False),
        approve=fields.value("approve", FLAG, default=False),
        schedule=read_schedule(fields, sites, edges, settings),
        relays=relays,
        proxy=fields.parsed("proxy", ProxyAddress.parse),
    )


def read_tls(fields: Fields) -> TlsFiles:
    """The table ``[tls]`` of a site or a relay."""
    fields.require_known((*TLS_FIELDS, PASSPHRASE))
    certificate, key, ca = map(fields.required_path, TLS_FIELDS)
    return TlsFiles(certificate, key, ca, fields.path_of(PASSPHRASE))


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
    with file_errors(f"{data.file} cannot be read", "see [data] in site.toml"):
        digests = [sha256_of(path) for path in all_files_of(data.file)]
    usual = vars(TableOptions())
    read_with = {name: how for name, how in vars(data.table).items() if how != usual[name]}
    return json.dumps({"sha256": digests, "read_with": read_with})


def sha256_of(path: Path) -> str:
    """The SHA-256 of a file, in hexadecimal."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def _names(fields: Fields) -> tuple[str, ...]:
    sites = fields.texts("sites")
    for name in sites:
        fields.checked("sites", require_name, name)
    twice = next((name for name in sites if sites.count(name) > 1), None)
    if twice is not None:
        raise fields.error("sites", f"names {twice!r} twice; names must be unique.")
    return sites


def _neighbours(
    fields: Fields, name: str, edges: tuple[tuple[str, str], ...], relays: tuple[RelayedLinks, ...]
) -> dict[str, Address | None]:
    at_relays = {link: relay.name for relay in relays for link in relay.links}
    table = fields.table("neighbours")
    linked = []
    for link in (edge for edge in edges if name in edge):
        (other,) = set(link) - {name}
        if link not in at_relays:
            linked.append(other)
        elif other in table:
            raise table.error(other, f"is a neighbour that {name} meets at the relay {at_relays[link]}; remove it.")
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
    """The address at which neighbours call this site. None if this site calls all of them."""
    listen = fields.parsed("listen", Address.parse)
    callers = [neighbour for neighbour, address in neighbours.items() if address is None]
    if callers and listen is None:
        who = ", ".join(callers)
        raise InputError(f'{fields.path}: listen is missing, but {who} will call this site; add listen = "host:port".')
    return listen if callers else None


def _out(fields: Fields) -> OutFolder:
    fields.require_known(["folder", "scores", "audit_bytes"])
    folder = fields.path_of("folder") or fields.path.parent / "out"
    scores = fields.parsed("scores", lambda name: scores_file(folder / name))
    return OutFolder(
        folder, scores=scores, audit_bytes=fields.value("audit_bytes", whole(LEAST_AUDIT_BYTES), default=None)
    )


def _data(fields: Fields) -> DataFile:
    allowed = {
        **dict.fromkeys(("columns", "drop"), (COLUMNS,)),
        **dict.fromkeys(("id_column", "label_column", "weight_column", "sheet"), (TEXT, whole(0))),
        **dict.fromkeys(("header", "delimiter", "decimal", "thousands", "comment", "encoding", "layer"), (TEXT,)),
        "na_values": (NA_VALUES,),
        "skip_rows": (whole(0),),
    }
    fields.require_known(["file", *allowed, "categories", "feature_names", "covariance"])
    given = {key: fields.value(key, *kinds) for key, kinds in allowed.items() if key in fields}
    categories = fields.table("categories")
    given["categories"] = {column: categories.texts(column) for column in categories.content}
    names = fields.texts("feature_names") if "feature_names" in fields else None
    fields.checked("feature_names", require_distinct, names or (), "it")
    table = fields.checked("", TableOptions.of, **given)
    return DataFile(fields.required_path("file"), table, names, fields.setting("covariance", SETTINGS["covariance"]))


# Conditions before a site takes part: enough samples, pinned keys, and its consent to continue after a loss.


def require_terms(site: Site, n_samples: int | None = None) -> None:
    """Raise unless this site may take part in the run, before it calls any neighbour.

    ``n_samples`` is None if samples will arrive later.
    """
    settings, least = site.settings, site.settings.min_samples_per_site
    if n_samples is not None and n_samples < least:
        raise DataError(f"{site.name} has {n_samples} samples, fewer than min_samples_per_site = {least}; add some.")
    if not settings.masked:
        return
    if not site.fingerprints:
        why = "because without them the authority could impersonate a site and see masked numbers"
        fix = f"run eigenmesh site pin {site.path} with the certificates of all sites"
        raise InputError(f'{site.path}: privacy = "masked" needs [fingerprints], {why}; {fix}.')
    if settings.on_loss == "continue" and not site.agrees_to_continue:
        shown = "its number of samples, mean, variances and products follow from the two results"
        raise InputError(
            f'on_loss = "continue" in a masked run: the others learn more about a lost site, because {shown}. Each '
            f'site must agree to that first: write agrees_to_continue = true in {site.path}, or on_loss = "wait".'
        )
