"""MPI collectives made ready once and started many times: persistent where the MPI has that, else non-blocking."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from eigenmesh.errors import InputError
from eigenmesh.transports.base import Reduction
from eigenmesh.transports.packing import MessageRows

# A persistent all-reduce has buffers of its own; beyond this size copying costs more than a new request.
COPIED_BYTES = 16_384


@dataclass(frozen=True)
class NeighbourGather:
    """One kind of message on one graph: its rows, and the collective that fills them.

    ``start`` returns the request to wait for; ``free`` lets go of what is held.
    """

    rows: MessageRows
    start: Callable[[], Any]
    free: Callable[[], None]


@dataclass(frozen=True)
class AllReduction:
    """An all-reduce of one shape and dtype.

    ``start`` takes the array, C-contiguous and kept alive by the caller until the end, and returns the request to wait
    for and where the outcome will lie; where that is ``kept``, the next start writes to it.
    """

    start: Callable[[np.ndarray], tuple[Any, np.ndarray]]
    kept: bool
    free: Callable[[], None]


def neighbour_gather(mpi: Any, graph: Any, rows: MessageRows, another: Callable[[], Any]) -> NeighbourGather:
    """All-gather of the rows over the links of a graph communicator; ``another`` makes one more such communicator."""
    buffers = [rows.sent, mpi.BYTE], [rows.received, rows.sent.size, mpi.BYTE]
    try:
        request = graph.Neighbor_allgather_init(*buffers)
    except NotImplementedError:
        # Requests that are made anew match by their order alone: a communicator for each kind keeps them apart.
        own_graph = another()
        return NeighbourGather(rows, lambda: own_graph.Ineighbor_allgather(*buffers), own_graph.Free)
    return NeighbourGather(rows, _starter(request), request.Free)


def all_reduction(
    mpi: Any, comm: Any, model: np.ndarray, reduction: Reduction, another: Callable[[], Any]
) -> AllReduction:
    """All-reduce of arrays like the model; ``another`` makes one more communicator."""
    if model.dtype.kind not in "fiu" or model.dtype == np.float16:
        raise InputError(f"MPI has no {reduction} of {model.dtype}; use float32, float64 or a type of whole numbers.")
    operation = {"sum": mpi.SUM, "max": mpi.MAX}[reduction]
    own, total = np.empty(model.shape, model.dtype), np.empty(model.shape, model.dtype)
    try:
        request = comm.Allreduce_init(own, total, operation) if model.nbytes <= COPIED_BYTES else None
    except NotImplementedError:
        request = None
    if request is None:
        return _direct_reduction(another(), operation)

    def start(array: np.ndarray) -> tuple[Any, np.ndarray]:
        own[...] = array
        request.Start()
        return request, total

    return AllReduction(start, True, request.Free)


def _direct_reduction(comm: Any, operation: Any) -> AllReduction:
    """From the array itself to a new one, on a communicator of its own."""

    def start(array: np.ndarray) -> tuple[Any, np.ndarray]:
        total = np.empty_like(array)
        return comm.Iallreduce(array, total, operation), total

    return AllReduction(start, False, comm.Free)


def _starter(request: Any) -> Callable[[], Any]:
    """What starts a persistent request and returns it."""

    def start() -> Any:
        request.Start()
        return request

    return start
