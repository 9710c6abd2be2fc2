"""Peers of different organisations: mutual TLS, no server, nothing executable on the wire.

An ``Endpoint`` is one process of a site: it connects the protocol's machine to TLS connections, the journal, the audit
and the solver. A ``TlsTransport`` is what the solver has of it in one epoch.
"""

from __future__ import annotations

import hashlib
import logging
import queue
import random
import secrets
import threading
import time
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar, NamedTuple

from eigenmesh import arrays as ea
from eigenmesh import protocol as ep
from eigenmesh.errors import CannotResumeError, EigenmeshError, InputError, MembersChangedError, TransportError
from eigenmesh.events import NeighbourStatus
from eigenmesh.masking import Masks
from eigenmesh.protocol import effects as ev
from eigenmesh.protocol import wire
from eigenmesh.protocol.rounds import JournalledMasks
from eigenmesh.protocol.setup import Departure, Instance, Past
from eigenmesh.transports.base import Arrays, Links, Transport, in_library_of
from eigenmesh.transports.tls.connection import ConnectionThread, Credentials, Supervisor
from eigenmesh.transports.tls.dialling import Dialler, Routes
from eigenmesh.transports.tls.journal import Journal, new_identity

logger = logging.getLogger("eigenmesh.transports.tls")

# How often a waiting solver checks that the communication thread is still alive.
POLL_S = 0.5


