"""MPI collectives: messages as rows of bytes, exchanges that are prepared once, and a deadline for blocking calls."""

import threading
import time
import zlib
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from eigenmesh import arrays as ea
from eigenmesh.transports._base import Arrays

# Bytes of the mark at the start of a row, and alignment of the arrays in it.
ALIGNMENT = 16

# Shapes and dtypes, in order; the same for all messages of one kind.
Layout = tuple[Any, ...]


class MessageRows:
    """This node's message and those of its neighbours, one row each; only this node's own arrays are copied.

    A row begins with a mark, a checksum of the layout. A wrong mark shows a message of another kind, and a zero mark a
    row that has not been received yet. ``sent`` (bytes,) is this node's row, ``received`` (senders, bytes) are the
    neighbours', ``stacks`` a view (1 + senders, ...) per array, ``messages`` views of the arrays per neighbour.
    ``payload_bytes`` does not count mark and padding.
    """

    def __init__(self, arrays: Arrays, n_senders: int) -> None:
        models = [ea.to_numpy(array) for array in arrays]
        self.payload_bytes = sum(model.nbytes for model in models)
        sizes = [-(-model.nbytes // ALIGNMENT) * ALIGNMENT for model in models]
        offsets = ALIGNMENT + np.cumsum([0, *sizes])
        row_bytes = int(offsets[-1])
        rows = np.zeros((1 + n_senders, row_bytes), dtype=np.uint8)
        self.sent, self.received = rows[0], rows[1:]
        stacks = []
        for model, offset in zip(models, offsets, strict=False):
            strides = (row_bytes, *np.empty(model.shape, model.dtype).strides)
            stacks.append(np.ndarray((1 + n_senders, *model.shape), model.dtype, rows.data, int(offset), strides))
        self.stacks = tuple(stacks)
        self._own = tuple(stack[0, ...] for stack in self.stacks)
        self.messages = tuple(tuple(stack[row, ...] for stack in self.stacks) for row in range(1, 1 + n_senders))
        described = [(model.shape, model.dtype.str) for model in models]
        # The high bit keeps it from being zero.
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
        """Positions of the neighbours whose message is of a different kind, or has not arrived."""
        return [int(row) for row in np.flatnonzero((self._marks != self.sent[:8]).any(axis=1))]


@dataclass(frozen=True)
class NeighbourGather:
    """One kind of message on one graph: its rows, and the collective that fills them, which is used many times."""

    rows: MessageRows
    start: Callable[[], Any]
    free: Callable[[], None]


def neighbour_gather(mpi: Any, graph: Any, rows: MessageRows, new_graph: Callable[[], Any]) -> NeighbourGather:
    """All-gather of the rows over a graph communicator; ``new_graph`` makes another communicator of the same graph."""
    buffers = [rows.sent, mpi.BYTE], [rows.received, rows.sent.size, mpi.BYTE]
    try:
        request = graph.Neighbor_allgather_init(*buffers)
    except NotImplementedError:
        # Without persistent requests MPI matches messages only by order, so each kind of message gets its own
        # communicator.
        own_graph = new_graph()
        return NeighbourGather(rows, lambda: own_graph.Ineighbor_allgather(*buffers), own_graph.Free)

    def start() -> Any:
        request.Start()
        return request

    return NeighbourGather(rows, start, request.Free)


class Watchdog:
    """Checks ``current_call`` regularly. The watched thread sets it to a new object per call, and to None in between.

    A call counts from the first check that sees it, so the deadline may be late by the time between two checks.
    ``on_late`` is called once, in the watchdog's thread, when a call exceeds ``timeout_s``.
    """

    def __init__(self, timeout_s: float, on_late: Callable[[], None]) -> None:
        self._timeout_s, self._on_late = timeout_s, on_late
        self.current_call: object = None
        self._closed = threading.Event()
        self._thread: threading.Thread | None = None

    def start(self) -> None:
        if self._thread is None:
            self._thread = threading.Thread(target=self._watch, name="mpi-watchdog", daemon=True)
            self._thread.start()

    def close(self) -> None:
        self._closed.set()

    def _watch(self) -> None:
        seen, since = None, 0.0
        while not self._closed.wait(min(1.0, self._timeout_s / 4)):
            call, now = self.current_call, time.monotonic()
            if call is not seen:
                seen, since = call, now
            elif call is not None and now - since > self._timeout_s:
                self._on_late()
                return
