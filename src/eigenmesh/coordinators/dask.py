"""Dask data for ``prepare``, computed at the blocks, and their scores: a dask array, computed lazily."""

from __future__ import annotations

import sys
import uuid
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property, partial, reduce
from operator import attrgetter, methodcaller
from typing import Any, TypeAlias

import numpy as np
import scipy.sparse
from sklearn.utils.validation import validate_data

from eigenmesh import data, graphs
from eigenmesh.arrays import Array
from eigenmesh.averaging import Averaging
from eigenmesh.errors import DataError, InputError, import_extra
from eigenmesh.fitting import Data, DataFacts, Measurement, Request, Size
from eigenmesh.networks import Network, Stacked, Traffic
from eigenmesh.solvers import Solver

# Dask data as blocks of samples: apply a function to every block, and sum the results.


# Operands of one sum: more make fewer tasks, but a worker has to hold that many arrays at once.
FAN_IN = 8

# A function of a block, as Dask holds it, and of the block's number.
BlockPart: TypeAlias = Callable[[Any, int], Any]


@dataclass(frozen=True)
class Layout:
    """Number of blocks, and names of the columns."""

    n_blocks: int
    feature_names: tuple[str, ...] | None = None

    def shards(self, block: Any, number: int) -> data.Shards | None:
        """A block as the samples of one of n_blocks nodes; None if it is empty."""
        source = data.as_source(scipy_or_dense(block))
        if source.shape[0] == 0:
            return None
        return data.Shards((data.Block(source),), self.n_blocks, (number,), self.feature_names)


@dataclass(frozen=True, eq=False)
class Blocks:
    """Blocks of rows, one node each: a dask array of one column of blocks, either samples or operators made of them."""

    array: Any
    layout: Layout
    traffic: Traffic = field(default_factory=Traffic)
    # Two fits must not share a key: Dask would reuse the result of the first.
    token: str = field(default_factory=lambda: uuid.uuid4().hex)

    @classmethod
    def of(cls, X: Any) -> Blocks:
        """Blocks of a dask array, its column chunks merged, or of a dask data frame; reads nothing."""
        names = None
        if is_frame(X):
            names = tuple(str(name) for name in X.columns)
            data.require_distinct(names, "the dask data frame")
            X = X.map_partitions(_frame_samples, names=names, meta=_frame_samples(X._meta, names))
        is_array = isinstance(X, import_extra("dask.array", "dask", "fitting dask data").Array)
        if not is_array or X.ndim != 2:
            kind = f"{type(X).__module__}.{type(X).__name__}" + (f" of shape {X.shape}" if is_array else "")
            raise InputError(f"dask data must be a 2-D dask array or a dask data frame; got {kind}.")
        if np.isnan(X.shape[1]) or X.shape[1] == 0:
            raise DataError(f"the dask array has shape {X.shape}; the number of columns must be known and not 0.")
        array = X.rechunk({1: -1}) if X.numblocks[1] > 1 else X
        return cls(array, Layout(array.numblocks[0], names))

    @property
    def n_features(self) -> int:
        return int(self.array.shape[1])

    @property
    def n_blocks(self) -> int:
        return self.layout.n_blocks

    @property
    def is_sparse(self) -> bool:
        """Whether the array declares sparse blocks."""
        return bool(scipy.sparse.issparse(self.array._meta)) or _is_pydata_sparse(self.array._meta)

    def column_label(self, column: int) -> str:
        return data.column_label(self.layout.feature_names, column)

    def n_bytes(self) -> int:
        """Size of the samples; costs a pass over them if chunk sizes are unknown."""
        if not self.is_sparse and not np.isnan(self.array.nbytes):
            return int(self.array.nbytes)
        return int(self.total_of_samples(_size_of_node)[0])

    def first(self) -> Blocks:
        return replace(self, array=self.array.blocks[:1], layout=replace(self.layout, n_blocks=1))

    def kept(self) -> Blocks:
        """The same blocks in the memory of the workers; Dask recomputes them if a worker is lost."""
        return replace(self, array=self.array.persist())

    def each(self, part: BlockPart, name: str) -> Blocks:
        """Blocks of the part's results; nothing is computed yet."""
        return replace(self, array=self._mapped(part, name))

    def total_of_samples(self, part: data.NodePart) -> np.ndarray:
        """Sum over all blocks of a summary of their samples."""
        name = getattr(getattr(part, "func", part), "__name__", "part").strip("_").replace("_", "-")
        summary = partial(_summary, layout=self.layout, part=part)
        total = self.total(summary, name, sent_bytes=8 * self.n_features)
        # If all blocks are empty, the sum is a scalar 0, because an empty block does not know the shape.
        return np.atleast_1d(total)

    def total(self, part: BlockPart, name: str, sent_bytes: int) -> np.ndarray:
        """Sum over all blocks of the part's results: one pass, a tree of sums, and one array returned here.

        It counts as a round of at most 2 M messages: the part's input (sent_bytes) goes to every block, and every
        block's array goes into the sum once, the last one to this process. Messages inside a worker cost nothing.
        """
        dask = import_extra("dask", "dask", "fitting dask data")
        mapped = self._mapped(part, name)
        # Merges reading and computing into one task, so that no block stays in memory in between.
        level = list(mapped.to_delayed(optimize_graph=True).ravel())
        add, key, height = dask.delayed(_sum, pure=False), self._key(f"{name}-sum"), 0
        while len(level) > 1:
            groups = [level[start : start + FAN_IN] for start in range(0, len(level), FAN_IN)]
            level = [add(group, dask_key_name=(key, height, number)) for number, group in enumerate(groups)]
            height += 1
        total = np.asarray(level[0].compute())
        self.traffic.rounds += 1
        self.traffic.messages += 2 * self.n_blocks
        self.traffic.matrices += int(total.ndim == 2)
        self.traffic.bytes += self.n_blocks * (sent_bytes + total.nbytes)
        return total

    def _mapped(self, part: BlockPart, name: str) -> Any:
        """The part applied to every block, in tasks whose names a dashboard can group."""
        delayed = import_extra("dask", "dask", "fitting dask data").delayed
        shared = delayed(part, name=self._key(f"{name}-input"), traverse=False)
        made = {"chunks": ((1,) * self.n_blocks, (1,)), "meta": np.empty((0, 0))}
        return self.array.map_blocks(_at_block, part=shared, name=self._key(name), **made)

    def _key(self, name: str) -> str:
        """A task key that is unique for the round and the fit; Dask's dashboard groups by its first words."""
        return f"eigenmesh-{name}-{self.traffic.rounds}-{self.token}"


