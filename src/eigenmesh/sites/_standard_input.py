"""Lines from standard input, kept in a file that grows: they are on the disk before they count."""

from __future__ import annotations

import os
import threading
from dataclasses import dataclass, field

from eigenmesh._atomic_write import sync_folder
from eigenmesh.data._dialect import Dialect
from eigenmesh.errors import UnreadableFileError
from eigenmesh.sites._growing_file import GrowingFile
from eigenmesh.sites._ledger import CountedFile

READ_BYTES = 2**16


@dataclass
class StandardInput(GrowingFile):
    """Whole lines from a descriptor, added to a file by a thread that brings them to the disk.

    A line without an end is not kept. A sender that begins anew may send the header of the file again.
    """

    descriptor: int = field(default=0, kw_only=True)
    _failure: str = ""

    def __post_init__(self) -> None:
        with self.place.open("ab+") as file:
            # What a crash has left of a line is not one.
            file.seek(0)
            file.truncate(sum(len(line) for line in file if line.endswith(b"\n")))
        sync_folder(self.place.parent)
        threading.Thread(target=self._keep, name="standard-input", daemon=True).start()

    def new(self, counted: tuple[CountedFile, ...], batch: int) -> tuple[CountedFile, ...]:
        if self._failure:
            raise UnreadableFileError(self._failure)
        return super().new(counted, batch)

    def _keep(self) -> None:
        """Until there are no more."""
        try:
            header, left = self._first_line(), b""
            with self.place.open("ab") as file:
                while received := os.read(self.descriptor, READ_BYTES):
                    lines, end, left = (left + received).rpartition(b"\n")
                    if end:
                        lines, header = (lines + end).removeprefix(header), b""
                        file.write(lines)
                        file.flush()
                        os.fsync(file.fileno())
        except OSError as error:
            self._failure = f"lines from standard input cannot be kept in {self.place}: {error}."

    def _first_line(self) -> bytes:
        """That of the file, if it names the columns."""
        with self.place.open("rb") as file:
            first = file.readline()
        return first if first.strip() and Dialect.of(self.place, self.data.table).has_header else b""
