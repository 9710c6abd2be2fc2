"""Dask: PCA of dask arrays and data frames, computed where their blocks lie.

To a solver the cluster is one node whose covariance is a sum over blocks: every product is one task a block and a tree
of sums on Dask's own graph. Nothing here imports dask before there are dask data to work on.
"""

from typing import Any


def is_dask(X: Any) -> bool:
    """Whether X is a Dask collection; looks at the name of its module alone."""
    return type(X).__module__.partition(".")[0] in ("dask", "dask_expr")


__all__ = ["is_dask"]
