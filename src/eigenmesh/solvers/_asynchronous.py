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
from eigenmesh.solvers._mixed_sums import SILENT_TICKS
from eigenmesh.solvers._paced_node import PacedNode
from eigenmesh.solvers._shared_ritz import SharedRitz, ritz_of_average
from eigenmesh.solvers._tracked_subspace import TrackedSubspace, next_block


class PacedState(NamedTuple):
    """The nodes in this process, mutable machines that a step drives, and their shared answer once they have met."""

    nodes: tuple[PacedNode, ...]
    shared: SharedRitz | None = None


@dataclass(frozen=True)
class Asynchronous(Solver):
    """Tracked subspace iteration in which every node mixes and multiplies at its own pace.

    A message is the sum of everything ever sent over its link, so lost and late messages do no harm; ``PacedNode`` has
    the equations. No node waits inside a mix: a node multiplies once it sees that the last products of all nodes are
    mixed well enough, so all nodes take the same steps. Messages also carry the residuals of the last two steps. When
    these are close enough to ``tol``, which all nodes see at the same step, the nodes meet: in synchronous rounds they
    multiply the average of their blocks once. Its Ritz vectors are the answer that is certified. If the certificate is
    refused, the nodes continue until the error has halved. One iteration of ``run`` lasts from one meeting to the next,
    and a round is a tick. The solver needs threads, or virtual time (``eigenmesh simulate``).

    Parameters
    ----------
    tick_s : float
        Seconds between two ticks of a node; choose about the time that a message takes.
    tol : float
        Bound on sin(angle) at which the nodes meet; use the tolerance of the fit.
    patience_s : float
        Seconds for which a neighbour may be silent before the run ends with an error that names it.
    method : TrackedSubspace
        The method whose steps are taken.
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
        if self.patience_s <= SILENT_TICKS * self.tick_s:
            least = f"more than {SILENT_TICKS} ticks, {SILENT_TICKS * self.tick_s:g} s"
            raise InputError(f"patience_s = {self.patience_s} must be {least}, because a few messages may get lost.")
        if self.method.mixes != "auto":
            raise InputError(
                f'mixes = {self.method.mixes!r} of the method must be "auto": nodes mix in ticks, not rounds.'
            )

    def columns(self, n_components: int, n_features: int) -> int:
        return self.method.columns(n_components, n_features)

    def largest_message(self, n_components: int, n_features: int) -> int:
        return self.method.largest_message(n_components, n_features)

    def init(self, covariance: Covariance, network: Network, basis: Array, seed: int = 0) -> PacedState:
        network.require_time()
        network.require_sums_kept()
        patience = round(self.patience_s / self.tick_s)
        # Each node needs its own covariance, even if one process holds several nodes.
        parts = getattr(covariance, "parts", (covariance,))
        nodes = (
            PacedNode(self.method, network.weights, rank, part, basis[:1, ...], seed, tol=self.tol, patience=patience)
            for rank, part in zip(network.ids, parts, strict=True)
        )
        return PacedState(tuple(nodes))

    def step(self, covariance: Covariance, network: Network, state: PacedState) -> PacedState:
        """Let the nodes work until they meet."""
        for node in state.nodes:
            node.resume()
        network.run_paced(state.nodes, Pace(self.tick_s, self.common_clock))
        return PacedState(state.nodes)

    def readout(self, state: PacedState) -> Array:
        if state.shared is not None:
            return ea.everywhere(state.shared.components, len(state.nodes))
        return np.concatenate([self.method.readout(node.current) for node in state.nodes])

    def common(self, state: PacedState) -> tuple[Common, ...] | None:
        return None if state.shared is None else state.shared.common

    def beyond(self, state: PacedState) -> Array | None:
        return None if state.shared is None else state.shared.beyond

    def watch(self, covariance: Covariance, network: Network, state: PacedState) -> Watch:
        """At a meeting: Rayleigh-Ritz in the average of the blocks that the nodes would multiply next."""
        X = np.concatenate([next_block(node.current)[0] for node in state.nodes])
        agreed = ritz_of_average(covariance, network, X, state.nodes[0].current.k)
        healthy = bool(np.isfinite(agreed.residual).all())
        return Watch(PacedState(state.nodes, agreed.shared), agreed.residual, healthy, agreed.gaps, free=True)


@dataclass(frozen=True)
class Deadlines(Asynchronous):
    """``Asynchronous`` with one clock for all nodes: rounds close after ``tick_s``; late messages count later."""

    tick_s: float = 0.1
    name: ClassVar[str] = "deadlines"
    common_clock: ClassVar[bool] = True
