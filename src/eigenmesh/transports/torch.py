"""torch.distributed as a transport: gloo between CPUs, NCCL between GPUs."""

from __future__ import annotations

import itertools
import os
import re
import signal
import sys
import threading
import time
import zlib
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from datetime import timedelta
from functools import partial
from types import FrameType
from typing import Any, ClassVar, NoReturn

import numpy as np

from eigenmesh.arrays import Array, namespace_for
from eigenmesh.errors import AbortedError, DeadlineError, InputError, TransportError, import_extra
from eigenmesh.transports.base import Arrays, Links, Reduction, Transport, require_timeouts
from eigenmesh.words import node_list

# Pack several arrays into one PyTorch buffer of bytes, and unpack them.


Tensor = Any

# Each array starts at a multiple of this, so that its bytes can be viewed as any dtype.
ALIGNMENT = 16


class MessageLayout:
    """Layout of the messages of one exchange, the same at every node; buffers are sent from ``device``."""

    def __init__(self, torch: Any, arrays: Arrays, device: Any) -> None:
        self._torch, self._arrays, self._device = torch, arrays, device
        self._tensors = [as_tensor(torch, array, device) for array in arrays]
        self.kind = kind_of(self._tensors)
        self._starts: list[int] = []
        end = 0
        for tensor in self._tensors:
            self._starts.append(-(-end // ALIGNMENT) * ALIGNMENT)
            end = self._starts[-1] + tensor.nbytes
        self.n_bytes = end
        self.payload_bytes = sum(tensor.nbytes for tensor in self._tensors)

    def buffer(self) -> Tensor:
        return self._torch.empty(self.n_bytes, dtype=self._torch.uint8, device=self._device)

    def pack(self) -> Tensor:
        """The arrays as bytes. A single array is not copied."""
        # A contiguous tensor of one number may have any stride, and PyTorch views bytes only where it is 1.
        parts = [tensor.as_strided((tensor.numel(),), (1,)).view(self._torch.uint8) for tensor in self._tensors]
        if len(parts) == 1:
            return parts[0]
        packed = self.buffer()
        for start, part in zip(self._starts, parts, strict=True):
            packed[start : start + part.numel()] = part
        return packed

    def unpack(self, buffer: Tensor) -> Arrays:
        """The arrays in the buffer, each in the library and on the device of the array sent."""
        return tuple(
            like_input(buffer[start : start + model.nbytes].view(model.dtype).view(model.shape), array)
            for start, model, array in zip(self._starts, self._tensors, self._arrays, strict=True)
        )


def as_tensor(torch: Any, array: Array, device: Any) -> Tensor:
    """The array as a contiguous tensor on the device; not copied if it is one already."""
    if not isinstance(array, torch.Tensor):
        # A tensor cannot share read-only memory or negative strides.
        fits = array.flags.writeable and array.flags.c_contiguous
        # PyTorch cannot add uint64. The sum of signed integers has the same bits.
        array = array.view(np.int64) if array.dtype == np.uint64 else array
        array = torch.from_numpy(array if fits else np.array(array, order="C"))
    return array.detach().to(device).contiguous()


def kind_of(tensors: Sequence[Tensor]) -> str:
    """Dtypes and shapes of a message as text, for error messages and for comparison."""
    return ", ".join(f"{str(tensor.dtype).removeprefix('torch.')}{tuple(tensor.shape)}" for tensor in tensors)


def like_input(tensor: Tensor, array: Array) -> Array:
    """The tensor as an array of the library, dtype and device of the input."""
    return tensor.cpu().numpy().view(array.dtype) if isinstance(array, np.ndarray) else tensor.to(array.device)


def short_reason(error: Exception) -> str:
    """The first sentence of a PyTorch error, without its position in the source."""
    text = re.sub(r"^\[[^\]]*\.(cc|cpp|h):\d+\] ", "", str(error).strip())
    return re.split(r"\. |\n", text)[0] or type(error).__name__


# A process group of torch.distributed: joining it, its operations, and leaving it.


# Variables that torchrun sets for each process.
ENVIRONMENT = ("RANK", "WORLD_SIZE", "MASTER_ADDR", "MASTER_PORT")
# This tag and the next are for messages outside rounds. Messages of a round have higher tags.
OUTSIDE_ROUNDS = 1
# Separates the keys of different groups. The same at every node, because all make their transports in the same order.
_group_numbers = itertools.count()


@dataclass(frozen=True)
class Group:
    """One rank of a process group.

    Tensors are on ``device``, and sent from ``wire``: the same device under NCCL, otherwise the CPU. All ranks share
    ``store``, a table of keys and values, for messages outside rounds. If ``own``, the group was made here and is
    destroyed here.
    """

    torch: Any
    rank: int
    size: int
    device: Any
    wire: Any
    backend: str
    store: Any
    own: bool

    def gone(self, ranks: Sequence[int]) -> list[int]:
        """Ranks to which the connection is closed; known only under gloo."""
        return [] if self.backend != "gloo" else [rank for rank in ranks if not self._reaches(rank)]

    def _reaches(self, rank: int) -> bool:
        try:
            # Nobody receives this message, but over a closed connection it fails at once.
            self.torch.distributed.isend(self.torch.zeros(1), rank, tag=OUTSIDE_ROUNDS)
        except RuntimeError:
            return False
        return True

    def break_links(self) -> None:
        """Make all waits fail now: those of this node for others, and those of others for this node."""
        if self.backend != "gloo":
            # Older versions of PyTorch have no abort; their own watchdog ends a collective at its timeout.
            with suppress(AttributeError, RuntimeError):
                self.torch.distributed.group.WORLD._get_backend(self.wire).abort()
            return
        for rank in range(self.size):
            if rank != self.rank and self._break_by_timeout(rank):
                return

    def _break_by_timeout(self, rank: int) -> bool:
        """Wait for a message that never comes: gloo closes all connections of a node whose wait times out."""
        try:
            work = self.torch.distributed.irecv(self.torch.zeros(1), rank, tag=OUTSIDE_ROUNDS + 1)
        except RuntimeError:
            return False
        try:
            work.wait(timedelta(milliseconds=1))
        except RuntimeError:
            return True
        return False

    def leave(self) -> None:
        if self.own and self.torch.distributed.is_initialized():
            self.torch.distributed.destroy_process_group()


def join_group(torch: Any, device: str | None, backend: str | None, timeout_s: float) -> Group:
    """Join the group that the environment describes, or use the existing one."""
    distributed = torch.distributed
    if not distributed.is_available():
        raise TransportError("this PyTorch was built without torch.distributed; install a build that has it.")
    placed = torch.device(_device(torch, device))
    own = not distributed.is_initialized()
    if own:
        # NCCL refuses two ranks on one GPU.
        nccl = placed.type == "cuda" and distributed.is_nccl_available() and torch.cuda.device_count() >= _local_ranks()
        backend = backend or ("nccl" if nccl else "gloo")
        store = _make_group(torch, placed, backend, timeout_s)
    else:
        backend = _backend_of(distributed, placed)
        shared = distributed.distributed_c10d._get_default_store()
        store = distributed.PrefixStore(f"eigenmesh/{next(_group_numbers)}", shared)
    wire = placed if backend == "nccl" else torch.device("cpu")
    return Group(torch, distributed.get_rank(), distributed.get_world_size(), placed, wire, backend, store, own)


def _device(torch: Any, device: str | None) -> str:
    """Full name of the device; "cuda" without a number is the GPU of the local rank."""
    gpus, local_rank = torch.cuda.device_count(), int(os.environ.get("LOCAL_RANK", "0"))
    if device is None:
        device = "cuda" if gpus and gpus >= _local_ranks() else "cpu"
    if device == "cuda" and gpus:
        device = f"cuda:{local_rank % gpus}"
    return str(namespace_for(device)[1])


def _local_ranks() -> int:
    return int(os.environ.get("LOCAL_WORLD_SIZE", "1"))


def _backend_of(distributed: Any, device: Any) -> str:
    """The backend of the existing group for this device. A group may have one backend per kind of device."""
    configured = str(distributed.get_backend_config())
    kinds = dict(part.partition(":")[::2] for part in configured.split(","))
    if kinds.get(device.type) == "nccl":
        return "nccl"
    if kinds.get("cpu") != "gloo":
        raise InputError(f"the process group has the backend {configured}; for tensors on {device} it needs cpu:gloo.")
    return "gloo"


def _make_group(torch: Any, device: Any, backend: str, timeout_s: float) -> Any:
    unset = [name for name in ENVIRONMENT if name not in os.environ]
    if unset:
        example = "torchrun --nproc-per-node 4 -m eigenmesh fit data-{rank}.npy --transport torch"
        raise InputError(f"{', '.join(unset)} is not set; start the processes with torchrun, e.g. {example}")
    if backend not in ("gloo", "nccl"):
        raise InputError(f"backend = {backend!r} must be gloo or nccl.")
    rank, size = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
    distributed, limit = torch.distributed, timedelta(seconds=timeout_s)
    try:
        store = distributed.PrefixStore(f"eigenmesh/{next(_group_numbers)}", _store(distributed, rank, size, limit))
        _wait_for_all(store, rank, size, limit)
        if backend == "nccl":
            torch.cuda.set_device(device)
        distributed.init_process_group(backend, store=store, rank=rank, world_size=size, timeout=limit)
    except (RuntimeError, ValueError) as error:
        where = f"{os.environ['MASTER_ADDR']}:{os.environ['MASTER_PORT']}"
        raise TransportError(f"node {rank} could not join the others at {where}: {short_reason(error)}.") from error
    return store


def _store(distributed: Any, rank: int, size: int, limit: timedelta) -> Any:
    """torchrun's store, or one that node 0 hosts."""
    if os.environ.get("TORCHELASTIC_USE_AGENT_STORE") == str(True):
        return next(distributed.rendezvous("env://", timeout=limit))[0]
    host, port = os.environ["MASTER_ADDR"], int(os.environ["MASTER_PORT"])
    # Node 0 does not wait here, because an error of the store would not name the missing node.
    settings = {"is_master": rank == 0, "timeout": limit, "wait_for_workers": False, "multi_tenant": True}
    try:
        return distributed.TCPStore(host, port, size, **settings)
    except RuntimeError as error:
        if rank == 0:
            raise
        raise _join_error(rank, [0], limit) from error


def _wait_for_all(store: Any, rank: int, size: int, limit: timedelta) -> None:
    """Wait until all nodes have joined. An error names those that have not."""
    keys = {other: f"here/{other}" for other in range(size)}
    store.set(keys[rank], "yes")
    try:
        store.wait(list(keys.values()), limit)
    except RuntimeError as error:
        absent = [other for other, key in keys.items() if not store.check([key])]
        if absent:
            raise _join_error(rank, absent, limit) from error
        raise


def _join_error(rank: int, absent: Sequence[int], limit: timedelta) -> DeadlineError:
    waited = f"node {rank} waited {limit.total_seconds():g} s for {node_list(absent)} to join"
    return DeadlineError(f"{waited}; start all nodes, or give a longer join_timeout_s.")


# How nodes under torch.distributed learn that another one has failed.


REASON, READ, LATE = "reason", "read", "late"
# How often a node checks whether another one has failed.
POLL_S = 0.1
# How long a failing node waits until the others have read its reason: the store may end with its process.
PUBLISH_WITHIN_S = 1.0
# Two deadlines at most this far apart belong to the same wait.
LATE_WITHIN_S = 0.5


class FailureMonitor:
    """A thread that polls the group's store for the reason of another node's failure, and then wakes this node.

    A wait of gloo ends early only if its links break, so this node is woken by breaking its links.
    """

    def __init__(self, group: Group) -> None:
        self._group = group
        self._end = threading.Event()
        # Re-entrant, because a signal handler may need it while the main thread holds it.
        self._lock = threading.RLock()
        self._failure = ""
        self._thread = threading.Thread(target=self._run, name="eigenmesh failures", daemon=True)
        self._thread.start()

    def check(self) -> None:
        if self._failure:
            raise AbortedError(self._failure)

    def poll(self) -> None:
        """Read the store now, and raise if a node has failed."""
        self._read()
        self.check()

    def publish(self, reason: str) -> None:
        """Put the reason in the store, unless there is one already. Then break this node's links."""
        self._read()
        if not self._failure:
            self._failure = f"node {self._group.rank} ended the run: {reason}"
            # If the store has ended with its process, the others will only see broken links.
            with suppress(RuntimeError):
                self._group.store.compare_set(REASON, "", f"{self._group.rank} {reason}")
                self._wait_until_read()
        self._group.break_links()

    def _wait_until_read(self) -> None:
        deadline = time.monotonic() + PUBLISH_WITHIN_S
        others = [rank for rank in range(self._group.size) if rank != self._group.rank]
        left = len(others) - len(self._group.gone(others))
        while self._group.store.add(READ, 0) < left and time.monotonic() < deadline:
            time.sleep(0.01)

    def late_ranks(self, kind: str, ranks: Sequence[int]) -> dict[int, str]:
        """After a deadline: the ranks that missed it, too, and the kind of message that each waited for."""
        store, until = self._group.store, time.monotonic() + LATE_WITHIN_S
        keys = {rank: f"{LATE}/{rank}" for rank in ranks}
        present: list[int] = []
        try:
            store.set(f"{LATE}/{self._group.rank}", kind)
            while len(present) < len(keys) and time.monotonic() < until:
                time.sleep(0.02)
                present = [rank for rank, key in keys.items() if store.check([key])]
            return {rank: store.get(keys[rank]).decode() for rank in present}
        except RuntimeError:
            return {}

    def wait_for_reason(self, kind: str, ranks: Sequence[int]) -> None:
        """After connections to these ranks closed: raise their reason if it appears; wait longer if one was late."""
        store, until = self._group.store, time.monotonic() + LATE_WITHIN_S
        marked = False
        with suppress(RuntimeError):
            while time.monotonic() < until:
                self.poll()
                if not marked and any(store.check([f"{LATE}/{rank}"]) for rank in ranks):
                    marked = True
                    store.set(f"{LATE}/{self._group.rank}", kind)
                    until += LATE_WITHIN_S + PUBLISH_WITHIN_S
                time.sleep(0.02)

    def stop(self) -> None:
        self._end.set()
        self._thread.join()

    def _run(self) -> None:
        while not self._end.wait(POLL_S):
            if not self._failure and not self._read():
                return
            if self._failure:
                self._group.break_links()
                return

    def _read(self) -> bool:
        """Take the reason of another node's failure, if there is one; False if the store cannot be read."""
        with self._lock:
            if self._failure:
                return True
            try:
                store: Any = self._group.store
                if store.check([REASON]):
                    rank, _, reason = store.get(REASON).decode(errors="replace").partition(" ")
                    self._failure = f"node {rank} ended the run: {reason}"
                    store.add(READ, 1)
            except RuntimeError:
                return False
            return True


class SigtermHandler:
    """Makes the first SIGTERM raise an error in the main thread, unless something else handles it.

    torchrun sends SIGTERM to all ranks a tenth of a second after one has died. By default they would end without a
    message. A second SIGTERM ends the process as usual.
    """

    def __init__(self, raise_error: Callable[[], None]) -> None:
        self._raise_error = raise_error
        main = threading.current_thread() is threading.main_thread()
        self._installed = main and signal.getsignal(signal.SIGTERM) is signal.SIG_DFL
        if self._installed:
            signal.signal(signal.SIGTERM, self._handle)

    def _handle(self, number: int, frame: FrameType | None) -> None:
        self.stop()
        self._raise_error()

    def stop(self) -> None:
        if self._installed and threading.current_thread() is threading.main_thread():
            signal.signal(signal.SIGTERM, signal.SIG_DFL)


# PyTorch rounds a wait down to whole milliseconds, so it may end a little before its deadline.
ROUNDING_S = 0.01
JOIN_TIMEOUT_S = 60.0


class TorchTransport(Transport):
    """One rank of a process group of torch.distributed, as torchrun starts it.

    Tensors stay on their device under NCCL; under gloo messages go through the CPU. NumPy arrays are accepted, too, and
    received as NumPy arrays. An existing process group is used and not destroyed. Otherwise one is made from the
    environment that torchrun sets, and destroyed by ``close``.

    Parameters
    ----------
    device : device of this node's tensors. By default a GPU if every rank of this machine can have one, else the CPU.
    timeout_s : how long to wait for a neighbour.
    backend : "gloo" or "nccl". By default nccl if every rank of this machine has its own GPU.
    join_timeout_s : how long to wait for all nodes to join. By default ``timeout_s``, but at least a minute, because
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
        require_timeouts(timeout_s=timeout_s, join_timeout_s=join_timeout_s)
        self._torch = import_extra("torch", "torch", "the torch transport")
        self.timeout_s = timeout_s
        self._group: Group = join_group(self._torch, device, backend, join_timeout_s)
        self._rank, self._size = self._group.rank, self._group.size
        self._closed = self._failing = False
        self._monitor = FailureMonitor(self._group)
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
        message = MessageLayout(self._torch, arrays, self._group.wire)
        if message.n_bytes == 0:
            return dict.fromkeys(links.receive_from, arrays)
        buffers = {sender: message.buffer() for sender in links.receive_from}
        distributed = self._torch.distributed
        # One tag per kind of message: gloo kills a process that gets more bytes than it expects, and never matches
        # messages with different tags.
        one = partial(distributed.P2POp, tag=OUTSIDE_ROUNDS + 2 + zlib.crc32(message.kind.encode()) // 4)
        operations = [one(distributed.irecv, buffers[sender], sender) for sender in links.receive_from]
        packed = message.pack() if links.send_to else None
        operations += [one(distributed.isend, packed, receiver) for receiver in links.send_to]
        if operations:
            ranks = [*links.receive_from, *links.send_to]
            self._complete(lambda: distributed.batch_isend_irecv(operations), ranks, message.kind)
        self.sent.add(len(links.send_to), message.payload_bytes)
        return {sender: message.unpack(buffer) for sender, buffer in buffers.items()}

    def all_reduce(self, array: Array, reduction: Reduction) -> Array:
        reduced = self._reduced(array, reduction)
        self.sent.add(self._reduce_messages, reduced.nbytes)
        return like_input(reduced, array)

    def _reduced(self, array: Array, reduction: Reduction) -> Any:
        self._check()
        own = as_tensor(self._torch, array, self._group.wire)
        if reduction == "mean" and not own.is_floating_point():
            raise InputError(f"a mean of {own.dtype} is not defined; use float32 or float64.")
        reduced = own * (1 / self.size) if reduction == "mean" else own.clone()
        distributed, kind = self._torch.distributed, f"{reduction} of {kind_of([reduced])}"
        operation = distributed.ReduceOp.MAX if reduction == "max" else distributed.ReduceOp.SUM
        self._complete(lambda: [distributed.all_reduce(reduced, operation, async_op=True)], self.others, kind)
        return reduced

    def _complete(self, start: Callable[[], list[Any]], ranks: Sequence[int], kind: str) -> None:
        """Start operations with these ranks, and wait for them. An error names the ranks of the one that failed.

        The host waits under NCCL, too, so that the deadline holds.
        """
        deadline, involved = time.monotonic() + self.timeout_s, ranks
        try:
            works = start()
            for index, work in enumerate(works):
                # NCCL combines all operations into one work.
                involved = [ranks[index]] if len(works) == len(ranks) else ranks
                if work.wait(timedelta(seconds=max(0.001, deadline - time.monotonic()))) is False:
                    raise RuntimeError("the operation was cancelled")
        except RuntimeError as error:
            self._fail(error, involved, kind, deadline)

    def _check(self) -> None:
        if self._closed:
            raise TransportError(f"node {self.rank} has closed its links.")
        self._monitor.check()

    def _fail(self, error: RuntimeError, involved: Sequence[int], kind: str, deadline: float) -> NoReturn:
        """Raise the reason of a failed operation: another node's failure, the deadline, or nodes that are gone."""
        self._failing = True
        late = time.monotonic() > deadline - ROUNDING_S
        self._monitor.poll()
        involved = sorted(set(involved))
        if not late:
            gone = self._group.gone(involved) or involved
            # A missed deadline of another node also closes connections: look for its reason first.
            self._monitor.wait_for_reason(kind, gone)
            raise TransportError(self._loss(gone, short_reason(error))) from error
        waiting = self._monitor.late_ranks(kind, involved)
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
        self._monitor.poll()
        gone = self._group.gone(self.others)
        if gone:
            raise TransportError(self._loss(gone, "the launcher ends all"))
        raise AbortedError(f"node {self.rank} was told to end (SIGTERM).")

    def abort(self, reason: str) -> None:
        self._failing = True
        if not self._closed:
            self._monitor.publish(reason)

    def close(self) -> None:
        if self._closed:
            return
        self._closed = True
        self._monitor.stop()
        if self._failing:
            # Otherwise the end of the group would wait for its pending operations.
            self._group.break_links()
        # After a failure the launcher sends SIGTERM, which must not end the process before it has reported the reason.
        if self._sigterm is not None and not self._failing:
            self._sigterm.stop()
        self._group.leave()


def _main() -> None:
    """Run torchrun, and end with the exit status of the process that failed first.

    ``python -m eigenmesh.transports.torch`` calls it. torchrun itself ends with status 1 whenever a process fails, and
    with a traceback of its own.
    """
    from torch.distributed.elastic.multiprocessing.errors import ChildFailedError
    from torch.distributed.run import main

    try:
        main()
    except ChildFailedError as error:
        status = error.get_first_failure()[1].exitcode
        if status < 0:
            # A killed process could not say so itself. A shell reports death by signal 9 as 137.
            sys.stderr.write(f"{error}\n")
            status = 128 - status
        sys.exit(status)


if __name__ == "__main__":
    _main()
