"""A site that does not hear the end of a run."""

from __future__ import annotations

from pathlib import Path

from eigenmesh.protocol import wire
from eigenmesh.protocol.effects import Bytes
from eigenmesh.protocol.peering import Peering
from processes import command


def deaf_command(sign: Path, *words: str) -> None:
    """``command`` in a process that is deaf."""
    make_deaf(sign)
    command(*words)


def make_deaf(sign: Path) -> None:
    """Make this process hear nothing of a neighbour from its word on the result on, while a file is there."""
    received, unheard = Peering.received, set()

    def received_some(peering: Peering, event: Bytes) -> None:
        sender = peering.streams[event.stream].link if event.stream in peering.streams else ""
        if not sign.exists():
            unheard.clear()
        elif sender:
            frame = wire.decode(event.data, peering.setup.run.max_message_bytes)
            if frame.kind is wire.Kind.STATEMENT and '"kind":"result"' in frame.text:
                unheard.add(sender)
        if sender not in unheard:
            received(peering, event)

    Peering.received = received_some  # type: ignore[method-assign]
