"""The result files of a run at one site: the model, the scores and the numbers that belong to it."""

from __future__ import annotations

import contextlib
import errno
import hashlib
import json
import os
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from eigenmesh.atomic_write import lock, require_writable, save_json, save_text, sync_folder
from eigenmesh.data import Projector, Table, save_scores
from eigenmesh.errors import InputError, ParkedError, UnreadableFileError, file_errors
from eigenmesh.fitting import Fit, Forecast, fit_numbers, model_of
from eigenmesh.model import Model, read_model, write_model
from eigenmesh.protocol.membership import Membership
from eigenmesh.protocol.setup import Topic, read_statement
from eigenmesh.sites.network_file import Manifest
from eigenmesh.sites.site import OutFolder, Site
from eigenmesh.transports.tls import CertificateKeyring
from eigenmesh.transports.tls.journal import forget_masked, wipe

# The folder from which a run can be resumed at one site: its journal, and a fingerprint of the site's data.
#
# The identity and the key of the journal belong to this site for the whole run. A neighbour that has heard of them
# accepts no others once it has used the numbers of any site. So a journal that a neighbour may know of is kept until
# the run is over, also if this site has failed before it sent a number, and must mend its data first.


OWN_DATA = "own-data"
# Exists once this site may have sent numbers.
SENT = "numbers-sent"
# Name of a journal that is being deleted.
DONE = "journal-done"


class RunFolder:
    """The folder ``out.resume`` of one run. Each run has its own, so that an old run never blocks the next.

    ``fingerprint``, as JSON, identifies the site's data. It is kept here to detect changes, and is never sent. The data
    may change until the first number of this site may have been sent.
    """

    def __init__(self, out: OutFolder, fingerprint: str) -> None:
        self.out, self.path, self.fingerprint = out, out.resume, fingerprint
        self._is_new = self._noted = False

    @property
    def has_journal(self) -> bool:
        return any(self.path.glob("journal"))

    def open(self) -> None:
        """Make the folder. An existing one is refused if numbers of different data are in it, or were sent."""
        known = self.path / OWN_DATA
        with file_errors(f"cannot use {self.path}", "choose another folder"):
            self._is_new = not self.has_journal
            if not (known.exists() and known.read_text() == self.fingerprint):
                self._require_unused()
                if (self.path / SENT).exists():
                    changed = f"this site's data have changed since {self.path} was made"
                    over = "or start over at all sites: give the run another name, or use eigenmesh site run --fresh."
                    raise InputError(f"{changed}; restore the data, {over}")
                self.path.mkdir(mode=0o700, exist_ok=True)
                for journal in self.path.glob("journal"):
                    forget_masked(journal)
                save_text(known, self.fingerprint)

    def note_sent(self) -> None:
        """Put on the disk that this site has sent numbers. Called before each message with numbers leaves."""
        if not self._noted:
            save_text(self.path / SENT, "")
            self._noted = True

    def close(self, was_heard: bool) -> None:
        """Remove the folder if no neighbour knows of it: the journal is new, and no message was sent."""
        if self._is_new and not was_heard:
            self.remove()

    def remove(self) -> None:
        # Rename the journal first: a crash during the deletion must not leave half a journal to resume from.
        with contextlib.suppress(OSError):
            os.replace(self.path / "journal", self.path / DONE)
        for path in self.path.glob("*"):
            with contextlib.suppress(OSError):
                if path.name in ("journal", DONE):
                    wipe(path)
                path.unlink()
        # This fails, and may fail, where the folder is a symbolic link to another disk.
        with contextlib.suppress(OSError):
            self.path.rmdir()

    def set_aside(self) -> list[Path]:
        """Rename all files of this run, and return their new names."""
        self._require_unused()
        aside = []
        for path in (self.path, self.out.result, self.out.numbers, self.out.scores):
            if path is not None and path.exists():
                number = 1
                while (other := path.with_name(f"{path.name}.old-{number}")).exists():
                    number += 1
                os.rename(path, other)
                aside.append(other)
        sync_folder(self.out.folder)
        return aside

    def _require_unused(self) -> None:
        for path in self.path.glob("journal"):
            with path.open("rb") as file:
                lock(file.fileno(), path)


class PutOffError(Exception):
    """A batch of a followed run that does not count yet. Its samples are part of the next one.

    All sites decide this from the same sum, so all of them put the batch off.
    """


@dataclass(frozen=True)
class Outcome:
    """How a run ended at this site. ``missing`` are the sites that were lost.

    ``fit`` is None if an earlier start of the run wrote the result, and ``n_lost`` says how many links were lost before
    that. Neighbours in ``owed`` may not have received all messages yet, so the journal is kept for them. ``put_off`` is
    the reason why a batch of a followed run does not count yet.
    """

    fit: Fit | None
    members: tuple[str, ...]
    missing: tuple[str, ...]
    written: tuple[Path, ...]
    converged: bool
    owed: tuple[str, ...] = ()
    put_off: str = ""
    n_lost: int = 0


