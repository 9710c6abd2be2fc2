"""The files that a fit leaves: checked before the work, written whole after it."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from eigenmesh._atomic_write import require_writable, save_arrays, save_json
from eigenmesh.cli._rank_files import has_rank, may_be_the_same, with_rank
from eigenmesh.errors import InputError
from eigenmesh.report import require_picture

STANDARD_OUTPUT = "-"


@dataclass(frozen=True)
class Outputs:
    """Where to write arrays, numbers and the picture; None where not asked for."""

    arrays: Path | None
    numbers: str | None
    picture: Path | None

    @classmethod
    def checked(cls, arrays: Path | None, numbers: str | None, picture: Path | None, inputs: Sequence[str]) -> Outputs:
        """Raise now if any of them could not be written later, or would overwrite another or an input."""
        if arrays is not None and arrays.suffix.lower() != ".npz":
            raise InputError(f"--out {arrays} must end in .npz, the kind of file it is.")
        numbers_file = None if numbers in (None, STANDARD_OUTPUT) else Path(str(numbers))
        taken = {str(Path(name).resolve()): "an input" for name in inputs}
        for path in (arrays, numbers_file, picture):
            if path is None:
                continue
            for other, what in taken.items():
                if may_be_the_same(str(path.resolve()), other):
                    raise InputError(f"{path} is {what} already; choose another name.")
            taken[str(path.resolve())] = "an output"
            require_writable(path)
        if picture is not None:
            require_picture(picture)
        return cls(arrays, numbers, picture)

    def of_rank(self, rank: int) -> Outputs:
        """What one node of many writes: its own files where their names have {rank}; else node 0 alone writes."""

        def own(path: Any) -> Any:
            if path is None or not (has_rank(str(path)) or rank == 0):
                return None
            return type(path)(with_rank(str(path), rank))

        return Outputs(own(self.arrays), own(self.numbers), own(self.picture))

    def write(self, arrays: dict[str, np.ndarray], numbers: dict[str, Any]) -> list[Path]:
        """Write arrays and numbers, and give the paths of what was written."""
        written = []
        if self.arrays is not None:
            save_arrays(self.arrays, arrays)
            written.append(self.arrays)
        if self.numbers == STANDARD_OUTPUT:
            print(json.dumps(numbers, indent=2, allow_nan=False))
        elif self.numbers is not None:
            save_json(self.numbers, numbers)
            written.append(Path(self.numbers))
        return written
