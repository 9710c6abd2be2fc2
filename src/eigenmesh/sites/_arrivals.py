"""Samples that arrive at a site: what a folder, a file that grows and standard input have in common."""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
from scipy import sparse

from eigenmesh.data import read_table
from eigenmesh.data._columns import aligned
from eigenmesh.data._source import Samples
from eigenmesh.data._summaries import first_not_finite, stored
from eigenmesh.data._table_options import column_label
from eigenmesh.errors import DataError
from eigenmesh.sites._ledger import CountedFile
from eigenmesh.sites._site import DataFile, read_samples


@dataclass
class Arrivals(ABC):
    """Samples in a place, and how they are read. ``columns`` are the number and the names of the first ones'."""

    place: Path
    data: DataFile
    missing: str = "error"
    columns: tuple[int, tuple[str, ...] | None] | None = None

    @abstractmethod
    def new(self, counted: tuple[CountedFile, ...], batch: int) -> tuple[CountedFile, ...]:
        """What was not counted yet, for this batch; raises if something that was counted has changed."""

    @abstractmethod
    def load(self, counted: tuple[CountedFile, ...]) -> None:
        """Read what was counted; raises if it is not there as it was."""

    @abstractmethod
    def stacked(self, counted: tuple[CountedFile, ...]) -> Samples:
        """The rows of what was counted, in this order."""

    def _checked(self, path: Path, plain: bool = False) -> Samples:
        """The rows of a file, with the columns of the first; raises for one that is missing or not finite.

        plain: the options of the site are not for this file.
        """
        source = (read_table(path) if plain else read_samples(replace(self.data, file=path))).source
        columns = self.columns or (int(source.shape[1]), source.feature_names)
        source = aligned(source, *columns, str(path), "what came first")
        rows = source.read(slice(0, source.shape[0]))
        if self.missing == "error" and not np.isfinite(stored(rows)).all():
            row, column, value = first_not_finite(rows)
            at = f"{path}: row {row}, {column_label(columns[1], column)}"
            raise DataError(f'{at} is {value}; take the row out, or set missing = "mean". Nothing of it was counted.')
        self.columns = columns
        return rows if sparse.issparse(rows) else np.array(rows)