def result_digest(fit: Fit) -> str:
    """The SHA-256 that all members sign: of components, variances and bounds, as little-endian float64."""
    result = fit.result
    return _digest_of(result.components, result.explained_variance, result.certificate.error_bounds)


def _digest_of(*parts: Any) -> str:
    return hashlib.sha256(b"".join(np.ascontiguousarray(part, "<f8").tobytes() for part in parts)).hexdigest()


def privacy_numbers(site: Site, fit: Fit, view: Membership) -> dict[str, Any]:
    """What this run has revealed, and to whom: the account in its certificate, and that of lost and former sites."""
    shown = fit.result.certificate.disclosure
    if not shown.masked:
        return shown.numbers()
    lost = dict.fromkeys(view.missing, shown.of_one_that_left)
    return {**shown.numbers(), "of_lost_sites": lost, **_between_batches(site)}


def _between_batches(site: Site) -> dict[str, Any]:
    """What the results of several batches of a followed run reveal together."""
    if site.batch is None:
        return {}
    least, schedule = site.settings.min_new_samples, site.schedule
    new = f"sums over the new samples of three sites or more, {least} at each, and what more has come elsewhere"
    left = {name: schedule.heirs.get(name) for name, batch in schedule.leaves.items() if batch <= site.batch}
    known = dict.fromkeys(left, f"its samples are taken out: in the difference of two results, with {new}")
    known |= {name: f"{heir} has its N, mean and covariance" for name, heir in left.items() if heir is not None}
    return {"between_batches": f"from the difference of two results: {new}", "of_sites_that_left": known}


class ResultFiles:
    """Writes model, scores and numbers of one run at one site. ``folder`` holds the run's journal."""

    def __init__(self, site: Site, manifest: Manifest, folder: RunFolder) -> None:
        self.site, self.manifest, self.folder = site, manifest, folder
        out = site.out
        with file_errors(f"cannot make {out.folder}", "choose another folder"):
            out.folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        for path in (out.result, out.numbers, out.status, out.events, out.audit, out.scores):
            if path is not None:
                require_writable(path)

    def _about(self, view: Membership, signed: dict[str, str]) -> dict[str, Any]:
        """The facts that mark a run as done. ``signed`` are the members' signed statements."""
        return {
            "site": self.site.name,
            "run": self.site.run,
            **({} if self.site.batch is None else {"batch": self.site.batch}),
            "run_id": self.manifest.run_id.hex(),
            "whole": not view.missing,
            "sites": list(view.members),
            "lost_sites": list(view.missing),
            "lost_links": [list(link) for link in view.lost],
            "own_data": json.loads(self.folder.fingerprint),
            "signatures": signed,
            "manifest": self.manifest.content,
        }

    def put_off(self, view: Membership, signed: dict[str, str], why: str) -> Outcome:
        """Record that a batch is over and does not count yet."""
        save_json(self.site.out.numbers, {**self._about(view, signed), "converged": False, "put_off": why})
        return Outcome(None, view.members, view.missing, (), False, put_off=why)

    def write(self, fit: Fit, view: Membership, signed: dict[str, str], table: Table) -> Outcome:
        """Write the model and the scores, and last the numbers, which mark the run as done."""
        out, run_id = self.site.out, self.manifest.run_id.hex()
        about = {**self._about(view, signed), "n_samples": fit.moments.n_samples, "result_sha256": result_digest(fit)}
        read_with = self.site.data.table.remembered
        model = replace(model_of(fit, run_id=run_id, whole=not view.missing), read_with=read_with)
        write_model(out.result, model)
        self._write_scores(model, table)
        save_json(out.numbers, {**fit_numbers(fit, about), "privacy": privacy_numbers(self.site, fit, view)})
        return Outcome(fit, view.members, view.missing, self._written, fit.result.converged)

    def _write_scores(self, model: Model, table: Table) -> None:
        """Write the scores of this site's samples with their ids. Where columns are split, those of all samples."""
        if self.site.out.scores is None:
            return
        scores = model.scores
        if scores is None:
            onto = Projector(model.components, model.mean, model.scale, fills=model.missing == "mean")
            scores = onto.scores_of(table.source, model.feature_names, str(self.site.data.file))
        save_scores(self.site.out.scores, scores, table, self.site.data.table)

    @property
    def _written(self) -> tuple[Path, ...]:
        out = self.site.out
        return out.result, out.numbers, *([] if out.scores is None else [out.scores])

    def _has_model(self) -> bool:
        """Whether the model of this run exists. If its numbers do not, the result is damaged."""
        try:
            return read_model(self.site.out.result).run_id == self.manifest.run_id.hex()
        except UnreadableFileError:
            return False

    def written_before(self, keyring: CertificateKeyring) -> Outcome | None:
        """The result of this run, if it is already written. A damaged one is an error, unless there is a journal.

        It may have been taken from another site: the signatures of all members, checked with ``keyring``, prove it.
        """
        out = self.site.out
        if not (out.numbers.exists() or self._has_model()):
            return None
        try:
            numbers = json.loads(out.numbers.read_text(encoding="utf-8"))
            if numbers["run_id"] != self.manifest.run_id.hex():
                return None
            members, missing = tuple(numbers["sites"]), tuple(numbers["lost_sites"])
            put_off, taken = str(numbers.get("put_off", "")), numbers["site"] != self.site.name
            written = () if put_off else (out.result, out.numbers) if taken else self._written
            converged, n_lost = bool(numbers["converged"]), len(numbers["lost_links"])
            done = Outcome(None, members, missing, written, converged, put_off=put_off, n_lost=n_lost)
            if not taken and numbers["own_data"] != json.loads(self.folder.fingerprint):
                fix = "give the run another name at all sites, or choose another out.folder."
                changed = f"the data of run {self.site.run!r} have changed since {out.numbers} was written"
                raise InputError(f"{changed}; {fix}")
            model = None if put_off else read_model(out.result)
            if model is not None and model.run_id != self.manifest.run_id.hex():
                raise UnreadableFileError(f"{out.result} and {out.numbers} belong to different runs.")
            if taken or (model is not None and self.site.settings.partition == "samples"):
                self._require_signed(numbers, model, keyring)
        except (UnreadableFileError, OSError, ValueError, KeyError, TypeError, AttributeError) as error:
            if self.folder.has_journal:
                # It is made again from there.
                return None
            if isinstance(error, InputError):
                raise
            why, fix = str(error).rstrip("."), self._how_to_get_it_back()
            raise UnreadableFileError(f"the result of this run was written, but is damaged: {why}. {fix}") from error
        return done

    def _how_to_get_it_back(self) -> str:
        over = "or start over at all sites: eigenmesh site run --fresh."
        if self.site.settings.partition == "features":
            return f"Restore both files from a backup, {over}"
        out = self.site.out
        both = f"Copy {out.result.name} and {out.numbers.name} from any other site of this run into {out.folder}"
        return f"{both} (own_data may be taken out of {out.numbers.name} first), restore them from a backup, {over}"

    def _require_signed(self, numbers: dict[str, Any], model: Model | None, keyring: CertificateKeyring) -> None:
        """Raise unless all members, this site included, have signed the result that the files hold."""
        digest, members = numbers["result_sha256"], list(numbers["sites"])
        for member in members:
            statement = read_statement(numbers["signatures"][member], keyring, self.manifest.run_id)
            if (statement.kind, statement.site, statement.content[1]) != (Topic.RESULT, member, digest):
                raise UnreadableFileError(f"{member} has not signed it.")
        bounds = numbers["error_bounds"]
        if model is None or self.site.name not in members:
            raise UnreadableFileError(f"it is not a result of {self.site.name}.")
        if _digest_of(model.components, model.explained_variance, bounds) != digest:
            raise UnreadableFileError(f"{self.site.out.result} is not the result that the sites have signed.")


