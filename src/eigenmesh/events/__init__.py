"""What happens in a fit, as events: history, progress, status, metrics and event files are made from them."""

from eigenmesh.events._log import EventLog, EventReader, JsonlWriter, Listener, event_log, on_record
from eigenmesh.events._schema import (
    KINDS,
    VERSION,
    BoundCertified,
    Ended,
    Entry,
    Event,
    LinkTraffic,
    Lost,
    Members,
    NeighbourStatus,
    Record,
    SiteStatus,
    Started,
    UnknownEvent,
    from_json,
    to_json,
)
from eigenmesh.events._virtual_time import VirtualTime

__all__ = [
    "KINDS",
    "VERSION",
    "BoundCertified",
    "Ended",
    "Entry",
    "Event",
    "EventLog",
    "EventReader",
    "JsonlWriter",
    "LinkTraffic",
    "Listener",
    "Lost",
    "Members",
    "NeighbourStatus",
    "Record",
    "SiteStatus",
    "Started",
    "UnknownEvent",
    "VirtualTime",
    "event_log",
    "from_json",
    "on_record",
    "to_json",
]
