"""One process of a site: connects the protocol's machine to TLS connections, the journal, the audit and the solver."""

from __future__ import annotations

import logging
import queue
import random
import secrets
import socket
import threading
import time
from collections import deque
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from eigenmesh import protocol as ep
from eigenmesh.errors import EigenmeshError, FrameError, InputError, TransportError
from eigenmesh.protocol import Kind, wire
from eigenmesh.transports.tls.connection import (
    WELCOME,
    ConnectionThread,
    Credentials,
    MessageReader,
    Supervisor,
    parse_address,
    plain_reason,
    prefixed,
)
from eigenmesh.transports.tls.journal import Journal

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
    addresses : ``host:port`` of each neighbour that this site calls.
    listen : ``host:port`` at which the other neighbours call this site.
    journal : file for received messages, from which a killed site resumes.
    on_sent : called with every message before it is sent; if it raises, no numbers are sent and the run is parked.
    supervisor : of all threads and tasks of the run at this site; the first that ends with an exception ends the run.
    """

    def __init__(
        self,
        setup: ep.Setup,
        credentials: Credentials,
        addresses: Mapping[str, str],
        *,
        listen: str | None,
        journal: Path | None = None,
        on_sent: Callable[[ep.Sent], None] | None = None,
        supervisor: Supervisor | None = None,
    ) -> None:
        callers = [name for name in setup.neighbours if name not in setup.dials]
        if callers and listen is None:
            raise InputError(f"{', '.join(callers)} will call this site, so it must listen; give host:port.")
        self.setup, self._on_sent = setup, on_sent
        self._lock = threading.Lock()
        self._answers: queue.SimpleQueue[Any] = queue.SimpleQueue()
        self._failure: BaseException | None = None
        self._supervisor = Supervisor() if supervisor is None else supervisor
        self._supervisor.on_failure = self._broken
        self._closed = False
        self._streams: ConnectionThread | None = None
        self._journal = None if journal is None else self._open_journal(journal)
        past = _new_past() if self._journal is None else self._journal.past
        try:
            self._records = len(past.entries)
            self._machine = ep.SiteMachine(setup, past, random.Random(secrets.randbits(64)), time.monotonic())
            limits = setup.run.max_message_bytes, 4 * len(setup.sites) + 16
            self._streams = ConnectionThread(
                self._step, credentials, addresses, listen if callers else None, *limits, self._supervisor
            )
            self._feed(ep.SiteStarted())
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
            lambda records: self._feed(ep.Durable(records)),
            lambda reason: self._feed(ep.DiskFailed("journal", reason)),
            self._supervisor,
        )

    @property
    def members(self) -> tuple[str, ...]:
        """The sites of the current epoch, in the order of the network."""
        return self._machine.members

    @property
    def lost(self) -> tuple[tuple[str, str], ...]:
        """The lost links of the current epoch."""
        return self._machine.lost

    @property
    def start(self) -> bytes:
        """The estimate from which the current epoch starts, as it was given to Begin."""
        return self._machine.start

    @property
    def secret(self) -> str:
        """A secret that only this site knows; the same after a restart."""
        return self._machine.past.secret

    @property
    def machine(self) -> ep.SiteMachine:
        return self._machine

    @property
    def lock(self) -> threading.Lock:
        """Held while the machine is stepped; take it to read the state of the machine."""
        return self._lock

    @property
    def journal_problem(self) -> str:
        return "" if self._journal is None else self._journal.failed

    def round_trip_s(self, neighbour: str) -> float:
        """Round trip time to a neighbour; 0 if unknown."""
        stream = self._machine.links[neighbour].stream
        return 0.0 if self._streams is None else self._streams.round_trip_s(stream)

    def ask(self, event: ep.Question) -> Any:
        """Make a request to the machine, and wait for its answer; raises the error that has ended the run."""
        if self._closed and not isinstance(event, ep.Finish):
            raise TransportError("the transport is closed.")
        # A new queue per request: the answer to a request that was given up, as by Ctrl-C, is dropped.
        answers: queue.SimpleQueue[Any] = queue.SimpleQueue()
        self._hand_over(self._put, event, answers)
        while True:
            try:
                answer = answers.get(timeout=POLL_S)
            except queue.Empty:
                answer = None
            if answer is not None:
                return answer
            self._supervisor.check()
            if not isinstance(event, ep.Finish):
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
            self._feed(ep.Stop(reason, parks))

    def close(self) -> tuple[str, ...]:
        """Say farewell and release everything; returns the neighbours that may need this site again."""
        if self._closed:
            return ()
        owed: tuple[str, ...] = ()
        try:
            if self._journal is not None:
                self._journal.flush(self.setup.patience_s if self._failure is None else 1.0)
            self._closed = True
            owed = self.ask(ep.Finish()).owed
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
        """Have the communication thread make a call, after all earlier ones; does nothing once it has ended."""
        if self._streams is not None:
            self._streams.call(call, *values)

    def _put(self, question: Any, answers: queue.SimpleQueue[Any]) -> None:
        self._answers = answers
        self._step(question)

    def _step(self, event: Any) -> None:
        """Step the machine and carry out its effects, in the communication thread; an exception ends the run."""
        if self._supervisor.error is not None:
            self._end(self._supervisor.error)
            return
        try:
            self._carry_out(event)
        except Exception as error:
            self._supervisor.fail(error, f"the protocol of {self.setup.name}")

    def _carry_out(self, event: Any) -> None:
        with self._lock:
            out = self._effects(event)
        if self._streams is not None:
            self._streams.perform(out)

    def _broken(self, error: BaseException) -> None:
        """Hear of an exception in any thread: no event is taken from now on, and the neighbours are told."""
        self._hand_over(self._break_off, error)

    def _break_off(self, error: BaseException) -> None:
        try:
            # Only the kind of the exception: its message could reveal data or paths.
            self._carry_out(ep.Stop(f"{type(error).__name__}; ask its operator."))
        except Exception:
            logger.exception("the neighbours of %s cannot be told", self.setup.name)
        self._end(error)

    def _end(self, error: BaseException) -> None:
        self._failure = error
        self._answers.put(None)

    def _effects(self, first: Any) -> list[ep.Write | ep.Cut | ep.Dial]:
        """Step the machine and carry out its local effects; returns the effects on connections."""
        events: deque[Any] = deque([first])
        out: list[ep.Write | ep.Cut | ep.Dial] = []
        while events:
            for effect in self._machine.step(time.monotonic(), events.popleft()):
                match effect:
                    case ep.Write() | ep.Cut() | ep.Dial():
                        out.append(effect)
                    case ep.Audit(sent):
                        problem = self._record(sent)
                        if problem:
                            events.append(ep.DiskFailed("audit", problem))
                            break
                    case ep.Append(record, urgent):
                        self._records += 1
                        if self._journal is not None:
                            self._journal.append(record, urgent)
                        else:
                            events.append(ep.Durable(self._records))
                    case ep.Deliver(answer):
                        self._answers.put(answer)
                    case ep.Fail(error):
                        self._end(error)
                    case _:
                        logger.log(effect.level, "%s", effect.text)
        return out

    def _record(self, sent: ep.Sent) -> str:
        if self._on_sent is None:
            return ""
        try:
            self._on_sent(sent)
        except (EigenmeshError, OSError, ValueError) as error:
            logger.error("messages of %s can no longer be recorded in the audit: %s", self.setup.name, error)
            return str(error)
        return ""


def _new_past() -> ep.Past:
    """The past of a site without a journal."""
    return ep.Past(ep.Instance(secrets.token_hex(16), 1, ""), secret=secrets.token_hex(32))


# Asks a neighbour that is up for its manifest, without joining its run.


def manifest_of(neighbour: str, address: str, credentials: Credentials, run_id: bytes, timeout_s: float) -> str:
    """The manifest of a neighbour at ``host:port``; raises TransportError if it sends none."""
    question = wire.encode(Kind.MANIFEST, run_id, 0, 0, 0, wire.text_body(""))
    context, incoming = credentials.for_dialling(), MessageReader(wire.ROOM_BYTES + wire.MAX_TEXT_BYTES)
    try:
        with (
            socket.create_connection(parse_address(address), timeout_s) as plain,
            context.wrap_socket(plain, server_hostname=neighbour) as secure,
        ):
            while data := secure.recv(1 << 16):
                for message in incoming.add(data):
                    if message == WELCOME:
                        secure.sendall(prefixed(question))
                    elif (frame := wire.decode(message, 0)).kind is Kind.MANIFEST:
                        return frame.text
    except OSError as error:
        raise TransportError(f"{neighbour} sent no manifest: {plain_reason(error)}.") from None
    except (FrameError, ValueError) as error:
        raise TransportError(f"{neighbour} answered, but not with a manifest: {error}") from None
    raise TransportError(f"{neighbour} sent no manifest; install the same eigenmesh at both sites.")
