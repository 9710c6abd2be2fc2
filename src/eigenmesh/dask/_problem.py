"""From an estimator's settings and dask data to what the one loop runs: solver, covariance, network."""

from __future__ import annotations

import sys
from dataclasses import dataclass
from typing import Any

import numpy as np

from eigenmesh import graphs
from eigenmesh.dask._blocks import Blocks
from eigenmesh.dask._covariance import covariance_of_blocks
from eigenmesh.dask._one_pass import formed_in_one_pass
from eigenmesh.dask._scores import check_features
from eigenmesh.data import Covariance, CovarianceKind, Moments
from eigenmesh.data._choice import COPY_BYTES, MEMORY_BYTES, Choice, Sizes, choose_by_size
from eigenmesh.data._moments import moments_by_sums
from eigenmesh.errors import InputError, import_extra
from eigenmesh.fitting._resolve import components_of, solver_or_auto
from eigenmesh.networks import Stacked
from eigenmesh.solvers import BlockKrylov, Solver

# The part of the workers' memory that samples and ready copies may take, each.
MEMORY_SHARE = 0.3
# A product is a graph of tasks besides its flops, and one with few columns waits for memory more than it computes.
PASS_COST = 2.0
# Settings of a network that is chosen, or of arrays that are dealt out: on Dask both are given.
NOT_ON_DASK = ("topology", "weights", "averaging", "split", "transport", "device")


@dataclass(frozen=True)
class DaskProblem:
    """What ``run`` needs. To it the cluster is a network of one node; n_blocks is how many there really are."""

    solver: Solver
    covariance: Covariance
    network: Stacked
    moments: Moments
    wanted: int | float
    n_blocks: int
    choice: Choice


def dask_problem(pca: Any, X: Any, nodes: Any = None, kind: CovarianceKind | None = None) -> DaskProblem:
    """Check what is asked for, take the moments, and choose how to hold the covariance.

    Parameters
    ----------
    pca : a DecentralizedPCA; its settings are read, and scikit-learn's marks of X are left on it.
    X : dask array or data frame, one node a block of rows.
    nodes : must be None.
    kind : how to hold the covariance; None to choose.
    """
    solver = _solver(pca)
    network = Stacked(graphs.metropolis(graphs.complete(1)))
    blocks = Blocks.of(X, network.traffic)
    _refuse(pca, nodes, blocks.n_blocks)
    # Everything that can be wrong without reading the data is looked at first.
    components_of(pca.n_components, sys.maxsize, blocks.n_features)
    check_features(pca, X, reset=True)
    memory = _memory()
    n_bytes = None if kind is CovarianceKind.CHUNKED else blocks.n_bytes()
    if n_bytes is not None and n_bytes <= memory.share:
        blocks = blocks.kept()
    choice = _choice(kind, _sizes(blocks, n_bytes or 0, memory), solver, pca.n_components, memory.share)
    # Asked for by name, copies are held whatever they take; chosen, only where they fit.
    fits = kind is not None or choice.bytes <= memory.share
    holds = fits and choice.kind in (CovarianceKind.MATRIX_FREE, CovarianceKind.SPARSE)
    moments, covariance = _moments_and_covariance(pca, blocks, choice.kind, holds)
    wanted = components_of(pca.n_components, moments.n_samples, blocks.n_features)
    return DaskProblem(solver, covariance, network, moments, wanted, blocks.n_blocks, choice)


def _moments_and_covariance(pca: Any, blocks: Blocks, kind: CovarianceKind, holds: bool) -> tuple[Moments, Covariance]:
    if kind is CovarianceKind.FORMED and not blocks.is_sparse and pca.missing == "error":
        found = formed_in_one_pass(blocks, scale=bool(pca.scale))
        if found is not None:
            return found
    moments = moments_by_sums(blocks.total_of_samples, blocks, scale=bool(pca.scale), missing=pca.missing)
    return moments, covariance_of_blocks(blocks, moments, kind, holds)


def _solver(pca: Any) -> Solver:
    solver = solver_or_auto(pca.solver, pca.step_size) or BlockKrylov()
    if not solver.traits.few_exchanges:
        raise InputError(
            f"solver {solver.name!r} exchanges messages hundreds of times, and on Dask each exchange costs tens of "
            f'milliseconds; use solver="auto" (block-krylov: about a dozen products), or, to study {solver.name!r}, '
            "give it the computed array."
        )
    return solver


def _refuse(pca: Any, nodes: Any, n_blocks: int) -> None:
    """Raise if something is asked for that has no meaning on Dask."""
    usual = type(pca)().get_params(deep=False)
    for name in NOT_ON_DASK:
        value = getattr(pca, name)
        if value is not usual[name] and not (isinstance(value, str) and value == usual[name]):
            raise InputError(
                f"{name} = {value!r} has no meaning for dask data: every block is a node where it lies, and Dask sums "
                f"over them. Leave {name} out."
            )
    if nodes is not None:
        raise InputError("nodes= deals out one array; dask data are dealt out by their chunks. Leave it out.")
    if pca.n_nodes not in (None, n_blocks):
        raise InputError(
            f"n_nodes = {pca.n_nodes}, but the data have {n_blocks} blocks of rows and every block is a node. Leave "
            "n_nodes out, or rechunk the data."
        )


@dataclass(frozen=True)
class _Memory:
    """Bytes that samples or copies of them may take, and tasks that may run at once."""

    share: int
    n_threads: int


def _memory() -> _Memory:
    """What the workers have, if there is a cluster; else what a fit in this process takes at most."""
    # Only who has imported distributed can have made a client.
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


def _sizes(blocks: Blocks, n_bytes: int, memory: _Memory) -> Sizes:
    return Sizes(
        n_samples=n_bytes // (blocks.array.dtype.itemsize * blocks.n_features),
        n_features=blocks.n_features,
        # One sum is kept in the end, but every task that runs has a matrix in the making.
        n_matrices=memory.n_threads,
        itemsize=blocks.dtype.itemsize,
        sparse_bytes=n_bytes if blocks.is_sparse else None,
        copy_bytes=memory.share,
    )


def _choice(kind: CovarianceKind | None, sizes: Sizes, solver: Solver, n_components: Any, memory_bytes: int) -> Choice:
    """How to hold the covariance: as asked for, or the cheapest that fits."""
    if kind is None and solver.traits.sends_covariances:
        kind = CovarianceKind.FORMED
    if kind is not None:
        return Choice(kind, sizes.memory_needed(kind), "as asked for")
    if isinstance(n_components, int | np.integer):
        expected = int(n_components)
    else:
        # A share of the variance takes few components as a rule; None takes all.
        expected = sizes.n_features if n_components is None else min(10, sizes.n_features)
    columns = solver.columns(expected, sizes.n_features)
    return choose_by_size(sizes, columns, solver.traits.expected_products, memory_bytes, PASS_COST)
