"""Warnings about columns that were probably not meant to be part of the data."""

from collections.abc import Iterator

import numpy as np

from eigenmesh.data import Moments, Shards
from eigenmesh.data._table_options import listed_columns
from eigenmesh.errors import warn_user

# A column with a larger share of the variance than this dominates all others.
MOST_SHARE = 0.9


def warn_of_columns(shards: Shards, moments: Moments) -> None:
    """Warn about suspicious pooled variances of named columns, only at the first node."""
    if 0 in shards.ids and shards.feature_names is not None:
        for finding in _findings(shards, shards.feature_names, moments):
            warn_user(finding)


def _findings(shards: Shards, names: tuple[str, ...], moments: Moments) -> Iterator[str]:
    """Warnings about a column that dominates all others, and about columns of files that are constant at all nodes."""
    share = moments.variance / moments.variance.sum()
    largest = int(np.argmax(share))
    if moments.scale is None and share[largest] > MOST_SHARE and len(names) > 2:
        fix = "use scale=True if units differ, or leave it out (drop)"
        column = shards.column_label(largest)
        yield f"{column} has {share[largest]:.1%} of the variance, and is component 1 alone; {fix}."
    constant = [names[column] for column in np.flatnonzero(moments.variance == 0)]
    if constant and moments.scale is not None:
        yield f"{len(constant):,} of {len(names):,} variants are the same in all samples, and are left out."
    elif constant and shards.blocks[0].place(0, 0) is not None:
        many = len(constant) > 1
        yield f"{listed_columns(constant)} {'are constant: they add' if many else 'is constant: it adds'} nothing."
