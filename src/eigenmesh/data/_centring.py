"""Rows prepared for products: float64, centred, weighted, missing entries filled."""

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
        centred = self._centred(dense, self.mean)
        if isinstance(self.factor, np.ndarray) or self.factor != 1.0:
            centred *= self.factor
        return centred

    def stored(self, piece: Samples) -> np.ndarray:
        """The same, unweighted, for only the stored entries of a CSR piece: (stored,) float64."""
        return self._centred(piece.data, self.mean[piece.indices])

    def chunks(self, block: Block, chunk_bytes: int = CHUNK_BYTES) -> Iterator[tuple[int, np.ndarray]]:
        """Pairs (first row, prepared rows) that cover a block; each piece takes at most chunk_bytes as float64."""
        for start, piece in block.chunks(chunk_bytes):
            yield start, self.apply(piece)

    def _centred(self, values: np.ndarray, mean: np.ndarray) -> np.ndarray:
        centred: np.ndarray = np.subtract(values, mean, dtype=np.float64)
        if self.fills:
            centred[~np.isfinite(centred)] = 0.0
        return centred
