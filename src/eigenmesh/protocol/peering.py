"""The other ends of a site's streams: calls, greetings, and the frames that arrive from neighbours.

A stream begins with a greeting in each direction: the site's name, its run, the signed statement about its process,
and the round that it needs next. Both ends must agree on all of it. Only then does the stream carry the link to that
neighbour. Signed statements are taken earlier, from a neighbour that is in another epoch, because it may know of a
loss that this site has not heard of, or the other way round. Every frame is checked, and a stream with a frame that
is wrong is closed. The neighbour may then call again.

A site that has left for good, because it cannot resume or because it has its result, greets nobody. It says its *last
word* to each neighbour instead, a signed statement, until the neighbour has it on its disk.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from dataclasses import dataclass
from enum import IntEnum
from random import Random

from eigenmesh.errors import (
    AbortedError,
    CannotResumeError,
    DisagreementError,
    EigenmeshError,
    FrameError,
    InputError,
    ParkedError,
)
from eigenmesh.protocol import effects as ev
from eigenmesh.protocol import wire
from eigenmesh.protocol.membership import Membership, TwiceError
from eigenmesh.protocol.outbox import Arrived, Link, Outbox
from eigenmesh.protocol.setup import HOW_IT_LEFT, Departure, Statement, Topic, certificate_of, read_statement
from eigenmesh.protocol.wire import Frame, Kind, Mark
from eigenmesh.words import one_line, said_by

# First and longest pause between two calls.
BACKOFF_S = (0.1, 5.0)
GREETING_S = 10.0
# Most streams of one caller that have not greeted yet. Beyond that the oldest is closed.
MAX_STRANGERS = 2
# The tag of ACK for a last word.
LAST_WORD_TAKEN = 2
# A last word of another process than the one that was linked is believed after so long without that link: two processes
# of a site may run.
SETTLED_S = 10.0
# How often a frame that does not fit is requested again. After that the neighbour itself must be wrong.
MAX_STRIKES = 3


def backoff_s(attempts: int, random: Random) -> float:
    """The pause before the next call, after so many that have failed in a row before the last one."""
    first, longest = BACKOFF_S
    return min(longest, first * 2.0 ** min(attempts, 10)) * random.uniform(0.5, 1.0)


class Verdict(IntEnum):
    """Why a site is refused; sent as the tag of REFUSE.

    LATER: try again. MANIFEST: it is set up for a different run. CANNOT_RESUME: its journal is gone or outdated. A
    verdict that this version does not know means to try again later.
    """

    LATER = 0
    MANIFEST = 1
    CANNOT_RESUME = 2

    @classmethod
    def _missing_(cls, value: object) -> Verdict:
        return cls.LATER


class RefusedError(Exception):
    """A greeting that is refused."""

    def __init__(self, verdict: Verdict, reason: str) -> None:
        super().__init__(reason)
        self.verdict = verdict


def reported(sender: str, text: str) -> str:
    """A reason that a neighbour has passed on, with the name that the neighbour's certificate proves."""
    shown = one_line(text)
    return shown if shown.startswith(f"{sender} ") else said_by(sender, text)


@dataclass
class Stream:
    """A stream.

    ``names`` are the names in the certificate of the other end; ``called`` is the neighbour that this site called, if
    it did; ``link`` is the neighbour whose greeting was accepted.
    """

    number: int
    names: tuple[str, ...]
    called: str
    address: str
    since: float
    link: str = ""
    refused: Verdict | None = None
    ending: bool = False