def is_frame(X: Any) -> bool:
    """Whether X is a dask data frame."""
    # Importing dask.dataframe needs pandas, which users of arrays may not have.
    if not type(X).__module__.startswith(("dask.dataframe", "dask_expr")):
        return False
    return isinstance(X, import_extra("dask.dataframe", "dask", "fitting dask data frames").DataFrame)


def scipy_or_dense(block: Any) -> Any:
    """The block, converted to scipy if it is an array of the package ``sparse``."""
    return block.tocsr() if _is_pydata_sparse(block) else block


def _is_pydata_sparse(block: Any) -> bool:
    return type(block).__module__.startswith("sparse.")


def _summary(block: Any, number: int, layout: Layout, part: data.NodePart) -> np.ndarray:
    shards = layout.shards(block, number)
    return np.zeros(()) if shards is None else part(shards, 0)


def _at_block(block: Any, *, part: BlockPart, block_id: tuple[int, int]) -> Any:
    return part(block, block_id[0])


def _sum(arrays: Sequence[np.ndarray]) -> np.ndarray:
    """Sum in order, so that the same blocks give the same bits on any worker."""
    return np.asarray(reduce(np.add, arrays))


def _size_of_node(shards: data.Partition, position: int) -> np.ndarray:
    return np.asarray(float(shards.blocks[position].n_bytes))


def _frame_samples(frame: Any, names: tuple[str, ...], partition_info: Any = None) -> np.ndarray:
    """The samples of a partition, with its columns in the order in which the whole data frame declares them."""
    whole = "the dask data frame"
    where = whole if partition_info is None else f"partition {partition_info['number']} of {whole}"
    source = data.aligned(data.as_source(frame, where), len(names), names, where, whole)
    return np.asarray(source.read(slice(0, len(frame))))


