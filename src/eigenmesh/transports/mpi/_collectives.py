"""A neighbourhood collective, made ready once and started many times: persistent where MPI has that."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from eigenmesh.transports._packing import MessageRows


@dataclass(frozen=True)
class NeighbourGather:
    """One kind of message on one graph: its rows, and the collective that fills them.

    ``start`` returns the request to wait for; ``free`` lets go of what is held.
    """

    rows: MessageRows
    start: Callable[[], Any]
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


def _starter(request: Any) -> Callable[[], Any]:
    """What starts a persistent request and returns it."""

    def start() -> Any:
        request.Start()
        return request

    return start
