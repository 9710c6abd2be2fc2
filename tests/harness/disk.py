"""A disk that can be full, damaged or copied, and says what of the journal would survive a crash."""

from __future__ import annotations

from collections import deque
from copy import deepcopy
from random import Random

from eigenmesh.errors import ParkedError
from eigenmesh.protocol.setup import Past
from eigenmesh.protocol.wire import JournalRecord, Mark, scan
from eigenmesh.rehearsal.world import HEAD_BYTES, Disk

# Offset of the mark in a record.
MARK_AT = 8


class FaultyDisk(Disk):
    """A disk with faults.

    Attributes
    ----------
    rounds : by index of the sender and epoch, the round after the last one that is synced.
    masked : by epoch, the numbers of averages that are synced.
    farewells : indices of senders and epochs of the farewells that are synced.
    statements : texts of the statements that are synced.
    full, audit_full : writing fails.
    """

    def __init__(self, site: str, identity: str, fingerprint: str) -> None:
        super().__init__(site, identity, fingerprint)
        self.full = self.audit_full = False
        self._forget()

    def _forget(self) -> None:
        self.rounds: dict[tuple[int, int], int] = {}
        self.masked: dict[int, set[int]] = {}
        self.farewells: set[tuple[int, int]] = set()
        self.statements: set[str] = set()
        self._unsynced: deque[JournalRecord] = deque()

    def copy(self) -> FaultyDisk:
        """The disk of another process that starts from a copy of the folder."""
        return deepcopy(self)

    def open(self, fingerprint: str, random: Random) -> Past:
        if self.full:
            raise ParkedError(f"the journal of {self.site} cannot be written: no space left on device.")
        past = super().open(fingerprint, random)
        self._forget()
        self._unsynced += past.entries
        self.end_sync(len(self.content))
        return past

    def append(self, data: bytes) -> None:
        if self.full:
            raise OSError("no space left on device")
        offset = len(self.content)
        super().append(data)
        self._unsynced += scan(self.read, offset, len(self.content))[0]

    def end_sync(self, size: int) -> None:
        super().end_sync(size)
        while self._unsynced and self._unsynced[0].offset + self._unsynced[0].length <= size:
            entry = self._unsynced.popleft()
            key = entry.sender, entry.epoch
            if entry.mark is Mark.FRAME:
                self.rounds[key] = entry.round + 1
            elif entry.mark is Mark.MASKED:
                self.masked.setdefault(entry.epoch, set()).add(entry.round)
            elif entry.mark is Mark.DONE:
                self.farewells.add(key)
            elif entry.mark is Mark.STATEMENT:
                self.statements.add(self.read(entry.offset, entry.length).decode())

    def flip(self, random: Random) -> None:
        """Flip one bit of the stored journal."""
        if len(self.content) > HEAD_BYTES:
            self.content[random.randrange(HEAD_BYTES, len(self.content))] ^= 1 << random.randrange(8)
