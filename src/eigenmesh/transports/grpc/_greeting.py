"""How a link gets its stream: one side dials, the other listens, and both say who they are before any number flows."""

import asyncio
import logging
import random
from collections.abc import Callable
from enum import IntEnum
from typing import Any

import grpc
import grpc.aio

from eigenmesh.errors import CannotResumeError, DisagreementError, FrameError, InputError
from eigenmesh.transports.grpc import _wire as wire
from eigenmesh.transports.grpc._board import Board
from eigenmesh.transports.grpc._link import Letter, Link
from eigenmesh.transports.grpc._security import METHOD, Credentials, dialling_options, listening_options
from eigenmesh.transports.grpc._sessions import LEAVE_S, Sessions, Stream
from eigenmesh.transports.grpc._wire import Frame, Kind

logger = logging.getLogger("eigenmesh.transports.grpc")

# Which fields of two manifests differ, in words.
Compare = Callable[[str, str], list[str]]

GREETING_S = 10.0
# From the first to the longest wait between two attempts.
BACKOFF_S = (0.1, 5.0)


class Verdict(IntEnum):
    """Why a site is refused; sent as the tag of REFUSE."""

    LATER = 0
    MANIFEST = 1
    CANNOT_RESUME = 2


class TurnedAway(Exception):  # noqa: N818
    """A greeting that is not answered with a welcome."""

    def __init__(self, verdict: Verdict, reason: str) -> None:
        super().__init__(reason)
        self.verdict = verdict


def greeting(board: Board, link: Link, kind: Kind) -> Letter:
    """HELLO or WELCOME: own name, digest of the manifest, identity of the journal, and the round needed next."""
    who = wire.text_body(f"{board.name}\n{board.run.digest}\n{board.identity}")
    return board.letter(kind, link.next_in, 0, who)


def claimed_name(frame: Frame, kind: Kind) -> str:
    """The name in a greeting; raises FrameError if it is none."""
    if frame.kind is Kind.REFUSE:
        verdict = Verdict(frame.tag) if frame.tag in set(Verdict) else Verdict.LATER
        raise TurnedAway(verdict, frame.text)
    parts = frame.text.split("\n")
    if frame.kind is not kind or [len(part) for part in parts[1:]] != [64, 32]:
        raise FrameError(f"{frame.kind.name} came where {kind.name} is due.")
    return parts[0]


def require_agreement(board: Board, link: Link, frame: Frame) -> None:
    """Raise TurnedAway unless the greeting is for this run and can be continued from."""
    run, name = board.run, link.neighbour.name
    _, digest, identity = frame.text.split("\n")
    if digest != run.digest:
        raise TurnedAway(Verdict.MANIFEST, f"{name} is set up for another run: its manifest differs.")
    if frame.run_id != run.run_id:
        raise TurnedAway(Verdict.LATER, f"run {frame.run_id.hex()} is not the present one, {run.run_id.hex()}.")
    if frame.epoch != run.epoch:
        raise TurnedAway(Verdict.LATER, f"epoch {frame.epoch} is not the present one, {run.epoch}.")
    with board.changed:
        # A site of which nothing has come yet may have begun anew: its data are in nothing that is here.
        if link.identity not in ("", identity) and link.next_in:
            text = f"{name} has begun the run anew, with a new journal. Give the run another name at all sites."
            raise TurnedAway(Verdict.CANNOT_RESUME, text)
        if max(frame.round, frame.acknowledged) > board.round and not board.resumed:
            raise TurnedAway(Verdict.LATER, f"{name} claims to have round {frame.round - 1}, which was never sent.")
        if frame.round < link.safe_there and not link.finished:
            text = f"{name} needs round {frame.round} but has acknowledged all below {link.safe_there}"
            raise TurnedAway(Verdict.CANNOT_RESUME, f"{text}: its journal is gone or incomplete, so it cannot resume.")


def disagree(board: Board, link: Link, theirs: str, compare: Compare | None) -> None:
    """End the run with an error that names the neighbour and what differs.

    A neighbour that had agreed before and comes back changed is only refused; the run waits for the right one.
    """
    if link.agreed:
        return
    differing = compare(board.run.manifest, theirs) if compare is not None else []
    what, name = "; ".join(differing) or "the manifests differ", link.neighbour.name
    text = f"{board.name} and {name} are set up for different runs: {what}."
    # All others are told, or they would wait for these two.
    board.fail(DisagreementError(text, name, theirs), f"{board.name} ended the run: {text}")


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
        """Dial once; why it failed, or an empty text."""
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
            hello = greeting(self.board, link, Kind.HELLO)
            await asyncio.wait_for(sessions.say(link, call, hello), GREETING_S)
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
            text = f"{link.neighbour.name} refused: {error}"
            self.board.fail(CannotResumeError(text), f"{self.board.name} ended the run: {text}")


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
        """The link that the stream is for, and the greeting; for a caller that is no neighbour the stream just ends."""
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
