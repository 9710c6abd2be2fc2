"""Samples of a file or a data set, with labels and a name."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

import numpy as np

from eigenmesh.data._block import Block
from eigenmesh.data._source import Samples, Source, as_source
from eigenmesh.errors import DataError


@dataclass(frozen=True, eq=False)
class Unread:
    """A file that is read only when rows are taken from it."""

    n_samples: int
    take: Callable[[slice], Table]


@dataclass(frozen=True, eq=False)
class Table:
    """Samples (N, d) with labels (N,) and the name of the file or data set."""

    source: Source
    labels: np.ndarray | None = None
    name: str = ""

    @property
    def X(self) -> Samples:
        """All samples (n_samples, n_features), dense or CSR. A mapped file stays mapped; others are read whole."""
        return self.source.read(slice(0, self.n_samples))

    @property
    def n_samples(self) -> int:
        return int(self.source.shape[0])

    @property
    def feature_names(self) -> tuple[str, ...] | None:
        return self.source.feature_names

    def take(self, rows: slice) -> Table:
        """Only these rows; if the source is not in memory, they are read later."""
        if rows == slice(0, self.n_samples):
            return self
        if self.source.in_memory:
            source = as_source(self.source.read(rows), feature_names=self.feature_names)
        else:
            source = Block(self.source, rows)
        return replace(self, source=source, labels=None if self.labels is None else self.labels[rows])


def require_columns(source: Source, n_features: int, names: tuple[str, ...] | None, where: str, by: str) -> None:
    """Raise unless a source has the columns of ``by``: the same number and, if both have names, the same order."""
    found = source.feature_names
    for column, (ours, theirs) in enumerate(zip(found or (), names or (), strict=False)):
        if ours != theirs:
            fix = "order" if theirs in (found or ()) else "columns"
            raise DataError(f"column {column} of {where} is {ours!r}, but {by} has {theirs!r} there; use its {fix}.")
    if source.shape[1] != n_features:
        raise DataError(f"{where} has {source.shape[1]} columns, but {by} has {n_features}; make them equal.")
