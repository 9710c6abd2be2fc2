"""The folder from which a run can be resumed at one site: its journal, and a fingerprint of the site's data.

The identity and the key of the journal belong to this site for the whole run. A neighbour that has heard of them
accepts no others once it has used the numbers of any site. So a journal that a neighbour may know of is kept until the
run is over, also if this site has failed before it sent a number, and must mend its data first.
"""

import contextlib
import os
from pathlib import Path

from eigenmesh._atomic_write import save_text, sync_folder
from eigenmesh.errors import InputError, UnreadableFileError
from eigenmesh.sites._out_folder import OutFolder
from eigenmesh.transports.tls._journal import has_rounds, wipe
from eigenmesh.transports.tls._journal_file import lock

OWN_DATA = "own-data"
# Exists once this site may have sent numbers.
SENT = "numbers-sent"
# Name of a journal that is being deleted.
DONE = "journal-done"


class RunFolder:
    """The folder ``out.resume`` of one run. Each run has its own, so that an old run never blocks the next.

    ``fingerprint``, as JSON, identifies the site's data. It is kept here to detect changes, and is never sent. The data
    may change until the first number of this site is in the journal, or may have been sent.
    """

    def __init__(self, out: OutFolder, fingerprint: str) -> None:
        self.out, self.path, self.fingerprint = out, out.resume, fingerprint
        self._is_new = self._noted = False

    @property
    def has_journal(self) -> bool:
        return any(self.path.glob("journal"))

    def open(self) -> None:
        """Make the folder. An existing one is refused if numbers of different data are in it, or were sent."""
        known = self.path / OWN_DATA
        try:
            self._is_new = not self.has_journal
            if not (known.exists() and known.read_text() == self.fingerprint):
                self._require_unused()
                if (self.path / SENT).exists() or any(map(has_rounds, self.path.glob("journal"))):
                    changed = f"this site's data have changed since {self.path} was made"
                    over = "or start over at all sites: give the run another name, or use eigenmesh site run --fresh."
                    raise InputError(f"{changed}; restore the data, {over}")
                self.path.mkdir(mode=0o700, exist_ok=True)
                save_text(known, self.fingerprint)
        except OSError as error:
            raise UnreadableFileError(f"cannot use {self.path}: {error.strerror}; choose another folder.") from error

    def note_sent(self) -> None:
        """Put on the disk that this site has sent numbers; called before each message with numbers leaves."""
        if not self._noted:
            save_text(self.path / SENT, "")
            self._noted = True

    def close(self, was_heard: bool) -> None:
        """Remove the folder if no neighbour knows of it: the journal is new, and no message was sent."""
        if self._is_new and not was_heard:
            self.remove()

    def remove(self) -> None:
        # Rename the journal first: a crash during the deletion must not leave half a journal to resume from.
        with contextlib.suppress(OSError):
            os.replace(self.path / "journal", self.path / DONE)
        for path in self.path.glob("*"):
            with contextlib.suppress(OSError):
                if path.name in ("journal", DONE):
                    wipe(path)
                path.unlink()
        # This fails, and may fail, where the folder is a symbolic link to another disk.
        with contextlib.suppress(OSError):
            self.path.rmdir()

    def set_aside(self) -> list[Path]:
        """Rename all files of this run, and return their new names."""
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
