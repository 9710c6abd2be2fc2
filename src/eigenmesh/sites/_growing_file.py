"""A text file that grows: each complete line is a sample that has arrived."""

from __future__ import annotations

import hashlib
import os
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from eigenmesh.data._dialect import Dialect
from eigenmesh.errors import DataError, UnreadableFileError, warn_user
from eigenmesh.sites._arrivals import Arrivals
from eigenmesh.sites._ledger import CountedFile

GROWING = (".csv", ".tsv", ".txt")
# Bytes at the end of what was read that are compared again before more are read.
COMPARED_BYTES = 4096


class Chunk(NamedTuple):
    """Rows that were read together, and the SHA-256 of the file up to their end."""

    end: int
    sha256: str
    rows: np.ndarray


@dataclass
class GrowingFile(Arrivals):
    """The rows in the complete lines of a file. The part that was read must never change.

    The ledger holds the end of the counted part and the hash of everything before it; after a restart that part is read
    and compared again. While the site runs, the last bytes that were read are compared before new ones are read. New
    lines are copied to the file ``scratch`` to be parsed.
    """

    scratch: Path = field(kw_only=True)
    _chunks: list[Chunk] = field(default_factory=list)
    _hash: Any = field(default_factory=hashlib.sha256)
    _n_lines: int = 0
    _header: bytes = b""
    _last: bytes = b""

    @property
    def _end(self) -> int:
        return self._chunks[-1].end if self._chunks else 0

    def new(self, counted: tuple[CountedFile, ...], batch: int) -> tuple[CountedFile, ...]:
        """All lines that are in no batch yet, as one entry; empty if there are none."""
        self.load(counted)
        self._read_on()
        start = counted[-1].end if counted else 0
        rows = sum(len(chunk.rows) for chunk in self._chunks if chunk.end > start)
        return (CountedFile(self.place.name, self._chunks[-1].sha256, rows, batch, self._end),) if rows else ()

    def load(self, counted: tuple[CountedFile, ...]) -> None:
        if counted and not self._chunks:
            self._read_on(counted[-1])

    def stacked(self, counted: tuple[CountedFile, ...]) -> np.ndarray:
        self.load(counted)
        inside = [chunk for chunk in self._chunks if chunk.end <= counted[-1].end]
        # Keep them as one chunk, so that the list of chunks stays short.
        whole = inside[-1]._replace(rows=np.vstack([chunk.rows for chunk in inside]))
        self._chunks[: len(inside)] = [whole]
        return whole.rows

    def _read_on(self, counted: CountedFile | None = None) -> None:
        """Read the lines that have been added; if ``counted`` is given, only up to its end."""
        if counted is not None and (counted.name, counted.end > 0) != (self.place.name, True):
            so_far = f"batch {counted.batch} has counted {counted.name}"
            raise DataError(f"{so_far}, not lines of {self.place}; follow the same source as before.")
        piece = self._whole_lines(None if counted is None else counted.end)
        if not piece.strip():
            return
        digest = self._hash.copy()
        digest.update(piece)
        if counted is not None and digest.hexdigest() != counted.sha256:
            raise self._changed(f"its first {counted.end:,} bytes differ from those that were counted")
        rows = self._rows(piece)
        if rows is not None:
            self._hash, self._last = digest, piece[-COMPARED_BYTES:]
            self._n_lines += piece.count(b"\n")
            self._chunks.append(Chunk(self._end + len(piece), digest.hexdigest(), rows))

    def _whole_lines(self, end: int | None) -> bytes:
        """The bytes after those that were read, up to ``end``, or to the end of the last complete line if None."""
        start, last = self._end, self._last
        try:
            with self.place.open("rb") as file:
                if os.fstat(file.fileno()).st_size < max(start, end or 0):
                    raise self._changed(f"it had {max(start, end or 0):,} bytes or more")
                file.seek(start - len(last))
                if file.read(len(last)) != last:
                    raise self._changed(f"the lines before byte {start:,} have changed")
                found = file.read(-1 if end is None else end - start)
        except OSError as error:
            raise UnreadableFileError(f"{self.place} cannot be read: {error.strerror}; restore it.") from error
        return found[: found.rfind(b"\n") + 1] if end is None else found

    def _changed(self, how: str) -> DataError:
        fix = "restore it, and only append lines"
        return DataError(f"{self.place} was cut or rewritten: {how}; {fix}. Nothing was counted twice.")

    def _rows(self, piece: bytes) -> np.ndarray | None:
        """The rows in some lines; None if they are only a header. Errors name the followed file, not ``scratch``."""
        try:
            if not self._chunks and not self._begun(piece):
                return None
            self.scratch.write_bytes(self._header + piece if self._chunks else piece)
            return np.asarray(self._checked(self.scratch))
        except (DataError, UnreadableFileError) as error:
            n_before = self._n_lines - self._header.count(b"\n")
            where = f"{self.place} after line {n_before}" if self._chunks else str(self.place)
            raise DataError(str(error).replace(str(self.scratch), where)) from error
        finally:
            self.scratch.unlink(missing_ok=True)

    def _begun(self, piece: bytes) -> bool:
        """Whether the first lines contain a row. If so, keep the header or its absence, delimiter and decimal sign."""
        self.scratch.write_bytes(piece)
        dialect = Dialect.of(self.scratch, self.data.table)
        first, _, rest = piece.lstrip().partition(b"\n")
        if dialect.has_header and not rest.strip():
            return False
        if dialect.doubt is not None:
            warn_user(f"line 1 of {self.place} {dialect.doubt}")
        self._header = first + b"\n" if dialect.has_header else b""
        header = "yes" if dialect.has_header else "no"
        table = replace(self.data.table, header=header, delimiter=dialect.delimiter, decimal=dialect.decimal)
        self.data = replace(self.data, table=table)
        return True
