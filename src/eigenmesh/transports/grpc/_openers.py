"""How a link gets its stream: one side dials, and dials again; the other listens, and checks whoever comes."""

import asyncio
import logging
import random
from typing import Any

import grpc
import grpc.aio

from eigenmesh.errors import FrameError, InputError, TransportError
from eigenmesh.transports.grpc import _greeting as greetings
from eigenmesh.transports.grpc import _wire as wire
from eigenmesh.transports.grpc._greeting import GREETING_S, Compare, TurnedAway, Verdict
from eigenmesh.transports.grpc._link import Link
from eigenmesh.transports.grpc._security import METHOD, Credentials, dialling_options, listening_options
from eigenmesh.transports.grpc._sessions import LEAVE_S, Sessions, Stream
from eigenmesh.transports.grpc._wire import Frame, Kind

logger = logging.getLogger("eigenmesh.transports.grpc")

# From the first to the longest wait between two attempts.
BACKOFF_S = (0.1, 5.0)


class Dialler:
    """Keeps the streams open that this site dials."""

    def __init__(self, sessions: Sessions, credentials: Credentials, compare: Compare | None) -> None:
        self.board, self.sessions = sessions.board, sessions
        self._credentials, self._compare = credentials, compare

    async def keep_open(self, link: Link, address: str) -> None:
        """Dial, stay until the stream ends, wait a little longer each time, dial again."""
        shortest, longest = BACKOFF_S
        delay = shortest
        while True:
            link.agreed_now = False
            reason = await self._attempt(link, address)
            if link.agreed_now:
                delay = shortest
            if reason and reason != link.refusal:
                # A site that is not up yet, or has finished, is nothing to worry about.
                harmless = link.finished or "Connection refused" in reason
                logger.log(logging.INFO if harmless else logging.WARNING, "link to %s: %s", link.neighbour.name, reason)
            link.refusal = reason
            await asyncio.sleep(delay * random.uniform(0.5, 1.0))
            delay = min(longest, 2 * delay)

    async def _attempt(self, link: Link, address: str) -> str:
        """Dial once; why it came to nothing, if it did."""
        try:
            await self._call(link, address)
        except TurnedAway as error:
            return f"refused by {link.neighbour.name}: {error}"
        except grpc.aio.AioRpcError as error:
            return error.details() or str(error.code())
        except (FrameError, TimeoutError, OSError, asyncio.InvalidStateError) as error:
            return str(error) or f"no answer within {GREETING_S:g} s"
        return ""

    async def _call(self, link: Link, address: str) -> None:
        name, sessions = link.neighbour.name, self.sessions
        options = dialling_options(self.board.run.max_message_bytes, name)
        async with grpc.aio.secure_channel(address, self._credentials.for_dialling(), options=options) as channel:
            call = channel.stream_stream(METHOD)()
            await asyncio.wait_for(
                sessions.say(link, call, greetings.greeting(self.board, link, Kind.HELLO)), GREETING_S
            )
            frame = await asyncio.wait_for(sessions.hear(call), GREETING_S)
            try:
                if greetings.claimed_name(frame, Kind.WELCOME) != name:
                    raise FrameError(f"{address} calls itself by another name than {name!r}.")
                greetings.require_agreement(self.board, link, frame)
            except TurnedAway as error:
                with self.board.changed:
                    link.join()
                await self._turned_away(link, call, frame, error)
                raise
            await sessions.hold(link, call, frame)

    async def _turned_away(self, link: Link, call: Any, frame: Frame, error: TurnedAway) -> None:
        if error.verdict is Verdict.MANIFEST and frame.kind is Kind.REFUSE:
            manifest = self.board.letter(Kind.MANIFEST, 0, 0, wire.text_body(self.board.run.manifest))
            await self.sessions.say(link, call, manifest)
            await call.done_writing()
            # The neighbour closes the stream when it has read it.
            await asyncio.wait_for(call.read(), GREETING_S)
            greetings.disagree(self.board, link, frame.text, self._compare)
        elif error.verdict is Verdict.CANNOT_RESUME and frame.kind is Kind.REFUSE:
            text = f"{link.neighbour.name} refused: {error}"
            self.board.fail(TransportError(text), f"{self.board.name} ended the run: {text}")


