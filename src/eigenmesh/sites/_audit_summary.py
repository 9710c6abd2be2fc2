"""What an audit file says, added up: how much went to whom, in which shapes, and whether any shape gives data away."""

from __future__ import annotations

import math
import os
from dataclasses import asdict, dataclass, field
from typing import Any

from eigenmesh.errors import UnreadableFileError
from eigenmesh.sites._audit import START, read_audit

DATA = "DATA"
# Shapes that are listed; a run has about a dozen.
MOST_SHAPES = 200

Shape = tuple[int, ...]


@dataclass
class Count:
    """Messages and bytes: ``bytes`` of payload, ``frame_bytes`` with heads; ``columns`` of d numbers in DATA."""

    messages: int = 0
    bytes: int = 0
    frame_bytes: int = 0
    columns: int = 0

    def add(self, entry: dict[str, Any], columns: int = 0) -> None:
        """Count one message."""
        self.messages += 1
        self.bytes += entry["bytes"]
        self.frame_bytes += entry["frame_bytes"]
        self.columns += columns


@dataclass
class AuditSummary:
    """An audit file added up.

    Attributes
    ----------
    data : DATA messages without those that were sent again, as a run counts its traffic; ``again`` the others.
    shapes : messages by the shape and dtype of an array in them.
    covariance_shaped, sample_shaped : DATA messages that hold an array of such a shape, and the first of them.
    damaged : numbers of lines that could not be read.
    """

    site: str = ""
    run: str = ""
    n_features: int = 0
    n_samples: int = 0
    starts: int = 0
    first: str = ""
    last: str = ""
    total: Count = field(default_factory=Count)
    data: Count = field(default_factory=Count)
    again: Count = field(default_factory=Count)
    by_neighbour: dict[str, Count] = field(default_factory=dict)
    by_kind: dict[str, Count] = field(default_factory=dict)
    shapes: dict[str, int] = field(default_factory=dict)
    largest: dict[str, Any] | None = None
    covariance_shaped: int = 0
    sample_shaped: int = 0
    example: dict[str, Any] | None = None
    damaged: list[int] = field(default_factory=list)

    @property
    def enough_columns(self) -> int:
        """Products with so many known columns give a covariance C away.

        N_i of them do, for that bounds its rank. And n of them leave (d - n)(d - n + 1) / 2 unknown numbers, for which
        the squares that went before the run, the diagonal of C, are d equations.
        """
        unseen = (math.isqrt(8 * self.n_features + 1) - 1) // 2
        return max(1, min(self.n_features - unseen, self.n_samples))

    def as_json(self) -> dict[str, Any]:
        """Plain values."""
        return asdict(self)

    def _take(self, entry: dict[str, Any]) -> None:
        self.first = self.first or entry["at"]
        self.last = entry["at"]
        if entry["kind"] == START:
            self.starts += 1
            self.site, self.run = str(entry.get("site", "")), str(entry.get("run", ""))
            self.n_features, self.n_samples = entry["n_features"], entry["n_samples"]
            return
        shapes = [tuple(shape) for shape in entry["shapes"]]
        columns = sum(_columns(shape, self.n_features) for shape in shapes)
        self.total.add(entry)
        self.by_neighbour.setdefault(entry["to"], Count()).add(entry, 0 if entry["again"] else columns)
        self.by_kind.setdefault(entry["kind"], Count()).add(entry)
        if self.largest is None or entry["bytes"] > self.largest["bytes"]:
            self.largest = entry
        if entry["kind"] == DATA:
            (self.again if entry["again"] else self.data).add(entry, columns)
            self._look_at_shapes(entry, shapes)

    def _look_at_shapes(self, entry: dict[str, Any], shapes: list[Shape]) -> None:
        dtypes = [str(dtype) for dtype in entry.get("dtypes", ())]
        for shape, dtype in zip(shapes, dtypes, strict=False):
            name = f"{' x '.join(map(str, shape)) or 'a number'} {dtype}"
            if name in self.shapes or len(self.shapes) < MOST_SHAPES:
                self.shapes[name] = self.shapes.get(name, 0) + 1
        covariance = any(is_covariance_shaped(shape, self.n_features) for shape in shapes)
        samples = any(is_sample_shaped(shape, self.n_samples, self.n_features) for shape in shapes)
        self.covariance_shaped += covariance
        self.sample_shaped += samples
        if self.example is None and (covariance or samples):
            self.example = entry


def summary(path: str | os.PathLike[str]) -> AuditSummary:
    """Add up an audit file."""
    found = AuditSummary()
    for number, entry in enumerate(read_audit(path), start=1):
        if entry is None:
            found.damaged.append(number)
        else:
            found._take(entry)
    if not found.starts:
        raise UnreadableFileError(f"{path} is no audit file; give the audit.jsonl of a site's out folder.")
    return found


def is_covariance_shaped(shape: Shape, n_features: int) -> bool:
    """Whether an array has a (d, d) matrix in it, or as many numbers in one axis as half of one has."""
    half = n_features * (n_features + 1) // 2
    whole = len(shape) >= 2 and shape[-1] == shape[-2] == n_features
    return n_features > 1 and (whole or any(size in (half, n_features**2) for size in shape))


def is_sample_shaped(shape: Shape, n_samples: int, n_features: int) -> bool:
    """Whether an array has the site's number of rows, or columns, of d numbers each."""
    return len(shape) >= 2 and shape[-2:] in ((n_samples, n_features), (n_features, n_samples))


def _columns(shape: Shape, n_features: int) -> int:
    """Columns of d numbers: (1, d, k) has k; what has no axis of length d has none."""
    return shape[-1] if len(shape) >= 3 and shape[-2] == n_features else 0
