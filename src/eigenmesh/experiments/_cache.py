"""Finished runs, one file each, so that an interrupted experiment can continue."""

from __future__ import annotations

import hashlib
import zipfile
import zlib
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from eigenmesh._atomic_write import save_arrays
from eigenmesh.errors import UnreadableFileError
from eigenmesh.experiments._curves import Curve
from eigenmesh.experiments._settings import Run

DESCRIPTION = "description"


@dataclass(frozen=True)
class Store:
    """A folder of curves, each named after all settings that it depends on."""

    folder: Path

    @classmethod
    def open(cls, folder: Path) -> Store:
        """The folder, created if it does not exist."""
        try:
            folder.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise UnreadableFileError(f"cannot make the folder {folder}: {error.strerror}; choose another.") from error
        return cls(folder)

    def path(self, run: Run) -> Path:
        """File of a run: readable words, and a digest of its description."""
        digest = hashlib.sha256(run.description().encode()).hexdigest()[:16]
        return self.folder / f"{run.panel.name}-{run.method.solver.name}-trial{run.trial}-{digest}.npz"

    def load(self, run: Run) -> Curve | None:
        """The curve of a run; None if the file does not exist, is damaged or belongs to another run."""
        try:
            with open(self.path(run), "rb") as file, np.load(file, allow_pickle=False) as arrays:
                if str(arrays[DESCRIPTION]) != run.description():
                    return None
                curve = Curve(*(arrays[name] for name in Curve._fields))
        except (OSError, ValueError, KeyError, EOFError, zipfile.BadZipFile, zlib.error):
            return None
        sound = len(curve.error) > 0 and all(column.shape == curve.error.shape for column in curve)
        return curve if sound else None

    def save(self, run: Run, curve: Curve) -> None:
        save_arrays(self.path(run), {**curve._asdict(), DESCRIPTION: np.str_(run.description())})
