"""The protocol between sites: frames, signed statements, and one site as a pure state machine."""

from eigenmesh.protocol._events import (
    Append,
    Audit,
    Begin,
    Begun,
    Bytes,
    Closed,
    Cut,
    Deliver,
    Dial,
    DiskFailed,
    Durable,
    Exchange,
    Fail,
    Finish,
    Log,
    MembersChanged,
    Opened,
    Parted,
    Received,
    Sent,
    Sign,
    Signed,
    Started,
    Stop,
    Tick,
    Unreachable,
    Write,
)
from eigenmesh.protocol._link import LinkStatus
from eigenmesh.protocol._machine import HEARTBEAT_S, SiteMachine
from eigenmesh.protocol._membership import Membership
from eigenmesh.protocol._records import Entry, Mark, record, scan
from eigenmesh.protocol._setup import Instance, OnLoss, Past, Run, Setup
from eigenmesh.protocol._statements import Keyring, read_statement

__all__ = [
    "HEARTBEAT_S",
    "Append",
    "Audit",
    "Begin",
    "Begun",
    "Bytes",
    "Closed",
    "Cut",
    "Deliver",
    "Dial",
    "DiskFailed",
    "Durable",
    "Entry",
    "Exchange",
    "Fail",
    "Finish",
    "Instance",
    "Keyring",
    "LinkStatus",
    "Log",
    "Mark",
    "MembersChanged",
    "Membership",
    "OnLoss",
    "Opened",
    "Parted",
    "Past",
    "Received",
    "Run",
    "Sent",
    "Setup",
    "Sign",
    "Signed",
    "SiteMachine",
    "Started",
    "Stop",
    "Tick",
    "Unreachable",
    "Write",
    "read_statement",
    "record",
    "scan",
]


def __dir__() -> list[str]:
    return __all__
