"""A simulated disk: a crash loses data that was not synced."""

from __future__ import annotations

from random import Random

from eigenmesh.errors import CannotResumeError
from eigenmesh.protocol import Instance, Mark, Past, record, scan

HEAD_BYTES = 64


class Disk:
    """The journal of a site, and what would survive a crash at this moment.

    Attributes
    ----------
    fingerprint : identifies the data with which the run began.
    synced : bytes that are on the disk. The header of the journal, which is on the disk too, holds this number.
    """

    def __init__(self, site: str, identity: str, fingerprint: str) -> None:
        self.site, self.identity, self.fingerprint = site, identity, fingerprint
        self.content = bytearray(HEAD_BYTES)
        self.synced = self._syncing = HEAD_BYTES
        self._n_records = 0

    def open(self, fingerprint: str, random: Random) -> Past:
        """Start a process: returns the content of the journal, and puts this start on the disk."""
        if fingerprint != self.fingerprint:
            raise CannotResumeError(f"the data of {self.site} have changed since the run began.")
        entries, end = scan(self.read, HEAD_BYTES, len(self.content))
        if end < self.synced:
            raise CannotResumeError(f"the journal of {self.site} is damaged.")
        del self.content[end:]
        starts = 1 + sum(entry.mark is Mark.START for entry in entries)
        self.content += b"".join(record(Mark.START))
        entries, self.synced = scan(self.read, HEAD_BYTES, len(self.content))
        self._syncing = self.synced
        self._n_records = len(entries)
        nonce = f"{random.getrandbits(64):016x}"
        begun = Instance(self.identity, starts, nonce)
        return Past(begun, tuple(entries), lambda e: self.read(e.offset, e.length), f"secret of {self.identity}")

    def read(self, offset: int, length: int) -> bytes:
        return bytes(self.content[offset : offset + length])

    def append(self, data: bytes) -> None:
        """Add one record to the journal."""
        self.content += data
        self._n_records += 1

    def begin_sync(self) -> tuple[int, int]:
        """Bytes and records that will be on the disk when a sync that begins now ends."""
        self._syncing = len(self.content)
        return self._syncing, self._n_records

    def end_sync(self, size: int) -> None:
        """A sync of so many bytes has ended."""
        self.synced = max(self.synced, size)

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
