"""A simulated disk: a crash loses data that was not synced."""

from __future__ import annotations

from copy import deepcopy
from random import Random

from eigenmesh.errors import CannotResumeError, ParkedError
from eigenmesh.protocol import Instance, JournalRecord, Mark, Past, record, scan

HEAD_BYTES = 64
# Offset of the mark in a record.
MARK_AT = 8


class Disk:
    """The journal of a site, and what would survive a crash at this moment.

    Attributes
    ----------
    fingerprint : identifies the data with which the run began.
    rounds : by index of the sender and epoch, the round after the last one that is synced.
    masked : by epoch, the numbers of averages that are synced.
    farewells : indices of senders and epochs of the farewells that are synced.
    statements : texts of the statements that are synced.
    synced : bytes that are on the disk. The header of the journal, which is on the disk too, holds this number.
    full, audit_full : writing fails.
    """

    def __init__(self, site: str, identity: str, fingerprint: str) -> None:
        self.site, self.identity, self.fingerprint = site, identity, fingerprint
        self.content = bytearray(HEAD_BYTES)
        self.synced = self._syncing = HEAD_BYTES
        self.full = self.audit_full = False
        self.rounds: dict[tuple[int, int], int] = {}
        self.masked: dict[int, set[int]] = {}
        self.farewells: set[tuple[int, int]] = set()
        self.statements: set[str] = set()
        self._unsynced: list[JournalRecord] = []
        self.records = 0

    def copy(self) -> Disk:
        """The disk of another process that starts from a copy of the folder."""
        return deepcopy(self)

    def open(self, fingerprint: str, random: Random) -> Past:
        """Start a process: returns the content of the journal, and puts this start on the disk."""
        if fingerprint != self.fingerprint:
            raise CannotResumeError(f"the data of {self.site} have changed since the run began.")
        if self.full:
            raise ParkedError(f"the journal of {self.site} cannot be written: no space left on device.")
        entries, end = scan(self.read, HEAD_BYTES, len(self.content))
        if end < self.synced:
            raise CannotResumeError(f"the journal of {self.site} is damaged.")
        del self.content[end:]
        starts = 1 + sum(entry.mark is Mark.START for entry in entries)
        self.content += b"".join(record(Mark.START))
        entries, self.synced = scan(self.read, HEAD_BYTES, len(self.content))
        self._syncing = self.synced
        self.rounds, self.masked, self.farewells, self.statements = {}, {}, set(), set()
        self._unsynced, self.records = list(entries), 0
        self._believe(len(entries))
        nonce = f"{random.getrandbits(64):016x}"
        begun = Instance(self.identity, starts, nonce)
        return Past(begun, tuple(entries), lambda e: self.read(e.offset, e.length), f"secret of {self.identity}")

    def read(self, offset: int, length: int) -> bytes:
        return bytes(self.content[offset : offset + length])

    def append(self, data: bytes) -> None:
        if self.full:
            raise OSError("no space left on device")
        offset = len(self.content)
        self.content += data
        self._unsynced += scan(self.read, offset, len(self.content))[0]

    def begin_sync(self) -> tuple[int, int]:
        """Bytes and records that will be on the disk when a sync that begins now ends."""
        self._syncing = len(self.content)
        return self._syncing, self.records + len(self._unsynced)

    def end_sync(self, size: int, records: int) -> None:
        self.synced = max(self.synced, size)
        self._believe(records - self.records)

    def _believe(self, count: int) -> None:
        for entry in self._unsynced[: max(count, 0)]:
            self.records += 1
            key = entry.sender, entry.epoch
            if entry.mark is Mark.FRAME:
                self.rounds[key] = entry.round + 1
            elif entry.mark is Mark.MASKED:
                self.masked.setdefault(entry.epoch, set()).add(entry.round)
            elif entry.mark is Mark.DONE:
                self.farewells.add(key)
            elif entry.mark is Mark.STATEMENT:
                self.statements.add(self.read(entry.offset, entry.length).decode())
        del self._unsynced[: max(count, 0)]

    def crash(self, random: Random) -> None:
        """Lose data that was not synced: all of it, or a part; the part kept may end within a record or with zeros.

        A sync in progress may have finished, although the process did not get the report.
        """
        self.synced = random.choice((self.synced, self._syncing))
        kept = random.choice((self.synced, random.randint(self.synced, len(self.content)), len(self.content)))
        del self.content[kept:]
        if kept > self.synced and random.random() < 0.5:
            hole = random.randrange(self.synced, kept)
            self.content[hole:kept] = bytes(kept - hole)

    def flip(self, random: Random) -> None:
        """Flip one bit of the stored journal."""
        if len(self.content) > HEAD_BYTES:
            self.content[random.randrange(HEAD_BYTES, len(self.content))] ^= 1 << random.randrange(8)
