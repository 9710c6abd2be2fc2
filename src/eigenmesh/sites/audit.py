"""The audit file: one JSON line per message, written before the message leaves the site.

A line of kind START begins a run, or continues one after a restart. It holds the shape of the site's data, so that a
reader can later compare the shapes of messages with it. All other lines are messages. Each line holds the SHA-256 of
the line before it, in ``before``: a line that is changed, removed or inserted later breaks this chain.

When a run ends, or is parked, the last line is of kind SIGNED: the site's key has signed the hash of the line before
it, so a file that ends there was not written by somebody else.

A file that has become too large is renamed. The next file begins with a line of kind ROTATED: the new name of the old
file, its size, and the names of still older files that were deleted. The chain continues across files.
"""

from __future__ import annotations

import datetime as dt
import errno
import hashlib
import json
import logging
import math
import os
import threading
from collections.abc import Iterator
from contextlib import ExitStack, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self

from eigenmesh.atomic_write import lock, sync_folder
from eigenmesh.errors import UnreadableFileError, file_errors, import_extra
from eigenmesh.events import is_torn
from eigenmesh.fitting import words_of_sum

if TYPE_CHECKING:
    from eigenmesh.protocol.effects import Sent
    from eigenmesh.transports.tls import CertificateKeyring


# Reads and parses the lines of an audit file.


START, DATA, ROTATED, SIGNED = "START", "DATA", "ROTATED", "SIGNED"
# What the line that starts a run says of it, the same in all starts of one run.
FACTS: dict[str, type] = {
    "site": str,
    "run": str,
    "n_features": int,
    "n_samples": int,
    "privacy": str,
    "partition": str,
}
# Fields of the lines of each kind, with their types; all other kinds are messages.
FIELDS: dict[str, dict[str, type]] = {
    START: FACTS,
    ROTATED: {"file": str, "deleted": list},
    SIGNED: {"public_key": str, "signature": str, "before": str},
}
MESSAGE = {"to": str, "sha256": str, **dict.fromkeys(("bytes", "frame_bytes", "round", "epoch", "again"), int)}
# In the first line, in the place of the hash of a line before it.
NO_LINE = "0" * 64
# A line has a few hundred bytes; a longer one was not written by eigenmesh.
MAX_LINE_BYTES = 1 << 20


def hash_of(line: bytes) -> str:
    """The hash of a line (without its newline) that goes into the next line. NO_LINE if the line is empty."""
    return hashlib.sha256(line).hexdigest() if line else NO_LINE


def last_line(path: Path) -> bytes:
    """The last line that is not empty, complete or cut off, without its newline. Empty if there is none."""
    if not path.exists():
        return b""
    with path.open("rb") as file:
        file.seek(max(0, file.seek(0, os.SEEK_END) - MAX_LINE_BYTES))
        lines = [line for line in file.read(MAX_LINE_BYTES).split(b"\n") if line.strip()]
    return lines[-1] if lines else b""


def read_lines(path: str | os.PathLike[str]) -> Iterator[bytes]:
    """The lines of an audit file that are not empty, one at a time, without their newlines."""
    with file_errors(f"{path} cannot be read", "give a site's audit.jsonl"), Path(path).open("rb") as file:
        while line := file.readline(MAX_LINE_BYTES):
            if line.strip():
                yield line.removesuffix(b"\n")


def read_audit(path: str | os.PathLike[str]) -> Iterator[dict[str, Any] | None]:
    """The entries of an audit file, one at a time. None for a damaged line."""
    return map(parse_line, read_lines(path))


def parse_line(line: bytes) -> dict[str, Any] | None:
    """An entry, or None if it is not JSON or lacks a field of its kind."""
    try:
        entry = json.loads(line)
        dt.datetime.fromisoformat(entry["at"])
        fields = FIELDS.get(entry["kind"], MESSAGE)
        valid = all(isinstance(entry[name], kind) for name, kind in fields.items())
        if fields is MESSAGE:
            valid = valid and all(isinstance(size, int) for shape in entry["shapes"] for size in shape)
    except (ValueError, KeyError, TypeError, RecursionError):
        return None
    return entry if valid else None


logger = logging.getLogger(__name__)

# Full files that are kept, in addition to the file being written.
KEPT_FILES = 9


