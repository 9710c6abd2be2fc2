"""The side of a link that listens: whoever comes must show a certificate and say the right words."""

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

import grpc
import grpc.aio

from eigenmesh.errors import FrameError, InputError
from eigenmesh.transports.grpc import _wire as wire
from eigenmesh.transports.grpc._greeting import (
    GREETING_S,
    Compare,
    TurnedAway,
    Verdict,
    claimed_name,
    disagree,
    greeting,
    require_agreement,
)
from eigenmesh.transports.grpc._link import Link
from eigenmesh.transports.grpc._security import METHOD, Credentials, listening_options
from eigenmesh.transports.grpc._sessions import LEAVE_S, Sessions, Stream
from eigenmesh.transports.grpc._wire import Frame, Kind


class Listener:
    """A gRPC server with one method."""

    def __init__(self, sessions: Sessions, compare: Compare | None) -> None:
        self.board, self.sessions, self.compare = sessions.board, sessions, compare
        self._server: grpc.aio.Server | None = None

    async def start(self, address: str, credentials: Credentials) -> None:
        """Listen on host:port."""
        server = grpc.aio.server(
            handlers=[_Handler(self._accept)],
            options=listening_options(self.board.run.max_message_bytes),
            maximum_concurrent_rpcs=4 * len(self.board.links) + 4,
        )
        try:
            server.add_secure_port(address, credentials.for_listening())
        except RuntimeError as error:
            raise InputError(
                f"cannot listen on {address}: the port is taken, the address is not this machine's, or key and "
                f"certificate do not fit ({error})."
            ) from None
        await server.start()
        self._server = server

    async def stop(self) -> None:
        """Listen no more."""
        if self._server is not None:
            await self._server.stop(LEAVE_S)

    async def _accept(self, _: object, context: Any) -> None:
        """A stream that somebody with a certificate of the authority has opened."""
        found = context.auth_context().get("x509_subject_alternative_name", [])
        names = [name.decode(errors="replace") for name in found]
        who = f"{', '.join(names) or 'no name'} at {context.peer()}"
        link, frame = await self._identify(context, names, who)
        try:
            require_agreement(self.board, link, frame)
        except TurnedAway as error:
            self.board.refuse(who, str(error))
            with self.board.changed:
                link.join()
            await self._turn_away(link, context, error)
            return
        await self.sessions.say(link, context, greeting(self.board, link, Kind.WELCOME))
        await self.sessions.hold(link, context, frame)

    async def _identify(self, context: Any, names: list[str], who: str) -> tuple[Link, Frame]:
        """The link that the stream is for, and the greeting; whoever is no neighbour gets no answer but the end."""
        reason = ""
        try:
            frame = await asyncio.wait_for(self.sessions.hear(context), GREETING_S)
            return self._expected(claimed_name(frame, Kind.HELLO), names), frame
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
                disagree(self.board, link, answer.text, self.compare)
            except (FrameError, TimeoutError) as silence:
                self.board.refuse(link.neighbour.name, f"did not say what it was set up for: {silence}")


class _Handler(grpc.GenericRpcHandler):  # type: ignore[misc]
    """The one method, its messages plain bytes."""

    def __init__(self, accept: Callable[[object, Any], Awaitable[None]]) -> None:
        self._method = grpc.stream_stream_rpc_method_handler(accept)

    def service(self, details: Any) -> Any:
        """The handler of the method, or None."""
        return self._method if details.method == METHOD else None
