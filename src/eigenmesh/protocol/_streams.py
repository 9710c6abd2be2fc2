"""Second layer of a site's machine: streams, from call to close, and statements, which need no greeting."""

import logging
from dataclasses import dataclass

from eigenmesh._text import one_line
from eigenmesh.errors import CannotResumeError
from eigenmesh.protocol import _events as ev
from eigenmesh.protocol._greeting import Verdict
from eigenmesh.protocol._link import Link
from eigenmesh.protocol._outgoing import Outgoing
from eigenmesh.protocol._records import Mark
from eigenmesh.protocol._statements import INSTANCE, LOST, Statement, read_statement

# First and longest pause between two calls.
BACKOFF_S = (0.1, 5.0)


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


class Streams(Outgoing):
    """Streams by number, and the calls that open them."""

    streams: dict[int, Stream]
    # Neighbours that are being called.
    calling: set[str]

    def unreachable(self, event: ev.Unreachable) -> None:
        self.calling.discard(event.neighbour)
        link = self.links.get(event.neighbour)
        if link is not None:
            self._call_again(link, event.reason)

    def closed(self, event: ev.Closed) -> None:
        stream = self.streams.pop(event.stream, None)
        if stream is None:
            return
        link = self.links.get(stream.link)
        if not (stream.link or stream.called or stream.ending) and stream.refused is None:
            self.log(f"refused {self._who(stream)}: the stream ended before a greeting.")
        if link is not None and link.stream == stream.number:
            link.stream = None
            self.log(f"link to {link.name} is down. {one_line(event.reason)}", logging.INFO)
        called = self.links.get(stream.called)
        if called is not None and called.stream is None:
            self._call_again(called, event.reason)

    def _call_again(self, link: Link, reason: str) -> None:
        link.refusal = one_line(reason) or link.refusal
        first, longest = BACKOFF_S
        pause = min(longest, first * 2.0 ** min(link.attempts, 10))
        link.attempts += 1
        self.call(link.name, pause * self.random.uniform(0.5, 1.0))

    def call(self, name: str, after_s: float = 0.0) -> None:
        """Call a neighbour, unless it is being called, or has a stream: when that closes, the call follows."""
        if name not in self.calling and not any(stream.called == name for stream in self.streams.values()):
            self.calling.add(name)
            self._effects.append(ev.Dial(name, after_s))

    def cut(self, stream: Stream) -> None:
        link = self.links.get(stream.link)
        if link is not None and link.stream == stream.number:
            link.stream = None
        stream.link, stream.ending = "", True
        self._effects.append(ev.Cut(stream.number))

    def refuse(self, stream: Stream, reason: str) -> None:
        self.log(f"refused {self._who(stream)}: {one_line(reason)}")
        # A caller is identified by the names in its certificate.
        for name in {stream.called, *stream.names} & self.links.keys():
            if self.links[name].stream in (None, stream.number):
                self.links[name].refusal = one_line(reason)
        self.cut(stream)

    def _who(self, stream: Stream) -> str:
        names = ", ".join(stream.names) or "no name"
        return stream.link or stream.called or one_line(f"{names} at {stream.address}")

    def hear_statement(self, source: str, text: str) -> None:
        """Add a statement that a neighbour has made or passed on; raises FrameError if it is wrong."""
        if any(statement.text == text for statement in self.membership.statements):
            return
        statement = read_statement(text, self.setup.keyring, self.setup.run.run_id)
        if not self.membership.is_new(statement):
            return
        if statement.site == self.setup.name:
            # Only another process of this site can make a new statement in its name.
            self.fail(CannotResumeError(f"{self.setup.name} has been started again elsewhere; this process ends."))
            return
        self.membership.add(statement)
        self.learn(statement, source)

    def learn(self, statement: Statement, source: str) -> None:
        """Act on a new statement, keep it and pass it on."""
        self.append(Mark.STATEMENT, statement.text.encode())
        self.spread(statement, source)
        ends = [statement.site] if statement.kind == INSTANCE else statement.content if statement.kind == LOST else []
        # Close the stream to an earlier process, or over a lost link.
        for name in ends if statement.kind == INSTANCE or self.setup.name in ends else ():
            link = self.links.get(name)
            if link is not None and link.stream is not None:
                self.cut(self.streams[link.stream])
            if link is not None and statement.kind == INSTANCE and link.met and link.met[0] != statement.content[0]:
                link.start_over()
        if statement.kind == LOST:
            self.sign_view()
