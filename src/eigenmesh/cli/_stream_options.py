"""The options of ``eigenmesh fit --stream``."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Annotated, Any

from eigenmesh.cli._options import STREAM, option, takes_options
from eigenmesh.errors import InputError

STREAM_HELP = (
    "Read the data batch by batch: the files of a folder in the order of their names (several folders: one per node), "
    "or runs of rows of a file. After each batch the components are those of all samples so far."
)
OPTIONS: dict[str, Any] = {
    "stream": Annotated[bool | None, option(STREAM, None, STREAM_HELP, "--stream")],
    "batch_rows": Annotated[int | None, option(STREAM, "N", "Rows of a file per batch; 1,000 by default.", min=1)],
    "averages_per_batch": Annotated[
        int | None, option(STREAM, "N", "Budget, at least 2; by default as many as --tol needs.", min=2)
    ],
    "forgetting": Annotated[
        float | None, option(STREAM, "SHARE", "Factor on the weight of a sample per later batch; 1 by default.")
    ],
    "window": Annotated[int | None, option(STREAM, "N", "Only the last N batches count.", min=1)],
    "store": Annotated[
        Path | None, option(STREAM, "FOLDER", "Keep rows in files there instead of d x d moments in memory.")
    ],
}


@dataclass(frozen=True)
class StreamOptions:
    """Options of a stream; None where an option was not given."""

    batch_rows: int | None
    averages_per_batch: int | None
    forgetting: float | None
    window: int | None
    store: Path | None

    @property
    def of_the_estimator(self) -> dict[str, Any]:
        """The given options that are parameters of ``StreamingPCA``, under the same names."""
        asked = {name: value for name, value in vars(self).items() if value is not None}
        return {name: value for name, value in asked.items() if name != "batch_rows"}


def takes_stream(command: Callable[..., None]) -> Callable[..., None]:
    """Replace the parameter ``batches`` of a command by these options; it gets StreamOptions, or None for no stream."""
    return takes_options("batches", OPTIONS, _read)(command)


def _read(*, stream: bool | None, **values: Any) -> StreamOptions | None:
    if stream:
        return StreamOptions(**values)
    for field in fields(StreamOptions):
        if values[field.name] is not None:
            raise InputError(f"--{field.name.replace('_', '-')} needs --stream; add --stream, or leave it out.")
    return None
