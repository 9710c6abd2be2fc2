"""Dask data for ``prepare``: moments and covariance computed at the blocks."""

from __future__ import annotations

import sys
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

from eigenmesh import graphs
from eigenmesh.averaging import Averaging
from eigenmesh.dask._blocks import Blocks
from eigenmesh.dask._covariance import covariance_of_blocks
from eigenmesh.dask._one_pass import formed_in_one_pass
from eigenmesh.data import Choice, Covariance, CovarianceKind, Missing, Moments
from eigenmesh.data._choice import COPY_BYTES, MEMORY_BYTES, Sizes, choose_by_size
from eigenmesh.data._moments import moments_by_sums
from eigenmesh.errors import InputError, import_extra
from eigenmesh.fitting import DataFacts, Request
from eigenmesh.networks import Network, Stacked, Traffic
from eigenmesh.solvers import Solver

# Share of the workers' memory that samples may take, and centred copies as much again.
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
        return DataFacts(blocks.n_blocks, blocks.n_features, blocks.dtype.itemsize, feature_names=names)

    def count_samples(self) -> tuple[None, None]:
        """The chunk sizes may be unknown; the moments count the rows."""
        return None, None

    def check(self, request: Request) -> None:
        """Raise if the solver exchanges messages hundreds of times."""
        solver = request.solver
        if solver is not None and not solver.traits.few_exchanges:
            raise InputError(
                f"solver {solver.name!r} exchanges messages hundreds of times, and on Dask each exchange costs tens of "
                f'milliseconds; use solver="auto" (block-krylov: about a dozen products), or, to study '
                f"{solver.name!r}, give it the computed array."
            )

    def network(self, averaging: Averaging) -> Network:
        """One node; the passes over the blocks are counted as its traffic."""
        network = Stacked(self.weights, averaging)
        network.traffic = self.blocks.traffic
        return network

    def choose_covariance(self, kind: CovarianceKind | None, solver: Solver, n_components: int) -> Choice:
        """The requested kind, or the cheapest that fits the memory of the workers."""
        if kind is None and solver.traits.sends_covariances:
            kind = CovarianceKind.FORMED
        sizes = self._sizes(0 if kind is CovarianceKind.CHUNKED else self._n_bytes)
        if kind is not None:
            return Choice(kind, sizes.memory_needed(kind), "as asked for", asked=True)
        columns = solver.columns(n_components, self.blocks.n_features)
        products = solver.traits.expected_products
        return choose_by_size(sizes, columns, products, self._memory.share, PASS_COST)

    def measure(
        self, network: Network, choice: Choice, *, scale: bool, missing: Missing, device: str | None
    ) -> tuple[Moments, Covariance]:
        """One pass over the blocks if that is precise enough, otherwise two for the moments alone."""
        blocks, share = self.blocks, self._memory.share
        if choice.kind is not CovarianceKind.CHUNKED and self._n_bytes <= share:
            blocks = blocks.kept()
        if choice.kind is CovarianceKind.FORMED and not blocks.is_sparse and missing == "error":
            found = formed_in_one_pass(blocks, scale=scale)
            if found is not None:
                return found
        moments = moments_by_sums(blocks.total_of_samples, blocks, scale=scale, missing=missing)
        # Copies that the user asked for are always held; chosen ones only if they fit.
        fits = choice.asked or choice.bytes <= share
        holds = fits and choice.kind in (CovarianceKind.MATRIX_FREE, CovarianceKind.SPARSE)
        return moments, covariance_of_blocks(blocks, moments, choice.kind, holds)

    @cached_property
    def _n_bytes(self) -> int:
        return self.blocks.n_bytes()

    @cached_property
    def _memory(self) -> _Memory:
        return _memory()

    def _sizes(self, n_bytes: int) -> Sizes:
        blocks = self.blocks
        return Sizes(
            n_samples=n_bytes // (blocks.array.dtype.itemsize * blocks.n_features),
            n_features=blocks.n_features,
            # One sum is kept in the end, but every running task forms a matrix.
            n_matrices=self._memory.n_threads,
            itemsize=blocks.dtype.itemsize,
            sparse_bytes=n_bytes if blocks.is_sparse else None,
            copy_bytes=self._memory.share,
        )


@dataclass(frozen=True)
class _Memory:
    """Bytes that samples or copies of them may take, and number of tasks that run at once."""

    share: int
    n_threads: int


def _memory() -> _Memory:
    """Memory of the workers if there is a cluster, otherwise the limit for a fit in this process."""
    # There can be a client only if distributed was imported.
    distributed = sys.modules.get("distributed")
    try:
        client = None if distributed is None else distributed.default_client()
    except ValueError:
        client = None
    if client is None:
        return _Memory(COPY_BYTES, import_extra("dask.system", "dask", "fitting dask data").CPU_COUNT)
    workers = client.scheduler_info(n_workers=-1)["workers"].values()
    limits = [worker["memory_limit"] or MEMORY_BYTES for worker in workers]
    return _Memory(int(MEMORY_SHARE * sum(limits)), max(1, sum(worker["nthreads"] for worker in workers)))
