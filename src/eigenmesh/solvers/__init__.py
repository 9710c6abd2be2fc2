"""Algorithms for decentralised PCA, one file each."""

from typing import Any

from eigenmesh._lookup import lookup
from eigenmesh.solvers._asynchronous import Asynchronous, Deadlines
from eigenmesh.solvers._base import Solver, Traits, Watch, largest_norm, product_residuals, unmeasured, watch_residual
from eigenmesh.solvers._block_krylov import BlockKrylov
from eigenmesh.solvers._deepca import DeEPCA
from eigenmesh.solvers._dsa import DSA
from eigenmesh.solvers._fast_pca import FastPCA
from eigenmesh.solvers._krasulina import Krasulina
from eigenmesh.solvers._orthogonal_iteration import OrthogonalIteration
from eigenmesh.solvers._s_dot import SADOT, SDOT
from eigenmesh.solvers._sanger import Sanger
from eigenmesh.solvers._sequential_power import SequentialDistributedPower, SequentialPower
from eigenmesh.solvers._tracked_subspace import TrackedSubspace
from eigenmesh.solvers._tree_covariance import TreeCovariance

SOLVERS: dict[str, type[Any]] = {
    solver.name: solver
    for solver in (
        BlockKrylov,
        TrackedSubspace,
        TreeCovariance,
        FastPCA,
        DeEPCA,
        SDOT,
        SADOT,
        DSA,
        OrthogonalIteration,
        SequentialPower,
        SequentialDistributedPower,
        Krasulina,
        Sanger,
    )
}

# Variants of tracked subspace iteration without waiting between nodes. They run on threads and in virtual time.
AT_OWN_PACE: dict[str, type[Any]] = {solver.name: solver for solver in (Deadlines, Asynchronous)}


def solver_by_name(name: str, **settings: Any) -> Solver:
    """Solver with this name; settings that it has no field for are ignored. For the command line and the estimator."""
    kind = lookup("solver", name, SOLVERS)
    solver: Solver = kind(**{key: value for key, value in settings.items() if key in kind.__dataclass_fields__})
    return solver


__all__ = [
    "AT_OWN_PACE",
    "DSA",
    "SADOT",
    "SDOT",
    "SOLVERS",
    "Asynchronous",
    "BlockKrylov",
    "DeEPCA",
    "Deadlines",
    "FastPCA",
    "Krasulina",
    "OrthogonalIteration",
    "Sanger",
    "SequentialDistributedPower",
    "SequentialPower",
    "Solver",
    "TrackedSubspace",
    "Traits",
    "TreeCovariance",
    "Watch",
    "largest_norm",
    "product_residuals",
    "solver_by_name",
    "unmeasured",
    "watch_residual",
]


def __dir__() -> list[str]:
    return __all__
