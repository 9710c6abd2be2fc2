"""Output files of commands: checked before the work, written after it; names may contain {rank}, a node's number."""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from dataclasses import astuple, dataclass
from pathlib import Path
from typing import Any

import numpy as np

from eigenmesh._atomic_write import require_writable, save_json
from eigenmesh.data._files import expand
from eigenmesh.errors import InputError, UnreadableFileError
from eigenmesh.model_file import Model, write_model
from eigenmesh.report import require_picture
from eigenmesh.transports import Transport

STANDARD_OUTPUT = "-"
RANK = re.compile(r"\{rank(?::0(\d+)d)?\}")


def has_rank(text: str) -> bool:
    """Whether a name contains {rank}, or {rank:03d} with leading zeros."""
    return RANK.search(text) is not None


def with_rank(text: str, rank: int) -> str:
    return RANK.sub(lambda found: f"{rank:0{found.group(1) or 1}d}", text)


def is_one_table(data: Sequence[str]) -> bool:
    """Whether the data are one file or data set to split, rather than one file per node."""
    return len(data) == 1 and not has_rank(data[0]) and len(expand(data)) == 1


def files_of_all_nodes(data: Sequence[str], n_nodes: int | None) -> list[str]:
    """The files of all nodes: {rank} is filled in, and patterns such as site-*.csv are expanded."""
    if not has_rank(data[0]):
        return list(map(str, expand(data)))
    if n_nodes is None:
        raise InputError(f"{data[0]} names one file per node; give the number of nodes with --nodes.")
    return [with_rank(data[0], rank) for rank in range(n_nodes)]


def make_folder(folder: Path) -> Path:
    """Create the folder of --out and its parents; it may exist."""
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise UnreadableFileError(
            f"cannot create the folder {folder}: {error.strerror}; choose another --out."
        ) from error
    return folder


def require_report(path: Path) -> Path:
    """Raise before any work if a report cannot be written there later."""
    if path.suffix.lower() != ".html":
        raise InputError(f"--report {path} must end in .html.")
    return require_writable(path)


@dataclass(frozen=True)
class Outputs:
    """Where a fit writes the model, the numbers, the picture, the events and the report; None for no such file."""

    model: Path | None
    numbers: str | None
    picture: Path | None
    events: Path | None
    report: Path | None = None

    def check(self, inputs: Sequence[str]) -> None:
        """Raise now if any file could not be written later, or would overwrite another output or an input."""
        if self.model is not None and self.model.suffix.lower() != ".npz":
            raise InputError(f"--out {self.model} must end in .npz.")
        taken = {str(Path(name).resolve()): "an input" for name in inputs}
        for path in (Path(name) for name in astuple(self) if name not in (None, STANDARD_OUTPUT)):
            for other, what in taken.items():
                if _may_be_the_same(str(path.resolve()), other):
                    raise InputError(f"{path} is {what} already; choose another name.")
            taken[str(path.resolve())] = "an output"
            require_writable(path)
        if self.picture is not None:
            require_picture(self.picture)
        if self.report is not None:
            require_report(self.report)

    @property
    def has_rank(self) -> bool:
        return any(has_rank(str(name)) for name in astuple(self))

    def of_rank(self, rank: int) -> Outputs:
        """The files that one node writes: files with {rank} in their name, and at node 0 all others too."""
        own = [name if has_rank(str(name)) or rank == 0 else None for name in astuple(self)]
        return Outputs(*(None if name is None else type(name)(with_rank(str(name), rank)) for name in own))

    def write(self, model: Model, numbers: dict[str, Any]) -> list[Path]:
        """Write the files of the model and of the numbers; returns their paths."""
        written = []
        if self.model is not None:
            write_model(self.model, model)
            written.append(self.model)
        if self.numbers not in (None, STANDARD_OUTPUT):
            save_json(self.numbers, numbers)
            written.append(Path(self.numbers))
        return written

    def print(self, numbers: dict[str, Any]) -> None:
        """Print the numbers, if standard output is where they go; after all files are written."""
        if self.numbers == STANDARD_OUTPUT:
            print(json.dumps(numbers, indent=2, allow_nan=False))


def _may_be_the_same(one: str, other: str) -> bool:
    """Whether two names can mean the same file at some node."""
    patterns = [r"\d+".join(map(re.escape, RANK.sub("\0", name).split("\0"))) for name in (one, other)]
    plain = [RANK.sub("0", name) for name in (one, other)]
    return any(re.fullmatch(pattern, name) for pattern, name in zip(patterns, reversed(plain), strict=True))


def wait_until_all_have_written(transport: Transport | None) -> None:
    """Wait for all nodes: a launcher ends all of them when the first ends with a status that is not 0."""
    if transport is not None:
        transport.all_gather(np.zeros(1))
