"""Messages of many arrays as rows of one block of bytes: nothing is copied but this node's own arrays."""

from __future__ import annotations

import zlib
from typing import Any

import numpy as np

from eigenmesh import arrays as ea
from eigenmesh.transports._base import Arrays

# Room for the mark at the head of a row, and what the arrays in it are aligned to.
ALIGNMENT = 16

Layout = tuple[Any, ...]


def layout_of(arrays: Arrays) -> Layout:
    """What two messages must have in common to be of one kind: shapes and dtypes, in order."""
    return tuple([part for array in arrays for part in (array.shape, array.dtype)])


class MessageRows:
    """This node's message and those of its neighbours, a row each.

    A row begins with a mark that stands for the layout, so that a message of another kind is told from a good one,
    and a row that has not been written yet from one that has.

    Attributes
    ----------
    sent : (bytes,) this node's row.
    received : (senders, bytes) the neighbours' rows, to be written by the transport.
    payload_bytes : bytes of the arrays in a row, without mark and padding.
    stacks : for each array, (1 + senders, ...) its copies in all rows.
    """

    def __init__(self, arrays: Arrays, n_senders: int) -> None:
        models = [ea.to_numpy(array) for array in arrays]
        self.payload_bytes = sum(model.nbytes for model in models)
        sizes = [-(-model.nbytes // ALIGNMENT) * ALIGNMENT for model in models]
        offsets = ALIGNMENT + np.cumsum([0, *sizes])
        row_bytes = int(offsets[-1])
        rows = np.zeros((1 + n_senders, row_bytes), dtype=np.uint8)
        self.sent, self.received = rows[0], rows[1:]
        self.stacks = tuple(
            np.ndarray(
                (1 + n_senders, *model.shape),
                model.dtype,
                buffer=rows.data,
                offset=int(offset),
                strides=(row_bytes, *np.empty(model.shape, model.dtype).strides),
            )
            for model, offset in zip(models, offsets, strict=False)
        )
        self._own = tuple(stack[0, ...] for stack in self.stacks)
        # Views of each neighbour's arrays, made once.
        self.messages = tuple(tuple(stack[row, ...] for stack in self.stacks) for row in range(1, 1 + n_senders))
        described = [(model.shape, model.dtype.str) for model in models]
        # Never zero, which is what a row not yet written begins with.
        mark = np.uint64(zlib.crc32(repr(described).encode()) | 1 << 32)
        self.described = ", ".join(f"{dtype[1:]}{list(shape)}" for shape, dtype in described)
        rows[0, :8].view(np.uint64)[0] = mark
        self._marks = self.received[:, :8]
        self._good = mark.tobytes() * n_senders

    def pack(self, arrays: Arrays) -> None:
        """Copy this node's arrays into its row, and forget what the neighbours sent before."""
        for own, array in zip(self._own, arrays, strict=True):
            own[...] = array if isinstance(array, np.ndarray) else ea.to_numpy(array)
        self._marks[...] = 0

    @property
    def good(self) -> bool:
        """Whether every neighbour has sent a message of this layout."""
        return self._marks.tobytes() == self._good

    def missing(self) -> list[int]:
        """Positions of the neighbours whose message has not come."""
        return [int(row) for row in np.flatnonzero(~self._marks.any(axis=1))]

    def unlike(self) -> list[int]:
        """Positions of the neighbours whose message is of another kind, or has not come."""
        return [int(row) for row in np.flatnonzero((self._marks != self.sent[:8]).any(axis=1))]


def in_library_of(models: Arrays, arrays: tuple[np.ndarray, ...]) -> Arrays:
    """Each array in the library of its model; NumPy's as they are."""
    # A message is of one library.
    if not models or isinstance(models[0], np.ndarray):
        return arrays
    return tuple([ea.like(array, model) for array, model in zip(arrays, models, strict=True)])