class Endpoint:
    """A site's end of all its links, from the start of the process to the farewell.

    Only the communication thread steps the machine. The solver and the journal queue their events for it and continue,
    so no thread ever waits for a step in another.

    Parameters
    ----------
    setup : the site, its network, the run and how long it waits.
    credentials : this site's key and X.509 certificate, and the certificate authority.
    routes : how this site reaches the neighbours that it calls, and those that it meets at a relay.
    listen : ``host:port`` at which the other neighbours call this site.
    journal : file for received messages, from which a killed site resumes. One that cannot be used is left alone: the
        neighbours are told that this site cannot resume, and every request raises CannotResumeError.
    left : how the site has left, if this process only tells its neighbours so; see ``eigenmesh.protocol.setup``.
    n_lost : how many links were lost before the result of such a site.
    on_sent : called with every message before it is sent. If it raises, no numbers are sent and the run is parked.
    supervisor : of all threads and tasks of the run at this site. The first that ends with an exception ends the run.

    Attributes
    ----------
    machine : the site's part in the protocol; see ``eigenmesh.protocol``.
    lock : held while the machine is stepped; take it to read the state of the machine.
    """

    def __init__(
        self,
        setup: ep.Setup,
        credentials: Credentials,
        routes: Routes,
        *,
        listen: str | None,
        journal: Path | None = None,
        left: str = "",
        n_lost: int = 0,
        on_sent: Callable[[ev.Sent], None] | None = None,
        supervisor: Supervisor | None = None,
    ) -> None:
        answered = [name for name in setup.neighbours if name not in setup.dials]
        waits = [name for name in answered if name in routes.relays]
        callers = [name for name in answered if name not in routes.relays]
        if callers and listen is None:
            raise InputError(f"{', '.join(callers)} will call this site, so it must listen; give host:port.")
        self.setup, self._on_sent = setup, on_sent
        self.lock = threading.Lock()
        self._answers: queue.SimpleQueue[Any] = queue.SimpleQueue()
        self._failure: BaseException | None = None
        self._supervisor = supervisor or Supervisor()
        self._supervisor.on_failure = self._broken
        self._closed = False
        self._streams: ConnectionThread | None = None
        self._journal: Journal | None = None
        # Without a journal there is no past.
        alone = Instance(new_identity(), 1, secrets.token_hex(8))
        past = Past(alone, secret=secrets.token_hex(32), left=left, n_lost=n_lost)
        if journal is not None and not left:
            try:
                self._journal = self._open_journal(journal)
                past = self._journal.past
            except CannotResumeError as error:
                past = past._replace(left=Departure.FINISHED if setup.has_result else Departure.DAMAGED, why=str(error))
        try:
            self._records = len(past.entries)
            self.machine = ep.SiteMachine(setup, past, random.Random(secrets.randbits(64)), time.monotonic())
            dialler = Dialler(credentials, routes)
            limits = setup.run.max_message_bytes, 4 * len(setup.sites) + 16
            self._streams = ConnectionThread(
                self._step, dialler, waits, listen if callers else None, *limits, self._supervisor
            )
            self._feed(ev.SiteStarted())
            self._streams.begin()
        except BaseException:
            self._release()
            raise

    def _open_journal(self, path: Path) -> Journal:
        run = self.setup.run
        head = {"run id": run.run_id.hex(), "manifest": run.digest, "site": self.setup.name}
        return Journal(
            path,
            head,
            lambda records: self._feed(ev.Durable(records)),
            lambda reason: self._feed(ev.DiskFailed("journal", reason)),
            self._supervisor,
        )

    @property
    def journal_problem(self) -> str:
        return "" if self._journal is None else self._journal.failed

    def round_trip_s(self, stream: int | None) -> float:
        """Round trip time of a stream; 0 if unknown."""
        return 0.0 if self._streams is None else self._streams.round_trip_s(stream)

    def ask(self, event: ev.Question) -> Any:
        """Make a request to the machine, and wait for its answer. Raises the error that has ended the run."""
        if self._closed and not isinstance(event, ev.Finish):
            raise TransportError("the transport is closed.")
        # A new queue per request: the answer to a request that was given up, as by Ctrl-C, is dropped.
        answers: queue.SimpleQueue[Any] = queue.SimpleQueue()
        self._hand_over(self._step, event, answers)
        while True:
            try:
                answer = answers.get(timeout=POLL_S)
            except queue.Empty:
                answer = None
            if answer is not None:
                return answer.answer
            self._supervisor.check()
            if not isinstance(event, ev.Finish):
                self.check()
            if self._streams is None or not self._streams.thread.is_alive():
                raise TransportError(f"the communication thread of {self.setup.name} has ended.")

    def check(self) -> None:
        """Raise the error that has ended the run, if there is one."""
        self._supervisor.check()
        if self._failure is not None:
            # A fresh traceback for each raise.
            raise self._failure.with_traceback(None)

    def stop(self, reason: str, parks: bool = False) -> None:
        """End the run at every site, or park it until all are started again."""
        if not self._closed:
            self._feed(ev.Stop(reason, parks))

    def close(self) -> tuple[str, ...]:
        """Say farewell and release everything. Returns the neighbours that may need this site again."""
        if self._closed:
            return ()
        owed: tuple[str, ...] = ()
        try:
            if self._journal is not None:
                self._journal.flush(self.setup.patience_s if self._failure is None else 1.0)
            self._closed = True
            owed = self.ask(ev.Finish()).owed
        finally:
            self._closed = True
            self._release()
        return owed

    def _release(self) -> None:
        if self._streams is not None:
            self._streams.stop()
        if self._journal is not None:
            self._journal.close()

    def _feed(self, event: Any) -> None:
        self._hand_over(self._step, event)

    def _hand_over(self, call: Callable[..., None], *values: Any) -> None:
        """Have the communication thread make a call, after all earlier ones, unless it has ended."""
        if self._streams is not None:
            self._streams.call(call, *values)

    def _step(self, event: Any, answers: queue.SimpleQueue[Any] | None = None) -> None:
        """Step the machine and carry out its effects, in the communication thread. An exception ends the run.

        ``answers`` is where the answer to a request of the solver is put.
        """
        if answers is not None:
            self._answers = answers
        if self._supervisor.error is not None:
            self._end(self._supervisor.error)
            return
        try:
            self._carry_out(event)
        except Exception as error:
            self._supervisor.fail(error, f"the protocol of {self.setup.name}")

    def _carry_out(self, event: Any) -> None:
        with self.lock:
            out = self._effects(event)
        if self._streams is not None:
            self._streams.perform(out)

    def _broken(self, error: BaseException) -> None:
        """Hear of an exception in any thread: no event is taken from now on, and the neighbours are told."""
        self._hand_over(self._break_off, error)

    def _break_off(self, error: BaseException) -> None:
        try:
            # Only the kind of the exception: its message could reveal data or paths.
            self._carry_out(ev.Stop(f"{type(error).__name__}; ask its operator."))
        except Exception:
            logger.exception("the neighbours of %s cannot be told", self.setup.name)
        self._end(error)

    def _end(self, error: BaseException) -> None:
        self._failure = error
        self._answers.put(None)

    def _effects(self, first: Any) -> list[ev.Write | ev.Cut | ev.Dial]:
        """Step the machine and carry out its local effects. Returns the effects on connections."""
        events: deque[Any] = deque([first])
        out: list[ev.Write | ev.Cut | ev.Dial] = []
        while events:
            for effect in self.machine.step(time.monotonic(), events.popleft()):
                match effect:
                    case ev.Write(sent=ev.Sent() as sent) if problem := self._record(sent):
                        events.append(ev.DiskFailed("audit", problem))
                        break
                    case ev.Write() | ev.Cut() | ev.Dial():
                        out.append(effect)
                    case ev.Append(record, urgent):
                        self._records += 1
                        if self._journal is not None:
                            self._journal.append(record, urgent)
                        else:
                            events.append(ev.Durable(self._records))
                    case ev.Deliver():
                        self._answers.put(effect)
                    case ev.Fail(error):
                        self._end(error)
                    case _:
                        logger.log(effect.level, "%s", effect.text)
        return out

    def _record(self, sent: ev.Sent) -> str:
        if self._on_sent is None:
            return ""
        try:
            self._on_sent(sent)
        except (EigenmeshError, OSError, ValueError) as error:
            logger.error("messages of %s can no longer be recorded in the audit: %s", self.setup.name, error)
            return str(error)
        return ""


