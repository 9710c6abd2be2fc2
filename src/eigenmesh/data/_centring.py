"""Prepare rows for products: centre, scale, weight, and fill in missing entries."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
import scipy.sparse

from eigenmesh.arrays import Array, namespace
from eigenmesh.data._block import Block
from eigenmesh.data._place import HOST, Place, chunk_bytes
from eigenmesh.data._source import Samples


@dataclass(frozen=True, eq=False)
class Centring:
    """The map y -> (y - mean - rest) * factor on rows; with ``fills``, a missing (non-finite) entry becomes 0."""

    mean: np.ndarray
    factor: np.ndarray | float = 1.0
    fills: bool = False
    rest: np.ndarray | None = None
    _placed: dict[Any, list[Any]] = field(default_factory=dict, init=False, repr=False)

    def apply(self, piece: Samples, out: np.ndarray | None = None) -> Array:
        """The piece as dense float64 (rows, d), centred and scaled, on its device; a sparse piece is made dense.

        On the CPU it is written to ``out``, if given.
        """
        dense = piece.toarray() if scipy.sparse.issparse(piece) else piece
        xp = namespace(dense)
        if dense.device not in self._placed:
            # Cached, because a copy to a GPU waits until it is idle.
            self._placed[dense.device] = [
                xp.asarray(value, device=dense.device) if isinstance(value, np.ndarray) else value
                for value in (self.mean, self.rest, self.factor)
            ]
        mean, rest, factor = self._placed[dense.device]
        centred = self._centred(dense, mean, out)
        if rest is not None:
            centred -= rest
        if isinstance(self.factor, np.ndarray) or self.factor != 1.0:
            centred *= factor
        return centred

    def stored(self, piece: Samples) -> Array:
        """The stored entries of a CSR piece, centred but not scaled: (stored,) float64."""
        return self._centred(piece.data, self.mean[piece.indices])

    def part(self, columns: slice) -> Centring:
        """The same map for some of the columns."""
        if columns == slice(0, len(self.mean)):
            return self
        factor = self.factor[columns] if isinstance(self.factor, np.ndarray) else self.factor
        rest = None if self.rest is None else self.rest[columns]
        return replace(self, mean=self.mean[columns], factor=factor, rest=rest)

    def chunks(self, block: Block, n_bytes: int | None = None, place: Place = HOST) -> Iterator[tuple[int, Array]]:
        """Pairs (first row, prepared rows) that cover a block, on a device; a piece takes at most n_bytes as float64.

        A row of weight w is multiplied by sqrt(w), so that products of prepared rows count it w times. On the CPU all
        chunks are written to the same memory: a chunk is valid until the next one is read.
        """
        out = None
        for start, piece in block.chunks(n_bytes or chunk_bytes(place.device)):
            ready = self._ready(block, start, piece, place, out)
            # The first chunk is the largest.
            out = ready if out is None and isinstance(ready, np.ndarray) else out
            yield start, ready

    def columns(self, block: Block, place: Place = HOST) -> Iterator[tuple[slice, Array]]:
        """Pairs (columns, prepared rows of these columns) that cover a block that is read by columns."""
        for columns, piece in block.column_chunks(chunk_bytes(place.device)):
            yield columns, self.part(columns)._ready(block, 0, piece, place)

    def _ready(self, block: Block, start: int, piece: Samples, place: Place, out: np.ndarray | None = None) -> Array:
        ready = self.apply(piece if scipy.sparse.issparse(piece) else place.put(piece), out)
        weights = block.weights_of(start, ready)
        if weights is not None:
            ready *= weights**0.5
        return ready

    def _centred(self, values: Array, mean: Array, out: np.ndarray | None = None) -> Array:
        xp = namespace(values)
        if isinstance(values, np.ndarray):
            # Stored by rows, whatever the order of the samples, so that products have the same bits.
            out = np.empty(values.shape) if out is None else out[: len(values)]
            centred: Array = np.subtract(values, mean, out=out, dtype=np.float64)
        else:
            centred = xp.astype(values, xp.float64)
            centred -= mean
        if self.fills:
            centred[~xp.isfinite(centred)] = 0.0
        return centred
