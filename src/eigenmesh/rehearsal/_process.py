"""The driver of one machine in virtual time: a process of a site, with its disk, clock and solver."""

from __future__ import annotations

from collections.abc import Generator
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
    address : its address in the network.
    alive : it has neither crashed nor ended.
    result, error : the solver's result, or the reason why there is none.
    """

    def __init__(self, world: World, site: str, disk: Disk) -> None:
        self.world, self.site, self.disk, self.address = world, site, disk, site
        self.time, self.alive = world.time, True
        self._offset = self.time.random.uniform(0.0, 1000.0)
        self.result: Any = None
        self.error: Exception | None = None
        self.owed: tuple[str, ...] = ()
        self._syncing = False
        self._asked = False
        self._program: Generator[Any, Any, Any] | None = None

    def start(self) -> None:
        """Open the journal and begin; ends at once if the journal is refused."""
        try:
            past = self.disk.open(self.world.fingerprint(self.site), self.time.random)
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
        for effect in self.machine.step(self.now, event):
            self._execute(effect, event)
            if not self.alive:
                return

    def _execute(self, effect: Any, event: Any) -> None:
        kind = type(effect)
        if kind is ep.Write:
            self._write(effect)
        elif kind is ep.Append:
            self._append(b"".join(effect.record))
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
        elif kind is ep.Log:
            self.world.log(f"{self.site}: {effect.text}")

    def _write(self, effect: ep.Write) -> None:
        self.world.network.send(self, effect.stream, effect.data)

    def _append(self, record: bytes) -> None:
        self.disk.append(record)

    def _sync(self) -> None:
        target = self.disk.begin_sync()
        self.time.after(self.world.sync_s(self.site), self._synced, *target)

    def _synced(self, size: int, records: int) -> None:
        if not self.alive:
            return
        self.disk.end_sync(size)
        self._syncing = self.disk.begin_sync()[1] > records
        if self._syncing:
            self.time.after(0.0, self._sync)
        self.feed(ep.Durable(records))

    def _tick(self) -> None:
        if self.alive:
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
        try:
            question = self._program.send(answer)
        except StopIteration as stop:
            self.result = stop.value
            self._program = None
            self.world.found(self, stop.value)
            question = ep.Finish()
        late_s = self.world.work_s(self)
        if late_s:
            self.time.after(late_s, self._ask, question)
        else:
            self._ask(question)

    def _ask(self, question: Any) -> None:
        if not self.alive:
            return
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