# The covariance of all blocks as one operator: products at the blocks, summed over a tree, or formed in one pass.


# Bytes of the rows per d x d product: many rows, so that adding the matrices costs little compared with computing them.
FORMING_BYTES = 32 * 2**20
# Largest ratio of the squared distance between centre and mean to the variance; that factor is lost in precision.
LARGEST_SHIFT = 100.0


@dataclass(frozen=True, eq=False)
class BlockOperator:
    """The covariance C_b of one block, at the worker that holds the block; None for an empty block."""

    covariance: Any

    def __sizeof__(self) -> int:
        # Dask calls this to know when a worker's memory is full.
        arrays = list(getattr(self.covariance, "rows", ()))
        for matrix in getattr(self.covariance, "matrices", ()):
            arrays += [matrix.data, matrix.indices]
        return object.__sizeof__(self) + sum(int(array.nbytes) for array in arrays)


def block_operator(
    block: Any, number: int, layout: Layout, moments: data.Moments, kind: data.CovarianceKind
) -> BlockOperator:
    """Operator of a block; sparse blocks stay sparse, whatever the array declared."""
    shards = layout.shards(block, number)
    if shards is None:
        return BlockOperator(None)
    if shards.is_sparse and kind is not data.CovarianceKind.FORMED:
        kind = data.CovarianceKind.SPARSE
    return BlockOperator(data.build_covariance(shards, moments, kind=kind))


def _of_operator(block: Any, number: int, make: BlockPart | None, ask: Callable[[Any], np.ndarray]) -> np.ndarray:
    """What ``ask`` gets from the covariance of a block that is an operator or, with ``make``, samples.

    It is 0 for an empty block.
    """
    covariance = (block if make is None else make(block, number)).covariance
    return np.zeros(()) if covariance is None else np.asarray(ask(covariance)[0])


@dataclass(frozen=True, eq=False)
class BlockCovariance:
    """C = (1/M) sum_b C_b of M blocks, as one node's covariance; without ``make``, the blocks are operators already."""

    blocks: Blocks
    kind: data.CovarianceKind
    n_features: int
    make: BlockPart | None = None
    rounding_size: float = 0.0

    def place(self, values: np.ndarray) -> np.ndarray:
        return np.asarray(values, dtype=np.float64)

    def apply(self, X: Array) -> np.ndarray:
        data.require_numpy(X, self.kind)
        return self._mean("product", X, methodcaller("apply", X))[np.newaxis]

    def traces_beyond(self, U: np.ndarray) -> np.ndarray:
        return np.atleast_1d(self._mean("trace", U, methodcaller("traces_beyond", U)))

    def _mean(self, name: str, sent: np.ndarray, ask: Callable[[Any], np.ndarray]) -> np.ndarray:
        part = partial(_of_operator, make=self.make, ask=ask)
        return self.blocks.total(part, name, sent_bytes=sent.nbytes) / self.blocks.n_blocks


def covariance_of_blocks(
    blocks: Blocks, moments: data.Moments, kind: data.CovarianceKind, holds: bool
) -> data.Covariance:
    """The covariance of all blocks, of the given kind.

    Formed: the sum of the blocks' d x d matrices comes here, and products need no further pass. Otherwise products are
    computed at the blocks: on centred copies that the workers hold (``holds``), or on samples read for every product.
    """
    make = partial(block_operator, layout=blocks.layout, moments=moments, kind=kind)
    if kind is data.CovarianceKind.FORMED:
        sent = moments.mean.nbytes + (0 if moments.scale is None else moments.scale.nbytes)
        part = partial(_of_operator, make=make, ask=attrgetter("matrices"))
        return data.Formed(blocks.total(part, "covariance", sent_bytes=sent)[np.newaxis] / blocks.n_blocks)
    weights = 1.0 if moments.scale is None else 1 / moments.scale
    cancels = float(np.sum((weights * moments.mean) ** 2)) * blocks.n_blocks if blocks.is_sparse else 0.0
    if holds:
        return BlockCovariance(blocks.each(make, "operator").kept(), kind, blocks.n_features, rounding_size=cancels)
    return BlockCovariance(blocks, kind, blocks.n_features, make, cancels)


