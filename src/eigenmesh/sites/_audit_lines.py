"""Reads and parses the lines of an audit file."""

from __future__ import annotations

import datetime as dt
import hashlib
import json
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from eigenmesh.errors import UnreadableFileError

START, DATA, ROTATED = "START", "DATA", "ROTATED"
# In the first line, in the place of the hash of a line before it.
NO_LINE = "0" * 64
# A line has a few hundred bytes; a longer one was not written by eigenmesh.
MAX_LINE_BYTES = 1 << 20


def hash_of(line: bytes) -> str:
    """The hash of a line (without its newline) that goes into the next line; NO_LINE if the line is empty."""
    return hashlib.sha256(line).hexdigest() if line else NO_LINE


def last_line(path: Path) -> bytes:
    """The last line that is not empty, complete or cut off, without its newline; empty if there is none."""
    if not path.exists():
        return b""
    with path.open("rb") as file:
        file.seek(max(0, file.seek(0, os.SEEK_END) - MAX_LINE_BYTES))
        lines = [line for line in file.read(MAX_LINE_BYTES).split(b"\n") if line.strip()]
    return lines[-1] if lines else b""


def read_lines(path: str | os.PathLike[str]) -> Iterator[bytes]:
    """The lines of an audit file that are not empty, one at a time, without their newlines."""
    try:
        with Path(path).open("rb") as file:
            while line := file.readline(MAX_LINE_BYTES):
                if line.strip():
                    yield line.removesuffix(b"\n")
    except OSError as error:
        raise UnreadableFileError(f"{path} cannot be read: {error.strerror}; give a site's audit.jsonl.") from error


def read_audit(path: str | os.PathLike[str]) -> Iterator[dict[str, Any] | None]:
    """The entries of an audit file, one at a time; None for a damaged line."""
    return map(parse_line, read_lines(path))


def parse_line(line: bytes) -> dict[str, Any] | None:
    """An entry, or None if it is not JSON or lacks a field of its kind."""
    try:
        entry = json.loads(line)
        dt.datetime.fromisoformat(entry["at"])
        if entry["kind"] == ROTATED:
            valid = isinstance(entry["file"], str) and isinstance(entry["deleted"], list)
        elif entry["kind"] == START:
            valid = all(isinstance(entry[key], int) for key in ("n_features", "n_samples"))
        else:
            numbers = [entry[key] for key in ("bytes", "frame_bytes", "round", "epoch", "again")]
            numbers += [size for shape in entry["shapes"] for size in shape]
            valid = all(isinstance(number, int) for number in numbers) and len(entry["sha256"]) == 64
            valid = valid and isinstance(entry["to"], str) and isinstance(entry["kind"], str)
    except (ValueError, KeyError, TypeError, RecursionError):
        return None
    return entry if valid else None
