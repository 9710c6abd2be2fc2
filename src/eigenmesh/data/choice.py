"""How to hold a covariance: which of four ways, at what cost in memory."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

from eigenmesh.data.centring import CHUNK_BYTES
from eigenmesh.data.shards import Shards
from eigenmesh.errors import InputError

MEMORY_BYTES = 2 * 2**30
# Centred copies are made of small data only: twice the memory is much to ask for, and whoever maps a file has less.
COPY_BYTES, MAPPED_COPY_BYTES = 256 * 2**20, 64 * 2**20


class CovarianceKind(StrEnum):
    """Ways to hold C_i."""

    FORMED = "formed"
    MATRIX_FREE = "matrix-free"
    CHUNKED = "chunked"
    SPARSE = "sparse"


@dataclass(frozen=True)
class Choice:
    """A kind, the bytes it takes beyond the data themselves, and why it was chosen, in words."""

    kind: CovarianceKind
    bytes: int
    reason: str


def choose(shards: Shards, n_components: int, products: int, memory_bytes: int = MEMORY_BYTES) -> Choice:
    """The cheapest kind that fits, for ``products`` products with n_components columns each.

    Formed: N_i d^2 flops once and 2 d^2 k a product, d^2 numbers a node. Not formed: 4 N_i d k a product, on
    centred copies (N_i d numbers) where they are small, else on chunks that are read anew each time. Sparse data
    stay sparse. Only data held here count, so peers may choose differently; their products are the same.
    """
    if min(n_components, products) < 1:
        raise InputError(f"n_components and products must be at least 1; got {n_components} and {products}")
    needed = {kind: memory_needed(shards, kind) for kind in CovarianceKind}
    if shards.is_sparse:
        return Choice(CovarianceKind.SPARSE, needed[CovarianceKind.SPARSE], "the data are sparse and stay so")

    d, nodes = shards.n_features, len(shards.blocks)
    n_samples = sum(block.n_rows for block in shards.blocks)
    forming = n_samples * d**2 + products * 2 * nodes * d**2 * n_components
    free = products * 4 * n_samples * d * n_components
    copies, matrices = needed[CovarianceKind.MATRIX_FREE], needed[CovarianceKind.FORMED]
    mapped = any(block.is_mapped for block in shards.blocks)
    may_copy = copies <= min(memory_bytes, MAPPED_COPY_BYTES if mapped else COPY_BYTES)
    costs = f"{products} products cost {forming:.1e} flops formed, {free:.1e} from the data"
    # Reading the data anew for every product costs about as much again as the product.
    if forming <= (free if may_copy else 2 * free) and matrices <= memory_bytes:
        return Choice(CovarianceKind.FORMED, matrices, costs)
    if forming <= free:
        costs += f", but the matrices take {_size(matrices)} of {_size(memory_bytes)}"
    if may_copy:
        return Choice(CovarianceKind.MATRIX_FREE, copies, costs)
    reason = f"{costs}; centred copies would take {_size(copies)}, so chunks are read"
    return Choice(CovarianceKind.CHUNKED, needed[CovarianceKind.CHUNKED], reason)


def memory_needed(shards: Shards, kind: CovarianceKind) -> int:
    """Bytes that a kind takes for the nodes held here, beyond the data, at its height."""
    d, itemsize = shards.n_features, shards.dtype.itemsize
    match kind:
        case CovarianceKind.FORMED:
            # Two float64 matrices are in the making: the sum and one chunk's part of it.
            return len(shards.blocks) * d**2 * itemsize + 16 * d**2 + 2 * CHUNK_BYTES
        case CovarianceKind.MATRIX_FREE:
            return sum(block.n_rows for block in shards.blocks) * d * itemsize + 2 * CHUNK_BYTES
        case CovarianceKind.CHUNKED:
            return 3 * CHUNK_BYTES
        case CovarianceKind.SPARSE:
            index_bytes = shards.blocks[0].source.indices.itemsize if shards.is_sparse else 8
            return sum(block.n_stored for block in shards.blocks) * (8 + int(index_bytes))


def _size(n_bytes: int) -> str:
    return f"{n_bytes / 2**30:.1f} GiB" if n_bytes >= 2**29 else f"{n_bytes / 2**20:.0f} MiB"
