"""Algorithms for decentralised PCA, one file each."""

from typing import Any

from eigenmesh.errors import UnknownNameError
from eigenmesh.solvers.base import Solver, Watch
from eigenmesh.solvers.fast_pca import FastPCA

SOLVERS: dict[str, type[Any]] = {solver.name: solver for solver in (FastPCA,)}


def solver_by_name(name: str, **settings: Any) -> Solver:
    """Solver of that name with the settings it has a field for, for the command line and the estimator."""
    if name not in SOLVERS:
        raise UnknownNameError("solver", name, SOLVERS)
    kind = SOLVERS[name]
    solver: Solver = kind(**{key: value for key, value in settings.items() if key in kind.__dataclass_fields__})
    return solver


__all__ = ["SOLVERS", "FastPCA", "Solver", "Watch", "solver_by_name"]
