"""The protocol between sites: frames, signed statements, and one site as a pure state machine."""

from eigenmesh.protocol import effects, wire
from eigenmesh.protocol.machine import SiteMachine
from eigenmesh.protocol.setup import Run, Setup

__all__ = ["Run", "Setup", "SiteMachine", "effects", "wire"]


def __dir__() -> list[str]:
    return __all__
