"""Third layer of a site's machine: greetings, until both ends of a stream have agreed."""

import logging

from eigenmesh._text import one_line
from eigenmesh.errors import AbortedError, CannotResumeError, DisagreementError, EigenmeshError, FrameError, ParkedError
from eigenmesh.protocol import _events as ev
from eigenmesh.protocol import _wire as wire
from eigenmesh.protocol._greeting import RefusedError, Verdict, greeting_text, read_greeting, reported, verdict_of
from eigenmesh.protocol._link import Link
from eigenmesh.protocol._membership import TwiceError
from eigenmesh.protocol._statements import INSTANCE, read_statement
from eigenmesh.protocol._streams import Stream, Streams
from eigenmesh.protocol._wire import Frame, Kind

GREETING_S = 10.0
# Most streams of one caller that have not greeted yet; beyond that the oldest is closed.
MAX_STRANGERS = 2


class Handshake(Streams):
    """Checks the site at the other end of a stream: it must be in the same run, at a round where both can continue."""

    def hear_end(self, link: Link, frame: Frame) -> None:
        """A neighbour passes on why the run ended, or was parked; the frame of the latter names the process."""
        text, passed_on = reported(link.name, frame.text), one_line(frame.text)
        if frame.kind is Kind.ABORT:
            self.fail(AbortedError(text), passed_on)
            return
        place = frame.round if frame.round < len(self.setup.sites) else self.setup.sites.index(link.name)
        known = self.membership.instance(self.setup.sites[place])
        if known is not None and frame.tag < known[1]:
            # Ignore it: an old PARK that still goes round would park all sites that were started again, without end.
            self.log(f"ignored, because that site has been started again since: {text}", logging.INFO)
        else:
            self.fail(ParkedError(text), passed_on, (place, frame.tag))

    def opened(self, event: ev.Opened) -> None:
        stream = Stream(event.stream, event.names, event.called, event.address, self.now)
        self.streams[event.stream] = stream
        self.calling.discard(event.called)
        if event.called:
            if event.called in self.links:
                self._greet(self.links[event.called], stream, Kind.HELLO)
            else:
                self.cut(stream)
            return
        strangers = [one for one in self.streams.values() if not (one.link or one.called or one.ending)]
        same = [one for one in strangers if one.names == event.names]
        if len(same) > MAX_STRANGERS:
            self.refuse(same[0], "it opens many streams without a greeting.")

    def _greet(self, link: Link, stream: Stream, kind: Kind) -> None:
        own = self.make_greeting()
        self.write(link, self.message(kind, wire.text_body(own), link.next_in), stream.number)

    def make_greeting(self) -> str:
        return greeting_text(self.setup.name, self.setup.run.digest, self.make(INSTANCE, self.own_instance).text)

    def hear_before_greeting(self, stream: Stream, frame: Frame) -> None:
        """A frame on a stream whose greeting is not accepted yet."""
        names = [stream.called] if stream.called else [name for name in stream.names if name in self.links]
        link = self.links[names[0]] if names else None
        if link is not None and stream.called:
            link.join(self.now)
        if link is not None and frame.kind is Kind.STATEMENT and (stream.called or stream.refused is Verdict.LATER):
            self.hear_statement_on(link, stream, frame.text)
        elif link is not None and stream.called and frame.kind is Kind.REFUSE:
            self._greeting_refused(link, stream, verdict_of(frame), frame)
        elif link is not None and frame.kind is Kind.REFUSE and verdict_of(frame) is Verdict.CANNOT_RESUME:
            self._cannot_resume(link, frame)
        elif link is not None and frame.kind is Kind.MANIFEST and stream.refused is Verdict.MANIFEST:
            self._disagree(link, frame.text)
            self.cut(stream)
        elif link is not None and frame.kind in (Kind.ABORT, Kind.PARK):
            # The neighbour sends no greeting, because its audit fails.
            self.hear_end(link, frame)
        elif stream.refused is not None:
            self.cut(stream)
        elif link is not None and frame.kind is Kind.MANIFEST and not stream.called:
            self._show_manifest(link, stream)
        else:
            self._hear_greeting(stream, frame)

    def _show_manifest(self, link: Link, stream: Stream) -> None:
        """A neighbour asks before the run how this site is set up; this does not count as joining."""
        self.log(f"{link.name} asks for the manifest.", logging.INFO)
        self.write(link, self.message(Kind.MANIFEST, wire.text_body(self.setup.run.manifest), 0), stream.number)
        self.cut(stream)

    def _hear_greeting(self, stream: Stream, frame: Frame) -> None:
        greeting = read_greeting(frame, Kind.WELCOME if stream.called else Kind.HELLO)
        link = self._expected(stream, greeting.name)
        link.join(self.now)
        try:
            if greeting.digest != self.setup.run.digest:
                raise RefusedError(Verdict.MANIFEST, f"{link.name} is set up for another run: its manifest differs.")
            if frame.run_id != self.run_id or frame.epoch != self.epoch:
                raise RefusedError(Verdict.LATER, f"epoch {frame.epoch} is not the current one, {self.epoch}.")
            self._require_instance(link, greeting.statement)
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
        elif name in self.setup.dials or name not in self.links:
            raise FrameError(f"{name!r} is not a neighbour that calls {self.setup.name!r}.")
        return self.links[name]

    def _require_instance(self, link: Link, text: str) -> None:
        statement = read_statement(text, self.setup.keyring, self.setup.run.run_id)
        if statement.kind != INSTANCE or statement.site != link.name:
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
        if max(frame.round, frame.acknowledged) > self.round and not self.past.resumed:
            raise RefusedError(Verdict.LATER, f"{link.name} claims round {frame.round - 1}, which was never sent.")
        if frame.round < link.safe_there and not link.finished:
            text = f"{link.name} needs round {frame.round} but has acknowledged all below {link.safe_there}"
            if self.membership.instance(link.name) == link.met:
                # The same process cannot lose rounds: a newer greeting on another stream has overtaken this one.
                raise RefusedError(Verdict.LATER, f"{text} since.")
            raise RefusedError(
                Verdict.CANNOT_RESUME, f"{text}: its journal is gone or incomplete, so it cannot resume."
            )

    def _agreed(self, link: Link, stream: Stream, frame: Frame) -> None:
        if link.stream is not None and link.stream in self.streams:
            self.cut(self.streams[link.stream])
        stream.link, link.met = link.name, self.membership.instance(link.name)
        due = link.meet(stream.number, frame.round, frame.acknowledged, self.now)
        self.log(f"link to {link.name} is up; it needs round {frame.round}.", logging.INFO)
        self.send_statements(link)
        for message in due:
            self.write(link, message)
        if self.failure is not None:
            self.warn(link)

    def _refuse_greeting(self, link: Link, stream: Stream, error: RefusedError) -> None:
        """Refuse a greeting, and send the reason."""
        self.log(f"refused {link.name}: {error}")
        stream.refused = error.verdict
        if error.verdict is Verdict.LATER:
            # The other site may be behind: with the statements known here it can catch up.
            self.send_statements(link, stream.number)
        text = self.setup.run.manifest if error.verdict is Verdict.MANIFEST else str(error)
        self.write(link, self.message(Kind.REFUSE, wire.text_body(text), 0, error.verdict), stream.number)
        if stream.called:
            self.cut(stream)

    def _greeting_refused(self, link: Link, stream: Stream, verdict: Verdict, frame: Frame) -> None:
        """The listener has refused this site's greeting."""
        # With MANIFEST the text is its manifest; the error that ends the run names the fields that differ.
        why = "its settings differ" if verdict is Verdict.MANIFEST else one_line(frame.text)[:200]
        stream.refused, link.refusal = verdict, f"refused by {link.name}: {why}"
        if verdict is Verdict.MANIFEST:
            own = wire.text_body(self.setup.run.manifest)
            self.write(link, self.message(Kind.MANIFEST, own, 0), stream.number)
            self._disagree(link, frame.text)
        elif verdict is Verdict.CANNOT_RESUME:
            self._cannot_resume(link, frame)
        else:
            # The listener may be behind, and can catch up with these.
            self.send_statements(link, stream.number)
        self.cut(stream)

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
            link.heard, link.refusal = self.now, f"it is in a run {'after' if ahead > 0 else 'before'} this one"
        if ahead > 0:
            # It has finished this run: it needs nothing more from this site, and has sent everything.
            link.finish()
            link.complete = True
        if ahead or link.agreed:
            return
        what = "; ".join(differing) or "the manifests differ"
        text = f"{self.setup.name} and {link.name} are set up for different runs: {what}."
        self.fail(DisagreementError(text, link.name, theirs), f"{self.setup.name} ended the run: {text}")

    def _cannot_resume(self, link: Link, frame: Frame) -> None:
        # Without a warning to the others: they wait for the process of this site that can resume.
        self.fail(CannotResumeError(f"{link.name} refused: {one_line(frame.text)}"))


def _started_over(error: TwiceError) -> RefusedError:
    return RefusedError(Verdict.CANNOT_RESUME, f"{error}. Give the run another name at all sites.")
