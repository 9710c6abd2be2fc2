"""A basis that grows by blocks without being copied."""

from __future__ import annotations

from typing import NamedTuple

from eigenmesh import arrays as ea
from eigenmesh.arrays import Array


class Basis(NamedTuple):
    """Columns ``V = P H``, orthonormal or zero, of blocks P that lie side by side with room for more behind them.

    Attributes
    ----------
    room : array of shape (1, capacity, d)
        The columns of P as rows, so that a new block is written next to the others. Nothing but what lies behind the
        columns of a basis is written, so one that was kept stays as it is, until ``turned`` uses the room again.
    whitening : array of shape (1, w, w)
        H, block diagonal.
    """

    room: Array
    whitening: Array

    @classmethod
    def empty(cls, like: Array, capacity: int) -> Basis:
        """No columns: like (1, d, k) -> room for so many columns of length d."""
        xp, kind = ea.namespace(like), {"dtype": like.dtype, "device": like.device}
        return cls(xp.empty((1, capacity, like.shape[-2]), **kind), xp.empty((1, 0, 0), **kind))

    @property
    def width(self) -> int:
        """Columns, w."""
        return int(self.whitening.shape[-1])

    @property
    def rows(self) -> Array:
        """P^T: (1, w, d)."""
        return self.room[:, : self.width, :]

    @property
    def present(self) -> Array:
        """1 where a column is a unit vector, 0 where it is zero: (1, w)."""
        xp, H = ea.namespace(self.whitening), self.whitening
        return xp.astype(xp.any(H != 0, axis=-2), H.dtype)

    def next_block(self, count: int) -> Array:
        """So many columns behind those of P: (1, d, count)."""
        return self.room[:, self.width : self.width + count, :].mT

    def after_next(self, count: int) -> Array | None:
        """Columns behind the next block, as many as it has; None where there is no room for them: (1, d, count)."""
        end = self.width + 2 * count
        return None if end > self.room.shape[-2] else self.room[:, end - count : end, :].mT

    def recent(self, count: int) -> Basis:
        """Only the last columns, at most so many, to multiply with; whole blocks."""
        first = max(0, self.width - count)
        return Basis(self.room[:, first:, :], self.whitening[:, first:, first:])

    def holding(self, B: Array) -> Basis:
        """With B (1, d, b) behind the columns, not yet one of them; more room if there is none."""
        xp, room, end = ea.namespace(B), self.room, self.width + B.shape[-1]
        while room.shape[-2] < end:
            room = xp.concat([room, xp.empty_like(room)], axis=-2)
        # Without the first axis NumPy sees where they lie there already.
        room[0, self.width : end, :] = B[0, ...].mT
        return self._replace(room=room)

    def grown(self, whitening: Array) -> Basis:
        """With the block behind the columns as the next of them; B times its whitening, (1, b, b), is orthonormal."""
        xp, w, width = ea.namespace(whitening), self.width, self.width + whitening.shape[-1]
        H = xp.zeros((1, width, width), dtype=whitening.dtype, device=whitening.device)
        H[:, :w, :w], H[:, w:, w:] = self.whitening, whitening
        return self._replace(whitening=H)

    def turned(self, small: Array, count: int) -> Basis:
        """``V small`` in the room of V, and behind it as many columns as lay behind V: (1, w, k)."""
        xp, k, behind = ea.namespace(small), small.shape[-1], self.next_block(count)
        left, squares = (self.whitening @ small).mT, 0.0
        # Many blocks at once, so fewer of their entries.
        for piece in ea.pieces(self.room, ea.PIECE // 4):
            columns = left @ self.rows[:, :, piece]
            squares = squares + ea.squared_norms(columns.mT)
            self.room[:, :k, piece] = columns
        # A column of what is not there is zero.
        present = xp.astype(squares > 0.25, small.dtype)
        eye = xp.eye(k, dtype=small.dtype, device=small.device)
        return Basis(self.room, present[:, None, :] * eye).holding(behind)

    def times(self, small: Array) -> Array:
        """``V small``: (1, w, k) -> (1, d, k)."""
        # As rows, which is how they lie.
        return ((self.whitening @ small).mT @ self.rows).mT

    def subtract(self, B: Array, small: Array) -> None:
        """``B - V small``, written over B: (1, d, k), (1, w, k)."""
        left = (self.whitening @ small).mT
        for piece in ea.pieces(B.mT):
            B.mT[:, :, piece] -= left @ self.rows[:, :, piece]

    def along(self, Z: Array) -> Array:
        """``V^T Z``: (1, d, k) -> (1, w, k)."""
        return self.whitening.mT @ (self.rows @ Z)
