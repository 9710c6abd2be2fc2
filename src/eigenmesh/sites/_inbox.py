"""A folder in which samples arrive, file by file."""

from __future__ import annotations

import contextlib
import hashlib
import logging
from dataclasses import dataclass, field, replace
from pathlib import Path

import numpy as np
from scipy import sparse

from eigenmesh.data import read_table
from eigenmesh.data._columns import aligned
from eigenmesh.data._source import Samples
from eigenmesh.data._summaries import first_not_finite, stored
from eigenmesh.data._table_options import column_label
from eigenmesh.errors import DataError, UnreadableFileError
from eigenmesh.sites._ledger import CountedFile
from eigenmesh.sites._site import DataFile, read_samples

logger = logging.getLogger(__name__)

# Names of files that are still being written.
UNFINISHED = (".tmp", ".part")
HANDOVER = "handover-{}.npy"


@dataclass
class Inbox:
    """The files of a folder, each hashed and read once, and how to read them.

    Complete files must be moved into the folder. Names that begin with a dot, or end in .tmp or .part, are ignored.
    ``columns`` are the number and the names of the columns of the first file; all later ones must match them.
    """

    folder: Path
    data: DataFile
    missing: str = "error"
    columns: tuple[int, tuple[str, ...] | None] | None = None
    _hashes: dict[tuple[str, int, int], str] = field(default_factory=dict)
    _read: dict[str, Samples] = field(default_factory=dict)
    _reported_copies: set[str] = field(default_factory=set)

    def files(self) -> dict[str, Path]:
        """The files by the hash of their content, in the order of their names; of equal files only the first."""
        found: dict[str, Path] = {}
        try:
            paths = sorted(path for path in self.folder.iterdir() if path.is_file())
        except OSError as error:
            raise UnreadableFileError(
                f"{self.folder} cannot be followed: {error.strerror}; give an existing folder."
            ) from error
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
        """The files that are in no batch yet, as entries for this batch; raises if a counted file has changed."""
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
        stacked: Samples = sparse.vstack(parts, "csr") if any(map(sparse.issparse, parts)) else np.vstack(parts)
        return stacked

    def load(self, counted: tuple[CountedFile, ...]) -> None:
        """Read these files; raises if one is missing or has changed since it was counted."""
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
        """The rows of a file, with columns in the order of the first file; raises for missing columns or entries."""
        # What a site hands over has no ids or labels, so the table options are not for it.
        handed_over = path.match(HANDOVER.format("*"))
        source = (read_table(path) if handed_over else read_samples(replace(self.data, file=path))).source
        columns = self.columns or (int(source.shape[1]), source.feature_names)
        source = aligned(source, *columns, str(path), "the samples that came first")
        rows = source.read(slice(0, source.shape[0]))
        if self.missing == "error" and not np.isfinite(stored(rows)).all():
            row, column, value = first_not_finite(rows)
            at = f"{path}: row {row}, {column_label(columns[1], column)}"
            fix = 'remove the row, or set missing = "mean" at all sites'
            raise DataError(f"{at} is {value}; {fix}. No row of this file was counted.")
        self.columns = columns
        return rows if sparse.issparse(rows) else np.array(rows)

    def _hash(self, path: Path) -> str:
        facts = path.stat()
        key = path.name, facts.st_size, facts.st_mtime_ns
        if key not in self._hashes:
            with path.open("rb") as file:
                self._hashes[key] = hashlib.file_digest(file, "sha256").hexdigest()
        return self._hashes[key]


def same_moments(rows: np.ndarray) -> np.ndarray:
    """Rows (n, d) with the same number, mean and scatter as ``rows``; they reveal nothing else about them.

    For ``rows = 1 m^T + U S V^T`` they are ``1 m^T + Q S V^T``, where Q has random orthonormal columns that sum to 0.
    """
    mean = rows.mean(axis=0)
    _, sizes, directions = np.linalg.svd(rows - mean, full_matrices=False)
    rank = min(len(sizes), len(rows) - 1)
    drawn = np.random.default_rng().standard_normal((len(rows), rank))
    Q = np.linalg.qr(drawn - drawn.mean(axis=0))[0]
    return np.asarray(mean + (Q * sizes[:rank]) @ directions[:rank])
