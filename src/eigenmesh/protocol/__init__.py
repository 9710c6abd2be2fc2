"""The protocol between sites: frames, signed statements, and one site as a pure state machine."""

from eigenmesh.protocol import effects, wire
from eigenmesh.protocol.machine import HEARTBEAT_S, SiteMachine
from eigenmesh.protocol.membership import Membership
from eigenmesh.protocol.outbox import LinkStatus
from eigenmesh.protocol.rounds import JournalledMasks
from eigenmesh.protocol.setup import ENDING, SET_UP, Instance, Past, Run, Setup, read_statement

__all__ = [
    "ENDING",
    "HEARTBEAT_S",
    "SET_UP",
    "Instance",
    "JournalledMasks",
    "LinkStatus",
    "Membership",
    "Past",
    "Run",
    "Setup",
    "SiteMachine",
    "effects",
    "read_statement",
    "wire",
]


def __dir__() -> list[str]:
    return __all__
