"""Samples that keep arriving at a site: the base class for a folder, a growing file and standard input."""

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
    """A place where samples arrive, and how to read them.

    ``columns`` are the number and the names of the columns of the first samples; all later ones must match them.
    """

    place: Path
    data: DataFile
    missing: str = "error"
    columns: tuple[int, tuple[str, ...] | None] | None = None

    @abstractmethod
    def new(self, counted: tuple[CountedFile, ...], batch: int) -> tuple[CountedFile, ...]:
        """Files or lines that are in no batch yet, as entries for this batch; raises if a counted one has changed."""

    @abstractmethod
    def load(self, counted: tuple[CountedFile, ...]) -> None:
        """Read everything that was counted; raises if a file is missing or has changed since."""

    @abstractmethod
    def stacked(self, counted: tuple[CountedFile, ...]) -> Samples:
        """All rows that were counted, in this order."""

    def _checked(self, path: Path, plain: bool = False) -> Samples:
        """The rows of a file, with columns in the order of the first file; raises for missing columns or entries.

        plain: read the file without the site's table options.
        """
        source = (read_table(path) if plain else read_samples(replace(self.data, file=path))).source
        columns = self.columns or (int(source.shape[1]), source.feature_names)
        source = aligned(source, *columns, str(path), "the samples that came first")
        rows = source.read(slice(0, source.shape[0]))
        if self.missing == "error" and not np.isfinite(stored(rows)).all():
            row, column, value = first_not_finite(rows)
            at = f"{path}: row {row}, {column_label(columns[1], column)}"
            fix = 'remove the row, or set missing = "mean" at all sites'
            raise DataError(f"{at} is {value}; {fix}. No row of this file was counted.")
        self.columns = columns
        return rows if sparse.issparse(rows) else np.array(rows)
