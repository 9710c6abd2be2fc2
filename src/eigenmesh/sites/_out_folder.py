"""The folder that the runs of a site write to, and the names of their files."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

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
