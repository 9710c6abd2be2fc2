"""
A solver of your own
====================

A solver is a step on arrays with a leading axis over nodes. The loop, the stopping rule, the counting and the
certificate are there for every solver.
"""

from dataclasses import dataclass
from typing import ClassVar, NamedTuple

import matplotlib.pyplot as plt
from sklearn.datasets import load_digits

from eigenmesh import DecentralizedPCA
from eigenmesh.arrays import Array, orthonormal
from eigenmesh.solvers import Solver, product_residuals, unmeasured


class State(NamedTuple):
    """Estimates (nodes, d, K), and the residuals of those before the last product."""

    X: Array
    residual: Array


@dataclass(frozen=True)
class SubspaceIteration(Solver):
    """X <- QR(C X)."""

    name: ClassVar[str] = "subspace iteration"

    def init(self, covariance, network, basis, seed=0):
        """Begin from the basis that all nodes have."""
        return State(basis, unmeasured(basis))

    def step(self, covariance, network, state):
        """One product and one average."""
        Z = network.mean(covariance.apply(state.X))
        return State(orthonormal(Z), product_residuals(state.X, Z))


X = load_digits().data
for solver in (SubspaceIteration(), "block-krylov"):
    pca = DecentralizedPCA(3, n_nodes=8, solver=solver, random_state=0).fit(X)
    points = [(record.rounds, record.residual) for record in pca.history_ if record.residual == record.residual]
    plt.semilogy(*zip(*points, strict=True), "o-", label=pca.result_.solver)
plt.xlabel("rounds")
plt.ylabel("residual")
plt.legend()
plt.show()
