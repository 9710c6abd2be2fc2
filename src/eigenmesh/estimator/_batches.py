"""One batch of a stream: what the nodes keep of it, and how it compares with earlier batches."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np

from eigenmesh._lookup import find_name
from eigenmesh.dask import is_dask
from eigenmesh.data import MEMORY_BYTES
from eigenmesh.data._running import Running, RunningScatter
from eigenmesh.errors import DataError, InputError
from eigenmesh.estimator._batch_rows import read_rows
from eigenmesh.estimator._inputs import data_of_dask
from eigenmesh.estimator._stream_state import StreamState
from eigenmesh.fitting._stream import StreamData
from eigenmesh.networks import Traffic
from eigenmesh.transports import Transport


class CountedBatch(NamedTuple):
    """A stream, and what its nodes will keep once a batch is accepted.

    sums : (nodes, width of the monitor), sums of the monitor over the new rows; n_rows : (nodes,), new rows; sent :
    traffic of reading them.
    """

    stream: StreamState
    nodes: Sequence[Running]
    sums: np.ndarray | None
    n_rows: np.ndarray
    sent: Traffic


def count_batch(
    pca: Any, X: Any, y: Any, nodes: Any, seed: int, transport: Transport | None, stream: StreamState | None
) -> CountedBatch:
    """Read a batch, without changing the stream."""
    if find_name(pca.partition, ["samples"]) is None:
        raise InputError(f"partition = {pca.partition!r} needs all samples at once; a stream is split by samples.")
    if is_dask(X):
        return _count_dask(pca, X, y, nodes, stream)
    rows, stream = read_rows(pca, X, y, nodes, seed, transport, stream)
    monitor = stream.data.monitor
    sums = None if monitor is None else np.stack([monitor.node_sums(own) for own in rows])
    kept = [node.ticked(own, pca.forgetting) for node, own in zip(stream.data.nodes, rows, strict=True)]
    return CountedBatch(stream, kept, sums, np.array([own.shape[0] for own in rows]), Traffic())


def _count_dask(pca: Any, X: Any, y: Any, nodes: Any, stream: StreamState | None) -> CountedBatch:
    """A batch of dask data: for the stream the cluster is a single node; moments are summed on the workers."""
    from eigenmesh.dask._stream import batch_moments

    if y is not None:
        raise InputError("y= splits one array; dask data are split by their chunks. Leave it out.")
    if pca.window is not None or pca.store is not None:
        raise InputError("window= and store= need rows, but dask data keep only moments; leave them out.")
    data = data_of_dask(pca, X, nodes, first=stream is None)
    blocks, d = data.blocks, data.blocks.n_features
    if 8 * d**2 > MEMORY_BYTES:
        raise InputError(f"{d} x {d} moments do not fit into memory; give fit all the dask data, or drop columns.")
    if stream is None:
        names = blocks.layout.feature_names
        stream = StreamState(StreamData([RunningScatter.empty(d)], data.weights, feature_names=names), (0,))
    node, last = stream.data.nodes[0], stream.data.last
    if len(stream.labels) != 1 or not isinstance(node, RunningScatter):
        raise DataError(f"the stream has {len(stream.labels)} nodes, but dask data are one; begin with dask data.")
    new, sums = batch_moments(blocks, None if last is None else last.mean, stream.data.monitor)
    kept = node.joined(new, pca.forgetting)
    return CountedBatch(stream, [kept], sums, np.array([0 if new is None else round(new.weight)]), blocks.traffic)
