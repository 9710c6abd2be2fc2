"""The protocol of one site as a pure state machine: events in, effects out, without a thread, clock, file or socket.

Theory of operation
-------------------
A driver gives the machine one event at a time, ``step(now, event)``, and does the effects that it returns, in their
order. Nothing else changes the machine. So a run is a list of events, and can be replayed, in a test or in a
rehearsal with simulated networks and disks.

The machine holds six parts. Each is constructed with what it needs of those before it, and uses only their public
methods.

- ``membership`` knows all signed statements, of this site and of others, and what follows from them: which links are
  lost, who is still a member, and the members' keys, results and accounts of what they have heard.
- ``outbox`` collects the effects. It decides what may be sent when: a message is audited before it is written, and
  what others rely on waits until it is on the disk. It has the current epoch with its links, and the failure of the
  run.
- ``peering`` has the streams. It calls neighbours, greets them, and checks every frame that arrives. Numbers wait at
  their link until they are used. Statements go into ``membership``, and the machine hands them on: lost links to
  ``agreement``, and what others have heard to ``accounts``.
- ``agreement`` finds out, after a loss, which sites continue.
- ``accounts`` and ``rounds`` do what the solver asks for: rounds of arrays, masks, comparisons and signatures.

*Requests.* The solver makes one request at a time. After every event the machine tries to answer it. The part that
works on the request returns an answer, or ``Wait`` with the neighbours that it waits for, or None if it can only wait
for the disk or if the run has failed. The machine delivers an answer, which is the last effect of its step. If one of
the neighbours that are waited for is lost, ``agreement`` takes over, and while links are lost that the current epoch
does not know of, every request but Finish and Begin is answered by it: with MembersChanged, once all members have
signed the same view.

*Epochs.* Begin follows MembersChanged. Once its record is on the disk, all streams are closed, all parts enter the
new epoch, with rounds from 0, and neighbours are called again. Frames of another epoch are refused.

*Restarts.* A machine is made from the journal of earlier processes. The records of frames are given to the solver
again, in the same rounds, and so are masked words. Neighbours are told in the greeting which round this site needs
next, and they send everything from there on that is not acknowledged.

*Failure.* The first failure ends the run at this site, and its reason is sent to all neighbours, which fail for the
same reason. A failure that another site's lie may have caused is first *in doubt*, until the sites have compared what
they have heard. After a failure only Finish is answered, once the neighbours have the reason.

*Farewell.* With Finish the solver is done. A farewell is sent when everything from the neighbours is on the disk, and
the machine answers once all of them have acknowledged it and everything that was sent to them, or are lost. A process
that was started again does not wait long for neighbours that it has not met: they have probably left.

*Leaving for good.* A site whose journal cannot be used any more, or is refused, says so to all by a signed statement,
its last word. The others then end by name, or continue without it, and need not wait. A finished site that is started
again says that it has its result, for neighbours that have missed its farewell.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from random import Random
from typing import Any

from eigenmesh.errors import AbortedError, CannotResumeError, DeadlineError, ParkedError, TransportError
from eigenmesh.masking import MaskContext
from eigenmesh.protocol import effects as ev
from eigenmesh.protocol import wire
from eigenmesh.protocol.membership import Agreement, Membership
from eigenmesh.protocol.outbox import USED, Epoch, Link, Outbox
from eigenmesh.protocol.peering import BACKOFF_S, Peering
from eigenmesh.protocol.rounds import Accounts, Rounds
from eigenmesh.protocol.setup import HOW_IT_LEFT, Clock, Departure, Edge, Past, Setup, Statement, Topic, read_statement
from eigenmesh.protocol.wire import Kind, Mark

HEARTBEAT_S = 1.0
# If a tick is later than this, the whole process was stopped for a while. Neighbours are not blamed for that time.
STOPPED_S = 3.0
# How long to wait until the neighbours have the reason of a failure. Then this site leaves.
PARTING_S = 2.0
# A site with its result tries to reach a neighbour for so long that this process has not met: long enough for a few
# calls in either direction.
CALLS_S = 1.2 * BACKOFF_S[1]
START_AGAIN = "Start all sites again once that is fixed."


@dataclass
class Asked:
    """The solver's open request.

    Attributes
    ----------
    event : what it asks for.
    since : when it came.
    work : called after every event until it returns an answer.
    record : the record of the journal that Begin or Finish wrote.
    """

    event: ev.Question
    since: float
    work: Callable[[], ev.Deliver | ev.Wait | None]
    record: int = 0


class SiteMachine:
    """One site of a run, from its start to the farewell, over all epochs.

    Parameters
    ----------
    setup : the site, its network and run, and how long it waits.
    past : the journal when the process starts.
    random : what pauses between calls are drawn from.
    now : the time, in seconds from any origin. That of ``step`` continues it.

    Attributes
    ----------
    membership, outbox, peering, agreement, accounts, rounds : the parts, see the top of this file.
    start : the estimate from which the current epoch starts, as it was given to Begin.
    """

    def __init__(self, setup: Setup, past: Past, random: Random, now: float) -> None:
        self.setup, self.past = setup, past
        self._clock = clock = Clock(now)
        lost, self.start = _last_epoch(past)
        self.membership = membership = _remembered(setup, past, lost)
        self.outbox = outbox = Outbox(setup, past, membership, lost, clock)
        membership.add(outbox.make_instance())
        self.peering = Peering(membership, outbox, random, self._learn)
        self.agreement = Agreement(membership, outbox, self.peering)
        self.accounts = Accounts(membership, outbox)
        self.rounds = Rounds(membership, outbox, self.peering, self.accounts)
        self._request: Asked | None = None
        self._parted: ev.Deliver | None = None
        self._waits: tuple[str, ...] = ()
        # Whether this process was the first to hear that a site has left for good.
        self._tells_all = False
        self._is_started = False
        self._last_tick = now
        # All other events are requests of the solver.
        self._handlers: dict[type, Callable[[Any], None]] = {
            ev.Bytes: self.peering.received,
            ev.Durable: lambda event: self.outbox.durable(event.records),
            ev.Opened: self.peering.opened,
            ev.Closed: self.peering.closed,
            ev.Unreachable: self.peering.unreachable,
            ev.Tick: lambda event: self._tick(),
            ev.SiteStarted: lambda event: self._started(),
            ev.DiskFailed: self._disk_failed,
            ev.Stop: self._stop,
        }

    def step(self, now: float, event: ev.Event) -> list[ev.Effect]:
        """Take one event. Returns the effects, to be done in this order, an answer last.

        If an effect fails, drop those after it.
        """
        self._clock.now = now
        self._handlers.get(type(event), self._ask)(event)
        self._progress()
        return self.outbox.take_effects()

    # What a driver may read between two steps.

    @property
    def epoch(self) -> Epoch:
        """The current epoch: who takes part in it, and which round the solver will ask for next."""
        return self.outbox.epoch

    @property
    def mask_context(self) -> MaskContext:
        """The context that binds masks to the current epoch."""
        run, epoch = self.setup.run, self.epoch
        return MaskContext(epoch.run_id.hex(), epoch.number, bytes.fromhex(run.digest), epoch.members)

    @property
    def waiting_for(self) -> tuple[str, ...]:
        """The neighbours that the solver waits for."""
        return self._waits

    @property
    def replaying(self) -> bool:
        """Whether frames of the journal are still to be used again."""
        return any(link.replay for link in self.epoch.links.values())

    # Requests of the solver.

    def _ask(self, event: ev.Question) -> None:
        """Take a new request, and do what it needs once."""
        outbox, accounts, rounds = self.outbox, self.accounts, self.rounds
        self._request = request = Asked(event, self._clock.now, lambda: None)
        if outbox.failure is not None and not isinstance(event, ev.Finish):
            self._request = None
            outbox.emit(ev.Fail(outbox.failure))
            return
        match event:
            case ev.Exchange():
                request.work = partial(rounds.collect, rounds.begin(event))
            case ev.Keys():
                request.work = rounds.count_keys
            case ev.Mask():
                # Answered at once, because no other site has a part in it.
                self._apply(rounds.keep_masked(event))
            case ev.Compare():
                accounts.hear(event.heard)
                accounts.sign_heard(event.stage)
                request.work = partial(accounts.count_heard, event.stage, request.since)
            case ev.Sign():
                accounts.hear(event.heard)
                accounts.sign_result(event.digest)
                request.work = partial(accounts.count_signatures, event.digest)
            case ev.Begin():
                content = wire.epoch_content(self.agreement.lost, event.start)
                request.record = outbox.append(Mark.EPOCH, content)
                request.work = partial(self._begin, request, event.start)
            case ev.Finish():
                request.work = partial(self._part, request)
                if outbox.failure is None and self.peering.last_word is None:
                    request.record = outbox.append(Mark.DONE, round_=self.epoch.round)
                    outbox.write_all(outbox.message(Kind.ACK))

    def _progress(self) -> None:
        """Answer the solver's request, if that is possible now."""
        outbox, request = self.outbox, self._request
        if outbox.doubt is not None and outbox.failure is None:
            self.accounts.settle_doubt()
        if request is None or (outbox.doubt is not None and outbox.failure is None):
            return
        if isinstance(request.event, ev.Finish):
            self._apply(request.work())
        elif outbox.failure is not None:
            self._request, self._waits = None, ()
        elif self.agreement.is_needed and not isinstance(request.event, ev.Begin):
            self._apply(self.agreement.agree())
        else:
            self._apply(request.work())

    def _apply(self, found: ev.Deliver | ev.Wait | None) -> None:
        """Deliver an answer, or note whom the solver waits for. Fail if the wait is too long."""
        if isinstance(found, ev.Wait):
            self._waits = found.names
            if found.what:
                self._check_wait(found)
        elif found is not None:
            self._request, self._waits = None, ()
            self.outbox.emit(found)

    def _check_wait(self, wait: ev.Wait) -> None:
        request, links = self._request, self.epoch.links
        waited = self._clock.now - request.since if request is not None else 0.0
        lost = [name for name in wait.names if links[name].lost] or [link.name for link in links.values() if link.left]
        if not lost and self.setup.on_loss == "continue" and waited > self.setup.patience_s:
            # A site farther away may wait for one of these. If it was started again, only this site knows of the loss.
            lost = [link.name for link in links.values() if link.joined and link.lost and not link.finished]
        if not wait.names and not self.outbox.has_unsent and links and all(link.complete for link in links.values()):
            text = f"{', '.join(links)} finished, but {self.setup.name} still waits for a site {wait.what}."
            self.outbox.end(TransportError(text))
        if lost:
            self._apply(self.agreement.lose(lost))
        elif wait.names and waited > self.setup.round_s:
            text = f"{self.setup.name} waited {self.setup.round_s:g} s for {', '.join(wait.names)} {wait.what}."
            self.outbox.end(DeadlineError(text))

    def _begin(self, request: Asked, start: bytes) -> ev.Deliver | None:
        """Enter the epoch of the remaining members, over new streams, once its record is on the disk."""
        if not self.outbox.is_durable(request.record):
            return None
        self.start = start
        self.peering.cut_all()
        self.outbox.enter(self.agreement.lost)
        self.accounts.enter()
        self.rounds.enter()
        for link in self.outbox.epoch.links.values():
            # All members have signed the view, so none of them is still to start.
            link.join(self._clock.now)
        self.peering.call_all()
        return ev.Deliver(None)

    def _part(self, request: Asked) -> ev.Deliver | ev.Wait:
        """Say farewell to all, and leave once they have all they need. After a failure, once they have the reason."""
        failed, links = self.outbox.failure is not None, self.epoch.links.values()
        # A neighbour that has our farewell may leave, so everything from it must be on our disk.
        ready = not failed and self.peering.last_word is None and self.outbox.is_durable(request.record)
        for link in links:
            if ready and link.stream is not None and not link.farewell_said:
                # After all data: a neighbour that gets it has everything.
                link.farewell_said = True
                self.outbox.write(link, self.outbox.message(Kind.DONE))
        waits = tuple(link.name for link in links if not self._is_parted(link))
        if waits and self._clock.now - request.since <= self._parting_s():
            return ev.Wait(waits)
        owed = [link.name for link in links if not link.finished and (link.lost or failed)]
        self._parted = ev.Deliver(ev.Parted(tuple(owed)))
        return self._parted

    def _parting_s(self) -> float:
        """How long to wait for the neighbours at the end."""
        if self.past.left == Departure.FINISHED:
            return CALLS_S
        if self.outbox.failure is None:
            return self.setup.round_s
        # Where a site has left for good, others may be parked and on their way back: they would wait for it in vain.
        if self._tells_all or self.peering.last_word is not None:
            # One that comes back at the last moment believes it a little later, when it is called again.
            return self.setup.patience_s + self.peering.quiet_s + BACKOFF_S[1]
        return PARTING_S

    def _is_parted(self, link: Link) -> bool:
        if self.peering.last_word is not None:
            return link.warned or link.lost
        if self.outbox.failure is not None:
            return link.lost or link.finished or link.warned
        has_all = link.finished or (link.farewell_taken and not link.retained)
        # Its own farewell was acknowledged, or there is no stream to do so.
        is_answered = link.stream is None or not link.owes_farewell
        return link.lost or (has_all and is_answered)

    # Everything else.

    def _started(self) -> None:
        if self.past.left:
            if self.past.why:
                self.outbox.fail(CannotResumeError(self.past.why))
            self.peering.leave(self.past.left)
        for name in self.setup.sites:
            # What an earlier process has heard.
            if self.membership.how_it_left(name)[0]:
                self._lose_for_good(name)
        self._is_started = True
        self.peering.call_all()

    def _learn(self, statement: Statement) -> None:
        """Act on a new statement of another site."""
        if statement.kind == Topic.LOST:
            self.agreement.sign_view()
        elif statement.kind == Topic.HEARD:
            self.accounts.learn(statement)
        elif statement.kind == Topic.LEFT and self.membership.how_it_left(statement.site)[0]:
            # That of an earlier start of a site that has started over since says nothing.
            self._tells_all = self.outbox.failure is None
            self._lose_for_good(statement.site)

    def _lose_for_good(self, name: str) -> None:
        """A site has left for good: nobody waits for it any longer."""
        (how, n_lost), link, has_result = (
            self.membership.how_it_left(name),
            self.epoch.links.get(name),
            self._has_result,
        )
        if how == Departure.FINISHED and n_lost > self.epoch.number and name in self.epoch.members and not has_result:
            text = f"{name} has finished without all sites, after a loss that {self.setup.name} has not agreed to"
            self.outbox.end(TransportError(f"{text}; use its result, or start over at all sites."))
        elif how == Departure.FINISHED or has_result:
            # It needs nothing more, or cannot take it. If something of it is still needed, the run ends by name.
            if link is not None:
                link.finish()
                link.complete = True
        elif self.setup.on_loss == "continue":
            if link is not None:
                link.left = link.lost = True
        elif name in self.epoch.members:
            if link is not None and self._is_started:
                # It need not be told why the run ends. But where all are started again it may be, too, and would wait.
                link.finish()
            text = f"{name} cannot resume the run: {HOW_IT_LEFT[how]}. Start over at all sites."
            self.outbox.fail(CannotResumeError(text), text)

    @property
    def _has_result(self) -> bool:
        """Whether this site has its result, and only helps the others."""
        return self.setup.has_result or (self._is_finishing and self.outbox.failure is None)

    @property
    def _is_finishing(self) -> bool:
        return self._request is not None and isinstance(self._request.event, ev.Finish)

    def _disk_failed(self, event: ev.DiskFailed) -> None:
        self.outbox.disk_failed(event.what)
        if self._parted is not None:
            # The answer was among the effects that were dropped.
            self._apply(self._parted)
        elif self.outbox.failure is not None:
            # Its effects may have been dropped when this disk failed: repeat them.
            self.outbox.tell_failure()
        else:
            text = (
                f"{self.setup.name} parked the run: the {event.what} cannot be written: {event.reason}. {START_AGAIN}"
            )
            self.outbox.fail(ParkedError(text), text)

    def _stop(self, event: ev.Stop) -> None:
        text = f"{self.setup.name} {'parked' if event.parks else 'ended'} the run: {event.reason}"
        self.outbox.fail(ParkedError(text) if event.parks else AbortedError(text), text)

    def _tick(self) -> None:
        """About once a second: send a heartbeat to every neighbour, and check which ones have gone silent."""
        now = self._clock.now
        late = now - self._last_tick - HEARTBEAT_S
        self._last_tick = now
        excused = late if late > STOPPED_S else 0.0
        # A site that has its result only looks whether somebody still needs it.
        absent_s = min(CALLS_S, self.setup.patience_s) if self._has_result else self.setup.join_s
        for link in self.epoch.links.values():
            link.heard += excused
            since = self._request.since if self._request is not None and self._is_finishing else link.heard
            silent_s = now - (link.heard if link.joined else max(link.heard, since))
            link.lost = link.left or silent_s > (self.setup.patience_s if link.joined else absent_s)
        self.outbox.write_all(self.outbox.message(Kind.HEARTBEAT))
        self.peering.review()


def _last_epoch(past: Past) -> tuple[tuple[Edge, ...], bytes]:
    """The lost links of the epoch in which the journal ends, and the estimate that it starts from."""
    epochs = [entry for entry in past.entries if entry.mark is Mark.EPOCH]
    return wire.read_epoch(past.read(epochs[-1])) if epochs else ((), b"")


def _remembered(setup: Setup, past: Past, lost: tuple[Edge, ...]) -> Membership:
    """What follows from the statements in the journal."""
    membership = Membership(setup.name, setup.sites, setup.edges, lost)
    for entry in past.entries:
        if entry.mark is Mark.STATEMENT:
            # Not checked again: it was checked before it was written, and its certificate may have expired since.
            membership.add(read_statement(past.read(entry).decode(), None, setup.run.run_id))
    membership.fresh = not any(entry.mark in USED for entry in past.entries)
    return membership
