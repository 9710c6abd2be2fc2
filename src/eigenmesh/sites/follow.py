"""A peer that keeps running (``eigenmesh site run --follow``): one run per batch, on all samples that have arrived.

Samples arrive in a folder, file by file. The ledger records which files belong to which batch.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import logging
import os
import shutil
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path

import numpy as np
import scipy

from eigenmesh import data
from eigenmesh.arrays import is_sparse
from eigenmesh.atomic_write import replacing, save_json, write_atomically
from eigenmesh.data import Partition, Samples, Table
from eigenmesh.errors import CannotResumeError, DataError, InputError, TransportError, UnreadableFileError, file_errors
from eigenmesh.fitting import NodeData, Request, Size
from eigenmesh.graphs import Weights
from eigenmesh.masking import MIN_SITES
from eigenmesh.model import read_model
from eigenmesh.networks import Network
from eigenmesh.sites.peer import Peer
from eigenmesh.sites.results import Outcome, PutOffError, parked_by_full_disk
from eigenmesh.sites.site import DataFile, OutFolder, Site, read_samples, read_site, require_terms, sha256_of
from eigenmesh.sites.status import Status
from eigenmesh.transports.tls import TlsTransport

logger = logging.getLogger(__name__)

# Records which files belong to which batch of a followed run; saved before any number of the batch is sent.


@dataclass(frozen=True)
class CountedFile:
    """A file that is part of a batch. The hash of its content identifies it."""

    name: str
    sha256: str
    rows: int
    batch: int


@dataclass(frozen=True)
class Ledger:
    """The progress of a site in a followed run.

    Attributes
    ----------
    batch : the current batch, or the next one.
    settled : whether the files of that batch are recorded. Then they no longer change.
    released : the last batch that counted; -1 before the first.
    files : the files of all batches, in the order of their rows.
    """

    path: Path
    batch: int
    settled: bool = False
    released: int = -1
    files: tuple[CountedFile, ...] = ()

    @classmethod
    def read(cls, path: Path, first: int) -> Ledger:
        """Read the file. Without one, the site begins with its first batch."""
        if not path.exists():
            return cls(path, first)
        try:
            with file_errors(f"{path} cannot be read", "restore it or its access"):
                content = json.loads(path.read_text(encoding="utf-8"))
            files = tuple(CountedFile(**one) for one in content["files"])
            return cls(path, int(content["batch"]), bool(content["settled"]), int(content["released"]), files)
        except (ValueError, KeyError, TypeError) as error:
            fix = "restore it from a backup, or let this site join again from a later batch"
            raise UnreadableFileError(f"{path}, the list of counted files, is damaged ({error}); {fix}.") from error

    @property
    def n_new(self) -> int:
        """Rows that were in no batch that counted."""
        return sum(file.rows for file in self.files if file.batch > self.released)

    @property
    def fingerprint(self) -> str:
        """JSON that identifies the files counted before this batch.

        It is never sent: with the hash, another site could confirm a guess about the data.
        """
        before = [[file.sha256, file.rows] for file in self.files if file.batch < self.batch]
        return json.dumps({"sha256_of_counted": hashlib.sha256(json.dumps(before).encode()).hexdigest()})

    def settle(self, files: tuple[CountedFile, ...]) -> Ledger:
        """Record the new files of the current batch."""
        return replace(self, settled=True, files=(*self.files, *files))._saved()

    def done(self, released: bool) -> Ledger:
        """Go on to the next batch. ``released`` says whether the current one counted."""
        last = self.batch if released else self.released
        return replace(self, batch=self.batch + 1, settled=False, released=last)._saved()

    def _saved(self) -> Ledger:
        save_json(self.path, {name: value for name, value in asdict(self).items() if name != "path"})
        return self


# Names of files that are still being written.
UNFINISHED = (".tmp", ".part")
HANDOVER = "handover-{}.npy"


@dataclass
class Inbox:
    """The files of a folder, each hashed and read once, and how to read them.

    Complete files must be moved into the folder. Names that begin with a dot, or end in .tmp or .part, are ignored.
    ``columns`` are the number and the names of the columns of the first file. All later ones must match them.
    """

    folder: Path
    data: DataFile
    missing: str = "error"
    columns: tuple[int, tuple[str, ...] | None] | None = None
    _hashes: dict[tuple[str, int, int], str] = field(default_factory=dict)
    _read: dict[str, Samples] = field(default_factory=dict)
    _reported_copies: set[str] = field(default_factory=set)

    def files(self) -> dict[str, Path]:
        """The files by the hash of their content, in the order of their names. Of equal files only the first."""
        found: dict[str, Path] = {}
        with file_errors(f"{self.folder} cannot be followed", "give an existing folder"):
            paths = sorted(path for path in self.folder.iterdir() if path.is_file())
        for path in paths:
            if path.name.startswith(".") or path.suffix in UNFINISHED:
                continue
            # The file may have been renamed or removed since the folder was listed.
            with contextlib.suppress(FileNotFoundError):
                first = found.setdefault(self._hash(path), path)
                if first != path and path.name not in self._reported_copies:
                    self._reported_copies.add(path.name)
                    logger.warning("%s has the same content as %s, and is not counted twice.", path, first.name)
        return found

    def new(self, counted: tuple[CountedFile, ...], batch: int) -> tuple[CountedFile, ...]:
        """The files that are in no batch yet, as entries for this batch. Raises if a counted file has changed."""
        files, known = self.files(), {file.sha256 for file in counted}
        waiting = {sha256: path for sha256, path in files.items() if sha256 not in known}
        names = {path.name for path in waiting.values()}
        for file in counted:
            if file.name in names and file.sha256 not in files:
                raise self._changed(file)
        return tuple(
            CountedFile(path.name, sha256, self._samples(sha256, path).shape[0], batch)
            for sha256, path in waiting.items()
        )

    def stacked(self, counted: tuple[CountedFile, ...]) -> Samples:
        """The rows of these files, in this order."""
        self.load(counted)
        parts = [self._read[file.sha256] for file in counted]
        stacked: Samples = scipy.sparse.vstack(parts, "csr") if any(map(is_sparse, parts)) else np.vstack(parts)
        return stacked

    def load(self, counted: tuple[CountedFile, ...]) -> None:
        """Read these files. Raises if one is missing or has changed since it was counted."""
        unread = [file for file in counted if file.sha256 not in self._read]
        present = self.files() if unread else {}
        for file in unread:
            if file.sha256 not in present:
                raise self._changed(file)
            self._samples(file.sha256, present[file.sha256])

    def _changed(self, file: CountedFile) -> DataError:
        what = f"{self.folder / file.name}, which was counted in batch {file.batch}, is gone or has changed"
        return DataError(f"{what}; restore it. Move only complete files into the folder.")

    def _samples(self, sha256: str, path: Path) -> Samples:
        if sha256 not in self._read:
            self._read[sha256] = self._checked(path)
        return self._read[sha256]

    def _checked(self, path: Path) -> Samples:
        """The rows of a file, with columns in the order of the first file. Raises for missing columns or entries."""
        # What a site hands over has no ids or labels, so the table options are not for it.
        handed_over = path.match(HANDOVER.format("*"))
        source = (data.read_table(path) if handed_over else read_samples(replace(self.data, file=path))).source
        columns = self.columns or (int(source.shape[1]), source.feature_names)
        source = data.aligned(source, *columns, str(path), "the samples that came first")
        rows = source.read(slice(0, source.shape[0]))
        if self.missing == "error" and not np.isfinite(data.stored(rows)).all():
            row, column, value = data.first_not_finite(rows)
            at = f"{path}: row {row}, {data.column_label(columns[1], column)}"
            fix = 'remove the row, or set missing = "mean" at all sites'
            raise DataError(f"{at} is {value}; {fix}. No row of this file was counted.")
        self.columns = columns
        return rows if is_sparse(rows) else np.array(rows)

    def _hash(self, path: Path) -> str:
        facts = path.stat()
        key = path.name, facts.st_size, facts.st_mtime_ns
        if key not in self._hashes:
            self._hashes[key] = sha256_of(path)
        return self._hashes[key]


def same_moments(rows: np.ndarray) -> np.ndarray:
    """Rows (n, d) with the same number, mean and scatter as ``rows``. They reveal nothing else about them.

    For ``rows = 1 m^T + U S V^T`` they are ``1 m^T + Q S V^T``, where Q has random orthonormal columns that sum to 0.
    """
    mean = rows.mean(axis=0)
    _, sizes, directions = np.linalg.svd(rows - mean, full_matrices=False)
    rank = min(len(sizes), len(rows) - 1)
    drawn = np.random.default_rng().standard_normal((len(rows), rank))
    Q = np.linalg.qr(drawn - drawn.mean(axis=0))[0]
    return np.asarray(mean + (Q * sizes[:rank]) @ directions[:rank])


# The samples of a site in one batch of a followed run: when the batch begins, its files, and whether it counts.


POLL_EVERY_S = 0.2


@dataclass(frozen=True, eq=False)
class BatchData(NodeData):
    """Samples of all batches so far. ``n_new`` of them were in no batch that counted.

    With masks the first sum counts the sites that have at least ``least_new`` new samples. Fewer than three put the
    batch off, so that the difference between two results never belongs to one or two sites. The second sum is the
    number of samples. Fewer than ``least`` put the batch off, too.
    """

    n_new: int = 0
    least_new: int = 0
    least: int = 2

    def count(self, masked: bool) -> tuple[Size, Network]:
        network = self.counting_network(masked)
        if masked:
            ready = self.total(network, [float(self.n_new >= self.least_new)])
            if ready < MIN_SITES:
                raise PutOffError(f"{ready} sites have {self.least_new} new samples; at least {MIN_SITES} must.")
        count = self.total(network, [block.count for block in self.shards.blocks])
        if count < self.least:
            raise PutOffError(f"all sites have {count} samples together; {self.least} are needed.")
        return Size(count, self.shards.n_features), network


class Batch:
    """The samples of a site in the current batch of its ledger.

    ``since`` is the end of the last batch, by ``time.monotonic``.
    """

    def __init__(self, site: Site, inbox: Inbox, ledger: Ledger, since: float) -> None:
        self.site, self.inbox, self.ledger, self.since = site, inbox, ledger, since
        while not ledger.files and not inbox.new(ledger.files, ledger.batch):
            time.sleep(POLL_EVERY_S)
        # Read the counted files first: they decide the order of the columns.
        inbox.load(ledger.files)
        inbox.new(ledger.files, ledger.batch)
        self.n_samples = sum(file.rows for file in ledger.files)
        self.n_features, self.feature_names = inbox.columns or (0, None)
        self.fingerprint = ledger.fingerprint

    def request(self) -> Request:
        # Always sum the number of samples, because it decides whether the batch counts.
        request = self.site.settings.request(self.site.data.covariance)
        return replace(request, min_samples=max(1, request.min_samples))

    def settle(self, transport: TlsTransport) -> Table:
        """Wait until the batch begins here or at a neighbour, record its files in the ledger, and notify neighbours.

        So the first site that is ready begins the batch at all sites.
        """
        while not self.ledger.settled:
            new = self.inbox.new(self.ledger.files, self.ledger.batch)
            if self._can_begin([file.name for file in new], sum(file.rows for file in new), transport.begun):
                self.ledger = self.ledger.settle(new)
            else:
                transport.check()
                time.sleep(POLL_EVERY_S)
        near = transport.neighbours
        transport.exchange((np.zeros(1),), transport.links(near, near))
        rows = self.inbox.stacked(self.ledger.files)
        return Table(data.MatrixSource(rows, self.feature_names), name=str(self.inbox.folder))

    def _can_begin(self, names: list[str], n_new: int, begun: bool) -> bool:
        settings, ledger = self.site.settings, self.ledger
        present = {*names, *(file.name for file in ledger.files)}
        inherited = map(HANDOVER.format, self.site.schedule.handed_over(self.site.name, ledger.batch))
        n_samples = n_new + sum(file.rows for file in ledger.files)
        if n_samples < max(1, settings.min_samples_per_site) or not present.issuperset(inherited):
            return False
        least = settings.min_new_samples if settings.masked else 1
        enough = 0 < settings.batch_rows <= n_new
        # n_new > 0: samples that were put off are not tried again until new ones have arrived.
        late = n_new > 0 and n_new + ledger.n_new >= least and time.monotonic() - self.since >= settings.every_s
        return begun or enough or late

    def data(self, shards: Partition, weights: Weights, transport: TlsTransport) -> NodeData:
        settings, wanted = self.site.settings, self.site.settings.asked.n_components
        least = max(settings.asked.min_samples, wanted + 1 if isinstance(wanted, int) else 2)
        return BatchData(shards, weights, transport, self.ledger.n_new, settings.min_new_samples, least)

    def start(self) -> np.ndarray | None:
        """The components of the last batch that counted. None, for a random basis, after a change of membership."""
        released, schedule = self.ledger.released, self.site.schedule
        changed = any(released < batch <= self.ledger.batch for batch in schedule.changes)
        if released < 0 or changed or not isinstance(self.site.settings.asked.n_components, int):
            return None
        last = replace(self.site.out, version=released)
        return np.ascontiguousarray(read_model(last.result).components.T)


# The runs, one per batch.


# Number of batches whose results are kept.
KEPT_RESULTS = 100
# Size after which the audit of a following peer continues in a new file. After the same size its events file is renamed
# to events.old.jsonl, and a new one begins.
AUDIT_BYTES = EVENTS_BYTES = 10_000_000
# First and longest pause before a batch is tried again.
PAUSES_S = (0.5, 30.0)


class Follower:
    """A site that follows a folder in which samples arrive. ``site.toml`` is read again before each batch.

    Parameters
    ----------
    path : Path
        The ``site.toml``.
    folder : Path
        The folder in which complete files arrive.
    fresh : bool
        Whether to set aside the files of an unfinished batch.
    tell : callable
        Called with the number and the outcome of every finished batch.
    warn : callable
        Called with the reason when a batch is tried again.
    """

    def __init__(
        self,
        path: Path,
        folder: Path,
        fresh: bool = False,
        tell: Callable[[int, Outcome], None] = lambda batch, outcome: None,
        warn: Callable[[str], None] = logger.warning,
    ) -> None:
        self.path, self.fresh, self.tell, self.warn = path, fresh, tell, warn
        site = _site(path)
        with parked_by_full_disk(site.name), file_errors(f"cannot make {site.out.batches}", "see [out]"):
            site.out.batches.mkdir(mode=0o700, parents=True, exist_ok=True)
        self.inbox = Inbox(folder, site.data, site.settings.asked.missing)
        self.inbox.files()
        self._since, self._tries = time.monotonic(), 0

    def run(self, listener: Callable[[Status], None] | None = None) -> Path | None:
        """Follow until this site leaves. Returns the file for its heir, if it has one.

        Parameters
        ----------
        listener : callable, optional
            Called about every second with the status, in another thread.
        """
        while True:
            site = _site(self.path)
            ledger = Ledger.read(site.out.folder / f"ledger-{site.run}.json", site.schedule.joins.get(site.name, 0))
            if ledger.batch >= site.schedule.leaves.get(site.name, ledger.batch + 1):
                return self._hand_over(site, ledger)
            self._batch(site.in_batch(ledger.batch), ledger, listener)

    def _batch(self, site: Site, ledger: Ledger, listener: Callable[[Status], None] | None) -> None:
        """Take part in one batch. If links or another site fail, the next call tries the same batch again."""
        if site.out.events.exists() and site.out.events.stat().st_size > EVENTS_BYTES:
            os.replace(site.out.events, site.out.events.with_suffix(".old.jsonl"))
        reason = ""
        try:
            with parked_by_full_disk(site.name):
                batch = Batch(site, self.inbox, ledger, self._since)
                peer = Peer(site, batch)
                if self.fresh:
                    peer.run_folder.set_aside()
                    self.fresh = False
                outcome = peer.run(listener)
                if outcome.owed:
                    reason = f"{', '.join(outcome.owed)} may not have received all of its messages yet"
                else:
                    _publish(site.out, outcome)
                    batch.ledger.done(released=not outcome.put_off)
        except CannotResumeError:
            raise
        except TransportError as error:
            reason = str(error)
        if reason:
            first, longest = PAUSES_S
            self.warn(f"batch {ledger.batch} is tried again: {reason}")
            time.sleep(min(longest, first * 2.0 ** min(self._tries, 10)))
            self._tries += 1
            return
        self._since, self._tries = time.monotonic(), 0
        self.tell(ledger.batch, outcome)

    def _hand_over(self, site: Site, ledger: Ledger) -> Path | None:
        """Write the file for this site's heir: rows with the same moments as this site's, which the heir counts."""
        if site.name not in site.schedule.heirs:
            return None
        path = site.out.folder / HANDOVER.format(site.name)
        if not path.exists():
            rows = self.inbox.stacked(ledger.files)
            dense = rows.toarray() if is_sparse(rows) else rows
            write_atomically(path, lambda file: np.save(file, same_moments(np.asarray(dense, dtype=np.float64))))
        return path


def _site(path: Path) -> Site:
    """The site. Raises if its settings do not allow --follow."""
    site = read_site(path)
    require_terms(site)
    if site.settings.on_loss != "wait":
        why = "a lost site is expected back; name one that goes for good in [leaves]"
        raise InputError(f'{path}: --follow needs on_loss = "wait": {why}.')
    if site.approve:
        raise InputError(f"{path}: --follow cannot go with approve = true: every batch is a run of its own.")
    if site.settings.partition != "samples":
        raise InputError(f'{path}: --follow needs sites with their own samples; remove partition = "features".')
    if site.data.table.weight_column is not None:
        raise InputError(f"{path}: --follow counts every row once; remove weight_column.")
    if site.schedule.heirs and site.settings.asked.missing != "error":
        raise InputError(f'{path}: [heirs] needs missing = "error": rows with missing entries have no moments.')
    return replace(site, out=replace(site.out, audit_bytes=site.out.audit_bytes or AUDIT_BYTES))


def _publish(out: OutFolder, outcome: Outcome) -> None:
    """Copy the result of a batch that counts to the result of the run, and delete the oldest results."""
    if outcome.put_off:
        return
    latest = replace(out, version=None)
    for source, target in ((out.result, latest.result), (out.numbers, latest.numbers)):
        with replacing(target) as temporary:
            shutil.copyfile(source, temporary)
    for path in sorted(out.batches.glob("*.json"))[:-KEPT_RESULTS]:
        path.with_suffix(".npz").unlink(missing_ok=True)
        path.unlink()
