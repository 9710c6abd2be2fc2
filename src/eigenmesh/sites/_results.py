"""The files of a run at one site: its result, and what a restart after a loss continues from."""

import json
import zipfile
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from eigenmesh._atomic_write import require_writable, save_arrays, save_json
from eigenmesh.errors import InputError, UnreadableFileError
from eigenmesh.fitting import Fit, fit_numbers, model_of
from eigenmesh.model_file import read_model, write_model
from eigenmesh.sites._manifest import Manifest
from eigenmesh.sites._membership import Link, Membership
from eigenmesh.sites._run_folder import RunFolder
from eigenmesh.sites._site import Site


@dataclass(frozen=True)
class Outcome:
    """How a run ended at this site; ``missing`` are the sites that were lost.

    ``fit`` is None if the result was written by an earlier start. Neighbours in ``owed`` may not have received
    everything yet; the journal is kept for them.
    """

    fit: Fit | None
    members: tuple[str, ...]
    missing: tuple[str, ...]
    written: tuple[Path, ...]
    converged: bool
    owed: tuple[str, ...] = ()


class ResultFiles:
    """Writes the model and the numbers of one run at one site, whose data and journals ``folder`` knows."""

    def __init__(self, site: Site, manifest: Manifest, folder: RunFolder) -> None:
        self.site, self.manifest, self.folder = site, manifest, folder
        out = site.out
        try:
            out.folder.mkdir(mode=0o700, parents=True, exist_ok=True)
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
            "own_data": self.folder.fingerprint,
            "manifest": self.manifest.content,
        }
        write_model(out.result, model_of(fit, run_id=run_id, whole=not view.missing))
        save_json(out.numbers, fit_numbers(fit, about))
        return Outcome(fit, view.members, view.missing, (out.result, out.numbers), fit.result.converged)

    def written_before(self) -> Outcome | None:
        """The result of this run, if it is already written and no neighbour can still need this site."""
        out = self.site.out
        # Neighbours may still need messages of this site; only with the journal can it send them again.
        if not out.numbers.exists() or self.folder.has_journal:
            return None
        try:
            numbers = json.loads(out.numbers.read_text(encoding="utf-8"))
            if numbers["run_id"] != self.manifest.run_id.hex():
                return None
            members, missing = tuple(numbers["sites"]), tuple(numbers["lost_sites"])
            done = Outcome(None, members, missing, (out.result, out.numbers), bool(numbers["converged"]))
            if numbers["own_data"] != self.folder.fingerprint:
                fix = "give the run another name at all sites, or choose another out.folder."
                changed = f"the data of run {self.site.run!r} have changed since {out.numbers} was written"
                raise InputError(f"{changed}; {fix}")
            if read_model(out.result).run_id != self.manifest.run_id.hex():
                raise UnreadableFileError(f"{out.result} is of another run than {out.numbers}.")
        except (UnreadableFileError, OSError, ValueError, KeyError, TypeError, AttributeError) as error:
            if isinstance(error, InputError):
                raise
            fix = "Take both files from a copy, or begin anew at all sites: eigenmesh peer --fresh."
            raise UnreadableFileError(f"the result of this run was written, but is damaged: {error} {fix}") from error
        return done


@dataclass
class Epoch:
    """Lost links, and the latest healthy estimate (d, K), or None before the first."""

    lost: tuple[Link, ...] = ()
    start: np.ndarray | None = None

    def store(self, estimate: np.ndarray) -> None:
        self.start = estimate


class EpochFile:
    """A small file that is replaced atomically; the file of another run is ignored."""

    def __init__(self, path: Path, run_id: bytes) -> None:
        self.path, self.run_id = path, run_id

    def read(self) -> Epoch:
        """The membership to continue with; all sites and links if there is no file."""
        if not self.path.exists():
            return Epoch()
        try:
            with open(self.path, "rb") as file, np.load(file, allow_pickle=False) as arrays:
                if str(arrays["run_id"]) != self.run_id.hex():
                    return Epoch()
                lost = tuple((str(a), str(b)) for a, b in arrays["lost"])
                return Epoch(lost, arrays["start"] if arrays["start"].size else None)
        except (OSError, ValueError, KeyError, EOFError, zipfile.BadZipFile) as error:
            raise UnreadableFileError(f"{self.path} cannot be read ({error}); rename the run at all sites.") from error

    def write(self, epoch: Epoch) -> None:
        lost = np.asarray(epoch.lost, dtype=np.str_).reshape(-1, 2)
        start = np.empty(0) if epoch.start is None else epoch.start
        save_arrays(self.path, {"run_id": np.asarray(self.run_id.hex()), "lost": lost, "start": start})
