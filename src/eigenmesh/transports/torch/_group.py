"""A process group of torch.distributed: joining it, its operations, and leaving it."""

import itertools
import os
import zlib
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from datetime import timedelta
from typing import Any

from eigenmesh._text import node_list
from eigenmesh.arrays import namespace_for
from eigenmesh.errors import DeadlineError, InputError, TransportError
from eigenmesh.transports._base import Reduction
from eigenmesh.transports.torch._messages import short_reason

# Variables that torchrun sets for each process.
ENVIRONMENT = ("RANK", "WORLD_SIZE", "MASTER_ADDR", "MASTER_PORT")
# This tag and the next are for messages outside rounds; messages of a round have higher tags.
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

    def start(self, operations: Sequence[tuple[Any, Any, int]], kind: str) -> list[Any]:
        """Start all (operation, buffer, rank) of one round; returns the works to wait for."""
        # One tag per kind of message: gloo kills a process that gets more bytes than it expects, and never matches
        # messages with different tags.
        tag = OUTSIDE_ROUNDS + 2 + zlib.crc32(kind.encode()) // 4
        distributed = self.torch.distributed
        works: list[Any] = distributed.batch_isend_irecv([distributed.P2POp(*one, tag=tag) for one in operations])
        return works

    def reduce(self, tensor: Any, reduction: Reduction) -> Any:
        """Start an all-reduce in place; returns the work to wait for. For a mean, divide by M first."""
        kinds = self.torch.distributed.ReduceOp
        return self.torch.distributed.all_reduce(tensor, kinds.MAX if reduction == "max" else kinds.SUM, async_op=True)

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
    """The backend of the existing group for this device; a group may have one backend per kind of device."""
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
    """Wait until all nodes have joined; an error names those that have not."""
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
