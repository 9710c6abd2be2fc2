"""Machines that are driven by hand."""

import random

import pytest

from eigenmesh import protocol as ep
from eigenmesh.protocol import effects as ev
from eigenmesh.protocol import wire
from eigenmesh.protocol.setup import Instance, Past
from eigenmesh.rehearsal.world import SecretKeyring


class Driven:
    """A machine of a site in a path A - B - C, all that it has asked for, and frames in its neighbours' names."""

    def __init__(self, name, start=1, identity="", on_loss="wait", run=None, has_result=False):
        self.run = run or ep.Run(bytes(16), "sum", 64)
        setup = ep.Setup(
            name,
            ("A", "B", "C"),
            (("A", "B"), ("B", "C")),
            frozenset({"C"} if name == "B" else {"B"} if name == "A" else ()),
            self.run,
            SecretKeyring(name),
            on_loss=on_loss,
            has_result=has_result,
        )
        past = Past(Instance(identity or name * 4, start, f"{name}{start}"))
        self.machine = ep.SiteMachine(setup, past, random.Random(0), 0.0)
        self.now, self.effects, self.streams = 0.0, [], 0

    def step(self, event):
        """The effects of one event."""
        made = self.machine.step(self.now, event)
        self.effects += made
        return made

    def hears(self, stream, kind, text="", round_=0, acknowledged=0, tag=0):
        machine = self.machine
        body = wire.text_body(text)
        frame = wire.encode(kind, machine.epoch.run_id, machine.epoch.number, round_, acknowledged, body, tag)
        return self.step(ev.Bytes(stream, frame))

    def greeting_of(self, name, start=1, identity=""):
        return Driven(name, start, identity).machine.peering.greeting()

    def met(self, name, start=1):
        """A stream that the neighbour has opened, agreed on."""
        self.streams += 1
        self.step(ev.Opened(self.streams, (name,)))
        self.hears(self.streams, wire.Kind.HELLO, self.greeting_of(name, start))
        return self.streams

    def written(self, effects, kind):
        frames = [wire.decode(one.data, 64) for one in effects if isinstance(one, ev.Write)]
        return [frame for frame in frames if frame.kind is kind]


@pytest.fixture
def driven():
    return Driven
