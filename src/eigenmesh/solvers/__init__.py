"""Algorithms for decentralised PCA, one file each."""

from typing import Any

from eigenmesh.solvers.at_own_pace import Asynchronous, Deadlines
from eigenmesh.solvers.base import (
    Check,
    Solver,
    Traits,
    check_residual,
    common_basis,
    largest_norm,
    product_residuals,
    random_basis,
    unmeasured,
    widened,
)
from eigenmesh.solvers.block_krylov import BlockKrylov, Known, WarmKrylov
from eigenmesh.solvers.fast_pca import FastPCA
from eigenmesh.solvers.literature.deepca import DeEPCA
from eigenmesh.solvers.literature.dot import SADOT, SDOT, OrthogonalIteration
from eigenmesh.solvers.literature.dsa import DSA, Krasulina, Sanger
from eigenmesh.solvers.literature.power import SequentialDistributedPower, SequentialPower
from eigenmesh.solvers.one_sum import LARGEST_FEATURES, OneSum, averaged
from eigenmesh.solvers.tracked_subspace import TrackedSubspace

SOLVERS: dict[str, type[Any]] = {
    solver.name: solver
    for solver in (
        BlockKrylov,
        TrackedSubspace,
        OneSum,
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


__all__ = [
    "AT_OWN_PACE",
    "DSA",
    "SADOT",
    "SDOT",
    "SOLVERS",
    "Asynchronous",
    "BlockKrylov",
    "Check",
    "DeEPCA",
    "Deadlines",
    "FastPCA",
    "Krasulina",
    "OneSum",
    "OrthogonalIteration",
    "Sanger",
    "SequentialDistributedPower",
    "SequentialPower",
    "Solver",
    "TrackedSubspace",
    "Traits",
    "check_residual",
    "largest_norm",
    "product_residuals",
    "unmeasured",
]


def __dir__() -> list[str]:
    return __all__
