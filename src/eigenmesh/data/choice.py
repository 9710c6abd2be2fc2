"""Choice between the four kinds of covariance, by their cost and memory."""

from __future__ import annotations

from dataclasses import dataclass, replace
from enum import StrEnum

from eigenmesh.data.block import INDEX_BYTES, Block
from eigenmesh.data.samples import Partition
from eigenmesh.data.source import CHUNK_BYTES, HELD_BYTES
from eigenmesh.errors import InputError

MEMORY_BYTES = 2 * 2**30
# Time of a product with the rows relative to one with a matrix that has as many multiplications: few rows at a time are
# multiplied with few columns, after they were gathered and centred.
PASS_COST = 2.0
# With a larger share of stored entries, products with dense rows are faster.
MOST_STORED = 0.08
# Time per multiplication relative to stored times dense entries: of two stored entries, and of two dense ones.
PAIR_COST, DENSE_COST = 4.0, 0.1


class CovarianceKind(StrEnum):
    """Ways to store C_i."""

    FORMED = "formed"
    MATRIX_FREE = "matrix-free"
    CHUNKED = "chunked"
    SPARSE = "sparse"


@dataclass(frozen=True)
class Choice:
    """A kind of covariance, and why it was chosen.

    Parameters
    ----------
    kind : CovarianceKind
        How C_i is stored.
    bytes : int
        What it takes besides the data.
    reason : str
        Why this kind, in words.
    asked : bool
        True if the user named the kind.
    each : tuple of CovarianceKind
        Kinds of the nodes in this process, if each chooses for itself.
    """

    kind: CovarianceKind
    bytes: int
    reason: str
    asked: bool = False
    each: tuple[CovarianceKind, ...] = ()


@dataclass(frozen=True)
class Sizes:
    """Sizes of the data that decide the choice.

    n_samples: number of rows; n_matrices: number of covariances if they are formed; sparse_bytes: values and indices as
    float64 CSR, None if dense; in_memory: False if rows are read from a file, or moved to a device; held_bytes: most
    that such rows may take in memory.
    """

    n_samples: int
    n_features: int
    n_matrices: int
    sparse_bytes: int | None = None
    in_memory: bool = True
    held_bytes: int = HELD_BYTES

    @classmethod
    def of(cls, *blocks: Block) -> Sizes:
        """Sizes of the rows of one node, or of several together."""
        n_samples, sparse = sum(block.n_rows for block in blocks), blocks[0].is_sparse
        sparse_bytes = sum((block.n_stored or 0) * (8 + INDEX_BYTES) for block in blocks) if sparse else None
        in_memory = all(block.in_memory for block in blocks)
        return cls(n_samples, blocks[0].n_features, len(blocks), sparse_bytes, in_memory)

    @property
    def is_thin(self) -> bool:
        """Whether so few entries are stored that products with them are cheaper than with dense rows."""
        return self.sparse_bytes is not None and self.stored_per_row <= MOST_STORED * self.n_features

    @property
    def stored_per_row(self) -> float:
        return (self.sparse_bytes or 0) / (8 + INDEX_BYTES) / max(1, self.n_samples)

    @property
    def may_hold(self) -> bool:
        """Whether the rows are in memory, or so small that they are read once."""
        return self.in_memory or self.memory_needed(CovarianceKind.MATRIX_FREE) <= self.held_bytes

    def asked(self, kind: CovarianceKind) -> Choice:
        """The kind that the user named."""
        return Choice(kind, self.memory_needed(kind), "as asked for", asked=True)

    def memory_needed(self, kind: CovarianceKind) -> int:
        """Peak bytes that a kind takes besides the data."""
        entries = self.n_samples * self.n_features
        held = 0 if self.in_memory else 8 * entries
        # Rows are read in chunks, or all at once if they are fewer.
        chunk = min(CHUNK_BYTES, 8 * entries)
        return {
            # Forming needs two more float64 matrices: the sum and the product of one chunk.
            CovarianceKind.FORMED: self.n_features**2 * (8 * self.n_matrices + 16) + 2 * chunk,
            CovarianceKind.MATRIX_FREE: held + 3 * chunk,
            CovarianceKind.CHUNKED: 3 * chunk,
            CovarianceKind.SPARSE: entries * 16 if self.sparse_bytes is None else self.sparse_bytes,
        }[kind]


