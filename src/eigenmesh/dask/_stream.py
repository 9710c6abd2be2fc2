"""A batch of a stream as dask data: the workers sum its moments in one pass over their blocks."""

from __future__ import annotations

from functools import partial

import numpy as np

from eigenmesh.dask._blocks import Blocks
from eigenmesh.data import Shards
from eigenmesh.data._centring import Centring
from eigenmesh.data._running import Summary
from eigenmesh.data._summaries import count_and_sum, not_finite
from eigenmesh.fitting._monitor import Monitor


def batch_moments(
    blocks: Blocks, centre: np.ndarray | None, monitor: Monitor | None
) -> tuple[Summary | None, np.ndarray | None]:
    """Moments of all rows, None if there are no rows, and the sums of the monitor, (1, its width).

    With a centre c near the mean, the blocks sum ``n``, ``s = sum (y - c)`` and ``P = sum (y - c)(y - c)^T``; then the
    mean is ``c + s / n`` and the scatter ``P - s s^T / n``. Without a centre, an extra pass first computes the mean.
    """
    d = blocks.n_features
    none = None if monitor is None else np.zeros((1, monitor.width))
    if centre is None:
        first = blocks.total_of_samples(partial(count_and_sum, fills=False))
        if not first[0]:
            return None, none
        centre = first[1 : 1 + d] / first[0]
    total = blocks.total_of_samples(partial(_sums_of_a_block, centre=centre, monitor=monitor))
    count = float(total[0])
    if not count:
        return None, none
    shift, products, seen = np.split(total[1:], [d, d + d * d])
    scatter = products.reshape(d, d) - np.outer(shift, shift) / count
    return Summary.about(count, centre, shift / count, scatter), None if monitor is None else seen[np.newaxis]


def _sums_of_a_block(shards: Shards, position: int, centre: np.ndarray, monitor: Monitor | None) -> np.ndarray:
    block, d = shards.blocks[position], len(centre)
    about, seen = np.zeros((d + 1, d)), np.zeros(0 if monitor is None else monitor.width)
    centring = Centring(centre)
    for start, piece in block.chunks():
        rows = centring.apply(piece)
        if not np.isfinite(rows).all():
            raise not_finite(shards, position, start, piece)
        about[0] += rows.sum(axis=0)
        about[1:] += rows.T @ rows
        if monitor is not None:
            seen += monitor.node_sums(rows + centre)
    return np.concatenate([[float(block.n_rows)], about.ravel(), seen])
