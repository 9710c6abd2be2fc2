"""What a machine is given: the site, its network and run, its past, and the form of the statements that it signs."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from enum import StrEnum
from functools import cached_property
from typing import Any, Literal, NamedTuple, Protocol

from eigenmesh.errors import FrameError
from eigenmesh.masking import SiteKey
from eigenmesh.protocol import wire
from eigenmesh.protocol.wire import JournalRecord
from eigenmesh.words import canonical

WINDOW_FRAMES = 256
OnLoss = Literal["wait", "abort", "continue"]
# A link of the network: the names of its two ends, in order.
Edge = tuple[str, str]
# Longest statement: a certificate, a signature and a little text.
MAX_STATEMENT_BYTES = 16_384


class Topic(StrEnum):
    """What a signed statement is about."""

    INSTANCE = "instance"
    LOST = "lost"
    VIEW = "view"
    HEARD = "heard"
    RESULT = "result"
    LEFT = "left"


class Stage(StrEnum):
    """When a site signs what it has heard: at the end of the set-up, and when a site is about to end the run."""

    SET_UP = "set-up"
    ENDING = "ending"


class Departure(StrEnum):
    """How a site has left for good: with its result, so that it needs nothing more, or because it cannot resume."""

    FINISHED = "finished"
    DAMAGED = "damaged"
    REFUSED = "refused"


HOW_IT_LEFT: dict[str, str] = {
    Departure.FINISHED: "it has its result",
    Departure.DAMAGED: "its journal is damaged",
    Departure.REFUSED: "its journal is gone, or an older one",
}


class Instance(NamedTuple):
    """One process of a site.

    Parameters
    ----------
    identity : of its journal.
    start : the number of starts from that journal.
    nonce : a random number of this start, in hexadecimal.
    """

    identity: str
    start: int
    nonce: str


@dataclass(frozen=True)
class Run:
    """What the sites of a run must agree on before it begins.

    Parameters
    ----------
    run_id : 16 bytes, unique to the run.
    manifest : describes the computation. Sites whose texts differ refuse each other.
    max_message_bytes : most bytes of the arrays of a message.
    compare : lists the fields in which two manifests differ.
    runs_to : for series of runs, how many runs the second manifest is after the first. Otherwise 0.
    """

    run_id: bytes
    manifest: str
    max_message_bytes: int
    compare: Callable[[str, str], list[str]] | None = None
    runs_to: Callable[[str, str], int] | None = None

    def __post_init__(self) -> None:
        # Neighbours send each other the manifest, so it must fit into a message.
        wire.text_body(self.manifest)

    @cached_property
    def digest(self) -> str:
        return hashlib.sha256(self.manifest.encode()).hexdigest()

    def id_of(self, lost: tuple[Edge, ...]) -> bytes:
        """The run id of an epoch, so that messages of another epoch are refused."""
        return hashlib.sha256(self.run_id + (view_digest(lost).encode() if lost else b"")).digest()[:16]


class Keyring(Protocol):
    """Signs with the key of this site's certificate, and checks the signatures of others."""

    @property
    def certificate(self) -> str:
        """The certificate of this site, as text, with which others check its signatures."""

    def sign(self, data: bytes) -> str:
        """A signature, as text."""

    def is_revoked(self, certificate: str) -> bool:
        """Whether the authority has revoked this certificate."""

    def is_signed(self, site: str, certificate: str, data: bytes, signature: str) -> bool:
        """Whether the authority issued the certificate to this site, and its key made the signature."""


@dataclass(frozen=True)
class Setup:
    """A site of a run.

    Parameters
    ----------
    name : of the site.
    sites : the names of all sites, in the order of the network.
    edges : all links of the network.
    dials : the neighbours that it calls. The others call it.
    run : what all sites agree on.
    keyring : signs with the key of this site, and checks the signatures of others.
    patience_s : a neighbour that was silent for so long is lost.
    join_s : a neighbour that has never given a sign of life is lost after so long.
    round_s : bounds one wait even if the neighbour is alive.
    on_loss : what happens to the run when a neighbour is lost: all wait for it, or end, or continue without it.
    window_frames : most frames that are kept for a neighbour until they are on its disk. Then the sender waits.
    masked : whether the site sends a public key for masks, a new one in each epoch.
    has_result : an earlier process of the site has the whole, signed result, so this one only helps the others.
    """

    name: str
    sites: tuple[str, ...]
    edges: tuple[Edge, ...]
    dials: frozenset[str]
    run: Run
    keyring: Keyring
    patience_s: float = 60.0
    join_s: float = 3600.0
    round_s: float = 3600.0
    on_loss: OnLoss = "wait"
    window_frames: int = WINDOW_FRAMES
    masked: bool = False
    has_result: bool = False

    @cached_property
    def neighbours(self) -> tuple[str, ...]:
        linked = {site for edge in self.edges if self.name in edge for site in edge}
        return tuple(site for site in self.sites if site in linked and site != self.name)


