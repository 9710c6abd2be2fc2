"""One node of tracked subspace iteration at its own pace: a machine without clock, thread or socket."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import TypeAlias, cast

import numpy as np

from eigenmesh.arrays import Array
from eigenmesh.averaging._push_sum import Probes
from eigenmesh.certificate._bounds import gaps_from_ritz
from eigenmesh.data import Covariance
from eigenmesh.graphs import Weights
from eigenmesh.networks import Network
from eigenmesh.networks._mixes import Mixes
from eigenmesh.networks._paced import Message
from eigenmesh.solvers._looks import Looks
from eigenmesh.solvers._mixed_sums import MixedSums
from eigenmesh.solvers._tracked_subspace import EARLY, FIRST_PRODUCTS, TrackedSubspace, TrackedSubspaceState, numbers_of
from eigenmesh.solvers._tracked_subspace import PRODUCTS as STEP_PRODUCTS

# Below this, how far the probes have come is rounding. Of what the rule leaves of disagreement a node leaves this
# share: ticks take less time than the steps that they save.
LEAST_ERROR, SHARE = 1e-9, 0.5
# Nodes meet after so many products at the latest, to see what is left of the budget. A certificate that was refused is
# asked for again once they are this much nearer.
MEETING_PRODUCTS, REFUSED = 50, 0.5

Work: TypeAlias = Callable[[], TrackedSubspaceState]


@dataclass(frozen=True)
class Ticks:
    """Mixes that take place in ticks, until disagreement has shrunk to a share."""

    accuracy: float
    rounds: int = 0

    def __call__(self, network: object, S: Array, y: Array) -> tuple[Array, Array]:
        return S, y


class PacedNode:
    """What one node does: mixes at every tick, and multiplies once the last products of all nodes are mixed.

    ::

        product n:  S_i <- S_i + C_i X_i(n) - C_i X_i(n-2),   probes_i <- probes_i +- G_i,   of place n mod 2

    What is mixed are ``(S_i, probes_i)`` of both places, and ``y_i``, by ``MixedSums``. Nodes are in step without a
    clock: the numbers G, which all know, come in with every second product and leave with the next but one, so a probe
    is at its mean once that product has come from all nodes and is mixed, and as far from it as ``S_i / y_i`` is from
    its own. Who is ahead puts the next product into the other place, where it does not disturb those behind. In every
    step all nodes go by the same numbers, those of ``Looks``, so momentum settles as it does in rounds.

    A node sees no clock: whoever drives it calls ``tick`` as often as it likes, ``receive``, and works off what
    ``begin`` gives, at any time and in any order.

    Parameters
    ----------
    method : TrackedSubspace
        Whose steps are made.
    rank : int
        Which node this is.
    covariance : Covariance
        C_i of this node alone.
    basis : array of shape (1, d, K)
        The start, the same at all nodes.
    tol : float
        Bound on sin(angle) for which nodes meet.
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
        patience: int,
    ) -> None:
        self.rank, self._goal = rank, EARLY * tol
        self._method, self._covariance, self._patience = method, covariance, patience
        _, d, k = basis.shape
        b = method.columns(k, d)
        # Sums are in float64; what is made of them is as precise as the data, which the certificate goes by.
        self._shape, self._dtype = (d + b, b), basis.dtype
        self._first_work = partial(method.init, covariance, cast(Network, self), basis, seed)
        # G of either place: (M, 8).
        self._probes = np.split(Probes.drawn(weights.n_nodes, seed).start, 2, axis=1)
        # What this node has put into either place, and S_i / y_i when it last looked there.
        self._put = np.zeros((2, math.prod(self._shape) + self._probes[0].shape[1]))
        self._seen, self._unmixed = np.zeros((2, *self._shape)), np.zeros(self._shape)
        self.sums = MixedSums(weights, rank, np.append(self._put, 1.0))
        self.looks = Looks(weights.n_nodes, 2 * self._shape[1] + 2)
        self.state: TrackedSubspaceState | None = None
        self.products = self._looked = 0
        self.working = self._examined = self._stopped = False

    # --- what its driver calls -----------------------------------------------------------------------------

    def tick(self) -> list[tuple[int, Message]]:
        """Give shares away: receivers and their messages."""
        sent, table = self.sums.give(), self.looks.table
        return [(j, (np.array([self.sums.ticks]), total, table)) for j, total in sent.items()]

    def receive(self, sender: int, message: Message) -> None:
        number, total, table = message
        self.sums.take(sender, int(number[0]), total)
        self.looks.merge(table)

    def begin(self) -> Work | None:
        """Work that is due now, to be done anywhere and given to ``end``; None if there is none."""
        work = None if self.working or self._stopped else self._next_work()
        self.working = self.working or work is not None
        return work

    def end(self, done: TrackedSubspaceState) -> None:
        """Take in what the work that was begun has made; mixing has gone on meanwhile."""
        is_product = self.state is None or done.added is not self.state.added
        # The first work does both.
        self._examined, self.working = self.state is None or not is_product, False
        self.state = done
        if is_product:
            self.products += 1
            self._put_in(done.added.ravel())

    def require_heard(self) -> None:
        """Raise if a neighbour is silent for too long: what it holds is missing in every sum."""
        self.sums.require_heard(self._patience)

    @property
    def work_columns(self) -> int:
        """Columns that the covariance is multiplied with in the work that has begun."""
        if self.state is None:
            return self._shape[1] + FIRST_PRODUCTS
        return self._shape[1] if self._examined else STEP_PRODUCTS

    @property
    def called(self) -> bool:
        """Whether all nodes have come to the look after which they meet."""
        return self._stopped and self.looks.found(self._looked) is not None

    @property
    def looked(self) -> bool:
        """Whether the last products of all nodes are mixed, so that there is something to read off."""
        return 0 < self._looked == self.products

    def resume(self) -> None:
        """Go on after a meeting."""
        self._stopped = False

    # --- what the method asks of its network ---------------------------------------------------------------

    def mixes_to(self, contraction: float, before: Mixes | None = None) -> Mixes:
        return Ticks(contraction)

    # --- within ----------------------------------------------------------------------------------------------

    @property
    def current(self) -> TrackedSubspaceState:
        """The state with all that has been mixed so far."""
        if self.state is None:
            raise RuntimeError("a node has no state before its first product.")
        S = self._mixed[: math.prod(self._shape)].reshape(1, *self._shape).astype(self._dtype)
        y = self.sums.values[-1:].reshape(1, 1, 1).astype(self._dtype)
        return self.state._replace(S=S, y=y, moved=(S / y - self._unmixed).astype(self._dtype))

    @property
    def _mixed(self) -> np.ndarray:
        """S_i and probes of the last product."""
        return np.split(self.sums.values[:-1], 2)[self.products % 2]

    @property
    def _shown(self) -> np.ndarray:
        """Probes that all nodes put in with the last product, in turns G and nothing: (M, 8)."""
        return self._probes[self.products % 2] * ((self.products + 1) // 2 % 2)

    @property
    def error(self) -> float:
        """Share of the disagreement of the last products that mixing has left at this node; inf if it has nothing."""
        away = self._mixed[math.prod(self._shape) :] - self.sums.values[-1] * self._shown.mean(axis=0)
        size = math.sqrt(len(away)) * float(self.sums.values[-1])
        return float(np.linalg.norm(away)) / size if size > 0 else math.inf

    def _put_in(self, product: np.ndarray) -> None:
        """Let it take the place of the last but one."""
        put = np.zeros_like(self._put)
        place, shown = self.products % 2, self._shown[self.rank]
        put[place] = np.concatenate([product, shown]) - self._put[place]
        self._put = self._put + put
        self.sums.values = self.sums.values + np.append(put, 0.0)
        self._unmixed = self._seen[place] + put[place, : product.size].reshape(self._shape)

    def _next_work(self) -> Work | None:
        if self.state is None:
            return self._first_work
        if not self._examined:
            # While the product is mixed, so that nobody waits for it.
            return partial(self._method.examined, self._covariance, self.state)
        if self._looked < self.products and self._is_due(self.state.mixing.accuracy):
            self._look()
        if self._looked < self.products or self._stopped:
            return None
        return partial(self._method.multiplied, self._covariance, self.current)

    def _is_due(self, accuracy: float) -> bool:
        """Whether all nodes have told of the look before, and their products are mixed as the rule asks.

        Each node sees its own row e_i of the mixes; ``sqrt(M) |e_i|`` at all of them bounds the norm of the whole.
        """
        told = self._looked == 0 or self.looks.found(self._looked) is not None
        return told and math.sqrt(len(self._shown)) * self.error <= max(SHARE * accuracy, LEAST_ERROR)

    def _look(self) -> None:
        """Tell the others how far this node is; set momentum and mixes by what all told of the look before."""
        state, agreed = self.current, self.looks.found(self._looked)
        self._looked = self.products
        self._seen[self._looked % 2] = (state.S / state.y)[0]
        self.looks.tell(self._looked, self.rank, numbers_of(state)[0])
        if agreed is not None:
            residual, ritz = np.split(agreed[:-2], 2)
            with np.errstate(all="ignore"):
                angle = np.nan_to_num(residual[: state.k] / gaps_from_ritz(ritz, state.k), nan=np.inf).max()
            state = self._method.adjusted(cast(Network, self), state, agreed)
            near, sound = bool(angle <= self._goal), bool(np.isfinite(agreed).all())
            # All nodes stop after the same look.
            self._stopped = near or not sound or self._looked % MEETING_PRODUCTS == 0
            self._goal = REFUSED * float(angle) if near else self._goal
        self.state = state
