"""A peer that keeps running (``eigenmesh site run --follow``): one run per batch, on all samples that have arrived."""

from __future__ import annotations

import logging
import os
import shutil
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import numpy as np
from scipy import sparse

from eigenmesh.atomic_write import replacing, write_atomically
from eigenmesh.errors import CannotResumeError, InputError, TransportError, file_errors
from eigenmesh.sites.inbox import HANDOVER, Batch, Inbox, Ledger, same_moments
from eigenmesh.sites.peer import Peer
from eigenmesh.sites.results import Outcome, parked_by_full_disk
from eigenmesh.sites.site import OutFolder, Site, read_site, require_terms
from eigenmesh.sites.status import Status

logger = logging.getLogger(__name__)

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
            dense = rows.toarray() if sparse.issparse(rows) else rows
            write_atomically(path, lambda file: np.save(file, same_moments(np.asarray(dense, dtype=np.float64))))
        return path


def _site(path: Path) -> Site:
    """The site. Raises if its settings do not allow --follow."""
    site = read_site(path)
    require_terms(site)
    if site.settings.on_loss != "wait":
        why = "a lost site is expected back; name one that goes for good in [leaves]"
        raise InputError(f'{path}: --follow needs on_loss = "wait": {why}.')
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
