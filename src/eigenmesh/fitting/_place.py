"""Where a fit keeps its arrays: where the samples lie, where the transport has them, or where it is told to."""

from __future__ import annotations

from typing import Any

from eigenmesh.data._place import Place
from eigenmesh.errors import InputError
from eigenmesh.networks import ChangingPeers, Network
from eigenmesh.transports import Transport


def place_of(device: str | None, lies: Any, transport: Transport | None, network: Network | None = None) -> Place:
    """Where arrays are: where the samples lie if nothing else is asked for, or where the transport has them.

    With averages in integers they are in NumPy unless they are on a GPU: the same bits with every engine. On a network
    that changes they are always in NumPy.
    """
    if transport is None:
        return Place.named(device if device is not None or lies is None else str(lies))
    own = getattr(transport, "device", None)
    if own is None and device is not None:
        raise InputError(f"{type(transport).__name__} carries NumPy arrays; leave out device = {device!r}.")
    if own is not None and device is not None and not str(own).startswith(device):
        raise InputError(f"the transport's arrays are on {own}, not on device = {device!r}; leave it out.")
    if isinstance(network, ChangingPeers) or (network is not None and network.integers and str(own) == "cpu"):
        own = None
    return Place.named(None if own is None else str(own))
