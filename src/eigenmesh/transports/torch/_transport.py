"""torch.distributed as a transport: gloo between CPUs, NCCL between GPUs."""

import time
from collections.abc import Sequence
from datetime import timedelta
from typing import Any, ClassVar, NoReturn

from eigenmesh._text import node_list
from eigenmesh.arrays import Array
from eigenmesh.errors import AbortedError, DeadlineError, InputError, TransportError, import_extra
from eigenmesh.transports._base import Arrays, Links, Reduction, Transport
from eigenmesh.transports.torch._group import Group, join_group
from eigenmesh.transports.torch._messages import MessageLayout, as_tensor, kind_of, like_input, short_reason
from eigenmesh.transports.torch._watchdog import AbortWatch, SigtermHandler

# PyTorch rounds a wait down to whole milliseconds, so it may end a little before its deadline.
ROUNDING_S = 0.01
JOIN_TIMEOUT_S = 60.0


class TorchTransport(Transport):
    """One rank of a process group of torch.distributed, as torchrun starts it.

    Tensors stay on their device under NCCL; under gloo messages go through the CPU. NumPy arrays are accepted, too, and
    received as NumPy arrays. An existing process group is used and not destroyed; otherwise one is made from the
    environment that torchrun sets, and destroyed by ``close``.

    Parameters
    ----------
    device : device of this node's tensors; by default a GPU if every rank of this machine can have one, else the CPU.
    timeout_s : how long to wait for a neighbour.
    backend : "gloo" or "nccl"; by default nccl if every rank of this machine has its own GPU.
    join_timeout_s : how long to wait for all nodes to join; by default ``timeout_s``, but at least a minute, because
        processes may start slowly.
    """

    reduces: ClassVar[bool] = True
    changes_links: ClassVar[bool] = True

    def __init__(
        self,
        device: str | None = None,
        timeout_s: float = 60.0,
        backend: str | None = None,
        join_timeout_s: float | None = None,
    ) -> None:
        join_timeout_s = max(timeout_s, JOIN_TIMEOUT_S) if join_timeout_s is None else join_timeout_s
        for name, value in (("timeout_s", timeout_s), ("join_timeout_s", join_timeout_s)):
            if not value > 0:
                raise InputError(f"{name} = {value!r} must be above 0.")
        self._torch = import_extra("torch", "torch", "the torch transport")
        self.timeout_s = timeout_s
        self._group: Group = join_group(self._torch, device, backend, join_timeout_s)
        self._rank, self._size = self._group.rank, self._group.size
        self._closed = self._failing = False
        self._watch = AbortWatch(self._group)
        self._sigterm = SigtermHandler(self._on_termination) if self._group.own else None
        # Under NCCL the first operation of a group must involve all ranks.
        self._reduced(self._torch.zeros(1, device=self._group.wire), "sum")

    @property
    def device(self) -> str:
        """Device of this node's tensors."""
        return str(self._group.device)

    @property
    def backend(self) -> str:
        return self._group.backend

    def exchange(self, arrays: Arrays, links: Links) -> dict[int, Arrays]:
        self._check()
        deadline = time.monotonic() + self.timeout_s
        message = MessageLayout(self._torch, arrays, self._group.wire)
        if message.n_bytes == 0:
            return dict.fromkeys(links.receive_from, arrays)
        buffers = {sender: message.buffer() for sender in links.receive_from}
        distributed = self._torch.distributed
        operations = [(distributed.irecv, buffers[sender], sender) for sender in links.receive_from]
        packed = message.pack() if links.send_to else None
        operations += [(distributed.isend, packed, receiver) for receiver in links.send_to]
        if operations:
            self._send_and_receive(operations, message.kind, deadline)
        self.sent.add(len(links.send_to), message.payload_bytes)
        return {sender: message.unpack(buffer) for sender, buffer in buffers.items()}

    def _send_and_receive(self, operations: list[tuple[Any, Any, int]], kind: str, deadline: float) -> None:
        ranks = [rank for _, _, rank in operations]
        try:
            works = self._group.start(operations, kind)
        except RuntimeError as error:
            self._fail(error, ranks, kind, deadline)
        # NCCL combines all operations into one work.
        of_work = [[rank] for rank in ranks] if len(works) == len(ranks) else [ranks] * len(works)
        for work, involved in zip(works, of_work, strict=True):
            self._wait(work, involved, kind, deadline)

    def all_reduce(self, array: Array, reduction: Reduction) -> Array:
        reduced = self._reduced(array, reduction)
        self.sent.add(self._reduce_messages, reduced.nbytes)
        return like_input(reduced, array)

    def _reduced(self, array: Array, reduction: Reduction) -> Any:
        self._check()
        deadline = time.monotonic() + self.timeout_s
        own = as_tensor(self._torch, array, self._group.wire)
        if reduction == "mean" and not own.is_floating_point():
            raise InputError(f"a mean of {own.dtype} is not defined; use float32 or float64.")
        reduced = own * (1 / self.size) if reduction == "mean" else own.clone()
        others = [rank for rank in range(self.size) if rank != self.rank]
        kind = f"{reduction} of {kind_of([reduced])}"
        try:
            work = self._group.reduce(reduced, reduction)
        except RuntimeError as error:
            self._fail(error, others, kind, deadline)
        self._wait(work, others, kind, deadline)
        return reduced

    def _wait(self, work: Any, involved: Sequence[int], kind: str, deadline: float) -> None:
        """Wait for one operation; the host waits under NCCL, too, so that the deadline holds."""
        try:
            done = work.wait(timedelta(seconds=max(0.001, deadline - time.monotonic())))
        except RuntimeError as error:
            self._fail(error, involved, kind, deadline)
        if done is False:
            self._fail(RuntimeError("the operation was cancelled"), involved, kind, deadline)

    def _check(self) -> None:
        if self._closed:
            raise TransportError(f"node {self.rank} has closed its links.")
        self._watch.check()

    def _fail(self, error: RuntimeError, involved: Sequence[int], kind: str, deadline: float) -> NoReturn:
        """Raise the reason of a failed operation: another node's failure, the deadline, or nodes that are gone."""
        self._failing = True
        late = time.monotonic() > deadline - ROUNDING_S
        self._watch.poll()
        involved = sorted(set(involved))
        if not late:
            gone = self._group.gone(involved) or involved
            # A missed deadline of another node also closes connections: look for its reason first.
            self._watch.wait_for_reason(kind, gone)
            raise TransportError(self._loss(gone, short_reason(error))) from error
        waiting = self._watch.late_ranks(kind, involved)
        for rank, theirs in waiting.items():
            if theirs != kind:
                raise InputError(f"node {rank} exchanged {theirs}, but node {self.rank} exchanged {kind}.") from error
        absent = [rank for rank in involved if rank not in waiting] or involved
        waited = f"node {self.rank} waited {self.timeout_s:g} s for {node_list(absent)}"
        raise DeadlineError(f"{waited}; it is slow or gone.") from error

    def _loss(self, ranks: Sequence[int], detail: str) -> str:
        return f"node {self.rank} lost {node_list(ranks)}: the process ended or the connection broke ({detail})."

    def _on_termination(self) -> None:
        """The launcher ends all processes when one has died: name the dead node, if this node can find it."""
        if self._failing:
            return
        self._failing = True
        self._watch.poll()
        gone = self._group.gone([rank for rank in range(self.size) if rank != self.rank])
        if gone:
            raise TransportError(self._loss(gone, "the launcher ends all"))
        raise AbortedError(f"node {self.rank} was told to end (SIGTERM).")

    def abort(self, reason: str) -> None:
        self._failing = True
        if not self._closed:
            self._watch.publish(reason)

    def close(self) -> None:
        if self._closed:
            return
        self._closed = True
        self._watch.stop()
        if self._failing:
            # Otherwise the end of the group would wait for its pending operations.
            self._group.break_links()
        # After a failure the launcher sends SIGTERM, which must not end the process before it has reported the reason.
        if self._sigterm is not None and not self._failing:
            self._sigterm.stop()
        self._group.leave()
