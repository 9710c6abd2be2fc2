"""The files that a fit leaves: checked before the work, written whole after it."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from eigenmesh._atomic_write import require_writable, save_json
from eigenmesh.cli._rank_files import has_rank, may_be_the_same, with_rank
from eigenmesh.errors import InputError
from eigenmesh.model_file import Model, write_model
from eigenmesh.report import require_picture

STANDARD_OUTPUT = "-"


@dataclass(frozen=True)
class Outputs:
    """Where to write the model, numbers, the picture and the events; None where not asked for."""

    model: Path | None
    numbers: str | None
    picture: Path | None
    events: Path | None

    @classmethod
    def checked(
        cls, model: Path | None, numbers: str | None, picture: Path | None, events: Path | None, inputs: Sequence[str]
    ) -> Outputs:
        """Raise now if any of them could not be written later, or would overwrite another or an input."""
        if model is not None and model.suffix.lower() != ".npz":
            raise InputError(f"--out {model} must end in .npz, the kind of file it is.")
        numbers_file = None if numbers in (None, STANDARD_OUTPUT) else Path(str(numbers))
        taken = {str(Path(name).resolve()): "an input" for name in inputs}
        for path in (model, numbers_file, picture, events):
            if path is None:
                continue
            for other, what in taken.items():
                if may_be_the_same(str(path.resolve()), other):
                    raise InputError(f"{path} is {what} already; choose another name.")
            taken[str(path.resolve())] = "an output"
            require_writable(path)
        if picture is not None:
            require_picture(picture)
        return cls(model, numbers, picture, events)

    def of_rank(self, rank: int) -> Outputs:
        """What one node of many writes: its own files where their names have {rank}; else node 0 alone writes."""

        def own(path: Any) -> Any:
            if path is None or not (has_rank(str(path)) or rank == 0):
                return None
            return type(path)(with_rank(str(path), rank))

        return Outputs(own(self.model), own(self.numbers), own(self.picture), own(self.events))

    def write(self, model: Model, numbers: dict[str, Any]) -> list[Path]:
        """Write the model and the numbers, and give the paths of what was written."""
        written = []
        if self.model is not None:
            write_model(self.model, model)
            written.append(self.model)
        if self.numbers == STANDARD_OUTPUT:
            print(json.dumps(numbers, indent=2, allow_nan=False))
        elif self.numbers is not None:
            save_json(self.numbers, numbers)
            written.append(Path(self.numbers))
        return written
