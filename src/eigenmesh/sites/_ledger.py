"""Records which files belong to which batch of a followed run; saved before any number of the batch is sent."""

from __future__ import annotations

import hashlib
import json
from dataclasses import asdict, dataclass, replace
from pathlib import Path

from eigenmesh._atomic_write import save_json
from eigenmesh.errors import UnreadableFileError


@dataclass(frozen=True)
class CountedFile:
    """A file that is part of a batch; the hash of its content identifies it."""

    name: str
    sha256: str
    rows: int
    batch: int


@dataclass(frozen=True)
class Ledger:
    """The progress of a site in a followed run.

    Attributes
    ----------
    batch : the current batch, or the next one.
    settled : whether the files of that batch are recorded; then they no longer change.
    released : the last batch that counted; -1 before the first.
    files : the files of all batches, in the order of their rows.
    """

    path: Path
    batch: int
    settled: bool = False
    released: int = -1
    files: tuple[CountedFile, ...] = ()

    @classmethod
    def read(cls, path: Path, first: int) -> Ledger:
        """Read the file; without one, the site begins with its first batch."""
        try:
            content = json.loads(path.read_text(encoding="utf-8"))
            files = tuple(CountedFile(**one) for one in content["files"])
            return cls(path, int(content["batch"]), bool(content["settled"]), int(content["released"]), files)
        except FileNotFoundError:
            return cls(path, first)
        except OSError as error:
            raise UnreadableFileError(f"{path} cannot be read: {error.strerror}; restore it or its access.") from error
        except (ValueError, KeyError, TypeError) as error:
            fix = "restore it from a backup, or let this site join again from a later batch"
            raise UnreadableFileError(f"{path}, the list of counted files, is damaged ({error}); {fix}.") from error

    @property
    def n_new(self) -> int:
        """Rows that were in no batch that counted."""
        return sum(file.rows for file in self.files if file.batch > self.released)

    @property
    def fingerprint(self) -> str:
        """JSON that identifies the files counted before this batch.

        It is never sent: with the hash, another site could confirm a guess about the data.
        """
        before = [[file.sha256, file.rows] for file in self.files if file.batch < self.batch]
        return json.dumps({"sha256_of_counted": hashlib.sha256(json.dumps(before).encode()).hexdigest()})

    def settle(self, files: tuple[CountedFile, ...]) -> Ledger:
        """Record the new files of the current batch."""
        return replace(self, settled=True, files=(*self.files, *files))._saved()

    def done(self, released: bool) -> Ledger:
        """Go on to the next batch; ``released`` says whether the current one counted."""
        last = self.batch if released else self.released
        return replace(self, batch=self.batch + 1, settled=False, released=last)._saved()

    def _saved(self) -> Ledger:
        content = {**vars(self), "files": [asdict(file) for file in self.files]}
        del content["path"]
        save_json(self.path, content)
        return self
