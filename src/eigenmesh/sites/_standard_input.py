"""Lines from standard input, copied to a growing file on the disk."""

from __future__ import annotations

import os
import threading
from dataclasses import dataclass, field
from typing import BinaryIO

from eigenmesh._atomic_write import sync_folder
from eigenmesh.data._dialect import Dialect
from eigenmesh.errors import UnreadableFileError
from eigenmesh.sites._growing_file import GrowingFile
from eigenmesh.sites._ledger import CountedFile
from eigenmesh.transports.tls import Supervisor

READ_BYTES = 2**16


@dataclass
class StandardInput(GrowingFile):
    """Complete lines from a descriptor; a thread appends them to a file and flushes it to the disk.

    Lines are counted only once they are on the disk. A last line without a newline is dropped. A sender that restarts
    may send the header of the file again.
    """

    descriptor: int = field(default=0, kw_only=True)
    _failure: str = ""
    _supervisor: Supervisor = field(default_factory=Supervisor, repr=False, compare=False)
    _durable: threading.Lock = field(default_factory=threading.Lock, repr=False, compare=False)

    def __post_init__(self) -> None:
        with self.place.open("ab+") as file:
            # Remove an incomplete line that a crash may have left at the end.
            file.seek(0)
            file.truncate(sum(len(line) for line in file if line.endswith(b"\n")))
        sync_folder(self.place.parent)
        self._supervisor.thread(self._keep, "standard-input").start()

    def new(self, counted: tuple[CountedFile, ...], batch: int) -> tuple[CountedFile, ...]:
        self._supervisor.check()
        with self._durable:
            if self._failure:
                raise UnreadableFileError(self._failure)
            return super().new(counted, batch)

    def _keep(self) -> None:
        """Copy lines until the input ends."""
        try:
            header, left = self._first_line(), b""
            with self.place.open("ab") as file:
                while received := os.read(self.descriptor, READ_BYTES):
                    lines, end, left = (left + received).rpartition(b"\n")
                    if end:
                        lines, header = (lines + end).removeprefix(header), b""
                        self._append(file, lines)
        except OSError as error:
            self._failure = f"lines from standard input cannot be saved to {self.place}: {error}."

    def _append(self, file: BinaryIO, lines: bytes) -> None:
        """Write lines and flush them to the disk; meanwhile, and if that fails, none are counted."""
        with self._durable:
            self._failure = f"lines from standard input cannot be saved to {self.place}."
            file.write(lines)
            file.flush()
            os.fsync(file.fileno())
            self._failure = ""

    def _first_line(self) -> bytes:
        """The first line of the file, if it is a header."""
        with self.place.open("rb") as file:
            first = file.readline()
        return first if first.strip() and Dialect.of(self.place, self.data.table).has_header else b""
