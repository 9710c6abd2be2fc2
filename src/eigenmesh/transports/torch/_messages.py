"""Several arrays in one PyTorch buffer of bytes, and back."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any

import numpy as np

from eigenmesh.arrays import Array
from eigenmesh.transports._base import Arrays

Tensor = Any

# Each array begins at a multiple of this, so that its bytes can be read as numbers of any type.
ALIGNMENT = 16


class Message:
    """What the messages of one exchange look like: the same at every node.

    Arrays of NumPy and tensors of any device are taken; bytes lie where the engine carries them from.
    """

    def __init__(self, torch: Any, arrays: Arrays, device: Any) -> None:
        self._torch, self._arrays, self._device = torch, arrays, device
        self._tensors = [as_tensor(torch, array, device) for array in arrays]
        self.kind = kind_of(self._tensors)
        self._starts: list[int] = []
        end = 0
        for tensor in self._tensors:
            self._starts.append(-(-end // ALIGNMENT) * ALIGNMENT)
            end = self._starts[-1] + tensor.numel() * tensor.itemsize
        self.n_bytes = end
        self.payload_bytes = sum(tensor.numel() * tensor.itemsize for tensor in self._tensors)

    def buffer(self) -> Tensor:
        """Room for a message."""
        return self._torch.empty(self.n_bytes, dtype=self._torch.uint8, device=self._device)

    def pack(self) -> Tensor:
        """The arrays as bytes; one array is not copied."""
        parts = [tensor.reshape(-1).view(self._torch.uint8) for tensor in self._tensors]
        if len(parts) == 1:
            return parts[0]
        packed = self.buffer()
        for start, part in zip(self._starts, parts, strict=True):
            packed[start : start + part.numel()] = part
        return packed

    def unpack(self, buffer: Tensor) -> Arrays:
        """The arrays in the buffer, each in the library and on the device of its counterpart here."""
        return tuple(
            as_before(buffer[start : start + model.numel() * model.itemsize].view(model.dtype).view(model.shape), array)
            for start, model, array in zip(self._starts, self._tensors, self._arrays, strict=True)
        )


def as_tensor(torch: Any, array: Array, device: Any) -> Tensor:
    """A contiguous tensor of the array's values on the device; not copied where it is one already."""
    if not isinstance(array, torch.Tensor):
        # A tensor cannot be made of memory that is not to be written to, or runs backwards.
        fits = array.flags.writeable and array.flags.c_contiguous
        array = torch.from_numpy(array if fits else np.array(array, order="C"))
    return array.detach().to(device).contiguous()


def kind_of(tensors: Sequence[Tensor]) -> str:
    """Dtypes and shapes of a message in words, for people and to tell one kind from another."""
    return ", ".join(f"{str(tensor.dtype).removeprefix('torch.')}{tuple(tensor.shape)}" for tensor in tensors)


def as_before(tensor: Tensor, array: Array) -> Array:
    """The tensor in the library and on the device of the array."""
    if isinstance(array, np.ndarray):
        return tensor.cpu().numpy()
    return tensor.to(array.device)


def names(ranks: Sequence[int]) -> str:
    """How messages to people call nodes: "node 3", "nodes 3, 5"."""
    return f"node {ranks[0]}" if len(ranks) == 1 else "nodes " + ", ".join(map(str, ranks))


def gist(error: Exception) -> str:
    """What an error of the engine says, without the place in its source and the advice that follows."""
    text = re.sub(r"^\[[^\]]*\.(cc|cpp|h):\d+\] ", "", str(error).strip())
    return re.split(r"\. |\n", text)[0] or type(error).__name__
