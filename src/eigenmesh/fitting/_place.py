"""The device of the arrays of a fit: that of the samples, that of the transport, or the one asked for."""

from __future__ import annotations

from typing import Any

from eigenmesh.data._place import Place
from eigenmesh.errors import InputError
from eigenmesh.networks import ChangingPeers, Network
from eigenmesh.transports import Transport


def place_of(
    device: str | None, samples_device: Any, transport: Transport | None, network: Network | None = None
) -> Place:
    """Device of the arrays: the one asked for, else that of the samples; with a transport, that of the transport.

    With a transport, arrays on the CPU are NumPy arrays, which have the same bits with every engine. On a network that
    changes they always are.
    """
    if transport is None:
        return Place.named(device if device is not None or samples_device is None else str(samples_device))
    own = getattr(transport, "device", None)
    if own is None and device is not None:
        raise InputError(f"{type(transport).__name__} carries NumPy arrays; leave out device = {device!r}.")
    if own is not None and device is not None and not str(own).startswith(device):
        raise InputError(f"the transport's arrays are on {own}, not on device = {device!r}; leave it out.")
    if isinstance(network, ChangingPeers) or str(own) == "cpu":
        own = None
    return Place.named(None if own is None else str(own))
