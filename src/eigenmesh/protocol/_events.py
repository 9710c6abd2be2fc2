"""What a site's machine is told, and what it asks for: plain values, so that a run can be recorded and replayed."""

from typing import Any, NamedTuple

from eigenmesh.protocol._wire import Body, Frame


class SiteStarted(NamedTuple):
    """The site may call its neighbours from now on."""


class Opened(NamedTuple):
    """A stream is open. ``names`` are those of the other end's certificate; ``called`` is whom this site has called.

    ``address`` is where the other end is, for the log.
    """

    stream: int
    names: tuple[str, ...]
    called: str = ""
    address: str = ""


class Unreachable(NamedTuple):
    """A call of a neighbour has failed."""

    neighbour: str
    reason: str


class Bytes(NamedTuple):
    """A message has come over a stream."""

    stream: int
    data: bytes


class Closed(NamedTuple):
    """A stream has ended."""

    stream: int
    reason: str = ""


class Durable(NamedTuple):
    """All records of the journal with a number below this one are on the disk."""

    records: int


class DiskFailed(NamedTuple):
    """The journal or the audit cannot be written."""

    what: str
    reason: str


class Tick(NamedTuple):
    """About a second has passed."""


class Exchange(NamedTuple):
    """The solver sends arrays to some neighbours and waits for arrays of the same form from some."""

    body: Body
    tag: int
    send_to: tuple[str, ...]
    receive_from: tuple[str, ...]


class Keys(NamedTuple):
    """The solver waits for the public keys of all members, for masks in the present epoch."""


class Mask(NamedTuple):
    """The solver has masked what it adds to the average of that number; nothing leaves before this is on the disk."""

    number: int
    masked: bytes


class Sign(NamedTuple):
    """The solver has a result and waits until all members have signed its digest."""

    digest: str


class Begin(NamedTuple):
    """The solver begins with the members that are left, from an estimate that is kept in the journal."""

    start: bytes


class Stop(NamedTuple):
    """This site ends the run everywhere, or puts it off (``parks``), and says why."""

    reason: str
    parks: bool = False


class Finish(NamedTuple):
    """The solver asks for nothing more: part from the neighbours."""


Event = (
    SiteStarted
    | Opened
    | Unreachable
    | Bytes
    | Closed
    | Durable
    | DiskFailed
    | Tick
    | Exchange
    | Keys
    | Mask
    | Sign
    | Begin
    | Stop
    | Finish
)


# What a solver asks for; each is answered.
Question = Exchange | Keys | Mask | Sign | Begin | Finish


class Sent(NamedTuple):
    """One message that is about to leave this site, for the neighbour of that name.

    ``bytes`` counts numbers or text alone, ``frame_bytes`` the head too; ``sha256`` is of the body, in hexadecimal.
    ``again`` says that the same round has gone to this neighbour before, over a link that broke.
    """

    neighbour: str
    kind: str
    epoch: int
    round: int
    shapes: tuple[tuple[int, ...], ...]
    dtypes: tuple[str, ...]
    bytes: int
    frame_bytes: int
    sha256: str
    again: bool


class Dial(NamedTuple):
    """Call a neighbour after a pause; ends with Opened or Unreachable."""

    neighbour: str
    after_s: float


class Write(NamedTuple):
    """Send a message over a stream, after those before it."""

    stream: int
    data: bytes


class Cut(NamedTuple):
    """End a stream, after all messages are written; ends with Closed."""

    stream: int


class Append(NamedTuple):
    """Write the parts of a record to the journal, after those before it; Durable tells when it is on the disk.

    Messages wait for one that is ``urgent``.
    """

    record: tuple[bytes, ...]
    urgent: bool = False


class Audit(NamedTuple):
    """Put a message on record; it follows as Write, and may not leave if this fails."""

    sent: Sent


class Deliver(NamedTuple):
    """The answer to what the solver has asked for."""

    answer: Any


class Fail(NamedTuple):
    """The run has ended at this site."""

    error: Exception


class Log(NamedTuple):
    """A line for the operator; ``level`` as in logging."""

    level: int
    text: str


Effect = Dial | Write | Cut | Append | Audit | Deliver | Fail | Log


class Received(NamedTuple):
    """Answer to Exchange: the frame of each neighbour."""

    frames: dict[str, Frame]


class PublicKeys(NamedTuple):
    """Answer to Keys: the public key of each member, by name."""

    publics: dict[str, bytes]


class Masked(NamedTuple):
    """Answer to Mask: what is to leave: those bytes, or the ones that an earlier process put on record."""

    masked: bytes


class Signed(NamedTuple):
    """Answer to Sign: the signed statement of each member."""

    statements: dict[str, str]


class MembersChanged(NamedTuple):
    """Answer to anything, once sites were lost and the others have agreed to continue: Begin is due."""

    lost: tuple[tuple[str, str], ...]


class Begun(NamedTuple):
    """Answer to Begin: the new epoch is on the disk."""


class Parted(NamedTuple):
    """Answer to Finish: the neighbours have what they need, or are lost; ``owed`` may need this site again."""

    owed: tuple[str, ...]