class Past(NamedTuple):
    """The journal when the process starts.

    Parameters
    ----------
    instance : this process, with the number of this start.
    entries : the records.
    read : gives the content of a record.
    secret : drawn when the journal is made. It never leaves the site.
    left : how the site has left for good, if it has: this process only tells the neighbours so.
    why : the reason for this site's operator.
    n_lost : how many links were lost before the result of a site that has finished.
    """

    instance: Instance
    entries: tuple[JournalRecord, ...] = ()
    read: Callable[[JournalRecord], bytes] = lambda entry: b""
    secret: str = ""
    left: str = ""
    why: str = ""
    n_lost: int = 0

    def site_key(self, lost: tuple[Edge, ...]) -> SiteKey:
        """The key pair of an epoch, the same after a restart: it is derived from a secret that is on the disk."""
        seed = f"eigenmesh site key\n{self.secret}\n{view_digest(lost)}"
        return SiteKey.generate(hashlib.sha256(seed.encode()).digest())


@dataclass
class Clock:
    """The time of the current step. All parts of a machine read it here."""

    now: float


def view_digest(lost: Iterable[Edge]) -> str:
    """A digest of the links that a site holds for lost."""
    return hashlib.sha256(json.dumps(sorted(lost)).encode()).hexdigest()[:32]


# Signed statements of a site to all others. Without signatures, neighbours that pass them on could make them up.


class Statement(NamedTuple):
    """``site`` states ``content``, of one ``kind``; ``text`` is all of it, with certificate and signature."""

    kind: str
    site: str
    content: Any
    text: str


def certificate_of(statement: Statement) -> str:
    """The certificate that came with a statement."""
    return str(json.loads(statement.text)["certificate"])


def make_statement(keyring: Keyring, run_id: bytes, kind: str, site: str, content: Any) -> Statement:
    """State something to all sites, signed with the key of this one."""
    signature = keyring.sign(_signed_bytes(run_id, kind, site, content))
    parts = {"kind": kind, "site": site, "content": content}
    text = canonical({**parts, "certificate": keyring.certificate, "signature": signature})
    return Statement(kind, site, content, text)


def read_statement(text: str, keyring: Keyring | None, run_id: bytes) -> Statement:
    """Read and check a statement. Raises FrameError if it is wrong.

    Parameters
    ----------
    text : the whole statement.
    keyring : checks certificate and signature, unless it is None.
    run_id : of the run that the statement is about.
    """
    try:
        if len(text) > MAX_STATEMENT_BYTES:
            raise ValueError(f"it has {len(text)} characters, but at most {MAX_STATEMENT_BYTES} are allowed")
        parts = json.loads(text)
        kind, site, content = str(parts["kind"]), str(parts["site"]), parts["content"]
        certificate, signature = str(parts["certificate"]), str(parts["signature"])
        data = _signed_bytes(run_id, kind, site, content)
    except (ValueError, KeyError, TypeError, RecursionError) as error:
        raise FrameError(f"a statement cannot be read: {error}.") from None
    if keyring is not None and keyring.is_revoked(certificate):
        raise FrameError(f"the certificate of {site} is revoked.")
    if keyring is not None and not keyring.is_signed(site, certificate, data, signature):
        raise FrameError(f"a statement in the name of {site} is not signed by it.")
    return Statement(kind, site, content, text)


def _signed_bytes(run_id: bytes, kind: str, site: str, content: Any) -> bytes:
    return f"eigenmesh statement\n{run_id.hex()}\n{kind}\n{site}\n{canonical(content)}".encode()
