"""What happens in a fit, as events: history, progress, status, metrics and event files are made from them."""

from eigenmesh.events._jsonl import EventReader, JsonlWriter, event_log, from_json, to_json
from eigenmesh.events._log import Entry, EventLog, Listener, on_record
from eigenmesh.events._schema import (
    KINDS,
    VERSION,
    BoundCertified,
    Ended,
    Event,
    LinkTraffic,
    Lost,
    Members,
    NeighbourStatus,
    Record,
    SiteStatus,
    Started,
    UnknownEvent,
)

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
    "event_log",
    "from_json",
    "on_record",
    "to_json",
]