class AuditWriter:
    """Appends lines without a buffer.

    When ``record`` returns, the operating system has the line. ``sync`` flushes all lines so far to the disk, so that
    messages need not wait for it. After the first line that cannot be written, every call of ``record`` raises
    UnreadableFileError.

    Parameters
    ----------
    path : Path
        The file. It continues if it exists.
    site, run : str
        Names of the site and of the run, for the line that starts it.
    n_features, n_samples : int
        The shape of the site's data.
    privacy, partition : str
        The settings of the run with these names.
    max_bytes : int, optional
        A new file begins after that many bytes.
    keyring : CertificateKeyring, optional
        Signs the last line.
    """

    def __init__(
        self,
        path: Path,
        site: str,
        run: str,
        n_features: int,
        n_samples: int,
        privacy: str = "open",
        partition: str = "samples",
        max_bytes: int | None = None,
        keyring: CertificateKeyring | None = None,
    ) -> None:
        self._keyring: CertificateKeyring | None = None
        self.path, self.failure, self._max_bytes = path, "", max_bytes
        self._file = -1
        self._size = self.messages = 0
        self._lock, self._unsynced = threading.Lock(), False
        facts = site, run, n_features, n_samples, privacy, partition
        self._start = {"kind": START, **dict(zip(FACTS, facts, strict=True)), "pid": os.getpid()}
        with ExitStack() as undo:
            undo.callback(self.close)
            with file_errors(f"cannot write {path}", "choose another out.folder"):
                path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
                torn, rotated = is_torn(path), self._open()
            if torn:
                self._write(b"\n")
            self._append(*rotated, self._start)
            undo.pop_all()
        self._keyring = keyring

    def record(self, sent: Sent) -> None:
        """Write the line of a message; in a new file, if this one is full then."""
        facts = {"to" if name == "neighbour" else name: value for name, value in sent._asdict().items()}
        with self._lock:
            self._append(facts)
            self.messages += 1
            if self._max_bytes is not None and self._size >= self._max_bytes:
                try:
                    self._rotate()
                except (OSError, ValueError) as error:
                    raise self._failed(getattr(error, "strerror", None) or str(error)) from error

    def close(self) -> None:
        """Sign the last line, flush to the disk and close. May be called more than once."""
        if self._file >= 0:
            if self._keyring is not None and not self.failure:
                with suppress(UnreadableFileError), self._lock:
                    signature = self._keyring.sign(_signed_bytes(self._before))
                    self._append({"kind": SIGNED, "public_key": self._keyring.public_key, "signature": signature})
            self.sync()
        with self._lock:
            if self._file >= 0:
                os.close(self._file)
                self._file = -1

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _open(self) -> list[dict[str, Any]]:
        """Open the file for appending. If it continues another file, return the entry that it must begin with."""
        flags = os.O_WRONLY | os.O_APPEND | os.O_CREAT | getattr(os, "O_BINARY", 0)
        self._file = os.open(self.path, flags, 0o600)
        # Lines written by two processes at once would break the chain.
        lock(self._file, self.path)
        self._size, older = os.fstat(self._file).st_size, self._older()
        # A crash right after the file was made leaves it empty: it still continues the newest full file.
        last = self.path if self._size or not older else older[-1]
        self._before = hash_of(last_line(last))
        if last == self.path:
            return []
        dropped = older[:-KEPT_FILES]
        for path in dropped:
            path.unlink()
        facts = {"file": last.name, "file_bytes": last.stat().st_size, "deleted": [path.name for path in dropped]}
        return [{"kind": ROTATED, **facts}]

    def _older(self) -> list[Path]:
        return sorted(self.path.parent.glob(f"{self.path.stem}-*{self.path.suffix}"))

    def _rotate(self) -> None:
        """Rename the full file, and continue in a new one."""
        os.fsync(self._file)
        os.close(self._file)
        self._file = -1
        older = self._older()
        number = 1 + (int(older[-1].stem.rpartition("-")[2]) if older else 0)
        os.rename(self.path, self.path.with_stem(f"{self.path.stem}-{number:06d}"))
        sync_folder(self.path.parent)
        self._append(*self._open(), self._start)

    def _append(self, *entries: dict[str, Any]) -> None:
        for entry in entries:
            at = dt.datetime.now(dt.UTC).isoformat(timespec="microseconds")
            line = json.dumps({"at": at, **entry, "before": self._before}, separators=(",", ":")).encode()
            self._write(line + b"\n")
            self._before = hash_of(line)

    def _write(self, data: bytes) -> None:
        if self.failure or self._file < 0:
            raise self._failed("it is closed")
        try:
            # Stop after an incomplete line: a line written after it would be unreadable, too.
            if os.write(self._file, data) < len(data):
                raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        except OSError as error:
            raise self._failed(error.strerror or str(error)) from error
        self._size += len(data)
        self._unsynced = True

    def sync(self) -> None:
        """Flush to the disk what was written since the last call. Call it about every second."""
        if not self._unsynced:
            return
        self._unsynced = False
        try:
            with self._lock:
                # A duplicate, because rotation may close the file during the flush.
                file = os.dup(self._file)
            try:
                os.fsync(file)
            finally:
                os.close(file)
        except OSError as error:
            # EINVAL: the path is a device, which has nothing to flush.
            if error.errno != errno.EINVAL:
                self._failed(error.strerror or str(error))

    def _failed(self, reason: str) -> UnreadableFileError:
        """Keep the first reason why the file is incomplete. The error is without the path: other sites see it."""
        if not self.failure:
            self.failure = reason
            logger.error("the audit file %s is incomplete: %s", self.path, reason)
        return UnreadableFileError(f"the audit cannot be written: {self.failure}")


