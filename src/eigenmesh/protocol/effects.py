"""Events and effects of a site's machine: plain values, so that a run can be recorded and replayed."""

from __future__ import annotations

from typing import Any, NamedTuple

from eigenmesh.protocol.wire import Body


class SiteStarted(NamedTuple):
    """The site may call its neighbours from now on."""


class Opened(NamedTuple):
    """A stream is open.

    ``names`` are the names in the certificate of the other end; ``called`` is the neighbour that this site has called,
    if it has; ``address`` is that of the other end, for the log.
    """

    stream: int
    names: tuple[str, ...]
    called: str = ""
    address: str = ""


class Unreachable(NamedTuple):
    """A call to a neighbour has failed, or there is no news of a neighbour whose call is waited for at a relay."""

    neighbour: str
    reason: str


class Bytes(NamedTuple):
    """A message has arrived over a stream."""

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
    """The solver sends arrays to some neighbours and waits for arrays of the same form from some.

    The answer is a dictionary with the frame of each neighbour.
    """

    body: Body
    tag: int
    send_to: tuple[str, ...]
    receive_from: tuple[str, ...]


class Keys(NamedTuple):
    """The solver waits for the public keys of all members, for masks in the present epoch.

    The answer is a dictionary with the key of each member.
    """


class Mask(NamedTuple):
    """The solver has masked its part of the average with this number. It is not sent before it is on the disk.

    ``heard`` are the running hashes of what it has heard since its last request. The mask is bound to the last one.
    The answer has the bytes to send, which are those given, or those that an earlier process has recorded.
    """

    number: int
    heard: tuple[bytes, ...]
    masked: bytes


class Compare(NamedTuple):
    """The solver waits until all members have signed the running hash of what they have heard.

    ``stage`` is that of the statement: the end of the set-up, or the end of the run because of an error at a site.
    The answer is None: all members have heard the same, as far as this site can tell.
    """

    stage: str
    heard: tuple[bytes, ...] = ()


class Sign(NamedTuple):
    """The solver has a result and waits until all members have signed its digest, and what they have heard.

    The answer is a dictionary with the signed statement of each member.
    """

    digest: str
    heard: tuple[bytes, ...] = ()


class Begin(NamedTuple):
    """The solver starts again with the remaining members, from an estimate that is kept in the journal.

    The answer is None, once the new epoch is on the disk.
    """

    start: bytes


class Stop(NamedTuple):
    """This site ends the run at all sites, or parks it (``parks``), and gives the reason."""

    reason: str
    parks: bool = False


class Finish(NamedTuple):
    """The solver is done: say farewell to the neighbours."""


# Requests of the solver. Each gets an answer.
Question = Exchange | Keys | Mask | Compare | Sign | Begin | Finish
Event = Question | SiteStarted | Opened | Unreachable | Bytes | Closed | Durable | DiskFailed | Tick | Stop


class Sent(NamedTuple):
    """One message that this site is about to send to a neighbour.

    ``bytes`` counts only numbers or text, ``frame_bytes`` the header, too; ``sha256`` is that of the body, in
    hexadecimal. ``again``: the same round was sent to this neighbour before, over a link that broke.
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
    """Record a message in the audit, then send it over a stream, after all earlier ones.

    If it cannot be recorded, it must not be sent. ``sent`` is None if the audit has failed before.
    """

    stream: int
    data: bytes
    sent: Sent | None


class Cut(NamedTuple):
    """Close a stream, after all messages are written; ends with Closed."""

    stream: int


class Append(NamedTuple):
    """Write the parts of a record to the journal, after all earlier ones; Durable reports when it is on the disk.

    ``urgent``: messages are waiting for it, so flush it soon.
    """

    record: tuple[bytes, ...]
    urgent: bool = False


class Deliver(NamedTuple):
    """The answer to the solver's request: what the request says, or ``MembersChanged``."""

    answer: Any


class Fail(NamedTuple):
    """The run has ended at this site."""

    error: Exception


class Log(NamedTuple):
    """A line for the operator; ``level`` as in logging."""

    level: int
    text: str


Effect = Dial | Write | Cut | Append | Deliver | Fail | Log


class MembersChanged(NamedTuple):
    """Answer to any request after sites were lost and the others agreed to continue: Begin must follow."""

    lost: tuple[tuple[str, str], ...]


class Parted(NamedTuple):
    """Answer to Finish: the neighbours have all they need, or are lost. Those in ``owed`` may need this site again."""

    owed: tuple[str, ...]


class Wait(NamedTuple):
    """A part of the machine cannot answer the solver's request yet: it waits for these neighbours.

    ``what`` is what they have to do within ``round_s``. It is empty if the time is bounded in another way.
    """

    names: tuple[str, ...]
    what: str = ""
