"""Tracked subspace iteration whose nodes do not wait for each other."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import ClassVar, NamedTuple

import numpy as np

from eigenmesh import arrays as ea
from eigenmesh.arrays import Array
from eigenmesh.certificate import Common
from eigenmesh.data import Covariance
from eigenmesh.errors import InputError
from eigenmesh.networks import Network
from eigenmesh.networks._paced import Pace
from eigenmesh.solvers._base import Solver, Traits, Watch, require_positive
from eigenmesh.solvers._mixed_sums import FED_TICKS
from eigenmesh.solvers._paced_node import PacedNode
from eigenmesh.solvers._together import Together, meet
from eigenmesh.solvers._tracked_subspace import TrackedSubspace, following


class PacedState(NamedTuple):
    """The nodes held here, machines that a step drives on, not values; and their answer once they are together."""

    nodes: tuple[PacedNode, ...]
    together: Together | None = None


@dataclass(frozen=True)
class Asynchronous(Solver):
    """Tracked subspace iteration in which every node mixes at its own ticks and multiplies at its own speed.

    A message is the sum of all that was ever sent over its link, so that it does not matter which ones are lost or
    late; ``PacedNode`` has the equations. Nobody waits inside a mix: a node multiplies once it sees that the last
    products of all nodes are mixed well enough, so all make the same steps. Each message also carries what nodes have
    found in their last two steps. When that is near enough to ``tol``, which all nodes see before the same step, they
    meet, and in rounds they multiply the average of their blocks once: its Ritz vectors are the answer, and the
    certificate is that of them. Refused, they go on until they are twice as near. An iteration of ``run`` is all that
    happens between two meetings, a round is a tick. It needs threads, or virtual time (``eigenmesh simulate``).

    Parameters
    ----------
    tick_s : float
        Seconds between two ticks of a node: about what a message takes.
    tol : float
        Bound on sin(angle) for which nodes meet; best that of the fit.
    patience_s : float
        Seconds for which a neighbour may be silent before the run ends with its name.
    method : TrackedSubspace
        Whose steps are made.
    """

    tick_s: float = 0.05
    tol: float = 1e-6
    patience_s: float = 10.0
    method: TrackedSubspace = field(default_factory=TrackedSubspace)
    name: ClassVar[str] = "asynchronous"
    traits: ClassVar[Traits] = Traits(few_exchanges=True, expected_products=60)
    common_clock: ClassVar[bool] = False

    def __post_init__(self) -> None:
        for name in ("tick_s", "tol", "patience_s"):
            require_positive(name, getattr(self, name))
        if self.patience_s <= FED_TICKS * self.tick_s:
            least = f"above {FED_TICKS} ticks, {FED_TICKS * self.tick_s:g} s"
            raise InputError(f"patience_s = {self.patience_s} must be {least}: a few messages may get lost.")
        if self.method.mixes != "auto":
            raise InputError(f'mixes = {self.method.mixes!r} of the method must be "auto": ticks are not rounds.')

    def columns(self, n_components: int, n_features: int) -> int:
        return self.method.columns(n_components, n_features)

    def largest_message(self, n_components: int, n_features: int) -> int:
        return self.method.largest_message(n_components, n_features)

    def init(self, covariance: Covariance, network: Network, basis: Array, seed: int = 0) -> PacedState:
        network.require_time()
        patience = round(self.patience_s / self.tick_s)
        # Each node has a covariance of its own, also where one process holds several.
        parts = getattr(covariance, "parts", (covariance,))
        nodes = (
            PacedNode(self.method, network.weights, rank, part, basis[:1, ...], seed, tol=self.tol, patience=patience)
            for rank, part in zip(network.ids, parts, strict=True)
        )
        return PacedState(tuple(nodes))

    def step(self, covariance: Covariance, network: Network, state: PacedState) -> PacedState:
        """Let the nodes go on until they meet."""
        for node in state.nodes:
            node.resume()
        network.run_paced(state.nodes, Pace(self.tick_s, self.common_clock))
        return PacedState(state.nodes)

    def readout(self, state: PacedState) -> Array:
        if state.together is not None:
            return ea.everywhere(state.together.components, len(state.nodes))
        return np.concatenate([self.method.readout(node.current) for node in state.nodes])

    def common(self, state: PacedState) -> Common | None:
        return None if state.together is None else state.together.common

    def beyond(self, state: PacedState) -> Array | None:
        return None if state.together is None else state.together.beyond

    def watch(self, covariance: Covariance, network: Network, state: PacedState) -> Watch:
        """Now that all meet: Rayleigh-Ritz in the average of the blocks that would be next."""
        X = np.concatenate([following(node.current)[0] for node in state.nodes])
        met = meet(covariance, network, X, state.nodes[0].current.k)
        healthy = bool(np.isfinite(met.residual).all())
        return Watch(PacedState(state.nodes, met.together), met.residual, healthy, met.gaps, free=True)


@dataclass(frozen=True)
class Deadlines(Asynchronous):
    """The same with rounds that close after ``tick_s``, by one clock for all nodes: what is late comes in later."""

    tick_s: float = 0.1
    name: ClassVar[str] = "deadlines"
    common_clock: ClassVar[bool] = True
