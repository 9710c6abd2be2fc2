"""torch.distributed as a transport: gloo between CPUs, NCCL between GPUs."""

from __future__ import annotations

import time
from collections.abc import Sequence
from datetime import timedelta
from typing import Any, ClassVar, NoReturn

from eigenmesh.arrays import Array
from eigenmesh.errors import AbortedError, DeadlineError, InputError, TransportError, import_extra
from eigenmesh.transports._base import Arrays, Links, Reduction, Transport
from eigenmesh.transports.torch._group import Group, join
from eigenmesh.transports.torch._messages import Message, as_before, as_tensor, gist, kind_of, names
from eigenmesh.transports.torch._watchdog import TerminationNotice, Watch

# A wait is rounded down to whole milliseconds, so it may end a little before its deadline.
ROUNDING_S = 0.01
JOIN_TIMEOUT_S = 60.0


class TorchTransport(Transport):
    """One rank of a process group of torch.distributed, as torchrun starts it.

    Tensors stay on their device under NCCL; under gloo messages go through the CPU. NumPy arrays are taken too, and
    come back as NumPy arrays.

    Parameters
    ----------
    device : str or None
        Where this node's tensors lie; by default a GPU of its own if there is one for every rank of this machine, else
        the CPU.
    timeout_s : float
        How long to wait for a neighbour.
    backend : str or None
        "gloo" or "nccl"; by default nccl where every rank of this machine has a GPU of its own.
    join_timeout_s : float or None
        How long to wait for all nodes to join; by default ``timeout_s``, but at least a minute, for processes may take
        long to start.

    A process group that exists already is used and left as it is; else one is made from the environment that torchrun
    sets, and ended at ``close``.
    """

    reduces: ClassVar[bool] = True

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
        self._group: Group = join(self._torch, device, backend, join_timeout_s)
        self._closed = self._failing = False
        self._watch = Watch(self._group)
        self._notice = TerminationNotice(self._on_termination) if self._group.own else None
        # Under NCCL the first message of a group must be one that all ranks take part in.
        self._reduced(self._torch.zeros(1, device=self._group.wire), "sum")

    @property
    def rank(self) -> int:
        """Global id of this node."""
        return self._group.rank

    @property
    def size(self) -> int:
        """M."""
        return self._group.size

    @property
    def device(self) -> str:
        """Where this node's tensors lie."""
        return str(self._group.device)

    @property
    def backend(self) -> str:
        """Name of what carries the messages: gloo or nccl."""
        return self._group.backend

    def exchange(self, arrays: Arrays, links: Links) -> dict[int, Arrays]:
        """Send one buffer to each neighbour and receive one from each, all at once."""
        self._check()
        deadline = time.monotonic() + self.timeout_s
        message = Message(self._torch, arrays, self._group.wire)
        if message.n_bytes == 0:
            return dict.fromkeys(links.receive_from, arrays)
        buffers = {sender: message.buffer() for sender in links.receive_from}
        operations = [(self._group.receive, buffers[sender], sender) for sender in links.receive_from]
        packed = message.pack() if links.send_to else None
        operations += [(self._group.send, packed, receiver) for receiver in links.send_to]
        if operations:
            self._carry_out(operations, message.kind, deadline)
        self.sent.add(len(links.send_to), message.payload_bytes)
        return {sender: message.unpack(buffer) for sender, buffer in buffers.items()}

    def _carry_out(self, operations: list[tuple[Any, Any, int]], kind: str, deadline: float) -> None:
        ranks = [rank for _, _, rank in operations]
        try:
            works = self._group.start(operations, kind)
        except RuntimeError as error:
            self._fail(error, ranks, kind, deadline)
        # NCCL makes one work of all operations.
        of_work = [[rank] for rank in ranks] if len(works) == len(ranks) else [ranks] * len(works)
        for work, involved in zip(works, of_work, strict=True):
            self._wait(work, involved, kind, deadline)

    def all_reduce(self, array: Array, reduction: Reduction) -> Array:
        """Elementwise sum, mean or maximum over all nodes."""
        reduced = self._reduced(array, reduction)
        self.sent.add(self._reduce_messages, reduced.numel() * reduced.itemsize)
        return as_before(reduced, array)

    def _reduced(self, array: Array, reduction: Reduction) -> Any:
        self._check()
        deadline = time.monotonic() + self.timeout_s
        own = as_tensor(self._torch, array, self._group.wire)
        if reduction == "mean" and not own.is_floating_point():
            raise InputError(f"there is no mean of {own.dtype}; use float32 or float64.")
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
        """Wait for one operation; under NCCL too the host waits, for the sake of the deadline."""
        remaining = max(0.001, deadline - time.monotonic())
        try:
            done = work.wait(timedelta(seconds=remaining))
        except RuntimeError as error:
            self._fail(error, involved, kind, deadline)
        if done is False:
            self._fail(RuntimeError("the operation was ended"), involved, kind, deadline)

    def _check(self) -> None:
        if self._closed:
            raise TransportError(f"node {self.rank} has closed its links.")
        self._watch.check()

    def _fail(self, error: RuntimeError, involved: Sequence[int], kind: str, deadline: float) -> NoReturn:
        """Say why an operation failed: another node's reason, the deadline, or nodes that are gone."""
        self._failing = True
        late = time.monotonic() > deadline - ROUNDING_S
        self._watch.look()
        involved = sorted(set(involved))
        if not late:
            gone = self._group.gone(involved) or involved
            # A connection is closed by a deadline too, and then not the node behind it is to blame.
            self._watch.hear_out(kind, gone)
            raise TransportError(self._loss(gone, gist(error))) from error
        waiting = self._watch.waiting(kind, involved)
        for rank, theirs in waiting.items():
            if theirs != kind:
                raise InputError(f"node {rank} exchanged {theirs} where node {self.rank} exchanged {kind}.") from error
        absent = [rank for rank in involved if rank not in waiting] or involved
        raise DeadlineError(
            f"node {self.rank} waited {self.timeout_s:g} s for {names(absent)}; it is slow or gone."
        ) from error

    def _loss(self, ranks: Sequence[int], detail: str) -> str:
        return f"node {self.rank} lost {names(ranks)}: the process ended or the connection broke ({detail})."

    def _on_termination(self) -> None:
        """The launcher ends all processes when one has died: say which, as far as this node can tell."""
        if self._failing:
            return
        self._failing = True
        self._watch.look()
        gone = self._group.gone([rank for rank in range(self.size) if rank != self.rank])
        if gone:
            raise TransportError(self._loss(gone, "the launcher ends all"))
        raise AbortedError(f"node {self.rank} was told to end (SIGTERM).")

    def abort(self, reason: str) -> None:
        """Leave the reason where all nodes look, then break this node's links."""
        self._failing = True
        if not self._closed:
            self._watch.tell(reason)

    def close(self) -> None:
        """Stop looking, and end the process group if it was made here."""
        if self._closed:
            return
        self._closed = True
        self._watch.stop()
        if self._failing:
            # Else the end of the group would wait for what still waits in it.
            self._group.break_links()
        # After a failure the launcher's SIGTERM is still to come, and must not end the process before it has spoken.
        if self._notice is not None and not self._failing:
            self._notice.stop()
        self._group.leave()
