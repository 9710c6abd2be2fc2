"""What one run at one site can be resumed from: journals and the last membership, in a folder of its own."""

import contextlib
import os
from pathlib import Path

from eigenmesh._atomic_write import save_text, sync_folder
from eigenmesh.errors import InputError, UnreadableFileError
from eigenmesh.sites._out_folder import OutFolder
from eigenmesh.transports.tls._journal import has_rounds, wipe
from eigenmesh.transports.tls._journal_file import lock

OWN_DATA = "own-data"
# A journal that nobody needs any more.
DONE = "journal-done"


class RunFolder:
    """The folder ``out.resume`` of one run: another run has another, so that none is ever in the way of the next.

    ``fingerprint``, as JSON, identifies the site's data. It is kept here to detect that they have changed, and never
    sent.
    """

    def __init__(self, out: OutFolder, fingerprint: str) -> None:
        self.out, self.path, self.fingerprint = out, out.resume, fingerprint
        self._is_new = False

    @property
    def has_journal(self) -> bool:
        return any(self.path.glob("journal"))

    def open(self) -> None:
        """Make the folder. One with other data is refused, unless no neighbour's number has come to it."""
        known = self.path / OWN_DATA
        try:
            if self.path.exists() and not (known.exists() and known.read_text() == self.fingerprint):
                self._require_unused()
                if any(map(has_rounds, self.path.glob("journal"))):
                    back = "go back to the data that it was begun with"
                    anew = "or begin anew: give the run another name, or use eigenmesh peer --fresh, at all sites."
                    raise InputError(f"the own data differ from those of {self.path}; {back}, {anew}")
                self.remove()
            self.path.mkdir(mode=0o700, exist_ok=True)
            self._is_new = not known.exists()
            if self._is_new:
                save_text(known, self.fingerprint)
        except OSError as error:
            raise UnreadableFileError(f"cannot use {self.path}: {error.strerror}; choose another folder.") from error

    def close(self, sent_numbers: bool) -> None:
        """Leave nothing of a run that never began: no number has left this site or come to it."""
        if self._is_new and not sent_numbers and not any(map(has_rounds, self.path.glob("journal"))):
            self.remove()

    def remove(self) -> None:
        # Under another name first: a crash on the way must not leave half a journal to resume from.
        with contextlib.suppress(OSError):
            os.replace(self.path / "journal", self.path / DONE)
        for path in self.path.glob("*"):
            with contextlib.suppress(OSError):
                if path.name in ("journal", DONE):
                    wipe(path)
                path.unlink()
        # The folder may be a link to another disk; then it stays.
        with contextlib.suppress(OSError):
            self.path.rmdir()

    def set_aside(self) -> list[Path]:
        """Give everything of this run other names, which are returned."""
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
