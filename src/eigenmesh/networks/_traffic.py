"""What a run has sent."""

from __future__ import annotations

from dataclasses import dataclass, fields, replace


@dataclass
class Traffic:
    """What a run has sent, over the whole network."""

    rounds: int = 0
    """Synchronous neighbour exchanges."""
    messages: int = 0
    """Directed sends."""
    matrices: int = 0
    """Matrix blocks that a node sends to each neighbour; FAST-PCA sends two per iteration."""
    bytes: int = 0
    """Payload."""

    def copy(self) -> Traffic:
        """The count as it stands."""
        return replace(self)

    def __add__(self, other: Traffic) -> Traffic:
        return Traffic(*(getattr(self, field.name) + getattr(other, field.name) for field in fields(self)))

    def __iadd__(self, other: Traffic) -> Traffic:
        for field in fields(self):
            setattr(self, field.name, getattr(self, field.name) + getattr(other, field.name))
        return self

    def __sub__(self, earlier: Traffic) -> Traffic:
        return Traffic(*(getattr(self, field.name) - getattr(earlier, field.name) for field in fields(self)))