def choose_for_each(shards: Partition, kind: CovarianceKind | None, n_components: int, products: int) -> Choice:
    """For each node in this process the kind that it would choose alone, or the one that the user named.

    It depends on the node's rows and on M, never on other nodes in this process, so products have the same bits in a
    simulation and with any engine. All nodes together stay within the memory that one process may use.
    """
    n_nodes, each = int(shards.n_nodes), [Sizes.of(block) for block in shards.blocks]
    # Nodes are many, and their sizes few.
    held = {size: replace(size, held_bytes=size.held_bytes // n_nodes) for size in set(each)}
    known = {
        size: own.asked(kind) if kind else choose_by_size(own, n_components, products, MEMORY_BYTES // n_nodes)
        for size, own in held.items()
    }
    choices = [known[size] for size in each]
    total = sum(choice.bytes for choice in choices)
    return replace(choices[0], bytes=total, each=tuple(choice.kind for choice in choices))


def choose_by_size(
    sizes: Sizes,
    n_components: int,
    products: int,
    memory_bytes: int = MEMORY_BYTES,
    pass_cost: float = PASS_COST,
    asking: tuple[float, float] = (0.0, 0.0),
) -> Choice:
    """The cheapest kind that fits, for ``products`` products with n_components columns each.

    Formed: N_i d^2 flops once and 2 d^2 k per product, d^2 numbers per node. Not formed: 4 N_i d k per product, with
    rows in memory, or with rows that are read again each time. Sparse data stay sparse.

    Parameters
    ----------
    sizes : Sizes
        Sizes of the samples of one node, or of several together.
    n_components : int
        Columns of a product.
    products : int
        Expected number of products.
    memory_bytes : int
        Most memory that the covariances may take.
    pass_cost : float
        Time of a product with the rows, relative to its multiplications.
    asking : (float, float)
        Flops that an engine could do while it asks for the matrix, and while it asks for one product.
    """
    if min(n_components, products) < 1:
        raise InputError(f"n_components and products must be at least 1; got {n_components} and {products}.")
    n_samples, d = sizes.n_samples, sizes.n_features
    if sizes.sparse_bytes is not None:
        return _choose_sparse(sizes, n_components, products, memory_bytes, asking)
    forming = n_samples * d**2 + products * 2 * sizes.n_matrices * d**2 * n_components + asking[0]
    free = products * (4 * n_samples * d * n_components + asking[1])
    matrices, costs = (
        sizes.memory_needed(CovarianceKind.FORMED),
        f"{products} products cost {forming:.1e} flops formed, {free:.1e} from the data",
    )
    if forming <= pass_cost * free and matrices <= memory_bytes:
        return Choice(CovarianceKind.FORMED, matrices, costs)
    if forming <= pass_cost * free:
        costs += f", but the matrices take {_size(matrices)} of {_size(memory_bytes)}"
    kind = CovarianceKind.MATRIX_FREE if sizes.may_hold else CovarianceKind.CHUNKED
    return Choice(kind, sizes.memory_needed(kind), costs if sizes.may_hold else f"{costs}; rows are read in chunks")


def _choose_sparse(
    sizes: Sizes, n_components: int, products: int, memory_bytes: int, asking: tuple[float, float]
) -> Choice:
    """Form the matrix once from products of stored entries, or multiply the stored entries with every block."""
    stored, d = sizes.n_samples * sizes.stored_per_row, sizes.n_features
    free = products * (4 * stored * n_components + asking[1])
    # Rows that are not thin are made dense for it.
    pairs = 2 * stored * sizes.stored_per_row * PAIR_COST if sizes.is_thin else sizes.n_samples * d**2
    forming = pairs + products * 2 * sizes.n_matrices * d**2 * n_components * DENSE_COST + asking[0]
    matrices, costs = sizes.memory_needed(CovarianceKind.FORMED), f"{products} products cost as {free:.1e} flops"
    may_form = sizes.is_thin or asking[1] > 0
    if may_form and forming <= free and matrices <= memory_bytes:
        return Choice(CovarianceKind.FORMED, matrices, f"{costs} sparse, {forming:.1e} formed")
    return Choice(CovarianceKind.SPARSE, sizes.sparse_bytes or 0, "sparse data stay sparse")


def _size(n_bytes: int) -> str:
    return f"{n_bytes / 2**30:.1f} GiB" if n_bytes >= 2**29 else f"{n_bytes / 2**20:.0f} MiB"
