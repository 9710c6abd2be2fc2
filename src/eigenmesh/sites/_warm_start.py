"""A solver that goes on from what was found before, and remembers the latest that it has found."""

from __future__ import annotations

from typing import Any

import numpy as np

from eigenmesh import arrays as ea
from eigenmesh.arrays import Array
from eigenmesh.data import Covariance
from eigenmesh.networks import Network
from eigenmesh.solvers._base import Solver, Traits, Watch
from eigenmesh.solvers._step_size import common_basis


class WarmStart(Solver):
    """Any solver, begun from the average of what all nodes have; its state, trackers too, is made anew from there.

    Parameters
    ----------
    solver : the solver that does the work.
    warm : whether to start from what nodes have; all nodes must say the same.
    start : (d, K) what this node has, or None: it then takes part with the common random start.
    """

    def __init__(self, solver: Solver, warm: bool = False, start: np.ndarray | None = None) -> None:
        self.solver, self.warm, self.start = solver, warm, start
        self.latest = start

    @property
    def name(self) -> str:  # type: ignore[override]
        """Name of the solver that does the work."""
        return self.solver.name

    @property
    def traits(self) -> Traits:  # type: ignore[override]
        """Traits of the solver that does the work."""
        return self.solver.traits

    def columns(self, n_components: int, n_features: int) -> int:
        """Columns of one product of the solver that does the work."""
        return self.solver.columns(n_components, n_features)

    def current_step(self, state: Any) -> float:
        """Step size of the solver that does the work."""
        return self.solver.current_step(state)

    def init(self, covariance: Covariance, network: Network, basis: Array) -> Any:
        """Start from one orthonormal basis, the average over the nodes."""
        if self.warm:
            known = self.start is not None and self.start.shape == basis.shape[1:]
            own = covariance.place(self.start[np.newaxis]) if known and self.start is not None else basis
            basis = common_basis(network, own)
        return self.solver.init(covariance, network, basis)

    def step(self, covariance: Covariance, network: Network, state: Any) -> Any:
        """One iteration."""
        return self.solver.step(covariance, network, state)

    def readout(self, state: Any) -> Array:
        """Unit-norm estimates."""
        return self.solver.readout(state)

    def watch(self, covariance: Covariance, network: Network, state: Any) -> Watch:
        """Look at the state, and remember what it gives."""
        seen = self.solver.watch(covariance, network, state)
        if seen.healthy:
            self.latest = ea.to_numpy(self.solver.readout(seen.state))[0]
        return seen
