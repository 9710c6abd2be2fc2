"""The rows of one source that one node holds, read piece by piece."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field

import numpy as np
import scipy.sparse

from eigenmesh.data._splits import Rows
from eigenmesh.data._table import Samples
from eigenmesh.errors import InputError


@dataclass(frozen=True, eq=False)
class Block:
    """Rows of one source held by one node; nothing is copied before it is read.

    Attributes
    ----------
    source : array, memory map or csr_array of shape (n, d)
        Where the rows are read from.
    rows : slice or array of int
        Which of them the node holds.
    """

    source: Samples
    rows: Rows = field(default_factory=lambda: slice(None))

    def __post_init__(self) -> None:
        if isinstance(self.rows, slice):
            return
        rows = np.asarray(self.rows)
        total = self.source.shape[0]
        if rows.ndim != 1 or rows.dtype.kind not in "iu":
            raise InputError(f"rows must be a slice or a 1-D integer array; got {rows.dtype} of shape {rows.shape}")
        if rows.size and not 0 <= rows.min() <= rows.max() < total:
            raise InputError(f"rows must lie in 0..{total - 1}; got {rows.min()}..{rows.max()}")
        object.__setattr__(self, "rows", rows)

    @property
    def n_rows(self) -> int:
        """Number of samples, N_i."""
        return len(self._range()) if isinstance(self.rows, slice) else len(self.rows)

    @property
    def n_features(self) -> int:
        """Number of columns, d."""
        return int(self.source.shape[1])

    @property
    def dtype(self) -> np.dtype:
        """Dtype of the source."""
        dtype: np.dtype = self.source.dtype
        return dtype

    @property
    def is_sparse(self) -> bool:
        """Whether the source is a CSR array."""
        return bool(scipy.sparse.issparse(self.source))

    @property
    def is_mapped(self) -> bool:
        """Whether the source lies in a file and is memory-mapped, itself or as a view."""
        source = self.source
        while isinstance(source, np.ndarray) and not isinstance(source, np.memmap):
            source = source.base
        return isinstance(source, np.memmap)

    @property
    def n_stored(self) -> int:
        """Number of entries that are stored: N_i d if dense."""
        if not self.is_sparse:
            return self.n_rows * self.n_features
        counts = np.diff(self.source.indptr)
        return int(counts[self.rows].sum())

    @property
    def n_bytes(self) -> int:
        """Size of these rows where they lie."""
        index_bytes = self.source.indices.itemsize if self.is_sparse else 0
        return self.n_stored * (self.dtype.itemsize + int(index_bytes))

    def read(self, start: int, stop: int) -> Samples:
        """Rows start..stop of this node, (stop - start, n_features), in the source's dtype."""
        if not isinstance(self.rows, slice):
            piece = self.source[self.rows[start:stop]]
        elif (part := self._range()[start:stop]) == range(self.source.shape[0]):
            piece = self.source  # scipy copies even for a slice that takes all
        else:
            # A range that counts down to row 0 ends at -1, which as the end of a slice would be the last row.
            end = part.stop if part.stop >= 0 else None
            piece = self.source[slice(part.start, end, part.step) if part else slice(0)]
        return piece if self.is_sparse else np.asarray(piece)

    def source_row(self, row: int) -> int:
        """Where a row of this node lies in the source."""
        return int(self._range()[row] if isinstance(self.rows, slice) else self.rows[row])

    def chunks(self, rows_per_chunk: int) -> Iterator[tuple[int, Samples]]:
        """Pairs (first row, piece) that cover this node's rows in order."""
        for start in range(0, self.n_rows, rows_per_chunk):
            yield start, self.read(start, min(start + rows_per_chunk, self.n_rows))

    def _range(self) -> range:
        rows = self.rows if isinstance(self.rows, slice) else slice(0)
        return range(*rows.indices(self.source.shape[0]))
