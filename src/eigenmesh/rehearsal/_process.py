"""The driver of one machine in virtual time: a process of a site, with its disk, clock and solver."""

from __future__ import annotations

from collections.abc import Callable, Generator
from typing import TYPE_CHECKING, Any

from eigenmesh import protocol as ep
from eigenmesh.errors import CannotResumeError, ParkedError
from eigenmesh.rehearsal._disk import Disk

if TYPE_CHECKING:
    from eigenmesh.rehearsal._world import World

TICK_S = 1.0


class Process:
    """One process of a site, from its start to a crash or to its end.

    Attributes
    ----------
    address : its address in the network; the name of its site, unless it is a second process.
    value : the data that it has read.
    alive : it has neither crashed nor ended.
    paused_until : the whole process is paused until this time.
    result, error : the solver's result, or the reason why there is none.
    """

    def __init__(self, world: World, site: str, disk: Disk, address: str) -> None:
        self.world, self.site, self.disk, self.address = world, site, disk, address
        self.time, self.value = world.time, world.data_of[site]
        self._offset = self.time.random.uniform(0.0, 1000.0)
        self.alive, self.paused_until = True, 0.0
        self.result: Any = None
        self.error: Exception | None = None
        self.audit_failed = False
        self.owed: tuple[str, ...] = ()
        self.twist: Callable[[ep.Write], None] | None = None
        self._audited: ep.Sent | None = None
        self._syncing = False
        self._asked = False
        self._greetings: dict[int, Callable[[bytes], Any]] = {}
        self._program: Generator[Any, Any, Any] | None = None

    def start(self) -> None:
        """Open the journal and begin; ends at once if the journal is refused."""
        try:
            past = self.disk.open(str(self.value), self.time.random)
        except (CannotResumeError, ParkedError) as error:
            self.error = error
            self._end()
            return
        self.machine = ep.SiteMachine(self.world.setup_of(self.site), past, self.time.random, self.now)
        self._program = self.world.solver(self)
        self.feed(ep.SiteStarted())
        self.time.after(TICK_S * self.time.random.random(), self._tick)
        self._answered(None)

    @property
    def now(self) -> float:
        """The time on the clock of this computer."""
        return self.time.now + self._offset

    def feed(self, event: ep.Opened | Any) -> None:
        """Pass an event to the machine, and carry out its effects."""
        if not self.alive:
            return
        if self.time.now < self.paused_until:
            self.time.at(self.paused_until, self.feed, event)
            return
        for effect in self.machine.step(self.now, event):
            try:
                self._execute(effect, event)
            except OSError as error:
                what = "audit" if isinstance(effect, ep.Audit) else "journal"
                self.feed(ep.DiskFailed(what, str(error)))
                return
            if not self.alive:
                return

    def _execute(self, effect: Any, event: Any) -> None:
        kind = type(effect)
        if kind is ep.Audit:
            if self.disk.audit_full:
                self.audit_failed = True
                raise OSError("no space left on device")
            self._audited = effect.sent
        elif kind is ep.Write:
            self._write(effect)
        elif kind is ep.Append:
            record = b"".join(effect.record)
            self.disk.append(record)
            self.world.watch.kept(self.site, self.disk, record)
            if self.site in self.world.triggers:
                self.world.triggers[self.site](record)
            if not self._syncing:
                self._syncing = True
                self.time.after(0.0, self._sync)
        elif kind is ep.Deliver:
            self._asked = False
            self.world.answered(self, event)
            self._answered(effect.answer)
        elif kind is ep.Dial:
            self.time.after(effect.after_s, self.world.network.dial, self, effect.neighbour)
        elif kind is ep.Cut:
            self.world.network.cut(self, effect.stream)
        elif kind is ep.Fail:
            self._failed(effect.error)
        elif kind is ep.Log and self.world.trace is not None:
            self.world.trace(f"{self.site}: {effect.text}")

    def _write(self, effect: ep.Write) -> None:
        audited, self._audited = self._audited, None
        self.world.watch.wrote(self, effect, audited)
        greeting = self._greetings.pop(effect.stream, None)
        if greeting is not None:
            greeting(effect.data)
        if self.twist is None:
            self.world.network.send(self, effect.stream, effect.data)
        else:
            self.twist(effect)

    def watch_greeting(self, stream: int, listener: Callable[[bytes], Any]) -> None:
        """Pass the first message of a stream to the listener, too."""
        self._greetings[stream] = listener

    def _sync(self) -> None:
        target = self.disk.begin_sync()
        self.time.after(self.world.sync_s(self.site), self._synced, *target)

    def _synced(self, size: int, records: int) -> None:
        if not self.alive:
            return
        if self.disk.full:
            self.feed(ep.DiskFailed("journal", "it cannot be synced"))
            return
        self.disk.end_sync(size, records)
        self._syncing = self.disk.begin_sync()[1] > records
        if self._syncing:
            self.time.after(0.0, self._sync)
        self.feed(ep.Durable(records))

    def _tick(self) -> None:
        if not self.alive:
            return
        if self.time.now < self.paused_until:
            self.time.at(self.paused_until, self._tick)
            return
        self.feed(ep.Tick())
        self.time.after(TICK_S, self._tick)

    def _answered(self, answer: Any) -> None:
        """Continue the solver, after its computing time."""
        if isinstance(answer, ep.Parted):
            self.owed = answer.owed
            self._end()
        else:
            self.time.after(self.world.compute_s(self.site), self._compute, answer)

    def _compute(self, answer: Any) -> None:
        if not self.alive or self._program is None:
            return
        if self.time.now < self.paused_until:
            self.time.at(self.paused_until, self._compute, answer)
            return
        try:
            question = self._program.send(answer)
        except StopIteration as stop:
            self.result = stop.value
            self._program = None
            self.world.watch.found(self, stop.value)
            question = ep.Finish()
        late_s = self.world.work_s(self)
        if late_s:
            self.time.after(late_s, self._ask, question)
        else:
            self._ask(question)

    def _ask(self, question: Any) -> None:
        if not self.alive:
            return
        if isinstance(question, ep.Sign):
            self.world.watch.signs(self.site, self.machine.lost, question.digest)
        self._asked = True
        self.world.asks(self, question)
        self.feed(question)

    def _failed(self, error: Exception) -> None:
        """Stop the solver if it waits for an answer; otherwise it gets the error with its next request."""
        if self._program is None:
            # It has its result, and is saying farewell already.
            self.error = self.error or error
        elif self._asked:
            self.error = error
            self._stop_solver()
            self._asked = False
            self.time.after(0.0, self.feed, ep.Finish())

    def crash(self) -> None:
        """Lose everything except the disk."""
        self.alive = False
        self._stop_solver()
        self.disk.crash(self.time.random)

    def _stop_solver(self) -> None:
        program, self._program = self._program, None
        if program is not None:
            program.close()

    def _end(self) -> None:
        self.alive = False
        self.world.ended(self)
