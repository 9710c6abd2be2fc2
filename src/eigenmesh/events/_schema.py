"""The kinds of events and their fields: plain values only."""

import math
from typing import Any, NamedTuple, TypeAlias

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


class Record(NamedTuple):
    """One line of a run's history.

    Attributes
    ----------
    iteration, rounds, messages, matrices, bytes : int
        Cost so far, set-up and checks included.
    residual : float
        Largest residual over nodes and components; NaN where it was not measured.
    error : float
        The paper's mean sin^2 error, NaN unless the run was given the truth.
    step_size : float
        The solver's step; NaN for solvers without one.
    bound : float
        BoundCertified bound on sin(angle) to the true components; NaN before the certificate.
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


class LinkTraffic(NamedTuple):
    """What went over a link in one direction during the whole fit: messages, and bytes of payload."""

    sender: str
    receiver: str
    messages: int
    bytes: int


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
    """One neighbour as seen from here; bytes are those of whole frames. Times are seconds since 1970, 0 for never."""

    name: str
    connected: bool = False
    last_heard: float = 0.0
    waiting: bool = False
    round: int = 0
    bytes_sent: int = 0
    bytes_received: int = 0
    refusal: str = ""


class Lost(NamedTuple):
    """Sites were lost: neighbours by name, or none if other sites brought the news."""

    names: tuple[str, ...]
    reason: str


class Ended(NamedTuple):
    """The last event: done, parked, aborted or failed; whether the certificate reached the tolerance; and why."""

    outcome: str
    converged: bool = False
    message: str = ""


class UnknownEvent(NamedTuple):
    """An event of a kind, or of a version of the schema, that this version of eigenmesh does not know."""

    kind: str
    version: int
    fields: dict[str, Any]


FitEvent: TypeAlias = Started | Record | BoundCertified | LinkTraffic | Ended
SiteEvent: TypeAlias = Members | SiteStatus | NeighbourStatus | Lost
Event: TypeAlias = FitEvent | SiteEvent | UnknownEvent

# As they are called in files.
KINDS: dict[str, type[FitEvent | SiteEvent]] = {
    "started": Started,
    "record": Record,
    "certified": BoundCertified,
    "link_traffic": LinkTraffic,
    "members": Members,
    "site_status": SiteStatus,
    "neighbour_status": NeighbourStatus,
    "lost": Lost,
    "ended": Ended,
}
