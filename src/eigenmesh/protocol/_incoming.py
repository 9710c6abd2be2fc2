"""Fourth layer of a site's machine: frames from neighbours, over streams whose greeting was accepted."""

from eigenmesh._text import one_line
from eigenmesh.errors import CannotResumeError, FrameError, InputError
from eigenmesh.protocol import _events as ev
from eigenmesh.protocol import _wire as wire
from eigenmesh.protocol._greeting import Verdict, verdict_of
from eigenmesh.protocol._handshake import Handshake
from eigenmesh.protocol._link import MAX_STRIKES, Arrived, Link
from eigenmesh.protocol._membership import TwiceError
from eigenmesh.protocol._records import Mark
from eigenmesh.protocol._streams import Stream
from eigenmesh.protocol._wire import Frame, Kind

# Most names that are kept from a heartbeat.
MAX_WAITING = 64


class Incoming(Handshake):
    """Handles the frames of the current epoch."""

    def received(self, event: ev.Bytes) -> None:
        stream = self.streams.get(event.stream)
        if stream is None or stream.ending:
            return
        try:
            frame = wire.decode(event.data, self.setup.run.max_message_bytes)
            if stream.link:
                self._hear(self.links[stream.link], stream, frame, event.data)
            else:
                self.hear_before_greeting(stream, frame)
        except TwiceError as error:
            text = f"{error}. Stop one of them, and give the run another name at all sites."
            self.fail(CannotResumeError(text), f"{self.setup.name} ended the run: {text}")
        except FrameError as error:
            self.refuse(stream, str(error))

    def _hear(self, link: Link, stream: Stream, frame: Frame, data: bytes) -> None:
        """A frame from a neighbour whose greeting was accepted."""
        if frame.run_id != self.run_id or frame.epoch != self.epoch:
            raise FrameError(f"a frame of another run or epoch ({frame.run_id.hex()}, {frame.epoch}).")
        if frame.acknowledged > self.round and not self.past.resumed:
            raise FrameError(f"round {frame.acknowledged - 1} is acknowledged, but {self.round - 1} is the last.")
        link.bytes_in += len(data)
        link.heard, link.lost = self.now, False
        link.acknowledge(frame.acknowledged)
        if frame.kind is Kind.DATA:
            if not wire.is_intact(data):
                self.strike(link, frame.round, f"sent a hash in round {frame.round} that does not match the numbers")
                return
            link.put(Arrived(frame, data))
        elif frame.kind is Kind.STATEMENT:
            self.hear_statement_on(link, stream, frame.text)
        elif frame.kind is Kind.HEARTBEAT:
            waiting = frame.text.split("\n") if frame.text else []
            link.their_round, link.their_waiting = frame.round, tuple(map(one_line, waiting[:MAX_WAITING]))
        elif frame.kind is Kind.ACK:
            link.farewell_taken = link.farewell_taken or bool(frame.tag)
        elif frame.kind is Kind.DONE:
            self._hear_farewell(link)
        elif frame.kind in (Kind.ABORT, Kind.PARK):
            self.hear_end(link, frame)
        elif frame.kind is Kind.REFUSE and verdict_of(frame) is Verdict.CANNOT_RESUME:
            self._cannot_resume(link, frame)
        else:
            raise FrameError(f"{frame.kind.name} from {link.name} is not expected here.")

    def _hear_farewell(self, link: Link) -> None:
        link.complete = True
        if link.finished:
            # A repeated farewell: its record is on the disk, or will be soon.
            if not any(name == link.name for _, _, name in self._farewells):
                self.write(link, self.message(Kind.ACK, tag=1))
            return
        link.finish()
        self._farewells.append((self.append(Mark.DONE, b"", link.name), self.epoch, link.name))

    def strike(self, link: Link, round_: int, misfit: str) -> None:
        """Reject a frame that does not fit: close the stream, so that the neighbour sends it again over a new one.

        After MAX_STRIKES such frames in a row the run ends.
        """
        link.forget(round_)
        if link.strikes >= MAX_STRIKES:
            text = f"{link.name} {misfit}, {link.strikes} times over."
            # Two sites that were told different numbers may no longer make the same rounds.
            self.doubt = self.doubt or (InputError(text), f"{self.setup.name} ended the run: {text}")
        elif link.stream is not None:
            self.refuse(self.streams[link.stream], misfit)
