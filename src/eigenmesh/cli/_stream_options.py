"""The options of ``eigenmesh fit --stream``."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Annotated, Any

from eigenmesh.cli._options import STREAM, option, takes_options
from eigenmesh.errors import InputError

STREAM_HELP = (
    "Batch by batch: the files of a folder in the order of their names (several folders: one per node), or a file in "
    "pieces. After each batch the components are those of all samples so far."
)
OPTIONS: dict[str, Any] = {
    "stream": Annotated[bool | None, option(STREAM, None, STREAM_HELP, "--stream")],
    "batch_rows": Annotated[int | None, option(STREAM, "N", "Rows of a file per batch; 1,000 if absent.", min=1)],
    "sketch": Annotated[
        int | None, option(STREAM, "ROWS", "Keep a sketch of so many rows per node: not exact, not certified.", min=1)
    ],
    "averages_per_batch": Annotated[
        int | None, option(STREAM, "N", "Budget, 2 or more; as many as --tol needs if absent.", min=2)
    ],
    "forgetting": Annotated[
        float | None, option(STREAM, "SHARE", "What a sample still counts after one more batch; 1 if absent.")
    ],
    "window": Annotated[int | None, option(STREAM, "N", "Only the last N batches count.", min=1)],
    "store": Annotated[
        Path | None, option(STREAM, "FOLDER", "Keep rows in files there instead of d x d moments in memory.")
    ],
}


@dataclass(frozen=True)
class StreamOptions:
    """What was asked of a stream; None where nothing was."""

    batch_rows: int | None
    sketch: int | None
    averages_per_batch: int | None
    forgetting: float | None
    window: int | None
    store: Path | None

    @property
    def of_the_estimator(self) -> dict[str, Any]:
        """Those that ``DecentralizedPCA`` knows by the same name."""
        asked = {name: value for name, value in vars(self).items() if value is not None}
        return {name: value for name, value in asked.items() if name != "batch_rows"}


def takes_stream(command: Callable[..., None]) -> Callable[..., None]:
    """Give a command these options in the place of its parameter ``batches``: StreamOptions, or None for no stream."""
    return takes_options("batches", OPTIONS, _read)(command)


def _read(*, stream: bool | None, **values: Any) -> StreamOptions | None:
    if stream:
        return StreamOptions(**values)
    for field in fields(StreamOptions):
        if values[field.name] is not None:
            raise InputError(f"--{field.name.replace('_', '-')} goes with --stream; add it, or leave this out.")
    return None
