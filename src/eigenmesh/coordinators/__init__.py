"""Dask: PCA of dask arrays and data frames, computed by the workers that hold the blocks.

To a solver the cluster is one node whose covariance is a sum over blocks: every product is one task per block and a
tree of sums in Dask's graph. Nothing here imports dask before there are dask data to work on.
"""

from typing import Any


def is_dask(X: Any) -> bool:
    """Whether X is a Dask collection, by the name of its module."""
    return type(X).__module__.partition(".")[0] in ("dask", "dask_expr")


__all__ = ["is_dask"]