# Disk space at a site: how much a run writes, and how a full disk parks the run.


# Bytes per audit line, per score in a text file, and of all small files of a short run (status, events, log).
AUDIT_LINE_BYTES, SCORE_BYTES, OTHER_BYTES = 350, 20, 100_000
FULL_DISK = (errno.ENOSPC, errno.EDQUOT)


def written_bytes(site: Site, forecast: Forecast | None = None, n_samples: int = 0, n_features: int = 0) -> float:
    """Bytes that a run writes at one site: journal of received messages, audit of sent ones, model and scores.

    Without a forecast of the traffic, journal and audit are not included.
    """
    wanted = site.settings.asked.n_components
    k = wanted if isinstance(wanted, int) else 1
    scores = SCORE_BYTES * k * n_samples if site.out.scores is not None else 0
    # The model holds the components twice: those of the run, and those of this node.
    model = 8 * n_features * (2 * k + 3)
    sent = 0.0 if forecast is None else forecast.bytes + AUDIT_LINE_BYTES * forecast.messages
    return sent / len(site.sites) + model + scores + OTHER_BYTES


def is_full_disk(error: BaseException) -> bool:
    """Whether a full disk or an exceeded quota caused the error."""
    return any(isinstance(one, OSError) and one.errno in FULL_DISK for one in (error, error.__context__))


@contextmanager
def parked_by_full_disk(name: str) -> Iterator[None]:
    """Turn a full disk into a parked run, at the start or later: a restart continues it once there is disk space."""
    try:
        yield
    except OSError as error:
        if isinstance(error, ParkedError) or not is_full_disk(error):
            raise
        raise ParkedError(f"{name} parked the run: {error} Free some space, and start it again.") from error
