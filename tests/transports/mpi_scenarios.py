"""What ranks do under mpiexec beside the contract of all transports."""

from __future__ import annotations

import contextlib
import time

import numpy as np
from mpi4py import MPI

from eigenmesh.errors import DeadlineError, InputError
from eigenmesh.transports import Links, Transport
from eigenmesh.transports.mpi import MPITransport
from transports.failures import CULPRIT, SLEEP_S, rounds_without_end

Outcome = dict[str, np.ndarray | str | float]


def refusals(transport: Transport) -> Outcome:
    """Settings and arrays that cannot be worked with, each refused at all ranks alike."""
    tries = {
        "float16": lambda: transport.all_reduce(np.ones(2, np.float16), "sum"),
        "mean": lambda: transport.all_reduce(np.ones(2, np.int64), "mean"),
        "links": lambda: transport.exchange((np.ones(2),), Links((), ())),
        "timeout": lambda: MPITransport(timeout_s=0),
    }
    texts: Outcome = {}
    for name, attempt in tries.items():
        try:
            attempt()
        except InputError as error:
            texts[name] = str(error)
    return texts


def groups(transport: Transport) -> Outcome:
    """Even and odd ranks as networks of their own, at work between the rounds of the whole one."""
    whole = [rank for rank in range(transport.size) if rank != transport.rank]
    links = transport.links(whole, whole)
    comm = MPI.COMM_WORLD.Split(transport.rank % 2, transport.rank)
    with MPITransport(comm) as group:
        others = [rank for rank in range(group.size) if rank != group.rank]
        inner = group.links(others, others)
        mine = (np.array([float(transport.rank)]),)
        heard = group.exchange(mine, inner), transport.exchange(mine, links), group.exchange(mine, inner)
        sums = [sum(float(message[0][0]) for message in received.values()) for received in heard]
        return {"size": group.size, "sums": np.array(sums), "total": float(group.all_reduce(mine[0], "sum")[0])}


def tensors(transport: Transport) -> Outcome:
    """PyTorch in, PyTorch out."""
    import torch

    others = [rank for rank in range(transport.size) if rank != transport.rank]
    mine = torch.full((1, 2), float(transport.rank))
    links = transport.links(others, others)
    (stack,) = transport.gather((mine,), links)
    received = [message[0] for message in transport.exchange((mine,), links).values()]
    total = transport.all_reduce(mine, "sum")
    kinds = {type(array).__name__ + str(array.dtype) for array in (stack, *received, total)}
    return {"stack": stack.numpy(), "total": total.numpy(), "kinds": " ".join(sorted(kinds))}


def transposed(transport: Transport) -> Outcome:
    """Arrays that do not lie in C order, small ones and ones that are reduced without a copy."""
    arrays = {f"{rows}": np.arange(3.0 * rows).reshape(rows, 3).T + transport.rank for rows in (2, 10_000)}
    return {name: transport.all_reduce(array, "sum")[:, -1] for name, array in arrays.items()}


def unlike_reduction(transport: Transport) -> Outcome:
    transport.all_reduce(np.ones(3 if transport.rank == CULPRIT else 4), "sum")
    return {}


def other_call(transport: Transport) -> Outcome:
    """The culprit prepares links where the others reduce."""
    if transport.rank == CULPRIT:
        transport.links([], [])
    transport.all_reduce(np.ones(3), "sum")
    return {}


def carries_on(transport: Transport) -> Outcome:
    """A node that swallows the failure: its process must not wait in MPI_Finalize."""
    with contextlib.suppress(DeadlineError):
        rounds_without_end(transport, lambda: time.sleep(SLEEP_S))
    return {}


SCENARIOS = {
    "refusals": refusals,
    "groups": groups,
    "transposed": transposed,
    "tensors": tensors,
    "unlike-reduction": unlike_reduction,
    "other-call": other_call,
    "carries-on": carries_on,
}
