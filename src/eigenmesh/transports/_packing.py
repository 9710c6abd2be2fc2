"""Messages of several arrays as rows of one block of bytes; only this node's own arrays are copied."""

import zlib
from typing import Any

import numpy as np

from eigenmesh import arrays as ea
from eigenmesh.transports._base import Arrays

# Bytes of the mark at the start of a row, and alignment of the arrays in it.
ALIGNMENT = 16

Layout = tuple[Any, ...]


def layout_of(arrays: Arrays) -> Layout:
    """Shapes and dtypes in order; messages of one kind have the same."""
    return tuple([part for array in arrays for part in (array.shape, array.dtype)])


class MessageRows:
    """This node's message and those of its neighbours, one row each.

    A row begins with a mark, a checksum of the layout. A wrong mark shows a message of another kind, and a zero mark a
    row that has not been received yet.

    Attributes
    ----------
    sent : (bytes,) this node's row.
    received : (senders, bytes) the neighbours' rows, written by the transport.
    payload_bytes : bytes of the arrays in a row, without mark and padding.
    stacks : for each array, a view (1 + senders, ...) of it in all rows.
    messages : for each neighbour, views of its arrays.
    description : dtypes and shapes, for error messages.
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
        self.messages = tuple(tuple(stack[row, ...] for stack in self.stacks) for row in range(1, 1 + n_senders))
        described = [(model.shape, model.dtype.str) for model in models]
        # Never zero, which marks a row that has not been received.
        mark = np.uint64(zlib.crc32(repr(described).encode()) | 1 << 32)
        self.description = ", ".join(f"{dtype[1:]}{list(shape)}" for shape, dtype in described)
        rows[0, :8].view(np.uint64)[0] = mark
        self._marks = self.received[:, :8]
        self._expected_marks = mark.tobytes() * n_senders

    def pack(self, arrays: Arrays) -> None:
        """Copy this node's arrays into its row, and clear the neighbours' marks."""
        for own, array in zip(self._own, arrays, strict=True):
            own[...] = array if isinstance(array, np.ndarray) else ea.to_numpy(array)
        self._marks[...] = 0

    @property
    def complete(self) -> bool:
        """Whether every neighbour has sent a message of this layout."""
        return self._marks.tobytes() == self._expected_marks

    def missing(self) -> list[int]:
        """Positions of the neighbours whose message has not arrived."""
        return [int(row) for row in np.flatnonzero(~self._marks.any(axis=1))]

    def mismatched(self) -> list[int]:
        """Positions of the neighbours whose message is of another kind, or has not arrived."""
        return [int(row) for row in np.flatnonzero((self._marks != self.sent[:8]).any(axis=1))]


def in_library_of(models: Arrays, arrays: tuple[np.ndarray, ...]) -> Arrays:
    """Each array in the library of its model; all arrays of a message are of one library."""
    if not models or isinstance(models[0], np.ndarray):
        return arrays
    return tuple([ea.like(array, model) for array, model in zip(arrays, models, strict=True)])
