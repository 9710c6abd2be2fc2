"""Totals of an audit file, per run: what was sent to which site, and which shapes of messages could reveal data."""

import math
import os
from dataclasses import dataclass, field
from typing import Any

from eigenmesh.errors import UnreadableFileError
from eigenmesh.sites._audit_lines import DATA, NO_LINE, ROTATED, START, hash_of, parse_line, read_lines

# The first message to a neighbour. It is recorded before the site knows whether the neighbour is there.
CALL = "HELLO"
# Most shapes that are listed; a run has about a dozen.
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
class RunSummary:
    """Totals of one run, over all its starts with the same data.

    ``unanswered`` counts calls to a neighbour that was not there: the next message to it was another call. They are in
    no other count. ``partition`` is "features" where all sites have the same samples. ``data`` counts DATA messages
    that were sent for the first time, which is how a run counts its traffic; ``again`` counts repeated ones;
    ``by_epoch`` counts both, per epoch of membership. ``covariance_shaped``, ``sample_shaped`` and, where columns are
    split, ``loading_shaped`` count DATA messages with an array of that shape; ``example`` is the first such message.
    """

    site: str = ""
    run: str = ""
    n_features: int = 0
    n_samples: int = 0
    privacy: str = "open"
    partition: str = "samples"
    starts: int = 0
    first: str = ""
    last: str = ""
    total: Count = field(default_factory=Count)
    unanswered: Count = field(default_factory=Count)
    data: Count = field(default_factory=Count)
    again: Count = field(default_factory=Count)
    by_neighbour: dict[str, Count] = field(default_factory=dict)
    by_kind: dict[str, Count] = field(default_factory=dict)
    by_epoch: dict[int, Count] = field(default_factory=dict)
    shapes: dict[str, int] = field(default_factory=dict)
    largest: dict[str, Any] | None = None
    covariance_shaped: int = 0
    sample_shaped: int = 0
    loading_shaped: int = 0
    example: dict[str, Any] | None = None

    @property
    def facts(self) -> tuple[str | int, ...]:
        """Values that are equal in all starts of one run."""
        return self.site, self.run, self.n_features, self.n_samples, self.privacy, self.partition

    @property
    def masked(self) -> bool:
        return self.privacy == "masked"

    @property
    def by_columns(self) -> bool:
        """Whether each site has its own columns of the same samples."""
        return self.partition == "features"

    @property
    def length(self) -> int:
        """Length of a vector that sites send: d, or N - 1 where columns are split."""
        return self.n_samples - 1 if self.by_columns else self.n_features

    @property
    def pooled_columns(self) -> int:
        """Upper bound on the columns of products with the pooled covariance that all sites of a masked run know.

        For each sum a site sends its own part to one neighbour, or as the root it sends the sum to all neighbours. So
        the neighbour that was sent the most columns gives a bound.
        """
        return max((count.columns for count in self.by_neighbour.values()), default=0)

    @property
    def enough_columns(self) -> int:
        """Number of columns of B that are enough for the products C B to determine the covariance C.

        N_i columns are enough, because the rank of C is at most N_i. Otherwise n columns leave (d - n)(d - n + 1) / 2
        unknowns, and the diagonal of C, sent before the run, gives d equations for them. Where columns are split, C is
        the Gram matrix of this site's columns: their number bounds its rank, and its diagonal is not sent.
        """
        if self.by_columns:
            return max(1, min(self.length, self.n_features))
        unseen = (math.isqrt(8 * self.n_features + 1) - 1) // 2
        return max(1, min(self.n_features - unseen, self.n_samples))

    def _add(self, entry: dict[str, Any]) -> None:
        shapes = [tuple(shape) for shape in entry["shapes"]]
        # An array (1, d, k) has k columns of d numbers.
        columns = sum(shape[-1] for shape in shapes if len(shape) >= 3 and shape[-2] == self.length)
        self.total.add(entry)
        self.by_neighbour.setdefault(entry["to"], Count()).add(entry, 0 if entry["again"] else columns)
        self.by_kind.setdefault(entry["kind"], Count()).add(entry)
        if self.largest is None or entry["bytes"] > self.largest["bytes"]:
            self.largest = entry
        if entry["kind"] == DATA:
            (self.again if entry["again"] else self.data).add(entry, columns)
            self.by_epoch.setdefault(entry["epoch"], Count()).add(entry, columns)
            self._add_shapes(entry, shapes)

    def _add_shapes(self, entry: dict[str, Any], shapes: list[Shape]) -> None:
        dtypes = [str(dtype) for dtype in entry.get("dtypes", ())]
        for shape, dtype in zip(shapes, dtypes, strict=False):
            name = f"{' x '.join(map(str, shape)) or 'a number'} {dtype}"
            if name in self.shapes or len(self.shapes) < MAX_SHAPES:
                self.shapes[name] = self.shapes.get(name, 0) + 1
        covariance = any(is_covariance_shaped(shape, self.length) for shape in shapes)
        samples = any(is_sample_shaped(shape, self.n_samples, self.n_features) for shape in shapes)
        loadings = self.by_columns and any(self.n_features in shape for shape in shapes)
        self.covariance_shaped += covariance
        self.sample_shaped += samples
        self.loading_shaped += loadings
        if self.example is None and (covariance or samples or loadings):
            self.example = entry