class Peering:
    """The streams of a site by number, and the calls that open them.

    Parameters
    ----------
    membership : the statements that are known here. Those that neighbours send are checked and added to it.
    outbox : where everything that is sent goes. It has the site, which neighbours it calls, and its journal.
    random : what pauses between calls are drawn from.
    on_statement : called with each new statement of another site, once it is kept and passed on.
    """

    def __init__(
        self, membership: Membership, outbox: Outbox, random: Random, on_statement: Callable[[Statement], None]
    ) -> None:
        self.membership, self.outbox, self.setup, self.clock = membership, outbox, outbox.setup, outbox.clock
        self._random, self._on_statement = random, on_statement
        # Whether an earlier process of this site may have sent rounds that this one has not reached yet.
        self._resumed = outbox.past.instance.start > 1
        self.streams: dict[int, Stream] = {}
        # Neighbours that are being called.
        self.calling: set[str] = set()
        # What this site says to its neighbours once it has left for good.
        self.last_word: Statement | None = None

    @property
    def _links(self) -> dict[str, Link]:
        return self.outbox.epoch.links

    # Streams, from call to close.

    def call_all(self) -> None:
        """Call the neighbours that this site has to call."""
        for name in self._links:
            if name in self.setup.dials:
                self.call(name)

    def unreachable(self, event: ev.Unreachable) -> None:
        self.calling.discard(event.neighbour)
        link = self._links.get(event.neighbour)
        if link is not None and event.neighbour in self.setup.dials:
            self._call_again(link, event.reason)
        elif link is not None and link.stream is None:
            link.refusal = one_line(event.reason)

    def closed(self, event: ev.Closed) -> None:
        stream = self.streams.pop(event.stream, None)
        if stream is None:
            return
        link = self._links.get(stream.link)
        if not (stream.link or stream.called or stream.ending) and stream.refused is None:
            self.outbox.log(f"refused {self._who(stream)}: the stream ended before a greeting.")
        if link is not None and link.stream == stream.number:
            link.stream = None
            self.outbox.log(f"link to {link.name} is down. {one_line(event.reason)}", logging.INFO)
        called = self._links.get(stream.called)
        if called is not None and called.stream is None:
            self._call_again(called, event.reason)

    def _call_again(self, link: Link, reason: str) -> None:
        link.refusal = one_line(reason) or link.refusal
        if self.last_word is not None and link.warned:
            return
        link.attempts += 1
        self.call(link.name, backoff_s(link.attempts - 1, self._random))

    def call(self, name: str, after_s: float = 0.0) -> None:
        """Call a neighbour, unless it is being called, or has a stream: when that closes, the call follows."""
        if name not in self.calling and not any(stream.called == name for stream in self.streams.values()):
            self.calling.add(name)
            self.outbox.emit(ev.Dial(name, after_s))

    def cut(self, stream: Stream) -> None:
        link = self._links.get(stream.link)
        if link is not None and link.stream == stream.number:
            link.stream = None
        stream.link, stream.ending = "", True
        self.outbox.emit(ev.Cut(stream.number))

    def cut_all(self) -> None:
        """Close all streams."""
        for stream in list(self.streams.values()):
            if not stream.ending:
                self.cut(stream)

    def drop(self, name: str) -> None:
        """Close the stream to a neighbour, if there is one."""
        link = self._links.get(name)
        if link is not None and link.stream is not None:
            self.cut(self.streams[link.stream])

    def review(self) -> None:
        """Close streams to sites whose certificate was revoked, and those that have not greeted in time."""
        for link in list(self._links.values()):
            known = self.membership.instance_statement(link.name)
            if link.stream is not None and known and self.setup.keyring.is_revoked(certificate_of(known)):
                self.refuse(self.streams[link.stream], "its certificate is revoked.")
        for stream in list(self.streams.values()):
            if not stream.link and not stream.ending and self.clock.now - stream.since > GREETING_S:
                self.refuse(stream, f"no greeting within {GREETING_S:g} s.")

    def refuse(self, stream: Stream, reason: str) -> None:
        self.outbox.log(f"refused {self._who(stream)}: {one_line(reason)}")
        # A caller is identified by the names in its certificate.
        for name in {stream.called, *stream.names} & self._links.keys():
            if self._links[name].stream in (None, stream.number):
                self._links[name].refusal = one_line(reason)
        self.cut(stream)

    def _who(self, stream: Stream) -> str:
        names = ", ".join(stream.names) or "no name"
        return stream.link or stream.called or one_line(f"{names} at {stream.address}")

    # Greetings, until both ends of a stream have agreed.

    def opened(self, event: ev.Opened) -> None:
        stream = Stream(event.stream, event.names, event.called, event.address, self.clock.now)
        self.streams[event.stream] = stream
        self.calling.discard(event.called)
        if event.called:
            if event.called in self._links and self.last_word is not None:
                self._say_last_word(self._links[event.called], stream)
            elif event.called in self._links:
                self._greet(self._links[event.called], stream, Kind.HELLO)
            else:
                self.cut(stream)
            return
        strangers = [one for one in self.streams.values() if not (one.link or one.called or one.ending)]
        same = [one for one in strangers if one.names == event.names]
        if len(same) > MAX_STRANGERS:
            self.refuse(same[0], "it opens many streams without a greeting.")

    def _greet(self, link: Link, stream: Stream, kind: Kind) -> None:
        self.outbox.write_text(link, kind, self.greeting(), link.next_in, stream=stream.number)

    def greeting(self) -> str:
        """The name of this site, the digest of its manifest, and its signed statement about this process."""
        return "\n".join((self.setup.name, self.setup.run.digest, self.outbox.make_instance().text))

    def hear_before_greeting(self, stream: Stream, frame: Frame) -> None:
        """A frame on a stream whose greeting is not accepted yet."""
        names = [stream.called] if stream.called else [name for name in stream.names if name in self._links]
        link = self._links[names[0]] if names else None
        if link is None:
            # Whoever it is, it calls in vain. This says so.
            self._hear_greeting(stream, frame)
            return
        last_word = frame.kind is Kind.STATEMENT and self._is_last_word(link, frame)
        if self.last_word is not None:
            self._hear_after_leaving(link, stream, frame, last_word)
            return
        if stream.called and not last_word:
            link.join(self.clock.now)
        verdict = Verdict(frame.tag) if frame.kind is Kind.REFUSE else None
        if last_word:
            self._hear_last_word(link, stream, frame)
        elif frame.kind is Kind.STATEMENT and (stream.called or stream.refused is Verdict.LATER):
            self.hear_statement_on(link, stream, frame.text)
        elif verdict is not None and stream.called:
            self._greeting_refused(link, stream, verdict, frame)
        elif verdict is Verdict.CANNOT_RESUME:
            self._cannot_resume(link, frame)
        elif frame.kind is Kind.MANIFEST and stream.refused is Verdict.MANIFEST:
            self._disagree(link, frame.text)
            self.cut(stream)
        elif frame.kind in (Kind.ABORT, Kind.PARK):
            # The neighbour sends no greeting, because its audit fails.
            self.hear_end(link, frame)
        elif stream.refused is not None:
            self.cut(stream)
        elif frame.kind is Kind.MANIFEST and not stream.called:
            self._show_manifest(link, stream)
        else:
            self._hear_greeting(stream, frame)

    def _show_manifest(self, link: Link, stream: Stream) -> None:
        """A neighbour asks before the run how this site is set up. This does not count as joining."""
        self.outbox.log(f"{link.name} asks for the manifest.", logging.INFO)
        self.outbox.write_text(link, Kind.MANIFEST, self.setup.run.manifest, 0, stream=stream.number)
        self.cut(stream)

    def _hear_greeting(self, stream: Stream, frame: Frame) -> None:
        kind, parts = Kind.WELCOME if stream.called else Kind.HELLO, frame.text.split("\n", 2)
        if frame.kind is not kind or len(parts) != 3:
            raise FrameError(f"{frame.kind.name} came where {kind.name} is expected.")
        name, digest, statement = parts
        link, epoch = self._expected(stream, name), self.outbox.epoch
        link.join(self.clock.now)
        try:
            if digest != self.setup.run.digest:
                raise RefusedError(Verdict.MANIFEST, f"{link.name} is set up for another run: its manifest differs.")
            if frame.run_id != epoch.run_id or frame.epoch != epoch.number:
                raise RefusedError(Verdict.LATER, f"epoch {frame.epoch} is not the current one, {epoch.number}.")
            self._require_instance(link, statement)
            self._require_resumable(link, frame)
        except RefusedError as error:
            self._refuse_greeting(link, stream, error)
            return
        if not stream.called:
            self._greet(link, stream, Kind.WELCOME)
        self._agreed(link, stream, frame)

    def _expected(self, stream: Stream, name: str) -> Link:
        if stream.called:
            if name != stream.called:
                raise FrameError(f"{stream.called} greets with another name.")
        elif name not in stream.names:
            raise FrameError(f"it greets as {name!r}, which is not the name in its certificate.")
        elif name in self.setup.dials or name not in self._links:
            raise FrameError(f"{name!r} is not a neighbour that calls {self.setup.name!r}.")
        return self._links[name]

    def _require_instance(self, link: Link, text: str) -> None:
        statement = read_statement(text, self.setup.keyring, self.setup.run.run_id)
        if statement.kind != Topic.INSTANCE or statement.site != link.name:
            raise FrameError("the greeting has a statement of another kind.")
        known = self.membership.instance(link.name)
        try:
            new = self.membership.add(statement)
        except TwiceError as error:
            raise _started_over(error) from None
        if new:
            self.learn(statement, link.name)
        elif known is not None and tuple(statement.content[:2]) < known[:2]:
            raise RefusedError(Verdict.CANNOT_RESUME, f"{link.name} has been started again elsewhere since.")

    def _require_resumable(self, link: Link, frame: Frame) -> None:
        if max(frame.round, frame.acknowledged) > self.outbox.epoch.round and not self._resumed:
            raise RefusedError(Verdict.LATER, f"{link.name} claims round {frame.round - 1}, which was never sent.")
        if frame.round < link.safe_there and not link.finished:
            text = f"{link.name} needs round {frame.round} but has acknowledged all below {link.safe_there}"
            if self.membership.instance(link.name) == link.met:
                # The same process cannot lose rounds: a newer greeting on another stream has overtaken this one.
                raise RefusedError(Verdict.LATER, f"{text} since.")
            text = f"{text}: its journal is gone or incomplete, so it cannot resume."
            raise RefusedError(Verdict.CANNOT_RESUME, text)

    def _agreed(self, link: Link, stream: Stream, frame: Frame) -> None:
        if link.stream is not None and link.stream in self.streams:
            self.cut(self.streams[link.stream])
        stream.link, link.met = link.name, self.membership.instance(link.name)
        due = link.meet(stream.number, frame.round, frame.acknowledged, self.clock.now)
        self.outbox.log(f"link to {link.name} is up; it needs round {frame.round}.", logging.INFO)
        self.outbox.send_statements(link)
        for message in due:
            self.outbox.write(link, message)
        if self.outbox.failure is not None:
            self.outbox.warn(link)

    def _refuse_greeting(self, link: Link, stream: Stream, error: RefusedError) -> None:
        """Refuse a greeting, and send the reason."""
        self.outbox.log(f"refused {link.name}: {error}")
        stream.refused = error.verdict
        if error.verdict is Verdict.LATER:
            # The other site may be behind: with the statements known here it can catch up.
            self.outbox.send_statements(link, stream.number)
        text = self.setup.run.manifest if error.verdict is Verdict.MANIFEST else str(error)
        self.outbox.write_text(link, Kind.REFUSE, text, 0, error.verdict, stream.number)
        if stream.called:
            self.cut(stream)

    def _greeting_refused(self, link: Link, stream: Stream, verdict: Verdict, frame: Frame) -> None:
        """The listener has refused this site's greeting."""
        # With MANIFEST the text is its manifest. The error that ends the run names the fields that differ.
        why = "its settings differ" if verdict is Verdict.MANIFEST else one_line(frame.text)[:200]
        stream.refused, link.refusal = verdict, f"refused by {link.name}: {why}"
        if verdict is Verdict.MANIFEST:
            self.outbox.write_text(link, Kind.MANIFEST, self.setup.run.manifest, 0, stream=stream.number)
            self._disagree(link, frame.text)
        elif verdict is Verdict.CANNOT_RESUME:
            self._cannot_resume(link, frame)
        else:
            # The listener may be behind, and can catch up with these.
            self.outbox.send_statements(link, stream.number)
        self.cut(stream)

    def _disagree(self, link: Link, theirs: str) -> None:
        """End the run, and name the fields that differ.

        A neighbour that had agreed before and comes back with other settings is only refused. A neighbour in an earlier
        or later run of the same series is waited for.
        """
        run, ahead = self.setup.run, 0
        try:
            ahead = run.runs_to(run.manifest, theirs) if run.runs_to else 0
            differing = run.compare(run.manifest, theirs) if run.compare else []
        except EigenmeshError as error:
            differing = [one_line(str(error))]
        if ahead:
            # The neighbour is alive, and one of the two will reach the run of the other.
            link.heard, link.refusal = self.clock.now, f"it is in a run {'after' if ahead > 0 else 'before'} this one"
        if ahead > 0:
            # It has finished this run: it needs nothing more from this site, and has sent everything.
            link.finish()
            link.complete = True
        if ahead or link.met is not None:
            return
        what = "; ".join(differing) or "the manifests differ"
        text = f"{self.setup.name} and {link.name} are set up for different runs: {what}."
        self.outbox.end(DisagreementError(text, link.name, theirs))

    def _cannot_resume(self, link: Link, frame: Frame) -> None:
        # Without a warning to the others: they believe the last word only if no other process of this site is there.
        self.outbox.fail(CannotResumeError(f"{link.name} refused: {one_line(frame.text)}"))
        self.leave(Departure.FINISHED if self.setup.has_result else Departure.REFUSED)

    # The last word of a site that has left for good.

    def leave(self, how: str) -> None:
        """Close all streams, and tell every neighbour, in place of a greeting, how this site has left."""
        if self.last_word is None:
            past = self.outbox.past
            n_lost = past.n_lost or self.outbox.epoch.number
            self.last_word = self.outbox.make(Topic.LEFT, [past.instance.identity, past.instance.nonce, how, n_lost])
            for link in self._links.values():
                link.warned = False
            self.cut_all()

    def _say_last_word(self, link: Link, stream: Stream) -> None:
        if self.last_word is not None:
            self.outbox.write_text(link, Kind.STATEMENT, self.last_word.text, 0, stream=stream.number)

    def _hear_after_leaving(self, link: Link, stream: Stream, frame: Frame, last_word: bool) -> None:
        """A frame for a site that has left: a caller's greeting, the answer to the last word, or another last word."""
        if frame.kind is Kind.HELLO:
            self._say_last_word(link, stream)
        elif last_word:
            # Both have left: neither needs the other.
            read_statement(frame.text, self.setup.keyring, self.setup.run.run_id)
            link.warned = True
            self._take_last_word(link, stream)
        else:
            if frame.kind is Kind.ACK and frame.tag == LAST_WORD_TAKEN:
                link.warned = True
            self.cut(stream)

    @property
    def quiet_s(self) -> float:
        """How long a site must have been without a link before the last word of another process of it is believed."""
        return min(SETTLED_S, self.setup.patience_s / 2)

    def _is_last_word(self, link: Link, frame: Frame) -> bool:
        """Whether it says so; its signature is checked where it is heard, as that of any other statement."""
        statement = read_statement(frame.text, None, self.setup.run.run_id)
        return statement.kind == Topic.LEFT and statement.site == link.name

    def _hear_last_word(self, link: Link, stream: Stream, frame: Frame) -> None:
        """Keep the last word of a neighbour, and confirm it once it is on the disk."""
        statement = read_statement(frame.text, self.setup.keyring, self.setup.run.run_id)
        new = self.membership.is_new(statement)
        speaks = link.met is not None and link.met[2] == statement.content[1]
        quiet_s = self.quiet_s
        # A site with its result loses nothing by believing it.
        doubtful = link.stream is not None or self.clock.now - link.heard <= quiet_s
        if new and not speaks and doubtful and not self.setup.has_result:
            why = f"another process of {link.name} may be here; say it again in {quiet_s:g} s."
            self._refuse_greeting(link, stream, RefusedError(Verdict.LATER, why))
            return
        if new:
            self.membership.add(statement)
            self.outbox.log(f"{link.name} has left: {HOW_IT_LEFT[statement.content[2]]}.")
            self.learn(statement, link.name)
        self.outbox.once_durable(lambda: self._take_last_word(link, stream))

    def _take_last_word(self, link: Link, stream: Stream) -> None:
        if stream.number in self.streams:
            self.outbox.write_text(link, Kind.ACK, "", 0, LAST_WORD_TAKEN, stream.number)

    # Frames from neighbours.

    def received(self, event: ev.Bytes) -> None:
        stream = self.streams.get(event.stream)
        if stream is None or stream.ending:
            return
        try:
            frame = wire.decode(event.data, self.setup.run.max_message_bytes)
            if stream.link:
                self._hear(self._links[stream.link], stream, frame, event.data)
            else:
                self.hear_before_greeting(stream, frame)
        except TwiceError as error:
            text = f"{error}. Stop one of them, and give the run another name at all sites."
            self.outbox.end(CannotResumeError(text))
        except FrameError as error:
            self.refuse(stream, str(error))

    def _hear(self, link: Link, stream: Stream, frame: Frame, data: bytes) -> None:
        """A frame from a neighbour whose greeting was accepted."""
        epoch = self.outbox.epoch
        if frame.run_id != epoch.run_id or frame.epoch != epoch.number:
            raise FrameError(f"a frame of another run or epoch ({frame.run_id.hex()}, {frame.epoch}).")
        if frame.acknowledged > epoch.round and not self._resumed:
            raise FrameError(f"round {frame.acknowledged - 1} is acknowledged, but {epoch.round - 1} is the last.")
        link.bytes_in += len(data)
        link.heard, link.lost = self.clock.now, False
        link.acknowledge(frame.acknowledged)
        if frame.kind is Kind.DATA:
            if not wire.is_intact(data):
                self.strike(link, frame.round, f"sent a hash in round {frame.round} that does not match the numbers")
                return
            link.put(Arrived(frame, data))
        elif frame.kind is Kind.STATEMENT:
            self.hear_statement_on(link, stream, frame.text)
        elif frame.kind is Kind.HEARTBEAT:
            link.their_round = frame.round
        elif frame.kind is Kind.ACK:
            link.farewell_taken = link.farewell_taken or bool(frame.tag)
        elif frame.kind is Kind.DONE:
            self._hear_farewell(link)
        elif frame.kind in (Kind.ABORT, Kind.PARK):
            self.hear_end(link, frame)
        elif frame.kind is Kind.REFUSE and Verdict(frame.tag) is Verdict.CANNOT_RESUME:
            self._cannot_resume(link, frame)
        else:
            raise FrameError(f"{frame.kind.name} from {link.name} is not expected here.")

    def hear_statement_on(self, link: Link, stream: Stream, text: str) -> None:
        """A statement that came over a stream.

        Statements of one site that contradict each other end the run. But a neighbour that itself says that it has
        started over is only refused.
        """
        try:
            self.hear_statement(link.name, text)
        except TwiceError as error:
            if read_statement(text, None, self.setup.run.run_id).site != link.name:
                raise
            self._refuse_greeting(link, stream, _started_over(error))

    def hear_statement(self, source: str, text: str) -> None:
        """Add a statement that a neighbour has made or passed on. Raises FrameError if it is wrong."""
        if any(statement.text == text for statement in self.membership.statements):
            return
        statement = read_statement(text, self.setup.keyring, self.setup.run.run_id)
        if not self.membership.is_new(statement):
            return
        if statement.kind == Topic.LEFT and (near := self._links.get(statement.site)) and near.stream is not None:
            # Another process of that site is linked to this one.
            return
        if statement.site == self.setup.name:
            # Only another process of this site can make a new statement in its name.
            text = f"{self.setup.name} has been started again elsewhere; this process ends."
            self.outbox.fail(CannotResumeError(text))
            return
        self.membership.add(statement)
        self.learn(statement, source)

    def learn(self, statement: Statement, source: str) -> None:
        """Act on a new statement, keep it and pass it on."""
        self.outbox.append(Mark.STATEMENT, statement.text.encode())
        self.outbox.spread(statement, source)
        if statement.kind == Topic.LOST and self.setup.name in statement.content:
            for name in statement.content:
                self.drop(name)
        elif statement.kind == Topic.INSTANCE:
            # Close the stream to an earlier process.
            self.drop(statement.site)
            if (link := self._links.get(statement.site)) is not None:
                # It has started, even if this site has not met it.
                link.join(self.clock.now)
                if link.met and link.met[0] != statement.content[0]:
                    link.start_over()
        self._on_statement(statement)

    def hear_end(self, link: Link, frame: Frame) -> None:
        """A neighbour passes on why the run ended, or was parked. The frame of the latter names the process."""
        text, passed_on = reported(link.name, frame.text), one_line(frame.text)
        if frame.kind is Kind.ABORT:
            self.outbox.fail(AbortedError(text), passed_on)
            return
        origin = frame.round if frame.round < len(self.setup.sites) else self.setup.sites.index(link.name)
        known = self.membership.instance(self.setup.sites[origin])
        if known is not None and frame.tag < known[1]:
            # Ignore it: an old PARK that still goes round would park all sites that were started again, without end.
            self.outbox.log(f"ignored, because that site has been started again since: {text}", logging.INFO)
        else:
            self.outbox.fail(ParkedError(text), passed_on, (origin, frame.tag))

    def _hear_farewell(self, link: Link) -> None:
        link.complete = True
        if link.finished:
            # A repeated farewell: its record is on the disk, or will be soon.
            if not link.owes_farewell:
                self.outbox.acknowledge_farewell(link)
            return
        link.finish()
        self.outbox.keep_farewell(link)

    def strike(self, link: Link, round_: int, misfit: str) -> None:
        """Reject a frame that does not fit: close the stream, so that the neighbour sends it again over a new one.

        After MAX_STRIKES such frames in a row the run ends.
        """
        link.forget(round_)
        if link.strikes >= MAX_STRIKES:
            text = f"{link.name} {misfit}, {link.strikes} times over."
            # Two sites that were told different numbers may no longer make the same rounds.
            self.outbox.suspect(InputError(text))
        elif link.stream is not None:
            self.refuse(self.streams[link.stream], misfit)


def _started_over(error: TwiceError) -> RefusedError:
    return RefusedError(Verdict.CANNOT_RESUME, f"{error}. Give the run another name at all sites.")
