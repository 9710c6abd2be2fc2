"""Totals of an audit file: what was sent to whom, in which shapes, and whether a shape could reveal data."""

import math
import os
from dataclasses import dataclass, field
from typing import Any

from eigenmesh.errors import UnreadableFileError
from eigenmesh.sites._audit import START, read_audit

DATA = "DATA"
# Number of shapes that are listed; a run has about a dozen.
MAX_SHAPES = 200

Shape = tuple[int, ...]


@dataclass
class Count:
    """Messages, ``bytes`` of payload, ``frame_bytes`` with headers, and ``columns`` of d numbers in DATA messages."""

    messages: int = 0
    bytes: int = 0
    frame_bytes: int = 0
    columns: int = 0

    def add(self, entry: dict[str, Any], columns: int = 0) -> None:
        self.messages += 1
        self.bytes += entry["bytes"]
        self.frame_bytes += entry["frame_bytes"]
        self.columns += columns


@dataclass
class AuditSummary:
    """Totals of an audit file; ``damaged`` has the numbers of the lines that could not be read.

    ``data`` counts DATA messages sent for the first time, as a run counts its traffic, and ``again`` repeated ones.
    ``covariance_shaped`` and ``sample_shaped`` count those with an array of such a shape; ``example`` is the first.
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
        """Number of known columns of B from which products C B determine the covariance C.

        N_i columns are enough, because they bound the rank of C. And n columns leave (d - n)(d - n + 1) / 2 unknowns,
        for which the diagonal of C, sent before the run, gives d equations.
        """
        unseen = (math.isqrt(8 * self.n_features + 1) - 1) // 2
        return max(1, min(self.n_features - unseen, self.n_samples))

    def _add(self, entry: dict[str, Any]) -> None:
        self.first = self.first or entry["at"]
        self.last = entry["at"]
        if entry["kind"] == START:
            self.starts += 1
            self.site, self.run = str(entry.get("site", "")), str(entry.get("run", ""))
            self.n_features, self.n_samples = entry["n_features"], entry["n_samples"]
            return
        shapes = [tuple(shape) for shape in entry["shapes"]]
        # An array (1, d, k) has k columns of d numbers.
        columns = sum(shape[-1] for shape in shapes if len(shape) >= 3 and shape[-2] == self.n_features)
        self.total.add(entry)
        self.by_neighbour.setdefault(entry["to"], Count()).add(entry, 0 if entry["again"] else columns)
        self.by_kind.setdefault(entry["kind"], Count()).add(entry)
        if self.largest is None or entry["bytes"] > self.largest["bytes"]:
            self.largest = entry
        if entry["kind"] == DATA:
            (self.again if entry["again"] else self.data).add(entry, columns)
            self._add_shapes(entry, shapes)

    def _add_shapes(self, entry: dict[str, Any], shapes: list[Shape]) -> None:
        dtypes = [str(dtype) for dtype in entry.get("dtypes", ())]
        for shape, dtype in zip(shapes, dtypes, strict=False):
            name = f"{' x '.join(map(str, shape)) or 'a number'} {dtype}"
            if name in self.shapes or len(self.shapes) < MAX_SHAPES:
                self.shapes[name] = self.shapes.get(name, 0) + 1
        covariance = any(is_covariance_shaped(shape, self.n_features) for shape in shapes)
        samples = any(is_sample_shaped(shape, self.n_samples, self.n_features) for shape in shapes)
        self.covariance_shaped += covariance
        self.sample_shaped += samples
        if self.example is None and (covariance or samples):
            self.example = entry


def summary(path: str | os.PathLike[str]) -> AuditSummary:
    found = AuditSummary()
    for number, entry in enumerate(read_audit(path), start=1):
        if entry is None:
            found.damaged.append(number)
        else:
            found._add(entry)
    if not found.starts:
        raise UnreadableFileError(f"{path} is not an audit file; give the audit.jsonl of a site's out folder.")
    return found


def is_covariance_shaped(shape: Shape, n_features: int) -> bool:
    """Whether an array contains a (d, d) matrix, or has an axis as long as such a matrix or its triangle."""
    half = n_features * (n_features + 1) // 2
    whole = len(shape) >= 2 and shape[-1] == shape[-2] == n_features
    return n_features > 1 and (whole or any(size in (half, n_features**2) for size in shape))


def is_sample_shaped(shape: Shape, n_samples: int, n_features: int) -> bool:
    """Whether an array contains a matrix as large as the site's data, (N_i, d) or transposed."""
    return len(shape) >= 2 and shape[-2:] in ((n_samples, n_features), (n_features, n_samples))
