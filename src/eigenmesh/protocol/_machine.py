"""The protocol of one site as a pure state machine: events in, effects out; no thread, clock, file or socket."""

from random import Random

from eigenmesh.errors import AbortedError, ParkedError, TransportError
from eigenmesh.protocol import _events as ev
from eigenmesh.protocol import _wire as wire
from eigenmesh.protocol._agreement import Question
from eigenmesh.protocol._exchanging import Exchanging
from eigenmesh.protocol._handshake import GREETING_S
from eigenmesh.protocol._link import Link, LinkStatus
from eigenmesh.protocol._records import Mark, epoch_content
from eigenmesh.protocol._setup import Past, Setup
from eigenmesh.protocol._statements import RESULT, certificate_of
from eigenmesh.protocol._wire import Kind

HEARTBEAT_S = 1.0
# If a tick is later than this, the whole process was stopped for a while; neighbours are not blamed for that time.
STOPPED_S = 3.0
# How long to wait until the neighbours have the reason of a failure; then this site leaves.
PARTING_S = 2.0
START_AGAIN = "Start all sites again once that is fixed."


class SiteMachine(Exchanging):
    """One site of a run, from its start to the farewell, over all epochs."""

    def __init__(self, setup: Setup, past: Past, random: Random, now: float) -> None:
        self.streams, self.calling = {}, set()
        self._question: Question | None = None
        self._parted: ev.Parted | None = None
        self._waits: tuple[str, ...] = ()
        self._last_tick = now
        self._durable = len(past.entries)
        super().__init__(setup, past, random, now)

    def step(self, now: float, event: ev.Event) -> list[ev.Effect]:
        """Take one event; returns the effects, to be done in this order, an answer last.

        If an effect fails, drop those after it.
        """
        self.now = now
        match event:
            case ev.Bytes():
                self.received(event)
            case ev.Exchange() | ev.Keys() | ev.Mask() | ev.Compare() | ev.Sign() | ev.Begin() | ev.Finish():
                self._ask(event)
            case ev.Durable():
                self._durable = max(self._durable, event.records)
                self.durable(event.records)
            case ev.Opened():
                self.opened(event)
            case ev.Closed():
                self.closed(event)
            case ev.Unreachable():
                self.unreachable(event)
            case ev.Tick():
                self._tick()
            case ev.SiteStarted():
                self._call_all()
            case ev.DiskFailed():
                self._disk_failed(event)
            case ev.Stop():
                self._stop(event)
        self._progress()
        effects, self._effects = self._effects, []
        return effects

    @property
    def waiting_for(self) -> tuple[str, ...]:
        return self._waits

    @property
    def replaying(self) -> bool:
        return any(link.replay for link in self.links.values())

    def status(self, now: float) -> tuple[LinkStatus, ...]:
        return tuple(link.status(now) for link in self.links.values())

    def _call_all(self) -> None:
        for name in self.links:
            if name in self.setup.dials:
                self.call(name)

    def _ask(self, event: ev.Question) -> None:
        self._question = Question(event, self.now)
        if isinstance(event, ev.Finish) and self.failure is None:
            self._question.record = self.append(Mark.DONE, round_=self.round)
            for link in self.links.values():
                self.write(link, self.message(Kind.ACK))
        elif self.failure is not None:
            if not isinstance(event, ev.Finish):
                self._question = None
                self._effects.append(ev.Fail(self.failure))
        elif isinstance(event, ev.Exchange):
            # Usually the same for all receivers, so that they can share one frame.
            safe = max((self.links[name].safe_here for name in event.send_to), default=0)
            self._question.message = self.message(Kind.DATA, event.body, self.round, event.tag, safe)
        elif isinstance(event, ev.Compare):
            self.hear(event.heard)
            self.sign_heard(event.stage)
        elif isinstance(event, ev.Sign):
            self.hear(event.heard)
            self.state(RESULT, [self.epoch, event.digest, self.last_heard])
        elif isinstance(event, ev.Begin):
            content = epoch_content(self._agreed_lost, event.start)
            self._question.record = self.append(Mark.EPOCH, content)
        elif isinstance(event, ev.Mask):
            self._keep_masked(event)

    def _progress(self) -> None:
        """Answer the solver's request, if that is possible now."""
        if self.doubt is not None and self.failure is None:
            self._settle_doubt()
        question = self._question
        if question is None or (self.doubt is not None and self.failure is None):
            return
        if isinstance(question.event, ev.Finish):
            self._part(question)
        elif self.failure is not None:
            self._question, self._waits = None, ()
        elif isinstance(question.event, ev.Begin):
            if question.record < self._durable:
                self._begin(question.event.start)
        elif self.membership.lost != self.lost:
            self._agree()
        elif isinstance(question.event, ev.Exchange):
            self._collect(question, question.event, self._durable)
        elif isinstance(question.event, ev.Keys):
            self._count_keys()
        elif isinstance(question.event, ev.Compare):
            self._count_heard(question, question.event.stage)
        elif isinstance(question.event, ev.Sign):
            self._count_signatures(question.event)

    def _count_signatures(self, event: ev.Sign) -> None:
        signed = self.membership.results(self.epoch)
        for site, statement in signed.items():
            if statement.content[1] != event.digest:
                text = f"{site} has signed a different result than {self.setup.name}"
                self.fail(TransportError(f"{text}."), f"{self.setup.name} ended the run: {text}.")
                return
            if statement.content[2] != self.last_heard:
                self.told_apart(site)
                return
        if len(signed) == len(self.members) and not self._unsent:
            self._answer(ev.Signed({site: statement.text for site, statement in signed.items()}))
        else:
            missing = [name for name in self.members if name not in signed]
            self._wait(self._bringers_of(missing), "to sign the result")

    def _begin(self, start: bytes) -> None:
        """Enter the epoch of the remaining members, over new streams."""
        self.start = start
        for stream in list(self.streams.values()):
            if not stream.ending:
                self.cut(stream)
        self.enter(self._agreed_lost)
        self._call_all()
        self._answer(ev.Begun())

    def _disk_failed(self, event: ev.DiskFailed) -> None:
        self._audit_failed = self._audit_failed or event.what == "audit"
        self._journal_failed = self._journal_failed or event.what != "audit"
        if self._parted is not None:
            # The answer was among the effects that were dropped.
            self._answer(self._parted)
        elif self.failure is not None:
            # Its effects may have been dropped when this disk failed: repeat them.
            self._effects.append(ev.Fail(self.failure))
            self.warn_all()
        else:
            text = (
                f"{self.setup.name} parked the run: the {event.what} cannot be written: {event.reason}. {START_AGAIN}"
            )
            self.fail(ParkedError(text), text)

    def _stop(self, event: ev.Stop) -> None:
        text = f"{self.setup.name} {'parked' if event.parks else 'ended'} the run: {event.reason}"
        self.fail(ParkedError(text) if event.parks else AbortedError(text), text)

    def _part(self, question: Question) -> None:
        """Say farewell to all, and leave once they have all they need; after a failure, once they have the reason."""
        waited = self.now - question.since
        # A neighbour that has our farewell may leave, so everything from it must be on our disk.
        ready = self.failure is None and question.record < self._durable
        for link in self.links.values():
            if ready and link.stream is not None and not link.farewell_said:
                # After all data: a neighbour that gets it has everything.
                link.farewell_said = True
                self.write(link, self.message(Kind.DONE))
        self._waits = tuple(link.name for link in self.links.values() if not self._is_parted(link))
        if self._waits and waited <= (PARTING_S if self.failure is not None else self.setup.round_s):
            return
        left = [link for link in self.links.values() if not link.finished]
        owed = [link.name for link in left if link.lost or self.failure is not None]
        self._parted = ev.Parted(tuple(owed))
        self._answer(self._parted)

    def _is_parted(self, link: Link) -> bool:
        if self.failure is not None:
            return link.lost or link.finished or link.warned
        return link.lost or ((link.finished or (link.farewell_taken and not link.retained)) and self._is_answered(link))

    def _is_answered(self, link: Link) -> bool:
        """Whether the neighbour's own farewell was acknowledged, or there is no stream to do so."""
        return link.stream is None or not any(name == link.name for _, _, name in self._farewells)

    def _tick(self) -> None:
        """About once a second: send a heartbeat to every neighbour, and check which ones have gone silent."""
        late = self.now - self._last_tick - HEARTBEAT_S
        self._last_tick = self.now
        excused = late if late > STOPPED_S else 0.0
        waiting = wire.text_body("\n".join(self._waits))
        for link in self.links.values():
            link.heard += excused
            link.lost = self.now - link.heard > (self.setup.patience_s if link.joined else self.setup.join_s)
            self.write(link, self.message(Kind.HEARTBEAT, waiting))
        for link in list(self.links.values()):
            known = self.membership.instance_statement(link.name)
            if link.stream is not None and known and self.setup.keyring.is_revoked(certificate_of(known)):
                self.refuse(self.streams[link.stream], "its certificate is revoked.")
        for stream in list(self.streams.values()):
            if not stream.link and not stream.ending and self.now - stream.since > GREETING_S:
                self.refuse(stream, f"no greeting within {GREETING_S:g} s.")
