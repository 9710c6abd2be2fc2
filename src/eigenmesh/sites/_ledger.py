"""Which files of a followed folder are in which batch: on the disk before any number of the batch leaves."""

from __future__ import annotations

import hashlib
import json
from dataclasses import asdict, dataclass, replace
from pathlib import Path

from eigenmesh._atomic_write import save_json
from eigenmesh.errors import UnreadableFileError


@dataclass(frozen=True)
class CountedFile:
    """A file that was taken into a batch, or the lines that had come to its end by then.

    It is known by the SHA-256 of its content; of a file that grows, of its first ``end`` bytes.
    """

    name: str
    sha256: str
    rows: int
    batch: int
    end: int = 0


@dataclass(frozen=True)
class Ledger:
    """How far a site has come in a followed run.

    Attributes
    ----------
    batch : the batch that is under way, or next.
    settled : whether the files of that batch are written down; then they stay as they are.
    released : the last batch whose numbers were summed up; -1 before the first.
    files : those of all batches, in the order of their rows.
    """

    path: Path
    batch: int
    settled: bool = False
    released: int = -1
    files: tuple[CountedFile, ...] = ()

    @classmethod
    def read(cls, path: Path, first: int) -> Ledger:
        """What the file says; a site without one begins with its first batch."""
        try:
            content = json.loads(path.read_text(encoding="utf-8"))
            files = tuple(CountedFile(**one) for one in content["files"])
            return cls(path, int(content["batch"]), bool(content["settled"]), int(content["released"]), files)
        except FileNotFoundError:
            return cls(path, first)
        except OSError as error:
            raise UnreadableFileError(f"{path} cannot be read: {error.strerror}") from error
        except (ValueError, KeyError, TypeError) as error:
            fix = "take it from a copy, or join anew from a later batch on"
            raise UnreadableFileError(f"{path}, which says what was counted, is damaged ({error}); {fix}.") from error

    @property
    def n_new(self) -> int:
        """Rows that were in no batch that was released."""
        return sum(file.rows for file in self.files if file.batch > self.released)

    @property
    def fingerprint(self) -> str:
        """Identifies what was counted before this batch, as JSON: for this site alone, as it would confirm a guess."""
        before = [[file.sha256, file.rows] for file in self.files if file.batch < self.batch]
        return json.dumps({"sha256_of_counted": hashlib.sha256(json.dumps(before).encode()).hexdigest()})

    def settle(self, files: tuple[CountedFile, ...]) -> Ledger:
        """With the new files of the batch that is under way."""
        return replace(self, settled=True, files=(*self.files, *files))._saved()

    def done(self, released: bool) -> Ledger:
        """At the next batch."""
        last = self.batch if released else self.released
        return replace(self, batch=self.batch + 1, settled=False, released=last)._saved()

    def _saved(self) -> Ledger:
        content = {**vars(self), "files": [asdict(file) for file in self.files]}
        del content["path"]
        save_json(self.path, content)
        return self
