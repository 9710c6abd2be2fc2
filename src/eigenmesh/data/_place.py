"""Library and device for the samples: NumPy, or PyTorch tensors on a device to which they are moved once."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from eigenmesh import arrays as ea
from eigenmesh.arrays import Array, Namespace
from eigenmesh.errors import import_extra

# Size of a chunk of rows: large enough for BLAS and for sequential reading, small compared with memory. A GPU needs
# larger ones.
CHUNK_BYTES, GPU_CHUNK_BYTES = 2 * 2**20, 256 * 2**20
# Pinned buffers that a GPU can read by itself: one is filled while another is copied.
STAGE_BYTES, STAGES = 32 * 2**20, 3
# Share of a GPU's free memory that samples moved there may take.
SHARE_OF_GPU = 0.5


@dataclass(frozen=True)
class Place:
    """An Array API namespace and a device; None for NumPy."""

    xp: Namespace = ea.numpy
    device: Any = None

    @classmethod
    def named(cls, device: str | None) -> Place:
        """NumPy for None, otherwise PyTorch on a device: "cpu", "cuda", "cuda:1"."""
        return cls(*ea.namespace_for(device))

    @classmethod
    def of(cls, xp: Namespace | None, device: Any = None) -> Place:
        """The place of an array made with this namespace and device."""
        made = np.empty(0) if xp is None else xp.empty(0, device=device)
        return cls() if isinstance(made, np.ndarray) else cls(ea.namespace(made), made.device)

    @property
    def is_gpu(self) -> bool:
        return getattr(self.device, "type", None) == "cuda"

    def free_bytes(self) -> int:
        """Free memory of the GPU, including what PyTorch has reserved but does not use."""
        torch = import_extra("torch", "torch", "a GPU")
        stats = torch.cuda.memory_stats(self.device)
        unused = stats.get("reserved_bytes.all.current", 0) - stats.get("allocated_bytes.all.current", 0)
        return int(torch.cuda.mem_get_info(self.device)[0] + unused)

    def has_room(self, n_bytes: int) -> bool:
        """Whether samples of this size may be moved here completely."""
        return not self.is_gpu or n_bytes <= SHARE_OF_GPU * self.free_bytes()

    def put(self, values: Array) -> Array:
        """The values on this device, in their own dtype; copied only if they are elsewhere."""
        if self.xp is ea.numpy:
            return ea.to_numpy(values)
        if isinstance(values, np.ndarray):
            if self.is_gpu and values.ndim == 2 and values.nbytes > STAGE_BYTES:
                return _staged(values, self.device)
            values = _plain(values)
        return self.xp.asarray(values, device=self.device)


HOST = Place()


def chunk_bytes(device: Any) -> int:
    """Size of a chunk of rows on this device; None is NumPy."""
    return GPU_CHUNK_BYTES if getattr(device, "type", None) == "cuda" else CHUNK_BYTES


def _staged(values: np.ndarray, device: Any) -> Array:
    """Copy rows (n, d) to a GPU through pinned memory: several times faster than from memory that is not pinned."""
    torch = import_extra("torch", "torch", "a GPU")
    rows = max(1, STAGE_BYTES // (values.itemsize * values.shape[1]))
    dtype = torch.from_numpy(np.empty(0, dtype=values.dtype)).dtype
    moved = torch.empty(values.shape, dtype=dtype, device=device)
    stages = [torch.empty((rows, values.shape[1]), dtype=dtype, pin_memory=True) for _ in range(STAGES)]
    done = [torch.cuda.Event() for _ in stages]
    for turn, start in enumerate(range(0, len(values), rows)):
        part = torch.from_numpy(_plain(values[start : start + rows]))
        stage = stages[turn % STAGES][: len(part)]
        # An event that was never recorded counts as done.
        done[turn % STAGES].synchronize()
        stage.copy_(part)
        moved[start : start + len(part)].copy_(stage, non_blocking=True)
        done[turn % STAGES].record(torch.cuda.current_stream(device))
    torch.cuda.current_stream(device).synchronize()
    return moved


def _plain(values: np.ndarray) -> np.ndarray:
    """A copy if needed: PyTorch accepts neither negative strides nor read-only memory."""
    fits = min(values.strides, default=0) >= 0 and values.flags.writeable
    return values if fits else np.array(values, order="C")
