"""The kinds of events, their fields (plain values only), and their form as JSON."""

import json
import math
from typing import Any, NamedTuple, TypeAlias, get_type_hints

from eigenmesh.errors import UnreadableFileError

# Raised when a field changes its meaning. New kinds and new fields with a default do not raise it.
VERSION = 1


class Started(NamedTuple):
    """A fit begins, over nodes and links by name; ``n_components`` is K, or the share of the variance to explain."""

    solver: str
    averaging: str
    nodes: tuple[str, ...]
    links: tuple[tuple[str, str], ...]
    n_features: int
    n_components: int | float
    tol: float
    max_rounds: int


class Planned(NamedTuple):
    """The planner's forecast of the fit that begins next, at ``latency_s`` for a round; infinite if it misses tol."""

    rounds: float
    bytes: float
    seconds: float
    latency_s: float


class Record(NamedTuple):
    """One line of a run's history: the cost so far with set-up and checks, and what was measured, else NaN.

    ``residual`` is the largest over nodes and components, ``error`` the paper's mean sin^2 error if the run was given
    the truth, ``step_size`` the solver's, ``bound`` the certified bound on sin(angle) to the true components.
    """

    iteration: int
    rounds: int
    messages: int
    matrices: int
    bytes: int
    residual: float = math.nan
    error: float = math.nan
    step_size: float = math.nan
    bound: float = math.nan


class BoundCertified(NamedTuple):
    """The nodes have a certificate: a bound on sin(angle) to the true components, and what to know about them."""

    rounds: int
    bound: float
    residual: float
    warnings: tuple[str, ...] = ()


class CertificateInWords(NamedTuple):
    """The certificate that a fit has ended with, in sentences that stand for themselves."""

    words: tuple[str, ...]


class BatchChecked(NamedTuple):
    """A batch of a stream against those before it: the variance that the last components have lost, and alarms.

    ``t2_share`` and ``spe_share`` are the samples beyond the limits of T2 and SPE, of which 1 % is usual.
    """

    batch: int
    samples: int
    variance_lost: float
    t2_share: float
    spe_share: float
    alarm: bool = False
    message: str = ""


class LinkTraffic(NamedTuple):
    """What went over a link in one direction during the whole fit: messages, and bytes of payload."""

    sender: str
    receiver: str
    messages: int
    bytes: int


class LinkLatency(NamedTuple):
    """How long a packet takes over a link and back, as the conditions of a run in virtual time have it."""

    one: str
    other: str
    round_trip_s: float


class Members(NamedTuple):
    """The sites of a run between organisations, as ``site`` knows them; the epoch grows when links are lost."""

    run: str
    site: str
    epoch: int
    members: tuple[str, ...]
    missing: tuple[str, ...] = ()


class SiteStatus(NamedTuple):
    """The next round of this site, since when it waits for neighbours (0: not), and why it could not resume, if so."""

    round: int
    waiting_since: float = 0.0
    problem: str = ""


class NeighbourStatus(NamedTuple):
    """One neighbour as seen from here; bytes are those of whole frames. Times are seconds since 1970, 0 for never.

    ``round_trip_s`` is how long a packet takes to it and back, as last known; 0 if it never was.
    """

    name: str
    connected: bool = False
    last_heard: float = 0.0
    waiting: bool = False
    round: int = 0
    bytes_sent: int = 0
    bytes_received: int = 0
    refusal: str = ""
    round_trip_s: float = 0.0


class Lost(NamedTuple):
    """Sites were lost: neighbours by name, or none if other sites brought the news."""

    names: tuple[str, ...]
    reason: str


class Ended(NamedTuple):
    """The last event: done, stopped, parked, aborted or failed; whether the certificate reached tol; and why."""

    outcome: str
    converged: bool = False
    message: str = ""


class UnknownEvent(NamedTuple):
    """An event of a kind, or of a version of the schema, that this version of eigenmesh does not know."""

    kind: str
    version: int
    fields: dict[str, Any]


FitEvent: TypeAlias = (
    Planned | Started | Record | BoundCertified | CertificateInWords | BatchChecked | LinkTraffic | LinkLatency | Ended
)
SiteEvent: TypeAlias = Members | SiteStatus | NeighbourStatus | Lost
Event: TypeAlias = FitEvent | SiteEvent | UnknownEvent

# As they are called in files.
KINDS: dict[str, type[FitEvent | SiteEvent]] = {
    "planned": Planned,
    "started": Started,
    "record": Record,
    "certified": BoundCertified,
    "certificate": CertificateInWords,
    "batch_checked": BatchChecked,
    "link_traffic": LinkTraffic,
    "link_latency": LinkLatency,
    "members": Members,
    "site_status": SiteStatus,
    "neighbour_status": NeighbourStatus,
    "lost": Lost,
    "ended": Ended,
}
KIND_OF = {event: kind for kind, event in KINDS.items()}
FLOATS = {kind: [name for name, hint in get_type_hints(KINDS[kind]).items() if hint is float] for kind in KINDS}


class Entry(NamedTuple):
    """An event and when it happened, by the clock of the log."""

    time_s: float
    event: Event


def to_json(entry: Entry) -> str:
    """One line, without its end. NaN is null; infinities, which JSON lacks, are "Infinity" and "-Infinity"."""
    event = entry.event
    if isinstance(event, UnknownEvent):
        kind, version, values = event.kind, event.version, event.fields
    else:
        kind, version, values = KIND_OF[type(event)], VERSION, event._asdict()
    plain = {name: _plain(value) for name, value in values.items()}
    return json.dumps({"version": version, "time_s": entry.time_s, "kind": kind, **plain}, allow_nan=False)


def from_json(line: str) -> Entry:
    """The entry of a line. Fields that are not known are left out; unknown kinds and newer versions are kept whole."""
    try:
        values = json.loads(line)
        version, kind, time_s = int(values.pop("version")), str(values.pop("kind")), float(values.pop("time_s"))
        if version > VERSION or kind not in KINDS:
            return Entry(time_s, UnknownEvent(kind, version, values))
        known = [name for name in values if name in KINDS[kind]._fields]
        return Entry(time_s, KINDS[kind](**{name: _value(values[name], name in FLOATS[kind]) for name in known}))
    except (ValueError, TypeError, KeyError, AttributeError) as error:
        raise UnreadableFileError(f"{line[:80]!r} is not an event ({error!r}); give a file of --events.") from error


def _plain(value: Any) -> Any:
    if not isinstance(value, float) or math.isfinite(value):
        return value
    return None if math.isnan(value) else f"{'-' if value < 0 else ''}Infinity"


def _value(value: Any, is_float: bool) -> Any:
    if is_float:
        return math.nan if value is None else float(value)
    return tuple(_value(item, False) for item in value) if isinstance(value, list) else value
