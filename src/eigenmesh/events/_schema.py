"""The kinds of events, their fields (plain values only), and their form as JSON."""

import json
import math
from typing import Any, NamedTuple, TypeAlias, get_type_hints

from eigenmesh.errors import UnreadableFileError

# Increased when a field changes its meaning; new kinds, and new fields with a default, do not need that.
VERSION = 1


class Started(NamedTuple):
    """A fit starts, on these nodes and links; ``n_components`` is K, or the share of the variance to explain."""

    solver: str
    averaging: str
    nodes: tuple[str, ...]
    links: tuple[tuple[str, str], ...]
    n_features: int
    n_components: int | float
    tol: float
    max_rounds: int


class Planned(NamedTuple):
    """The planner's forecast of the fit that starts next, with ``latency_s`` per round; infinite if tol is missed."""

    rounds: float
    bytes: float
    seconds: float
    latency_s: float


class Record(NamedTuple):
    """One line of a run's history: the cost so far, with set-up and checks, and measured values, NaN if not measured.

    ``residual`` is the largest over nodes and components, ``error`` the paper's mean sin^2 error if the true components
    are known, ``step_size`` that of the solver, ``bound`` the certified bound on sin(angle) to the true components.
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
    """The nodes have a certificate: a bound on sin(angle) to the true components, with its warnings."""

    rounds: int
    bound: float
    residual: float
    warnings: tuple[str, ...] = ()


class CertificateInWords(NamedTuple):
    """The final certificate of a fit, in complete sentences."""

    words: tuple[str, ...]


class BatchChecked(NamedTuple):
    """A batch of a stream compared with the batches before it: the variance that the last components lose, and alarms.

    ``t2_share`` and ``spe_share`` are the shares of samples above the limits of T2 and SPE; 1 % is normal.
    """

    batch: int
    samples: int
    variance_lost: float
    t2_share: float
    spe_share: float
    alarm: bool = False
    message: str = ""


class LinkTraffic(NamedTuple):
    """Traffic over a link in one direction during the whole fit: messages, and bytes of payload."""

    sender: str
    receiver: str
    messages: int
    bytes: int


class LinkLatency(NamedTuple):
    """Round-trip time of a link, as set by the conditions of a run in virtual time."""

    one: str
    other: str
    round_trip_s: float


class Members(NamedTuple):
    """The sites of a run between organisations, as ``site`` knows them; the epoch increases when links are lost."""

    run: str
    site: str
    epoch: int
    members: tuple[str, ...]
    missing: tuple[str, ...] = ()


class SiteStatus(NamedTuple):
    """The next round of this site, since when it has waited for neighbours (0: it does not), and why it cannot resume.

    ``problem`` is empty if it can resume.
    """

    round: int
    waiting_since: float = 0.0
    problem: str = ""


class NeighbourStatus(NamedTuple):
    """One neighbour as seen from this site; bytes count whole frames. Times are seconds since 1970, 0 for never.

    ``round_trip_s`` is the last known round-trip time; 0 if none is known.
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
    """Sites were lost: the names of lost neighbours, or none if other sites reported the loss."""

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

# Names of the kinds in files.
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
    """An event and its time, by the clock of the log."""

    time_s: float
    event: Event


def to_json(entry: Entry) -> str:
    """One line, without newline. NaN becomes null; infinities, which JSON lacks, "Infinity" and "-Infinity"."""
    event = entry.event
    if isinstance(event, UnknownEvent):
        kind, version, values = event.kind, event.version, event.fields
    else:
        kind, version, values = KIND_OF[type(event)], VERSION, event._asdict()
    plain = {name: _plain(value) for name, value in values.items()}
    return json.dumps({"version": version, "time_s": entry.time_s, "kind": kind, **plain}, allow_nan=False)


def from_json(line: str) -> Entry:
    """The entry of a line. Unknown fields are left out; unknown kinds and newer versions become an UnknownEvent."""
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
