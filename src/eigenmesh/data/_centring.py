"""One piece of data made ready: read, float64, centred, weighted, its gaps filled."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from eigenmesh.data._block import CHUNK_BYTES, Block
from eigenmesh.data._source import Samples


@dataclass(frozen=True, eq=False)
class Centring:
    """The map y -> (y - mean) * factor on rows; a missing entry becomes the mean, hence 0.

    mean (d,); factor (d,) or a number; fills: whether there may be missing (non-finite) entries.
    """

    mean: np.ndarray
    factor: np.ndarray | float = 1.0
    fills: bool = False

    def apply(self, piece: Samples) -> np.ndarray:
        """Dense (rows, d) float64 of a piece in any dtype; a sparse piece is made dense."""
        dense = piece if isinstance(piece, np.ndarray) else piece.toarray()
        ready: np.ndarray = np.subtract(dense, self.mean, dtype=np.float64)
        if self.fills:
            ready[~np.isfinite(ready)] = 0.0
        if self.is_weighted:
            ready *= self.factor
        return ready

    def stored(self, piece: Samples) -> np.ndarray:
        """The same, unweighted, for the stored entries alone of a CSR piece: (stored,) float64."""
        ready: np.ndarray = np.subtract(piece.data, self.mean[piece.indices], dtype=np.float64)
        if self.fills:
            ready[~np.isfinite(ready)] = 0.0
        return ready

    def chunks(self, block: Block, chunk_bytes: int = CHUNK_BYTES) -> Iterator[tuple[int, np.ndarray]]:
        """Pairs (first row, ready rows) that cover a block, each piece within a byte budget as float64."""
        for start, piece in block.chunks(chunk_bytes):
            yield start, self.apply(piece)

    @property
    def is_weighted(self) -> bool:
        """Whether the factor does anything."""
        return isinstance(self.factor, np.ndarray) or self.factor != 1.0