class TransportStatus(NamedTuple):
    """The status of a site.

    Parameters
    ----------
    round : the next one.
    replaying : whether it still replays its journal.
    waiting_for : the sites it waits for.
    journal_problem : why the journal cannot be written, or empty.
    links : the status of each link.
    """

    round: int
    replaying: bool
    waiting_for: tuple[str, ...]
    journal_problem: str
    links: tuple[NeighbourStatus, ...]


@dataclass(frozen=True)
class TaggedLinks(Links):
    """Links of one kind of round, with its tag, the same at all sites."""

    tag: int = 0


class TlsTransport(Transport):
    """The links of one site in one epoch, over mutual TLS. Ranks are indices among the members.

    Parameters
    ----------
    endpoint : the process of the site.
    """

    compares_settings: ClassVar[bool] = True

    def __init__(self, endpoint: Endpoint) -> None:
        self.endpoint, self.members = endpoint, endpoint.machine.epoch.members
        self._rank, self._size = self.members.index(endpoint.setup.name), len(self.members)
        self._linked = {self.members.index(name): name for name in endpoint.machine.epoch.links}
        self._kinds_of_round = self._drawn = 0
        self._masks: JournalledMasks | None = None

    @property
    def neighbours(self) -> tuple[int, ...]:
        """Ranks of the sites that are linked to this one."""
        return tuple(self._linked)

    @property
    def begun(self) -> bool:
        """Whether a neighbour has sent numbers, to this process or before a restart."""
        with self.endpoint.lock:
            return any(link.next_in > 0 for link in self.endpoint.machine.epoch.links.values())

    def private_bytes(self, count: int) -> bytes:
        self._drawn += 1
        machine = self.endpoint.machine
        seed = f"{machine.past.secret} {machine.epoch.lost} {self._drawn}"
        return hashlib.shake_256(seed.encode()).digest(count)

    def masks(self) -> Masks | None:
        """Masks of the current epoch, from keys that the members have signed, or None in a run without masks."""
        if not self.endpoint.setup.masked:
            return None
        self._masks = JournalledMasks(self.endpoint.machine, self.endpoint.ask, self._ask(ev.Keys()))
        return self._masks

    def wait_for_members(self) -> None:
        """Wait until all members have joined, and this site knows the keys that they have signed."""
        self._ask(ev.Keys())

    def links(self, send_to: Sequence[int], receive_from: Sequence[int]) -> Links:
        """Prepare a kind of round; only neighbours can be linked."""
        strangers = sorted({*send_to, *receive_from} - self._linked.keys())
        if strangers:
            raise InputError(f"sites {strangers} are not neighbours of {self.endpoint.setup.name!r}.")
        self._kinds_of_round += 1
        return TaggedLinks(tuple(send_to), tuple(receive_from), self._kinds_of_round)

    def exchange(self, arrays: Arrays, links: Links) -> dict[int, Arrays]:
        own = [ea.to_numpy(array) for array in arrays]
        body = wire.array_body(own, self.endpoint.setup.run.max_message_bytes)
        to, from_ = (tuple([self._linked[rank] for rank in ranks]) for ranks in (links.send_to, links.receive_from))
        frames = self._ask(ev.Exchange(body, getattr(links, "tag", 0), to, from_))
        self.sent.add(len(to), sum([array.nbytes for array in own]))
        return {rank: in_library_of(arrays, frames[self._linked[rank]].arrays) for rank in links.receive_from}

    def compare(self, stage: str) -> None:
        """Sign what this site has heard so far, and wait until all members have.

        Raises TransportError if one was told other numbers than this one. Does nothing in a run without masks.
        """
        if self._masks is not None:
            self._ask(ev.Compare(stage, self._masks.news()))

    def sign(self, digest: str) -> dict[str, str]:
        """Sign the digest of the result, and wait until all members have. Returns their statements by name.

        In a masked run they also sign what they have heard.
        """
        return dict(self._ask(ev.Sign(digest, () if self._masks is None else self._masks.news())))

    def _ask(self, event: ev.Exchange | ev.Keys | ev.Compare | ev.Sign) -> Any:
        answer = self.endpoint.ask(event)
        if isinstance(answer, ev.MembersChanged):
            raise MembersChangedError("sites were lost, and the others have agreed to continue.", answer.lost)
        return answer

    def next_epoch(self, start: bytes) -> TlsTransport:
        """Start again with the remaining members, from an estimate that survives a crash."""
        self.endpoint.ask(ev.Begin(start))
        return TlsTransport(self.endpoint)

    def check(self) -> None:
        """Raise the error that has ended the run, if there is one."""
        self.endpoint.check()

    def status(self) -> TransportStatus:
        """The status of the site and its links."""
        with self.endpoint.lock:
            machine, since_1970_s = self.endpoint.machine, time.time() - time.monotonic()
            links = tuple(
                NeighbourStatus(
                    link.name,
                    link.stream is not None,
                    # Rounded to a tenth of a second, so that a time computed twice compares as equal.
                    round(link.heard + since_1970_s, 1) if link.joined else 0.0,
                    link.name in machine.waiting_for,
                    link.their_round,
                    link.bytes_out,
                    link.bytes_in,
                    link.refusal,
                    self.endpoint.round_trip_s(link.stream),
                )
                for link in machine.epoch.links.values()
            )
            problem = self.endpoint.journal_problem
            return TransportStatus(machine.epoch.round, machine.replaying, machine.waiting_for, problem, links)

    def abort(self, reason: str) -> None:
        self.endpoint.stop(reason)

    def park(self, reason: str) -> None:
        """Park the run at every site; when all are started again, they resume from their journals."""
        self.endpoint.stop(reason, parks=True)

    def close(self) -> None:
        """Wait until the neighbours have all they need, then release everything; may be called more than once."""
        self.endpoint.close()
