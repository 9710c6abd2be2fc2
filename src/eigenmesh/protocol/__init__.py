"""The protocol between sites: frames, signed statements, and one site as a pure state machine."""

from eigenmesh.protocol import effects, wire
from eigenmesh.protocol.machine import SiteMachine
from eigenmesh.protocol.setup import Run, Setup
