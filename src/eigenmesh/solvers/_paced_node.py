"""One node of tracked subspace iteration at its own pace: a machine without clock, thread or socket."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import cast

import numpy as np

from eigenmesh.arrays import Array
from eigenmesh.averaging._push_sum import Probes
from eigenmesh.certificate._bounds import gaps_from_ritz
from eigenmesh.data import Covariance
from eigenmesh.graphs import Weights
from eigenmesh.networks import Network
from eigenmesh.networks._mixes import Mixes, rounds_to_contract
from eigenmesh.networks._paced import Message
from eigenmesh.solvers._mixed_sums import MixedSums
from eigenmesh.solvers._tracked_subspace import FIRST_PRODUCTS, TrackedSubspace, TrackedSubspaceState, numbers_of
from eigenmesh.solvers._tracked_subspace import PRODUCTS as STEP_PRODUCTS

# What nodes know of each other, one row per node: its ticks and products so far, how often it has called for a
# certificate, its bound on sin(angle), its largest residual, less its smallest Ritz value, |P C P|, the contraction of
# a tick, and how many ticks a product takes.
TICKS, PRODUCTS, CALLS, ANGLE, RESIDUAL, SMALLEST, UNLIKE, CONTRACTION, WORK = range(9)
# Less of the push weight than this share of the usual one means that this node was cut off.
LEAST_WEIGHT = 0.3
# Of a tick, before anything is known.
NO_CONTRACTION = 1 - 1e-9
# Below this, how far the probes have come is rounding.
LEAST_ERROR = 1e-9
# The root asks for a look at the budget after so many ticks. It asks for a certificate at so many times tol, since what
# nodes have in common is nearer to the truth than the farthest of them; refused, at this share of that, and so on.
LOOK_TICKS, EARLY, REFUSED = 2000, 6.0, 0.5
# So often the residual may rest before momentum is given up.
RESTS = 3


@dataclass(frozen=True)
class Ticks:
    """Mixes that have taken place in the ticks since the last product: as many as shrink disagreement to a share."""

    accuracy: float
    rounds: int = 0

    def __call__(self, network: object, S: Array, y: Array) -> tuple[Array, Array]:
        return S, y


class PacedNode:
    """What one node does: mixes at every tick, and multiplies when enough ticks have mixed its last product.

    ::

        product:  S_i <- S_i + C_i X_i(t+1) - C_i X_i(t)

    What is mixed are ``(S_i, y_i, probes)``, by ``MixedSums``. The probes, random numbers whose mean all know, show the
    contraction of a tick. A node sees no clock: whoever drives it calls ``tick`` as often as it likes, ``receive``, and
    works off what ``begin`` gives, at any time and in any order.

    Parameters
    ----------
    method : TrackedSubspace
        Whose steps are made.
    rank : int
        Which node this is; node 0 is the root, who calls for certificates.
    covariance : Covariance
        C_i of this node alone.
    basis : array of shape (1, d, K)
        The start, the same at all nodes.
    tol : float
        Bound on sin(angle) that is asked for.
    in_step : bool
        Begin a product at all nodes alike, once in as many rounds as the slowest product and the mixes take.
    patience : int
        Ticks for which a neighbour may be silent.
    """

    # What nodes agree on travels in the table, not with the mixes of the solver.
    riding = True

    def __init__(
        self,
        method: TrackedSubspace,
        weights: Weights,
        rank: int,
        covariance: Covariance,
        basis: Array,
        seed: int,
        *,
        tol: float,
        in_step: bool,
        patience: int,
    ) -> None:
        self.rank, self._goal = rank, EARLY * tol
        self._method, self._covariance, self._in_step, self._patience = method, covariance, in_step, patience
        _, d, k = basis.shape
        # Sums are in float64; what is made of them is as precise as the data, which the certificate goes by.
        self._shape, self._dtype = (d, method.columns(k, d)), basis.dtype
        self._first_work = partial(method.init, covariance, cast(Network, self), basis, seed)
        self._probes = Probes.drawn(weights.n_nodes, seed)
        own = self._probes.start[rank : rank + 1]
        self._first_error = float(self._probes.error(own, np.ones((1, 1)))[0])
        self.sums = MixedSums(weights, rank, np.concatenate([np.zeros(d * self._shape[1]), [1.0], own[0]]))
        self.table = np.zeros((weights.n_nodes, 9))
        self.table[:, [ANGLE, RESIDUAL]], self.table[:, CONTRACTION] = np.inf, NO_CONTRACTION
        self._looked_at = self.table[:, PRODUCTS].copy()
        self.state: TrackedSubspaceState | None = None
        self._unmixed = np.zeros((1, *self._shape))
        self.products = self._mixed_since = self._called_at = self._answered = 0
        self._round = self._period = self._began_at = 0
        self._usual_weight, self._rests = 0.0, 0
        self.working = False

    # --- what its driver calls -----------------------------------------------------------------------------

    def tick(self, round_: int = 0) -> list[tuple[int, Message]]:
        """Give shares away: receivers and their messages. Rounds have the same number at nodes with one clock."""
        self._round, sent = round_, self.sums.give()
        self._measure()
        if self.rank == 0 and self.ticks - self._called_at >= LOOK_TICKS and not self.called:
            self.table[0, CALLS] += 1
        table = self.table.copy()
        return [(j, (np.array([self.ticks]), total, table)) for j, total in sent.items()]

    def receive(self, sender: int, message: Message) -> None:
        number, total, table = message
        self.sums.take(sender, int(number[0]), total)
        newer = table[:, TICKS] > self.table[:, TICKS]
        self.table[newer] = table[newer]

    def begin(self) -> Callable[[], TrackedSubspaceState] | None:
        """Work that is due now, to be done anywhere and given to ``end``; None if there is none."""
        if self.working or self.called:
            return None
        if self.state is None:
            self.working = True
            return self._first_work
        if not self._is_due():
            return None
        state = self._look()
        if self.called:
            return None
        self.working, self._began_at = True, self.ticks
        return partial(self._method.step, self._covariance, cast(Network, self), state)

    def end(self, done: TrackedSubspaceState) -> None:
        """Take in the product of the work that was begun; mixing has gone on meanwhile."""
        before = 0.0 if self.state is None else self.state.CX
        values = self.sums.values.copy()
        values[: done.CX.size] += (done.CX - before).ravel()
        self.sums.values = values
        self.state, self.working = done, False
        self.products += 1
        own = self.table[self.rank]
        # Now and then one takes longer; that is forgotten slowly.
        own[WORK] = max(self.ticks - self._began_at + 1.0, 0.9 * own[WORK])
        self._mixed_since, self._unmixed = 0, self.current.S / self.current.y

    def require_heard(self) -> None:
        """Raise if a neighbour is silent for too long: what it holds is missing in every sum."""
        self.sums.require_heard(self._patience)

    @property
    def ticks(self) -> int:
        return self.sums.ticks

    @property
    def work_columns(self) -> int:
        """Columns that the covariance is multiplied with in the work that is next."""
        return self._shape[1] + (FIRST_PRODUCTS if self.state is None else STEP_PRODUCTS)

    @property
    def called(self) -> bool:
        """Whether the root has called for a certificate that this node has not taken part in."""
        return self.state is not None and bool(self.table[0, CALLS] > self._answered)

    def resume(self) -> None:
        """Go on after a look that all took together."""
        self._answered = int(self.table[0, CALLS])
        self._called_at = self.ticks

    # --- what the method asks of its network ---------------------------------------------------------------

    def mixes_to(self, contraction: float, before: Mixes | None = None) -> Mixes:
        return Ticks(contraction)

    # --- within ----------------------------------------------------------------------------------------------

    @property
    def current(self) -> TrackedSubspaceState:
        """The state with all that has been mixed so far."""
        if self.state is None:
            raise RuntimeError("a node has no state before its first product.")
        d, b = self._shape
        mixed = self.sums.values[: d * b + 1].astype(self._dtype)
        S, y = mixed[:-1].reshape(1, d, b), mixed[-1:].reshape(1, 1, 1)
        return self.state._replace(S=S, y=y, moved=S / y - self._unmixed)

    def _measure(self) -> None:
        """The contraction of a tick so far, by the probes."""
        _, weight, moved = np.split(self.sums.values, [math.prod(self._shape), math.prod(self._shape) + 1])
        error = float(self._probes.error(moved[np.newaxis], weight)[0])
        self._mixed_since += 1
        own = self.table[self.rank]
        own[TICKS] = self.ticks
        if error > LEAST_ERROR * self._first_error:
            own[CONTRACTION] = np.clip((error / self._first_error) ** (1 / self.ticks), 1e-3, NO_CONTRACTION)
        self._usual_weight += (float(weight[0]) - self._usual_weight) / self.ticks

    def _contraction(self) -> float:
        """That of the slowest to agree in one tick of this node, which may last longer than theirs."""
        theirs = self.table[:, TICKS] / max(self.ticks, 1)
        return min(float((self.table[:, CONTRACTION] ** theirs).max()), NO_CONTRACTION)

    def _is_due(self) -> bool:
        """Whether the ticks since the last product have mixed it as the rule asks, and this node is not cut off."""
        accuracy = self.current.mixing.accuracy
        enough = self._mixed_since >= rounds_to_contract(accuracy, self._contraction())
        if enough and self._in_step:
            # The same number everywhere.
            needed = rounds_to_contract(accuracy, float(self.table[:, CONTRACTION].max()))
            period = self._round // (needed + math.ceil(self.table[:, WORK].max()))
            enough, self._period = period != self._period, period
        weight = self.sums.values[math.prod(self._shape)]
        return enough and self.sums.hears_half and bool(weight >= LEAST_WEIGHT * self._usual_weight)

    def _look(self) -> TrackedSubspaceState:
        """Tell the others how far this node is; set momentum and mixes once all have told; the root may call."""
        state = self.current
        numbers = numbers_of(state)[0]
        residual, ritz = np.split(numbers[:-2], 2)
        gaps = gaps_from_ritz(ritz, state.k)
        with np.errstate(all="ignore"):
            angle = np.nan_to_num(residual[: state.k] / gaps, nan=np.inf).max()
        own = self.table[self.rank]
        found = self.products, angle, residual[: state.k].max(), *numbers[-2:]
        own[[PRODUCTS, ANGLE, RESIDUAL, SMALLEST, UNLIKE]] = found
        if (self.table[:, PRODUCTS] > self._looked_at).all():
            self._looked_at = self.table[:, PRODUCTS].copy()
            largest = self.table.max(axis=0)
            agreed = np.array([*[largest[RESIDUAL]] * state.k, largest[SMALLEST], largest[UNLIKE]])
            state = self._settled(self._method.adjusted(cast(Network, self), state, agreed))
            if self.rank == 0 and largest[ANGLE] <= self._goal:
                self._goal = REFUSED * largest[ANGLE]
                own[CALLS] += 1
        self.state = state
        return state

    def _settled(self, state: TrackedSubspaceState) -> TrackedSubspaceState:
        """Not more mixes but no momentum where the residual rests: nodes may not be in step.

        However long a node mixes, what others have multiplied meanwhile is not mixed, so that more of it would only
        take longer.
        """
        self._rests += state.power > 1
        return state._replace(power=1, momentum=state.momentum if self._rests < RESTS else 0.0)
