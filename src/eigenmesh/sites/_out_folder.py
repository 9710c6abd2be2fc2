"""The folder that the runs of a site write to, and the names of their files."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

# A file of the audit that is smaller holds less than a run.
LEAST_AUDIT_BYTES = 100_000


@dataclass(frozen=True)
class OutFolder:
    """The folder that runs write to, and the names of their files; ``run`` names what belongs to one run alone.

    ``scores`` is the file for the scores of this site's own samples, None where they are not asked for. ``version`` is
    the batch of a followed run that the result is of. The audit goes on in a new file after ``audit_bytes``, if given.
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
        """What the run can be resumed from."""
        return self.folder / f"resume-{self.run}"

    @property
    def journal(self) -> Path:
        """What the site has received and said, to resume from."""
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
