"""Which membership a site is in, and what it had found when the last one ended: kept on disk for a restart."""

from __future__ import annotations

import zipfile
from pathlib import Path
from typing import NamedTuple

import numpy as np

from eigenmesh._atomic_write import save_arrays
from eigenmesh.errors import UnreadableFileError
from eigenmesh.sites._membership import Link


class Epoch(NamedTuple):
    """Links that are lost, and (d, K) the latest estimate, or None before the first."""

    lost: tuple[Link, ...] = ()
    start: np.ndarray | None = None


class EpochFile:
    """A small file, replaced whole; one of another run counts as none."""

    def __init__(self, path: Path, run_id: bytes) -> None:
        self.path, self.run_id = path, run_id

    def read(self) -> Epoch:
        """The membership to go on in; all sites and links if there is no file."""
        if not self.path.exists():
            return Epoch()
        try:
            with np.load(self.path, allow_pickle=False) as arrays:
                if str(arrays["run_id"]) != self.run_id.hex():
                    return Epoch()
                lost = tuple((str(a), str(b)) for a, b in arrays["lost"])
                return Epoch(lost, arrays["start"] if arrays["start"].size else None)
        except (OSError, ValueError, KeyError, EOFError, zipfile.BadZipFile) as error:
            raise UnreadableFileError(
                f"{self.path} cannot be read ({error}); start anew at all sites: give the run another name there."
            ) from error

    def write(self, epoch: Epoch) -> None:
        """Keep the membership for a restart."""
        save_arrays(
            self.path,
            {
                "run_id": np.asarray(self.run_id.hex()),
                "lost": np.asarray(epoch.lost, dtype=np.str_).reshape(-1, 2),
                "start": np.empty(0) if epoch.start is None else epoch.start,
            },
        )
