"""The settings of a machine: the site, its network, the run, and how long it waits."""

import hashlib
from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from typing import Literal, NamedTuple

from eigenmesh.errors import InputError
from eigenmesh.masking import SiteKey
from eigenmesh.protocol import _wire as wire
from eigenmesh.protocol._membership import view_digest
from eigenmesh.protocol._records import JournalRecord
from eigenmesh.protocol._statements import Keyring

WINDOW_FRAMES = 256
OnLoss = Literal["wait", "abort", "continue"]


class Instance(NamedTuple):
    """One process of a site: identity of its journal, number of starts from it, and a random number of this start."""

    identity: str
    start: int
    nonce: str


@dataclass(frozen=True)
class Run:
    """What the sites of a run must agree on before it begins.

    ``run_id``, 16 bytes, is unique to the run. The manifest describes the computation; sites whose texts differ refuse
    each other. ``max_message_bytes`` counts only arrays. ``compare`` lists the fields in which two manifests differ.
    ``runs_to`` is for series of runs: how many runs the second manifest is after the first; otherwise 0.
    """

    run_id: bytes
    manifest: str
    max_message_bytes: int
    compare: Callable[[str, str], list[str]] | None = None
    runs_to: Callable[[str, str], int] | None = None

    def __post_init__(self) -> None:
        if len(self.run_id) != 16:
            raise InputError(f"run_id has {len(self.run_id)} bytes; it must have 16.")
        if self.max_message_bytes < 1:
            raise InputError(f"max_message_bytes = {self.max_message_bytes} must be at least 1.")
        wire.text_body(self.manifest)

    @cached_property
    def digest(self) -> str:
        return hashlib.sha256(self.manifest.encode()).hexdigest()

    def id_of(self, lost: tuple[tuple[str, str], ...]) -> bytes:
        """The run id of an epoch, so that messages of another epoch are refused."""
        return hashlib.sha256(self.run_id + (view_digest(lost).encode() if lost else b"")).digest()[:16]


@dataclass(frozen=True)
class Setup:
    """A site of a run. ``dials`` are the neighbours that it calls; the others call it.

    A neighbour is lost if it was silent for ``patience_s``, or for ``join_s`` if it never gave a sign of life;
    ``on_loss`` is what happens to the run then. ``round_s`` bounds one wait even if the neighbour is alive. At most
    ``window_frames`` frames are kept for a neighbour until they are on its disk; then the sender waits. With ``masked``
    the site sends a public key for masks, a new one in each epoch.
    """

    name: str
    sites: tuple[str, ...]
    edges: tuple[tuple[str, str], ...]
    dials: frozenset[str]
    run: Run
    keyring: Keyring
    patience_s: float = 60.0
    join_s: float = 3600.0
    round_s: float = 3600.0
    on_loss: OnLoss = "wait"
    window_frames: int = WINDOW_FRAMES
    masked: bool = False

    def __post_init__(self) -> None:
        for wait in ("patience_s", "join_s", "round_s"):
            if not getattr(self, wait) > 0:
                raise InputError(f"{wait} = {getattr(self, wait)!r} must be above 0.")
        if self.window_frames < 1:
            raise InputError(f"window_frames = {self.window_frames} must be at least 1.")

    @cached_property
    def neighbours(self) -> tuple[str, ...]:
        linked = {site for edge in self.edges if self.name in edge for site in edge}
        return tuple(site for site in self.sites if site in linked and site != self.name)


class Past(NamedTuple):
    """The journal when the process starts: the number of this start, the records, and how to read their content.

    ``secret`` is drawn when the journal is made, and never leaves the site.
    """

    instance: Instance
    entries: tuple[JournalRecord, ...] = ()
    read: Callable[[JournalRecord], bytes] = lambda entry: b""
    secret: str = ""

    @property
    def resumed(self) -> bool:
        return self.instance.start > 1

    def site_key(self, lost: tuple[tuple[str, str], ...]) -> SiteKey:
        """The key pair of an epoch, the same after a restart: it is derived from a secret that is on the disk."""
        place = f"eigenmesh site key\n{self.secret}\n{view_digest(lost)}"
        return SiteKey.generate(hashlib.sha256(place.encode()).digest())
