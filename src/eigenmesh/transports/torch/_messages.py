"""Pack several arrays into one PyTorch buffer of bytes, and unpack them."""

import re
from collections.abc import Sequence
from typing import Any

import numpy as np

from eigenmesh.arrays import Array
from eigenmesh.transports._base import Arrays

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
        """The arrays as bytes; a single array is not copied."""
        parts = [tensor.reshape(-1).view(self._torch.uint8) for tensor in self._tensors]
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
        # PyTorch cannot add uint64; the sum of signed integers has the same bits.
        array = array.view(np.int64) if array.dtype == np.uint64 else array
        array = torch.from_numpy(array if fits else np.array(array, order="C"))
    return array.detach().to(device).contiguous()


def kind_of(tensors: Sequence[Tensor]) -> str:
    """Dtypes and shapes of a message as text, for error messages and for comparison."""
    return ", ".join(f"{str(tensor.dtype).removeprefix('torch.')}{tuple(tensor.shape)}" for tensor in tensors)


def like_input(tensor: Tensor, array: Array) -> Array:
    return tensor.cpu().numpy().view(array.dtype) if isinstance(array, np.ndarray) else tensor.to(array.device)


def short_reason(error: Exception) -> str:
    """The first sentence of a PyTorch error, without its position in the source."""
    text = re.sub(r"^\[[^\]]*\.(cc|cpp|h):\d+\] ", "", str(error).strip())
    return re.split(r"\. |\n", text)[0] or type(error).__name__