class Listener:
    """A gRPC server with one method."""

    def __init__(self, sessions: Sessions, compare: Compare | None) -> None:
        self.board, self.sessions, self.compare = sessions.board, sessions, compare
        self._server: grpc.aio.Server | None = None

    async def start(self, address: str, credentials: Credentials) -> None:
        _, service, method = METHOD.split("/")
        handler = grpc.stream_stream_rpc_method_handler(self._accept)
        server = grpc.aio.server(
            handlers=[grpc.method_handlers_generic_handler(service, {method: handler})],
            options=listening_options(self.board.run.max_message_bytes),
            maximum_concurrent_rpcs=4 * len(self.board.links) + 4,
        )
        try:
            server.add_secure_port(address, credentials.for_listening())
        except RuntimeError as error:
            why = "the port is taken, the address is not this machine's, or key and certificate do not fit"
            raise InputError(f"cannot listen on {address}: {why} ({error}).") from None
        await server.start()
        self._server = server

    async def stop(self) -> None:
        if self._server is not None:
            await self._server.stop(LEAVE_S)

    async def _accept(self, _: object, context: Any) -> None:
        """A stream that somebody with a certificate of the authority has opened."""
        found = context.auth_context().get("x509_subject_alternative_name", [])
        names = [name.decode(errors="replace") for name in found]
        who = f"{', '.join(names) or 'no name'} at {context.peer()}"
        link, frame = await self._identify(context, names, who)
        try:
            greetings.require_agreement(self.board, link, frame)
        except TurnedAway as error:
            self.board.refuse(who, str(error))
            with self.board.changed:
                link.join()
            await self._turn_away(link, context, error)
            return
        await self.sessions.say(link, context, greetings.greeting(self.board, link, Kind.WELCOME))
        await self.sessions.hold(link, context, frame)

    async def _identify(self, context: Any, names: list[str], who: str) -> tuple[Link, Frame]:
        """The link that the stream is for, and the greeting; whoever is no neighbour gets no answer but the end."""
        try:
            frame = await asyncio.wait_for(self.sessions.hear(context), GREETING_S)
            return self._expected(greetings.claimed_name(frame, Kind.HELLO), names), frame
        except (FrameError, TurnedAway, TimeoutError) as error:
            reason = str(error) or f"no greeting within {GREETING_S:g} s."
        except asyncio.CancelledError:
            # Among others by gRPC itself, when a message beyond the limit is announced.
            self.board.refuse(who, "the stream ended before a greeting.")
            raise
        self.board.refuse(who, reason)
        await context.abort(grpc.StatusCode.PERMISSION_DENIED, "refused")
        raise FrameError(reason)

    def _expected(self, name: str, names: list[str]) -> Link:
        if name not in names:
            raise FrameError(f"it calls itself {name!r}, but its certificate does not.")
        for link in self.board.links.values():
            if link.neighbour.name == name and link.neighbour.address is None:
                return link
        raise FrameError(f"{name!r} is no neighbour that dials {self.board.name!r}.")

    async def _turn_away(self, link: Link, stream: Stream, error: TurnedAway) -> None:
        differs = error.verdict is Verdict.MANIFEST
        text = self.board.run.manifest if differs else str(error)
        refusal = self.board.letter(Kind.REFUSE, 0, error.verdict, wire.text_body(text))
        await self.sessions.say(link, stream, refusal)
        if differs:
            try:
                answer = await asyncio.wait_for(self.sessions.hear(stream), GREETING_S)
                greetings.disagree(self.board, link, answer.text, self.compare)
            except (FrameError, TimeoutError) as silence:
                self.board.refuse(link.neighbour.name, f"did not say what it was set up for: {silence}")
