"""The result files of a run at one site."""

import json
from dataclasses import dataclass
from pathlib import Path

from eigenmesh._atomic_write import require_writable, save_json
from eigenmesh.errors import InputError, UnreadableFileError
from eigenmesh.fitting import Fit, fit_numbers, model_of
from eigenmesh.model_file import write_model
from eigenmesh.sites._manifest import Manifest
from eigenmesh.sites._membership import Membership
from eigenmesh.sites._site import Site


@dataclass(frozen=True)
class Outcome:
    """How a run ended at this site.

    Attributes
    ----------
    fit : None if the result was written by an earlier start.
    members, missing : sites whose samples are in the result, and sites that were lost.
    written : files of the result.
    owed : neighbours that may not have received everything yet; the journal is kept for them.
    """

    fit: Fit | None
    members: tuple[str, ...]
    missing: tuple[str, ...]
    written: tuple[Path, ...]
    converged: bool
    owed: tuple[str, ...] = ()


class ResultFiles:
    """Writes the model and the numbers of one run at one site; ``fingerprint`` identifies the site's data."""

    def __init__(self, site: Site, manifest: Manifest, fingerprint: str) -> None:
        self.site, self.manifest, self.fingerprint = site, manifest, fingerprint
        out = site.out
        try:
            out.folder.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise UnreadableFileError(f"cannot make {out.folder}: {error.strerror}; choose another folder.") from error
        for path in (out.result, out.numbers, out.status, out.events, out.audit):
            require_writable(path)

    def write(self, fit: Fit, view: Membership) -> Outcome:
        """Write the model, then the numbers, which mark the run as done."""
        out, run_id = self.site.out, self.manifest.run_id.hex()
        about = {
            "site": self.site.name,
            "run": self.site.run,
            "run_id": run_id,
            "whole": not view.missing,
            "sites": list(view.members),
            "lost_sites": list(view.missing),
            "lost_links": [list(link) for link in view.lost],
            "n_samples": fit.moments.n_samples,
            "own_data": self.fingerprint,
            "manifest": self.manifest.content,
        }
        write_model(out.result, model_of(fit, run_id=run_id, whole=not view.missing))
        save_json(out.numbers, fit_numbers(fit, about))
        return Outcome(fit, view.members, view.missing, (out.result, out.numbers), fit.result.converged)

    def written_before(self) -> Outcome | None:
        """The result of this run, if it is already written and no neighbour can still need this site."""
        out = self.site.out
        try:
            numbers = json.loads(out.numbers.read_text(encoding="utf-8"))
        except (OSError, ValueError):
            return None
        if numbers.get("run_id") != self.manifest.run_id.hex() or not out.result.exists():
            return None
        if numbers.get("own_data") != self.fingerprint:
            raise InputError(
                f"{out.numbers} is the result of run {self.site.run!r}, but the data have changed since; give the run "
                "another name at all sites, or choose another out.folder."
            )
        # Neighbours may still need messages of this site; only with the journal can it send them again.
        if out.journal_of(len(numbers["lost_links"])).exists():
            return None
        members, missing = tuple(numbers["sites"]), tuple(numbers["lost_sites"])
        return Outcome(None, members, missing, (out.result, out.numbers), bool(numbers["converged"]))