@np.errstate(over="ignore", invalid="ignore")  # what is not finite is found in the sums
def _centred_sums(shards: data.Partition, position: int, centre: np.ndarray) -> np.ndarray:
    """N_b, sums and products of the deviations of a block from a centre, stacked: (d + 2, d)."""
    block, d = shards.blocks[position], shards.n_features
    total = np.zeros((d + 2, d))
    total[0] = block.n_rows
    for _, chunk in data.Centring(centre).chunks(block, FORMING_BYTES):
        total[1] += chunk.sum(axis=0)
        total[2:] += chunk.T @ chunk
    return total


def formed_in_one_pass(blocks: Blocks, *, scale: data.Scaling) -> tuple[data.Moments, data.Formed] | None:
    """Moments and pooled covariance about the mean of the first block; None if that is not precise enough.

    Also None if entries are missing or not finite, which the usual passes report or fill.
    """
    first = blocks.first().total_of_samples(partial(data.count_and_sum, fills=False))
    if len(first) < 2:
        return None
    centre = first[1 : 1 + blocks.n_features] / first[0]
    total = blocks.total_of_samples(partial(_centred_sums, centre=centre))
    n_samples, sums, products = int(total[0, 0]), total[1], total[2:]
    if n_samples < 2 or not np.isfinite(total).all():
        return None
    products = (products + products.T) / 2
    shift, squares = sums / n_samples, np.diagonal(products)
    variance = squares / n_samples - shift**2
    # A constant column differs from its mean by rounding.
    rounding = 64 * np.finfo(np.float64).eps * np.abs(centre)
    if np.any(shift**2 > LARGEST_SHIFT * np.maximum(variance, 0.0) + rounding**2):
        return None
    moments = data.moments_about(data.Moments(n_samples, centre, squares), sums, n_samples, blocks, scale=scale)
    C = (products - n_samples * np.outer(shift, shift)) / (n_samples - 1)
    if moments.scale is not None:
        C = C / np.outer(moments.scale, moments.scale)
    return moments, data.Formed(C[np.newaxis])


# Share of the workers' memory that the samples may take; centred copies may take the same share again.
MEMORY_SHARE = 0.3
# A product costs task scheduling besides its flops, and with few columns memory access dominates.
PASS_COST = 2.0
# A solver that typically needs this many products is refused.
MANY_PRODUCTS = 100


