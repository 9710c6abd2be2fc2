"""The file that keeps the current membership and the latest estimate, for a restart."""

import zipfile
from pathlib import Path
from typing import NamedTuple

import numpy as np

from eigenmesh._atomic_write import save_arrays
from eigenmesh.errors import UnreadableFileError
from eigenmesh.sites._membership import Link


class Epoch(NamedTuple):
    """Lost links, and the latest estimate (d, K), or None before the first."""

    lost: tuple[Link, ...] = ()
    start: np.ndarray | None = None


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
            raise UnreadableFileError(
                f"{self.path} cannot be read ({error}); give the run another name at all sites and start again."
            ) from error

    def write(self, epoch: Epoch) -> None:
        save_arrays(
            self.path,
            {
                "run_id": np.asarray(self.run_id.hex()),
                "lost": np.asarray(epoch.lost, dtype=np.str_).reshape(-1, 2),
                "start": np.empty(0) if epoch.start is None else epoch.start,
            },
        )