@dataclass
class Chain:
    """Checks that each line holds the hash of the line before it.

    ``broken`` has the numbers of lines with another hash. ``unlinked`` counts complete lines without a hash at the
    start of the file, which an earlier version wrote. ``head`` is the hash of the last line: somebody who has a copy of
    it can tell later whether lines were cut off the end. ``follows`` is the file that this one continues, and ``after``
    the hash of its last line; both are empty if there is none.
    """

    lines: int = 0
    unlinked: int = 0
    follows: str = ""
    after: str = ""
    broken: list[int] = field(default_factory=list)
    head: str = NO_LINE

    def _add(self, line: bytes, entry: dict[str, Any] | None) -> None:
        self.lines += 1
        if entry is not None and entry["kind"] == ROTATED and self.lines == 1:
            self.follows, self.after = entry["file"], str(entry.get("before"))
            self.head = self.after
        # A crash may leave a line that cannot be parsed. The hash in the next line covers it.
        if entry is not None and "before" not in entry and self.unlinked == self.lines - 1:
            self.unlinked += 1
        elif entry is not None and entry.get("before") != self.head:
            self.broken.append(self.lines)
        self.head = hash_of(line)


@dataclass
class AuditSummary:
    """The runs of an audit file; ``damaged`` has the numbers of the lines that could not be parsed."""

    runs: list[RunSummary] = field(default_factory=list)
    damaged: list[int] = field(default_factory=list)
    chain: Chain = field(default_factory=Chain)

    def __post_init__(self) -> None:
        # The last call to each neighbour; the next message to it shows whether the call was answered.
        self._calls: dict[str, dict[str, Any]] = {}

    def _add(self, entry: dict[str, Any]) -> None:
        if entry["kind"] == START:
            self._start(entry)
        if entry["kind"] in (START, ROTATED):
            return
        if not self.runs:
            self.runs.append(RunSummary(first=entry["at"]))
        run, to = self.runs[-1], entry["to"]
        run.last = entry["at"]
        called = self._calls.pop(to, None)
        if called is not None and entry["kind"] == CALL:
            run.unanswered.add(called)
        elif called is not None:
            run._add(called)
        if entry["kind"] == CALL:
            self._calls[to] = entry
        else:
            run._add(entry)

    def _start(self, entry: dict[str, Any]) -> None:
        """Continue the last run if it has this name and these data; otherwise begin another."""
        self._count_open_calls()
        names = str(entry.get("site", "")), str(entry.get("run", ""))
        modes = str(entry.get("privacy", "open")), str(entry.get("partition", "samples"))
        begun = RunSummary(*names, entry["n_features"], entry["n_samples"], *modes, first=entry["at"])
        last = self.runs[-1] if self.runs else None
        if last is None or last.facts != begun.facts:
            last = begun
            self.runs.append(last)
        last.starts += 1
        last.last = entry["at"]

    def _count_open_calls(self) -> None:
        """Calls after which no message followed count as unanswered."""
        for called in self._calls.values():
            self.runs[-1].unanswered.add(called)
        self._calls.clear()


def summary(path: str | os.PathLike[str]) -> AuditSummary:
    found = AuditSummary()
    for number, line in enumerate(read_lines(path), start=1):
        entry = parse_line(line)
        found.chain._add(line, entry)
        if entry is None:
            found.damaged.append(number)
        else:
            found._add(entry)
    if not any(run.starts for run in found.runs):
        raise UnreadableFileError(f"{path} is not an audit file; give the audit.jsonl of a site's out folder.")
    found._count_open_calls()
    return found


def is_covariance_shaped(shape: Shape, n_features: int) -> bool:
    """Whether an array contains a (d, d) matrix, or has an axis as long as such a matrix or its triangle."""
    half = n_features * (n_features + 1) // 2
    whole = len(shape) >= 2 and shape[-1] == shape[-2] == n_features
    return n_features > 1 and (whole or any(size in (half, n_features**2) for size in shape))


def is_sample_shaped(shape: Shape, n_samples: int, n_features: int) -> bool:
    """Whether an array contains a matrix as large as the site's data, (N_i, d) or transposed."""
    return len(shape) >= 2 and shape[-2:] in ((n_samples, n_features), (n_features, n_samples))
