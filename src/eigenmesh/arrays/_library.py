"""The library, dtype and device of an array, and conversions between libraries."""

from typing import Any, TypeAlias

import array_api_compat
import numpy as np

from eigenmesh.errors import DataError, InputError, import_extra

Array: TypeAlias = Any
Namespace: TypeAlias = Any

# The compatibility wrapper of NumPy itself, for code that starts from files and estimators.
numpy: Namespace = array_api_compat.array_namespace(np.empty(0))

# Bytes of a number in memory and in a message: all arithmetic is in float64, or in 64-bit integers.
ITEM_BYTES = 8
# Distance from 1 to the next number in float64.
EPS = float(np.finfo(np.float64).eps)

# DLPack device types of CPU memory: plain, and pinned for CUDA.
DLPACK_HOST = (1, 3)


def namespace(array: Array) -> Namespace:
    """Array API namespace of the array."""
    # Called many times per iteration; the shortcut for NumPy saves a microsecond each time.
    return numpy if isinstance(array, np.ndarray) else array_api_compat.array_namespace(array)


def like(values: np.ndarray, model: Array) -> Array:
    """Copy NumPy values into the library, dtype and device of ``model``."""
    # Always a copy: PyTorch accepts no negative strides, and NumPy keeps those of an axis with a single entry
    # otherwise.
    return namespace(model).asarray(np.array(values, order="C"), dtype=model.dtype, device=model.device)


def to_numpy(array: Array) -> np.ndarray:
    """Convert an array of any library to NumPy, without a copy if it is NumPy already."""
    if isinstance(array, np.ndarray):
        return array
    if array_api_compat.is_torch_array(array):
        return np.asarray(array.detach().cpu())
    return np.from_dlpack(array)


def numpy_dtype(array: Array) -> np.dtype:
    """The NumPy dtype that corresponds to the dtype of an array of any library."""
    # str() gives torch.float32 or array_api_strict.float32.
    name = str(array.dtype).rpartition(".")[2]
    try:
        return np.dtype(name)
    except TypeError as error:
        raise DataError(f"NumPy has no dtype {name}; convert the data to float32 or float64.") from error


def on_host(array: Array) -> bool:
    """Whether the array is in CPU memory."""
    if array_api_compat.is_torch_array(array):
        return bool(array.device.type == "cpu")
    return array.__dlpack_device__()[0] in DLPACK_HOST


def on_gpu(array: Array) -> bool:
    """Whether the array is a CUDA tensor."""
    return not isinstance(array, np.ndarray) and array_api_compat.is_torch_array(array) and bool(array.is_cuda)


def as_tensor(array: Array) -> Array:
    """An array of any library as a PyTorch tensor on its device, without a copy."""
    if array_api_compat.is_torch_array(array):
        return array.detach()
    return import_extra("torch", "torch", "an array on a GPU").from_dlpack(array)


def namespace_for(device: str | None) -> tuple[Namespace, Any]:
    """Array API namespace and device: NumPy for None, PyTorch for "cpu", "cuda", "cuda:1"."""
    if device is None:
        return numpy, None
    torch = import_extra("torch", "torch", f"device = {device!r}")
    try:
        placed = torch.empty(0, device=device)
    except (RuntimeError, AssertionError, TypeError, NotImplementedError) as error:
        available = f"available devices: {', '.join(devices_here(torch))}"
        raise InputError(
            f"device = {device!r} cannot be used; {available}. Leave it out for NumPy on the CPU."
        ) from error
    try:
        torch.empty(0, dtype=torch.float64, device=device)
    except (RuntimeError, TypeError) as error:
        raise InputError(
            f"device = {device!r} has no float64, in which all results are computed; leave it out, "
            "and move samples that are there to the CPU with X.cpu()."
        ) from error
    return array_api_compat.array_namespace(placed), placed.device


def devices_here(torch: Any) -> list[str]:
    """Names of the devices that PyTorch sees on this machine."""
    return ["cpu", *(f"cuda:{number}" for number in range(torch.cuda.device_count()))]