@dataclass(frozen=True, eq=False)
class DaskData(Data):
    """Blocks of rows, one node each. To a solver the cluster is one node whose covariance is a sum over blocks."""

    blocks: Blocks
    weights: graphs.Weights = field(default_factory=lambda: graphs.metropolis(graphs.topologies.complete(1)))

    @property
    def facts(self) -> DataFacts:
        blocks = self.blocks
        return DataFacts.of_rows(blocks.n_blocks, blocks.n_features, None, blocks.layout.feature_names)

    def count(self, masked: bool) -> tuple[Size, None]:
        """The chunk sizes may be unknown; the moments count the rows."""
        return self.facts.size, None

    def check(self, request: Request) -> None:
        """Raise if the solver exchanges messages hundreds of times."""
        solver = request.solver
        if solver is not None and solver.traits.expected_products >= MANY_PRODUCTS:
            cost = "exchanges messages hundreds of times, and on Dask each exchange takes tens of milliseconds"
            raise InputError(f'solver {solver.name!r} {cost}; use solver="auto", or give it the computed array.')

    def network(self, averaging: Averaging, max_rounds: int) -> Network:
        """One node; the passes over the blocks are counted as its traffic."""
        network = Stacked(self.weights, averaging)
        network.meter.traffic = self.blocks.traffic
        return network

    def choose_covariance(
        self, request: Request, solver: Solver, n_components: int, network: Network | None = None
    ) -> data.Choice:
        """The requested kind, or the cheapest that fits the memory of the workers."""
        kind = request.covariance
        if kind is None and solver.traits.sums_covariances:
            kind = data.CovarianceKind.FORMED
        sizes = self._sizes(0 if kind is data.CovarianceKind.CHUNKED else self._n_bytes)
        if kind is not None:
            return sizes.asked(kind)
        columns, products = solver.columns(n_components, self.blocks.n_features), solver.traits.expected_products
        return data.choose_by_size(sizes, columns, products, self._memory[0], PASS_COST)

    def measure(self, network: Network, choice: data.Choice, request: Request) -> Measurement:
        """One pass over the blocks if that is precise enough; otherwise two for the moments, then the covariance."""
        blocks, (share, _), scale, missing = self.blocks, self._memory, request.scale, request.missing
        if choice.kind is not data.CovarianceKind.CHUNKED and self._n_bytes <= share:
            blocks = blocks.kept()
        if choice.kind is data.CovarianceKind.FORMED and not blocks.is_sparse and missing == "error":
            found = formed_in_one_pass(blocks, scale=scale)
            if found is not None:
                return Measurement(*found)
        first = blocks.total_of_samples(partial(data.count_and_sum, fills=missing == "mean"))
        moments = data.moments_by_sums(
            lambda centring: blocks.total_of_samples(partial(data.deviations, centring=centring)),
            blocks,
            first,
            scale=scale,
            missing=missing,
        )
        # Copies that the user asked for are always held; chosen ones only if they fit.
        fits = choice.asked or choice.bytes <= share
        holds = fits and choice.kind in (data.CovarianceKind.MATRIX_FREE, data.CovarianceKind.SPARSE)
        return Measurement(moments, covariance_of_blocks(blocks, moments, choice.kind, holds))

    @cached_property
    def _n_bytes(self) -> int:
        return self.blocks.n_bytes()

    @cached_property
    def _memory(self) -> tuple[int, int]:
        """Bytes that samples or copies of them may take, and number of tasks that run at once.

        Those of the workers if there is a cluster, otherwise the limit for a fit in this process.
        """
        # There can be a client only if distributed was imported.
        distributed = sys.modules.get("distributed")
        try:
            client = None if distributed is None else distributed.default_client()
        except ValueError:
            client = None
        if client is None:
            return data.COPY_BYTES, import_extra("dask.system", "dask", "fitting dask data").CPU_COUNT
        workers = client.scheduler_info(n_workers=-1)["workers"].values()
        limits = [worker["memory_limit"] or data.MEMORY_BYTES for worker in workers]
        return int(MEMORY_SHARE * sum(limits)), max(1, sum(worker["nthreads"] for worker in workers))

    def _sizes(self, n_bytes: int) -> data.Sizes:
        blocks, (share, n_threads) = self.blocks, self._memory
        return data.Sizes(
            n_samples=n_bytes // (blocks.array.dtype.itemsize * blocks.n_features),
            n_features=blocks.n_features,
            # One sum is kept in the end, but every running task forms a matrix.
            n_matrices=n_threads,
            sparse_bytes=n_bytes if blocks.is_sparse else None,
            copy_bytes=share if blocks.array.dtype == np.float64 else 0,
        )


def check_features(pca: Any, X: Any, reset: bool) -> None:
    """Let scikit-learn store (reset) or check the number and the names of the features; reads nothing."""
    # An empty array like X: scikit-learn would compute X itself.
    empty = X._meta if is_frame(X) else np.empty((0, X.shape[1]))
    validate_data(pca, empty, reset=reset, skip_check_array=True)


def lazy_scores(pca: Any, X: Any) -> Any:
    """Scores of dask data (n, d) as a dask array (n, K), float32 if they are; nothing is computed yet."""
    blocks = Blocks.of(X)
    array, kept = blocks.array, data.kept_dtype(blocks.array.dtype)
    check_features(pca, X, reset=False)
    made: dict[str, Any] = {"chunks": (array.chunks[0], (pca.n_components_,)), "token": "eigenmesh-scores"}
    made["meta"] = np.empty((0, 0), dtype=kept)
    return array.map_blocks(_scores, projector=pca._projector, kept=kept, **made)


def _scores(block: Any, projector: data.Projector, kept: np.dtype) -> np.ndarray:
    source = data.as_source(scipy_or_dense(block), "a dask block")
    return projector.scores_of(source, None, "a dask block").astype(kept, copy=False)
