"""A neighbourhood collective that is prepared once and started many times; persistent where MPI has that."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from eigenmesh.transports._packing import MessageRows


@dataclass(frozen=True)
class NeighbourGather:
    """One kind of message on one graph: its rows, and the collective that fills them; ``start`` returns the request."""

    rows: MessageRows
    start: Callable[[], Any]
    free: Callable[[], None]


def neighbour_gather(mpi: Any, graph: Any, rows: MessageRows, new_graph: Callable[[], Any]) -> NeighbourGather:
    """All-gather of the rows over the links of a graph communicator; ``new_graph`` makes another such communicator."""
    buffers = [rows.sent, mpi.BYTE], [rows.received, rows.sent.size, mpi.BYTE]
    try:
        request = graph.Neighbor_allgather_init(*buffers)
    except NotImplementedError:
        # Requests that are not persistent match by order only: one communicator per kind of message separates them.
        own_graph = new_graph()
        return NeighbourGather(rows, lambda: own_graph.Ineighbor_allgather(*buffers), own_graph.Free)

    def start() -> Any:
        request.Start()
        return request

    return NeighbourGather(rows, start, request.Free)
