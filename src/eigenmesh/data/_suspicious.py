"""Warnings about columns of a table that are probably not features."""

from __future__ import annotations

import re
from collections.abc import Iterator

import numpy as np

from eigenmesh.data._source import Source
from eigenmesh.data._table_options import listed_columns

# Rows to check, and the fewest that can show an order.
MOST_ROWS, FEWEST_ROWS = 10_000, 8
ID_NAME = re.compile(
    r"(^|[\W_])(id|ids|nr|no|key|uuid|guid|index|idx|row|rownames?|fnr|mrn)$|[a-z]I[Dd]$|^$|^Unnamed", re.IGNORECASE
)


def suspicious_columns(source: Source, where: str) -> Iterator[str]:
    """Sentences about columns that look like an id or an index; only for columns with names.

    An id has whole numbers, no two alike, and either its name says so or they only rise or only fall. What is not in
    memory is not read for this.
    """
    names, n_rows = source.feature_names, min(source.shape[0], MOST_ROWS)
    if names is None or n_rows < 2 or not source.in_memory or source.n_stored is not None:
        return
    head = np.asarray(source.read(slice(0, n_rows)), dtype=np.float64)
    steps = np.diff(head, axis=0)
    ordered = np.all(steps > 0, axis=0) | np.all(steps < 0, axis=0)
    whole = (head == np.floor(head)).all(axis=0)
    ids = []
    for column in np.flatnonzero(whole):
        rises = n_rows >= FEWEST_ROWS and bool(np.ravel(ordered)[column])
        called = ID_NAME.search(names[column]) is not None
        if (rises or called) and len(np.unique(head[:, column])) == n_rows:
            ids.append(names[column])
    if ids:
        fix = "leave it out (drop), or say that it is one (id_column)"
        yield f"{listed_columns(ids)} of {where} looks like an id or an index, not like a feature; {fix}."
