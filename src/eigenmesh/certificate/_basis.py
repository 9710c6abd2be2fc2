"""A basis that grows by blocks without being copied."""

from __future__ import annotations

from typing import NamedTuple

from eigenmesh import arrays as ea
from eigenmesh.arrays import Array


class Basis(NamedTuple):
    """Columns ``V = P H``, orthonormal or zero; the blocks of P lie side by side in a buffer with space for more.

    Attributes
    ----------
    buffer : array of shape (1, capacity, d)
        The columns of P as rows, then free space. All methods but ``recombined`` write only into the free space, so an
        older basis on the same buffer stays valid.
    whitening : array of shape (1, w, w)
        H, block diagonal.
    """

    buffer: Array
    whitening: Array

    @classmethod
    def empty(cls, like: Array, capacity: int) -> Basis:
        """No columns yet, and space for ``capacity`` columns of length d: like (1, d, k)."""
        xp, kind = ea.namespace(like), {"dtype": like.dtype, "device": like.device}
        return cls(xp.empty((1, capacity, like.shape[-2]), **kind), xp.empty((1, 0, 0), **kind))

    @property
    def width(self) -> int:
        """Number of columns, w."""
        return int(self.whitening.shape[-1])

    @property
    def rows(self) -> Array:
        """P^T: (1, w, d)."""
        return self.buffer[:, : self.width, :]

    @property
    def present(self) -> Array:
        """1 where a column is a unit vector, 0 where it is zero: (1, w)."""
        xp, H = ea.namespace(self.whitening), self.whitening
        return xp.astype(xp.any(H != 0, axis=-2), H.dtype)

    def next_block(self, count: int) -> Array:
        """The next columns behind those of P, a view: (1, d, count)."""
        return self.buffer[:, self.width : self.width + count, :].mT

    def after_next(self, count: int) -> Array | None:
        """The columns behind the next block, a view: (1, d, count); None if the buffer ends before."""
        end = self.width + 2 * count
        return None if end > self.buffer.shape[-2] else self.buffer[:, end - count : end, :].mT

    def recent(self, count: int) -> Basis:
        """Only the last ``count`` columns, which must be whole blocks; for products, not to be grown."""
        first = max(0, self.width - count)
        return Basis(self.buffer[:, first:, :], self.whitening[:, first:, first:])

    def holding(self, B: Array) -> Basis:
        """Write B (1, d, b) behind the columns, not yet as columns of V; the buffer is doubled if it is full."""
        xp, buffer, end = ea.namespace(B), self.buffer, self.width + B.shape[-1]
        while buffer.shape[-2] < end:
            buffer = xp.concat([buffer, xp.empty_like(buffer)], axis=-2)
        # Without the first axis NumPy recognises a B that lies there already, and makes no copy.
        buffer[0, self.width : end, :] = B[0, ...].mT
        return self._replace(buffer=buffer)

    def grown(self, whitening: Array) -> Basis:
        """Make the block B behind the columns part of V; B times its whitening (1, b, b) is orthonormal."""
        xp, w, width = ea.namespace(whitening), self.width, self.width + whitening.shape[-1]
        H = xp.zeros((1, width, width), dtype=whitening.dtype, device=whitening.device)
        H[:, :w, :w], H[:, w:, w:] = self.whitening, whitening
        return self._replace(whitening=H)

    def recombined(self, small: Array, count: int) -> Basis:
        """``V small`` written over V, and behind it the ``count`` columns that lay behind V: (1, w, k)."""
        xp, k, behind = ea.namespace(small), small.shape[-1], self.next_block(count)
        left, squares = (self.whitening @ small).mT, 0.0
        # Smaller pieces than usual, since each takes a part of all blocks at once.
        for piece in ea.pieces(self.buffer, ea.PIECE // 4):
            columns = left @ self.rows[:, :, piece]
            squares = squares + ea.squared_norms(columns.mT)
            self.buffer[:, :k, piece] = columns
        # Columns have norm 1, or 0 where V had zero columns.
        present = xp.astype(squares > 0.25, small.dtype)
        eye = xp.eye(k, dtype=small.dtype, device=small.device)
        return Basis(self.buffer, present[:, None, :] * eye).holding(behind)

    def times(self, small: Array) -> Array:
        """``V small``: (1, w, k) -> (1, d, k)."""
        # P is stored by rows, so multiply from the left.
        return ((self.whitening @ small).mT @ self.rows).mT

    def subtract(self, B: Array, small: Array) -> None:
        """Overwrite B by ``B - V small``: (1, d, k), (1, w, k)."""
        left = (self.whitening @ small).mT
        for piece in ea.pieces(B.mT):
            B.mT[:, :, piece] -= left @ self.rows[:, :, piece]

    def along(self, Z: Array) -> Array:
        """``V^T Z``: (1, d, k) -> (1, w, k)."""
        return self.whitening.mT @ (self.rows @ Z)
