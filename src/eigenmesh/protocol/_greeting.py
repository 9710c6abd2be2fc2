"""The first frames of a stream: the site's name, its run, its journal, and the round that it needs next."""

from enum import IntEnum
from typing import NamedTuple

from eigenmesh._text import one_line, said_by
from eigenmesh.errors import FrameError
from eigenmesh.protocol._wire import Frame, Kind


class Verdict(IntEnum):
    """Why a site is refused; sent as the tag of REFUSE.

    LATER: try again. MANIFEST: it is set up for a different run. CANNOT_RESUME: its journal is gone or outdated.
    """

    LATER = 0
    MANIFEST = 1
    CANNOT_RESUME = 2


class RefusedError(Exception):
    """A greeting that is refused."""

    def __init__(self, verdict: Verdict, reason: str) -> None:
        super().__init__(reason)
        self.verdict = verdict


class Greeting(NamedTuple):
    """Name, digest of the manifest, and the signed statement about the process."""

    name: str
    digest: str
    statement: str


def greeting_text(name: str, digest: str, statement: str) -> str:
    return f"{name}\n{digest}\n{statement}"


def read_greeting(frame: Frame, kind: Kind) -> Greeting:
    """The greeting in a frame; raises FrameError if there is none."""
    parts = frame.text.split("\n", 2)
    if frame.kind is not kind or len(parts) != 3:
        raise FrameError(f"{frame.kind.name} came where {kind.name} is expected.")
    return Greeting(*parts)


def verdict_of(frame: Frame) -> Verdict:
    return Verdict(frame.tag) if frame.tag in set(Verdict) else Verdict.LATER


def reported(sender: str, text: str) -> str:
    """A reason that a neighbour has passed on, with the name that the neighbour's certificate proves."""
    shown = one_line(text)
    return shown if shown.startswith(f"{sender} ") else said_by(sender, text)
