"""Transports by name, each imported only when it is asked for."""

from __future__ import annotations

from collections.abc import Callable

from eigenmesh.errors import InputError, UnknownNameError
from eigenmesh.transports._base import Transport


def _mpi(device: str | None, timeout_s: float) -> Transport:
    from eigenmesh.transports.mpi._transport import MPITransport

    if device is not None:
        raise InputError(f"MPI carries NumPy arrays; leave out device = {device!r}, or use torch.")
    return MPITransport(timeout_s=timeout_s)


def _torch(device: str | None, timeout_s: float) -> Transport:
    from eigenmesh.transports.torch._transport import TorchTransport

    return TorchTransport(device, timeout_s)


# Engines that start one process a node; the process finds out from the engine which node it is.
TRANSPORTS: dict[str, Callable[[str | None, float], Transport]] = {"mpi": _mpi, "torch": _torch}


def transport_by_name(name: str, device: str | None = None, timeout_s: float = 60.0) -> Transport:
    """Join the nodes that an engine has started, "mpi" under mpiexec or "torch" under torchrun; arrays on a device."""
    if name not in TRANSPORTS:
        raise UnknownNameError("transport", name, TRANSPORTS)
    return TRANSPORTS[name](device, timeout_s)