def _signed_bytes(before: str) -> bytes:
    """What the site's key signs: the hash of the line before."""
    return f"eigenmesh audit\n{before}".encode()


# Totals of an audit file, per run: what was sent to which site, and which shapes of messages could reveal data.


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

    ``partition`` is "features" where all sites have the same samples. ``data`` counts DATA messages that were sent for
    the first time, which is how a run counts its traffic. ``again`` counts repeated ones, ``by_epoch`` counts both, per
    epoch of membership. A call to a neighbour that was not there counts as a message of the kind HELLO.
    ``covariance_shaped``, ``sample_shaped`` and, where columns are split, ``loading_shaped`` count DATA messages with
    an array of that shape.
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
        self.covariance_shaped += any(is_covariance_shaped(shape, self.length) for shape in shapes)
        self.sample_shaped += any(is_sample_shaped(shape, self.n_samples, self.n_features) for shape in shapes)
        self.loading_shaped += self.by_columns and any(self.n_features in shape for shape in shapes)


@dataclass
class Chain:
    """Checks that each line holds the hash of the line before it.

    ``broken`` has the numbers of lines with another hash. ``head`` is the hash of the last line: somebody who has a
    copy of it can tell later whether lines were cut off the end. ``follows`` is the file that this one continues, and
    ``after`` the hash of its last line. Both are empty if there is none. ``signed_by`` is the fingerprint of the key
    that has signed the last line, if it is signed; lines whose signature is wrong count as broken.
    """

    lines: int = 0
    follows: str = ""
    after: str = ""
    broken: list[int] = field(default_factory=list)
    head: str = NO_LINE
    signed_by: str = ""

    def _add(self, line: bytes, entry: dict[str, Any] | None) -> None:
        self.lines += 1
        if entry is not None and entry["kind"] == ROTATED and self.lines == 1:
            self.follows, self.after = entry["file"], str(entry.get("before"))
            self.head = self.after
        # A crash may leave a line that cannot be parsed. The hash in the next line covers it.
        if entry is not None and entry.get("before") != self.head:
            self.broken.append(self.lines)
        self.signed_by = ""
        if entry is not None and entry["kind"] == SIGNED:
            self.signed_by = _signer_of(entry)
            if not self.signed_by and self.lines not in self.broken:
                self.broken.append(self.lines)
        self.head = hash_of(line)


def _signer_of(entry: dict[str, Any]) -> str:
    """The fingerprint of the key that has signed a line, or nothing if it has not."""
    import_extra("cryptography", "peers", "checking the signature of an audit")
    from eigenmesh.transports.tls.keyring import fingerprint_of_public_key, is_signed_by_pinned

    public_key, signature = entry["public_key"], entry["signature"]
    fingerprint = fingerprint_of_public_key(public_key)
    is_signed = is_signed_by_pinned(fingerprint, public_key, _signed_bytes(entry["before"]), signature)
    return fingerprint if is_signed else ""


@dataclass
class AuditSummary:
    """The runs of an audit file. ``damaged`` has the numbers of the lines that could not be parsed."""

    runs: list[RunSummary] = field(default_factory=list)
    damaged: list[int] = field(default_factory=list)
    chain: Chain = field(default_factory=Chain)

    def _add(self, entry: dict[str, Any]) -> None:
        if entry["kind"] == START:
            self._start(entry)
        elif entry["kind"] not in (ROTATED, SIGNED):
            if not self.runs:
                self.runs.append(RunSummary(first=entry["at"]))
            self.runs[-1].last = entry["at"]
            self.runs[-1]._add(entry)

    def _start(self, entry: dict[str, Any]) -> None:
        """Continue the last run if it has this name and these data. Otherwise begin another."""
        facts = {name: entry[name] for name in FACTS}
        if not self.runs or facts != {name: getattr(self.runs[-1], name) for name in FACTS}:
            self.runs.append(RunSummary(**facts, first=entry["at"]))
        self.runs[-1].starts += 1
        self.runs[-1].last = entry["at"]


def summary(path: str | os.PathLike[str]) -> AuditSummary:
    """Read and check an audit file."""
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
    return found


def is_covariance_shaped(shape: Shape, n_features: int) -> bool:
    """Whether an array contains a (d, d) matrix, or has an axis as long as such a matrix, its triangle or one sum."""
    sizes = n_features * (n_features + 1) // 2, n_features**2, words_of_sum(n_features)
    whole = len(shape) >= 2 and shape[-1] == shape[-2] == n_features
    return n_features > 1 and (whole or any(size in sizes for size in shape))


def is_sample_shaped(shape: Shape, n_samples: int, n_features: int) -> bool:
    """Whether an array contains a matrix as large as the site's data, (N_i, d) or transposed."""
    return len(shape) >= 2 and shape[-2:] in ((n_samples, n_features), (n_features, n_samples))
