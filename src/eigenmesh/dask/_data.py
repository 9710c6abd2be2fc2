"""Dask data for ``prepare``, computed at the blocks, and their scores: a dask array, computed lazily."""

from __future__ import annotations

import sys
from dataclasses import dataclass, field
from functools import cached_property, partial
from typing import Any

import numpy as np
from sklearn.utils.validation import validate_data

from eigenmesh import graphs
from eigenmesh.averaging import Averaging
from eigenmesh.dask._blocks import Blocks, is_frame, scipy_or_dense
from eigenmesh.dask._covariance import covariance_of_blocks, formed_in_one_pass
from eigenmesh.data import Choice, Covariance, CovarianceKind, Missing, Moments, Scaling, as_source
from eigenmesh.data._choice import COPY_BYTES, MEMORY_BYTES, Sizes, choose_by_size
from eigenmesh.data._pooled_moments import moments_by_sums
from eigenmesh.data._scores import Projector, kept_dtype
from eigenmesh.data._summaries import count_and_sum
from eigenmesh.errors import InputError, import_extra
from eigenmesh.fitting import DataFacts, Request, Size
from eigenmesh.networks import Network, Stacked, Traffic
from eigenmesh.solvers import Solver

# Share of the workers' memory that the samples may take; centred copies may take the same share again.
MEMORY_SHARE = 0.3
# A product costs task scheduling besides its flops, and with few columns memory access dominates.
PASS_COST = 2.0


@dataclass(frozen=True, eq=False)
class DaskData:
    """Blocks of rows, one node each. To a solver the cluster is one node whose covariance is a sum over blocks."""

    blocks: Blocks
    weights: graphs.Weights = field(default_factory=lambda: graphs.metropolis(graphs.complete(1)))

    @classmethod
    def of(cls, X: Any) -> DaskData:
        """From a dask array or data frame; reads nothing."""
        return cls(Blocks.of(X, Traffic()))

    @property
    def facts(self) -> DataFacts:
        blocks, names = self.blocks, self.blocks.layout.feature_names
        return DataFacts.of_rows(blocks.n_blocks, blocks.n_features, feature_names=names)

    def count(self, masked: bool) -> tuple[Size, None]:
        """The chunk sizes may be unknown; the moments count the rows."""
        return self.facts.size, None

    def compare(self, request: Request) -> None:
        """Nothing: one process has the settings of all blocks."""

    def check(self, request: Request) -> None:
        """Raise if the solver exchanges messages hundreds of times."""
        solver = request.solver
        if solver is not None and not solver.traits.few_exchanges:
            cost = "exchanges messages hundreds of times, and on Dask each exchange takes tens of milliseconds"
            raise InputError(f'solver {solver.name!r} {cost}; use solver="auto", or give it the computed array.')

    def network(self, averaging: Averaging, max_rounds: int) -> Network:
        """One node; the passes over the blocks are counted as its traffic."""
        network = Stacked(self.weights, averaging)
        network.traffic = self.blocks.traffic
        return network

    def choose_covariance(
        self, request: Request, solver: Solver, n_components: int, network: Network | None = None
    ) -> Choice:
        """The requested kind, or the cheapest that fits the memory of the workers."""
        kind = request.covariance
        if kind is None and solver.traits.sends_covariances:
            kind = CovarianceKind.FORMED
        sizes = self._sizes(0 if kind is CovarianceKind.CHUNKED else self._n_bytes)
        if kind is not None:
            return sizes.asked(kind)
        columns, products = solver.columns(n_components, self.blocks.n_features), solver.traits.expected_products
        return choose_by_size(sizes, columns, products, self._memory[0], PASS_COST)

    def measure(
        self, network: Network, choice: Choice, *, scale: Scaling, missing: Missing, device: str | None
    ) -> tuple[Moments, Covariance]:
        """One pass over the blocks if that is precise enough; otherwise two for the moments, then the covariance."""
        blocks, (share, _) = self.blocks, self._memory
        if choice.kind is not CovarianceKind.CHUNKED and self._n_bytes <= share:
            blocks = blocks.kept()
        if choice.kind is CovarianceKind.FORMED and not blocks.is_sparse and missing == "error":
            found = formed_in_one_pass(blocks, scale=scale)
            if found is not None:
                return found
        first = blocks.total_of_samples(partial(count_and_sum, fills=missing == "mean"))
        moments = moments_by_sums(blocks.total_of_samples, blocks, first, scale=scale, missing=missing)
        # Copies that the user asked for are always held; chosen ones only if they fit.
        fits = choice.asked or choice.bytes <= share
        holds = fits and choice.kind in (CovarianceKind.MATRIX_FREE, CovarianceKind.SPARSE)
        return moments, covariance_of_blocks(blocks, moments, choice.kind, holds)

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
            return COPY_BYTES, import_extra("dask.system", "dask", "fitting dask data").CPU_COUNT
        workers = client.scheduler_info(n_workers=-1)["workers"].values()
        limits = [worker["memory_limit"] or MEMORY_BYTES for worker in workers]
        return int(MEMORY_SHARE * sum(limits)), max(1, sum(worker["nthreads"] for worker in workers))

    def _sizes(self, n_bytes: int) -> Sizes:
        blocks, (share, n_threads) = self.blocks, self._memory
        return Sizes(
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
    blocks = Blocks.of(X, Traffic())
    array, kept = blocks.array, kept_dtype(blocks.array.dtype)
    check_features(pca, X, reset=False)
    made: dict[str, Any] = {"chunks": (array.chunks[0], (pca.n_components_,)), "token": "eigenmesh-scores"}
    made["meta"] = np.empty((0, 0), dtype=kept)
    return array.map_blocks(_scores, projector=pca._projector, kept=kept, **made)


def _scores(block: Any, projector: Projector, kept: np.dtype) -> np.ndarray:
    source = as_source(scipy_or_dense(block), "a dask block")
    return projector.scores_of(source, None, "a dask block").astype(kept, copy=False)
