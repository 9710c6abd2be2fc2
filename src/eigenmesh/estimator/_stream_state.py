"""What an estimator keeps between two batches of a stream."""

from __future__ import annotations

import os
import tempfile
from dataclasses import dataclass
from typing import Any

import numpy as np

from eigenmesh.arrays import Array
from eigenmesh.data import MEMORY_BYTES
from eigenmesh.data._place import HOST, Place
from eigenmesh.data._running import Running, RunningScatter
from eigenmesh.data._running_rows import RunningRows
from eigenmesh.errors import InputError
from eigenmesh.events import BatchChecked
from eigenmesh.fitting import Costs, parse_weights
from eigenmesh.fitting._place import place_of
from eigenmesh.fitting._stream import StreamData
from eigenmesh.graphs import NetworkSequence
from eigenmesh.transports import Transport


@dataclass(frozen=True, eq=False)
class CheckedBatch:
    """The verdict on a batch, and the mean squared residual of each feature: (d,)."""

    event: BatchChecked
    residuals: np.ndarray


@dataclass(frozen=True, eq=False)
class StreamState:
    """What an estimator keeps between two batches.

    labels : labels of the nodes in ``nodes``; ids : of the batches so far, if they had any.
    """

    data: StreamData
    labels: tuple[Any, ...]
    device: str | None = None
    n_seen: int = 0
    n_batches: int = 0
    ids: frozenset[Any] = frozenset()
    checked: CheckedBatch | None = None

    @property
    def place(self) -> Place:
        """Device of the moments; stored by name, because a stream can be pickled and a library cannot."""
        return Place.named(self.device)


def empty_stream(pca: Any, rows: Array, labels: tuple[Any, ...], seed: int, transport: Transport | None) -> StreamState:
    """An empty stream with the columns and nodes of the first batch."""
    names = getattr(pca, "feature_names_in_", None)
    weights = parse_weights(pca.topology, pca.weights, len(labels), seed)
    held = len(labels) if transport is None else 1
    # On a network that changes, arrays are NumPy arrays, whatever the transport supports.
    carries = None if isinstance(weights, NetworkSequence) else transport
    place = place_of(pca.device, None if isinstance(rows, np.ndarray) else rows.device, carries)
    data = StreamData(
        [_storage_per_node(pca, held, rows.shape[1], place)] * held,
        weights,
        transport,
        feature_names=None if names is None else tuple(map(str, names)),
        node_names=None if labels == tuple(range(len(labels))) else tuple(map(str, labels)),
    )
    return StreamState(data, labels, None if place.device is None else str(place.device))


def _storage_per_node(pca: Any, n_held: int, n_features: int, place: Place) -> Running:
    """Moments if they fit into memory; otherwise, and for a window, the rows."""
    limit = min(MEMORY_BYTES, (pca.costs or Costs()).memory_bytes)
    fits = 8 * n_held * n_features**2 <= limit or place.is_gpu
    if pca.window is None and pca.store is None and fits:
        return RunningScatter.empty(n_features, place)
    if place != HOST:
        raise InputError(f"window = {pca.window} and store = {pca.store} keep rows in NumPy; leave out the device.")
    small_enough = pca.window is not None and pca.store is None
    folder = None if small_enough else tempfile.gettempdir() if pca.store is None else os.fspath(pca.store)
    if folder is not None and not os.path.isdir(folder):
        raise InputError(f"store = {folder!r} must be a folder that exists; make it first.")
    return RunningRows(n_features, pca.window, folder)
