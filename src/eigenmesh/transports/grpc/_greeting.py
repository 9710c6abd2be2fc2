"""What two sites say to each other before any number flows: who they are, which run, and where they stand."""

from collections.abc import Callable
from enum import IntEnum

from eigenmesh.errors import DisagreementError, FrameError
from eigenmesh.transports.grpc import _wire as wire
from eigenmesh.transports.grpc._board import Board
from eigenmesh.transports.grpc._link import Letter, Link
from eigenmesh.transports.grpc._wire import Frame, Kind

# Which fields of two manifests differ, in words.
Compare = Callable[[str, str], list[str]]

GREETING_S = 10.0


class Verdict(IntEnum):
    """Why a site is turned away; travels in the tag of REFUSE."""

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


def identity_of(frame: Frame) -> str:
    return frame.text.split("\n")[2]


def require_agreement(board: Board, link: Link, frame: Frame) -> None:
    """Raise TurnedAway unless the greeting is for this run and can be gone on from."""
    run, name = board.run, link.neighbour.name
    if frame.text.split("\n")[1] != run.digest:
        raise TurnedAway(Verdict.MANIFEST, f"{name} is set up for another run: its manifest differs.")
    if frame.run_id != run.run_id:
        raise TurnedAway(Verdict.LATER, f"run {frame.run_id.hex()} is not the present one, {run.run_id.hex()}.")
    if frame.epoch != run.epoch:
        raise TurnedAway(Verdict.LATER, f"epoch {frame.epoch} is not the present one, {run.epoch}.")
    with board.changed:
        if link.identity not in ("", identity_of(frame)):
            text = f"{name} has begun the run anew, with a new journal. Give the run another name at all sites."
            raise TurnedAway(Verdict.CANNOT_RESUME, text)
        if max(frame.round, frame.acknowledged) > board.round and not board.resumed:
            raise TurnedAway(Verdict.LATER, f"{name} claims to have round {frame.round - 1}, which was never sent.")
        if frame.round < link.safe_there and not link.finished:
            text = f"{name} needs round {frame.round} but has acknowledged all below {link.safe_there}"
            raise TurnedAway(Verdict.CANNOT_RESUME, f"{text}: its journal is gone or incomplete, so it cannot resume.")


def disagree(board: Board, link: Link, theirs: str, compare: Compare | None) -> None:
    """End the run with an error that names the neighbour and what differs.

    A neighbour that had agreed before and comes back changed is only turned away; the run waits for the true one.
    """
    if link.agreed:
        return
    differing = compare(board.run.manifest, theirs) if compare is not None else []
    what, name = "; ".join(differing) or "the manifests differ", link.neighbour.name
    text = f"{board.name} and {name} are set up for different runs: {what}."
    # All others are told, or they would wait for these two.
    board.fail(DisagreementError(text, name, theirs), f"{board.name} ended the run: {text}")
