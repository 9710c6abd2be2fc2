"""The side of a link that dials, and dials again."""

import asyncio
import logging
import random
from typing import Any

import grpc
import grpc.aio

from eigenmesh.errors import FrameError
from eigenmesh.transports.grpc import _wire as wire
from eigenmesh.transports.grpc._greeting import (
    GREETING_S,
    Compare,
    TurnedAway,
    Verdict,
    cannot_resume,
    claimed_name,
    disagree,
    greeting,
    require_agreement,
)
from eigenmesh.transports.grpc._link import Link
from eigenmesh.transports.grpc._security import METHOD, Credentials, dialling_options
from eigenmesh.transports.grpc._sessions import Sessions
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
            await asyncio.wait_for(sessions.say(link, call, greeting(self.board, link, Kind.HELLO)), GREETING_S)
            frame = await asyncio.wait_for(sessions.hear(call), GREETING_S)
            try:
                if claimed_name(frame, Kind.WELCOME) != name:
                    raise FrameError(f"{address} calls itself by another name than {name!r}.")
                require_agreement(self.board, link, frame)
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
            disagree(self.board, link, frame.text, self._compare)
        elif error.verdict is Verdict.CANNOT_RESUME and frame.kind is Kind.REFUSE:
            cannot_resume(self.board, link, str(error))
