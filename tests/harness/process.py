"""A process that can be paused, whose disk can be full, and whose messages are checked or changed."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from eigenmesh.protocol import effects as ev
from eigenmesh.rehearsal.world import Process
from harness.disk import FaultyDisk

if TYPE_CHECKING:
    from harness.world import FaultWorld


class FullDiskError(Exception):
    """The journal or the audit cannot be written."""

    def __init__(self, what: str, why: str) -> None:
        super().__init__(why)
        self.what = what


class FaultyProcess(Process):
    """A process with faults.

    Attributes
    ----------
    address : its address in the network; the name of its site, unless it is a second process.
    value : the data that it has read.
    paused_until : the whole process is paused until this time.
    audit_failed : the audit could not be written.
    twist : called with every message instead of sending it.
    """

    def __init__(self, world: FaultWorld, site: str, disk: FaultyDisk, address: str = "") -> None:
        super().__init__(world, site, disk)
        self.address, self.value = address or site, world.data_of[site]
        self.paused_until, self.audit_failed = 0.0, False
        self.twist: Callable[[ev.Write], None] | None = None
        self._greetings: dict[int, Callable[[bytes], Any]] = {}

    def feed(self, event: Any) -> None:
        if self._is_paused():
            self.time.at(self.paused_until, self.feed, event)
            return
        try:
            super().feed(event)
        except FullDiskError as error:
            self.feed(ev.DiskFailed(error.what, str(error)))

    def _write(self, effect: ev.Write) -> None:
        if effect.sent is not None and self.disk.audit_full:
            self.audit_failed = True
            raise FullDiskError("audit", "no space left on device")
        self.world.watch.wrote(self, effect)
        greeting = self._greetings.pop(effect.stream, None)
        if greeting is not None:
            greeting(effect.data)
        if self.twist is None:
            super()._write(effect)
        else:
            self.twist(effect)

    def watch_greeting(self, stream: int, listener: Callable[[bytes], Any]) -> None:
        """Pass the first message of a stream to the listener, too."""
        self._greetings[stream] = listener

    def _append(self, record: bytes) -> None:
        try:
            super()._append(record)
        except OSError as error:
            raise FullDiskError("journal", str(error)) from error
        self.world.watch.kept(self.site, self.disk, record)
        if self.site in self.world.triggers:
            self.world.triggers[self.site](record)

    def _synced(self, size: int, records: int) -> None:
        if self.alive and self.disk.full:
            self.feed(ev.DiskFailed("journal", "it cannot be synced"))
        else:
            super()._synced(size, records)

    def _tick(self) -> None:
        if self._is_paused():
            self.time.at(self.paused_until, self._tick)
        else:
            super()._tick()

    def _compute(self, answer: Any) -> None:
        if self._is_paused() and self._program is not None:
            self.time.at(self.paused_until, self._compute, answer)
        else:
            super()._compute(answer)

    def _is_paused(self) -> bool:
        return self.alive and self.time.now < self.paused_until
