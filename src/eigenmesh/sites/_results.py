"""The result files of a run at one site: the model, the scores and the numbers that belong to it."""

import hashlib
import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from eigenmesh._atomic_write import require_writable, save_json
from eigenmesh.data import Table
from eigenmesh.data._scores import Projector
from eigenmesh.data._scores_file import save_scores
from eigenmesh.errors import InputError, UnreadableFileError
from eigenmesh.fitting import Fit, fit_numbers, model_of
from eigenmesh.model_file import Model, read_model, write_model
from eigenmesh.protocol import Membership
from eigenmesh.sites._manifest import Manifest
from eigenmesh.sites._run_folder import RunFolder
from eigenmesh.sites._site import Site


@dataclass(frozen=True)
class Outcome:
    """How a run ended at this site; ``missing`` are the sites that were lost.

    ``fit`` is None if an earlier start of the run wrote the result. Neighbours in ``owed`` may not have received all
    messages yet, so the journal is kept for them. ``put_off`` is the reason why a batch of a followed run does not
    count yet.
    """

    fit: Fit | None
    members: tuple[str, ...]
    missing: tuple[str, ...]
    written: tuple[Path, ...]
    converged: bool
    owed: tuple[str, ...] = ()
    put_off: str = ""


def result_digest(fit: Fit) -> str:
    """The SHA-256 that all members sign: of components, variances and bounds, as little-endian float64."""
    parts = (fit.result.components, fit.result.explained_variance, fit.result.certificate.error_bounds)
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
    """Writes model, scores and numbers of one run at one site; ``folder`` holds the run's journal."""

    def __init__(self, site: Site, manifest: Manifest, folder: RunFolder) -> None:
        self.site, self.manifest, self.folder = site, manifest, folder
        out = site.out
        try:
            out.folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        except OSError as error:
            raise UnreadableFileError(f"cannot make {out.folder}: {error.strerror}; choose another folder.") from error
        for path in (out.result, out.numbers, out.status, out.events, out.audit, out.scores):
            if path is not None:
                require_writable(path)

    def _about(self, view: Membership, signed: dict[str, str]) -> dict[str, Any]:
        """The facts that mark a run as done; ``signed`` are the members' signed statements."""
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
        model = model_of(fit, run_id=run_id, whole=not view.missing)
        write_model(out.result, model)
        self._write_scores(model, table)
        save_json(out.numbers, {**fit_numbers(fit, about), "privacy": privacy_numbers(self.site, fit, view)})
        return Outcome(fit, view.members, view.missing, self._written, fit.result.converged)

    def _write_scores(self, model: Model, table: Table) -> None:
        """Write the scores of this site's samples with their ids; where columns are split, those of all samples."""
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

    def written_before(self) -> Outcome | None:
        """The result of this run, if it is already written and no neighbour can still need messages of this site."""
        out = self.site.out
        # With a journal, take part again: neighbours may still need messages, which are sent again from the journal.
        if self.folder.has_journal or not (out.numbers.exists() or self._has_model()):
            return None
        try:
            numbers = json.loads(out.numbers.read_text(encoding="utf-8"))
            if numbers["run_id"] != self.manifest.run_id.hex():
                return None
            members, missing = tuple(numbers["sites"]), tuple(numbers["lost_sites"])
            put_off = str(numbers.get("put_off", ""))
            written = () if put_off else self._written
            done = Outcome(None, members, missing, written, bool(numbers["converged"]), put_off=put_off)
            if numbers["own_data"] != json.loads(self.folder.fingerprint):
                fix = "give the run another name at all sites, or choose another out.folder."
                changed = f"the data of run {self.site.run!r} have changed since {out.numbers} was written"
                raise InputError(f"{changed}; {fix}")
            if not put_off and read_model(out.result).run_id != self.manifest.run_id.hex():
                raise UnreadableFileError(f"{out.result} and {out.numbers} belong to different runs.")
        except (UnreadableFileError, OSError, ValueError, KeyError, TypeError, AttributeError) as error:
            if isinstance(error, InputError):
                raise
            fix = "Restore both files from a backup, or start over at all sites: eigenmesh site run --fresh."
            raise UnreadableFileError(f"the result of this run was written, but is damaged: {error} {fix}") from error
        return done
