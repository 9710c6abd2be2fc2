"""Where arrays lie: in NumPy, or in PyTorch on a device."""

from __future__ import annotations

from typing import Any

import array_api_compat

from eigenmesh import arrays as ea
from eigenmesh.arrays import Namespace
from eigenmesh.errors import InputError, import_extra


def namespace_for(device: str | None) -> tuple[Namespace, Any]:
    """Array API namespace and device: NumPy for None, PyTorch for "cpu", "cuda", "cuda:1", "mps"."""
    if device is None:
        return ea.numpy, None
    torch = import_extra("torch", "torch", f"device = {device!r}")
    try:
        placed = torch.empty(0, device=device)
    except (RuntimeError, AssertionError, TypeError, NotImplementedError) as error:
        raise InputError(
            f"device = {device!r} cannot be used; here there are: {', '.join(devices_here(torch))}. "
            "Leave it out for NumPy on the CPU."
        ) from error
    return array_api_compat.array_namespace(placed), placed.device


def devices_here(torch: Any) -> list[str]:
    """Names of the devices that PyTorch sees on this machine."""
    names = ["cpu", *(f"cuda:{number}" for number in range(torch.cuda.device_count()))]
    return [*names, "mps"] if torch.backends.mps.is_available() else names
