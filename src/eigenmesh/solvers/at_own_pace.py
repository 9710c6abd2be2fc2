"""Tracked subspace iteration whose nodes do not wait for each other."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial
from typing import ClassVar, NamedTuple, TypeAlias, cast

import numpy as np
import scipy

from eigenmesh import arrays as ea
from eigenmesh.arrays import Array
from eigenmesh.averaging import Probes
from eigenmesh.certificate import Common, gaps_from_ritz
from eigenmesh.data import Covariance
from eigenmesh.errors import DeadlineError, InputError
from eigenmesh.graphs import Weights
from eigenmesh.networks import Message, Mixes, Network, Pace
from eigenmesh.solvers import tracked_subspace as tracked
from eigenmesh.solvers.base import Check, Solver, Traits, require_positive
from eigenmesh.solvers.tracked_subspace import TrackedSubspace, TrackedSubspaceState

# Mixing at a node with its own pace: its numbers, and what it has sent to and received from each neighbour.


# After this many silent ticks a neighbour is sent no more shares: they would be missing from all sums while it is away.
SILENT_TICKS = 6


class MixedSums:
    """Numbers x_i of one node, and one running sum per link.

    ::

        give:   s_ji <- s_ji + w_ji x_i and x_i <- x_i - w_ji x_i for every neighbour j that is not silent
        take:   x_i <- x_i + s_ij - last_ij

    A message is the running sum s, so the next message repairs a lost one. The sum of all x_i and of everything on its
    way is constant, whatever is slow, lost, late, duplicated or out of order.
    """

    def __init__(self, weights: Weights, rank: int, values: np.ndarray) -> None:
        self.values, self.ticks, self._rank = values, 0, rank
        links = scipy.sparse.coo_array(weights.matrix)
        entries = list(zip(links.row.tolist(), links.col.tolist(), links.data.tolist(), strict=True))
        self._shares = {i: share for i, j, share in entries if share and j == rank != i}
        senders = sorted(j for i, j, share in entries if share and i == rank != j)
        self._sent = {j: np.zeros_like(values) for j in self._shares}
        # Number and content of the newest message of each sender, and the tick at which one last came.
        self._newest = {j: (0, np.zeros_like(values)) for j in senders}
        self._last_heard = dict.fromkeys(senders, 0)
        # Ticks of this node per tick of the sender, at least 1.
        self._slowness = dict.fromkeys(senders, 1.0)

    def give(self) -> dict[int, np.ndarray]:
        """One tick: the message to each neighbour."""
        self.ticks += 1
        given = {j: share for j, share in self._shares.items() if not self._is_silent(j)}
        for j, share in given.items():
            self._sent[j] = self._sent[j] + share * self.values
        self.values = (1.0 - sum(given.values())) * self.values
        return dict(self._sent)

    def take(self, sender: int, number: int, total: np.ndarray) -> None:
        """Add what is new in a message, the running sum of a neighbour. Messages are numbered from 1."""
        newest, known = self._newest[sender]
        if number > newest:
            self.values = self.values + (total - known)
            self._newest[sender] = number, total
        self._last_heard[sender] = self.ticks
        self._slowness[sender] = max(self.ticks / number, 1.0)

    def _is_silent(self, neighbour: int) -> bool:
        # A neighbour at the end of a one-way link never sends, and so is never silent.
        silent = self.ticks - self._last_heard.get(neighbour, self.ticks)
        return silent > SILENT_TICKS * self._slowness.get(neighbour, 1.0)

    def require_heard(self, patience: int) -> None:
        """Raise if a neighbour has been silent for more than ``patience`` ticks: every sum lacks its part."""
        for neighbour, heard in self._last_heard.items():
            if self.ticks - heard > patience:
                silence = f"node {self._rank} has heard nothing from node {neighbour} for {patience} ticks"
                raise DeadlineError(f"{silence}; restart that node and the run, or start the run without it.")


# Reports that nodes at their own pace exchange on every step, so that all take the next step with the same numbers.


class StepReports:
    """Reports of all nodes on the last two steps: which nodes have reported, and the maximum of each reported number.

    A node reports once per step, and no node is more than one step ahead of another. Merging tables takes maxima, so
    copies, order and route of the tables do not matter.

    Attributes
    ----------
    table : array of shape (2, 1 + M + n)
        One row per step: its number, M flags that are 1 for nodes that have reported, and n maxima.
    """

    def __init__(self, n_nodes: int, n_numbers: int) -> None:
        self._n_nodes = n_nodes
        self.table = np.zeros((2, 1 + n_nodes + n_numbers))

    def add(self, step: int, rank: int, numbers: np.ndarray) -> None:
        """Add the report of one node on a step, counted from 1: (n,)."""
        own = np.zeros_like(self.table)
        reported = np.zeros(self._n_nodes)
        reported[rank] = 1.0
        own[step % 2] = [step, *reported, *numbers]
        self.merge(own)

    def merge(self, table: np.ndarray) -> None:
        """Merge the table of another node: the newer row wins, rows of the same step take the maximum."""
        theirs, ours = table[:, :1], self.table[:, :1]
        largest = np.where(theirs == ours, np.maximum(self.table, table), self.table)
        self.table = np.where(theirs > ours, table, largest)

    def agreed(self, step: int) -> np.ndarray | None:
        """Maxima over all nodes, (n,). It is None until all nodes have reported on this step."""
        number, reported, maxima = np.split(self.table[step % 2], [1, 1 + self._n_nodes])
        return maxima if number[0] == step and reported.all() else None


# One node of tracked subspace iteration at its own pace: a machine without clock, thread or socket.


# Errors of the probes below this are rounding.
LEAST_ERROR = 1e-9
# A node mixes until this share of the disagreement that the method allows: ticks cost less than the steps they save.
SHARE = 0.5
# Nodes meet at the latest after this many products, so that the loop can check its budget.
MEETING_PRODUCTS = 50
# After a refused certificate, nodes meet again once the error is this fraction of what it was.
REFUSED = 0.5

Work: TypeAlias = Callable[[], TrackedSubspaceState]


@dataclass(frozen=True)
class Ticks:
    """Stands for mixes that take place in ticks, until disagreement has shrunk by the factor ``accuracy``."""

    accuracy: float
    rounds: int = 0

    def __call__(self, network: object, S: Array, y: Array) -> tuple[Array, Array]:
        return S, y


class PacedNode:
    """One node: it mixes at every tick, and multiplies once the last products of all nodes are mixed.

    ::

        product n:  S_i <- S_i + C_i X_i(n) - C_i X_i(n-2),   probes_i <- probes_i +- G_i,   in slot n mod 2

    ``MixedSums`` mixes ``(S_i, probes_i)`` of both slots, and ``y_i``. The probes keep the nodes in step without a
    clock. All nodes know the random numbers G. In each slot, one product adds G_i and the next one takes it out again.
    So node i sees its probes reach their known mean only when that product has come from all nodes and is mixed, and
    the relative error of the probes is that of ``S_i / y_i``. A node that is ahead inserts its next product into the
    other slot, where it does not disturb the nodes behind. In every step all nodes use the same numbers, those of
    ``StepReports``, so momentum settles as it does in rounds.

    A node has no clock: its driver calls ``tick`` and ``receive``, and runs the work that ``begin`` returns, at any
    time and in any order.

    Parameters
    ----------
    method : TrackedSubspace
        The method whose steps are taken.
    rank : int
        Number of this node.
    covariance : Covariance
        C_i of this node.
    basis : array of shape (1, d, K)
        The start, the same at all nodes.
    tol : float
        Bound on sin(angle) at which the nodes meet.
    patience : int
        Ticks for which a neighbour may be silent.
    """

    # Tells the method, which takes this node for its network, not to send its numbers: `reports` carries them.
    piggybacking = True

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
        self.rank, self._goal = rank, tracked.EARLY * tol
        self._method, self._covariance, self._patience = method, covariance, patience
        _, d, k = basis.shape
        b = method.columns(k, d)
        self._shape = d + b, b
        self._first_work = partial(method.init, covariance, cast(Network, self), basis, seed)
        # G of each slot: (M, 8).
        self._probes = np.split(Probes.drawn(weights.n_nodes, seed).start, 2, axis=1)
        # What this node has inserted into each slot, and S_i / y_i there at its last report.
        self._inserted = np.zeros((2, math.prod(self._shape) + self._probes[0].shape[1]))
        self._reported_mean, self._unmixed = np.zeros((2, *self._shape)), np.zeros(self._shape)
        self.sums = MixedSums(weights, rank, np.append(self._inserted, 1.0))
        self.reports = StepReports(weights.n_nodes, 2 * self._shape[1] + 2)
        self.state: TrackedSubspaceState | None = None
        # Products made, and the product of the last report.
        self.products = self._reported = 0
        self.working = self._has_outside = self._stopped = False

    # --- called by the driver ----------------------------------------------------------------------------------

    def tick(self) -> list[tuple[int, Message]]:
        """Mix once: the receivers and their messages."""
        sent, table = self.sums.give(), self.reports.table
        return [(j, (np.array([self.sums.ticks]), total, table)) for j, total in sent.items()]

    def receive(self, sender: int, message: Message) -> None:
        number, total, table = message
        self.sums.take(sender, int(number[0]), total)
        self.reports.merge(table)

    def begin(self) -> Work | None:
        """Work that is due now, or None. The driver runs it in any thread and passes the result to ``end``."""
        work = None if self.working or self._stopped else self._next_work()
        self.working = self.working or work is not None
        return work

    def end(self, done: TrackedSubspaceState) -> None:
        """Take the result of the work from ``begin``. Mixing has continued in the meantime."""
        is_product = self.state is None or done.added is not self.state.added
        # The first work makes a product and measures what is outside the block.
        self._has_outside, self.working = self.state is None or not is_product, False
        self.state = done
        if is_product:
            self.products += 1
            self._insert(done.added.ravel())

    def require_heard(self) -> None:
        """Raise if a neighbour has been silent for too long: every sum lacks its part."""
        self.sums.require_heard(self._patience)

    @property
    def work_columns(self) -> int:
        """Columns that the work in progress multiplies the covariance with."""
        if self.state is None:
            return self._shape[1] + tracked.FIRST_PRODUCTS
        return self._shape[1] if self._has_outside else tracked.STEP_PRODUCTS

    @property
    def ready_to_meet(self) -> bool:
        """Whether all nodes have sent the report after which they meet."""
        return self._stopped and self.reports.agreed(self._reported) is not None

    @property
    def is_mixed(self) -> bool:
        """Whether the last products of all nodes are mixed, so that there are estimates to read off."""
        return 0 < self._reported == self.products

    def resume(self) -> None:
        """Continue after a meeting."""
        self._stopped = False

    # --- called by the method, as its network --------------------------------------------------------------

    def mixes_to(self, contraction: float, before: Mixes | None = None) -> Mixes:
        return Ticks(contraction)

    # --- private ---------------------------------------------------------------------------------------------

    @property
    def current(self) -> TrackedSubspaceState:
        """The state with the sums as they are mixed so far."""
        if self.state is None:
            raise RuntimeError(f"node {self.rank} has no state before its first product.")
        # Copies, because mixing goes on.
        S = self._mixed[: math.prod(self._shape)].reshape(1, *self._shape).copy()
        y = self.sums.values[-1:].reshape(1, 1, 1).copy()
        return self.state._replace(S=S, y=y, moved=S / y - self._unmixed)

    @property
    def _mixed(self) -> np.ndarray:
        """S_i and probes in the slot of the last product, flat."""
        return np.split(self.sums.values[:-1], 2)[self.products % 2]

    @property
    def _slot_probes(self) -> np.ndarray:
        """Probes that the nodes hold in the slot of the last product, alternately G and zero: (M, 8)."""
        return self._probes[self.products % 2] * ((self.products + 1) // 2 % 2)

    @property
    def error(self) -> float:
        """Share of the disagreement on the last products that is left at this node; inf if its weight y is 0."""
        deviation = self._mixed[math.prod(self._shape) :] - self.sums.values[-1] * self._slot_probes.mean(axis=0)
        size = math.sqrt(len(deviation)) * float(self.sums.values[-1])
        return float(np.linalg.norm(deviation)) / size if size > 0 else math.inf

    def _insert(self, product: np.ndarray) -> None:
        """Replace the last product but one, in the same slot, by this one."""
        change = np.zeros_like(self._inserted)
        slot, probes = self.products % 2, self._slot_probes[self.rank]
        change[slot] = np.concatenate([product, probes]) - self._inserted[slot]
        self._inserted = self._inserted + change
        self.sums.values = self.sums.values + np.append(change, 0.0)
        self._unmixed = self._reported_mean[slot] + change[slot, : product.size].reshape(self._shape)

    def _next_work(self) -> Work | None:
        if self.state is None:
            return self._first_work
        if not self._has_outside:
            # Done while the product is being mixed, so that no node waits for it.
            return partial(self._method.with_outside, self._covariance, self.state)
        if self._reported < self.products and self._may_report(self.state.mixing.accuracy):
            self._report()
        if self._reported < self.products or self._stopped:
            return None
        return partial(self._method.multiplied, self._covariance, self.current)

    def _may_report(self, accuracy: float) -> bool:
        """Whether all nodes have sent the previous report, and their products are mixed as well as the method asks.

        Each node sees its own row e_i of the mixing error; ``sqrt(M) max_i |e_i|`` bounds the norm of all rows.
        """
        all_reported = self._reported == 0 or self.reports.agreed(self._reported) is not None
        return all_reported and math.sqrt(len(self._slot_probes)) * self.error <= max(SHARE * accuracy, LEAST_ERROR)

    def _report(self) -> None:
        """Report on this step; set momentum and mixes by what all nodes reported on the step before."""
        state, agreed = self.current, self.reports.agreed(self._reported)
        self._reported = self.products
        self._reported_mean[self._reported % 2] = (state.S / state.y)[0]
        self.reports.add(self._reported, self.rank, tracked.numbers_to_agree_on(state)[0])
        if agreed is not None:
            residual, ritz = np.split(agreed[:-2], 2)
            with np.errstate(all="ignore"):
                angle = np.nan_to_num(residual[: state.k] / gaps_from_ritz(ritz, state.k), nan=np.inf).max()
            state = self._method.adjusted(cast(Network, self), state, agreed)
            near, finite = bool(angle <= self._goal), bool(np.isfinite(agreed).all())
            # Depends on agreed numbers alone, so all nodes stop after the same report.
            self._stopped = near or not finite or self._reported % MEETING_PRODUCTS == 0
            self._goal = REFUSED * float(angle) if near else self._goal
        self.state = state


class PacedState(NamedTuple):
    """The nodes in this process, mutable machines that a step drives, and their shared answer once they have met."""

    nodes: tuple[PacedNode, ...]
    shared: tracked.SharedRitz | None = None


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
        Seconds between two ticks of a node. Choose about the time that a message takes.
    tol : float
        Bound on sin(angle) at which the nodes meet. Use the tolerance of the fit.
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
    traits: ClassVar[Traits] = Traits(expected_products=60)
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
        return None if state.shared is None else (state.shared.common,)

    def beyond(self, state: PacedState) -> Array | None:
        return None if state.shared is None else state.shared.beyond

    def check(self, covariance: Covariance, network: Network, state: PacedState) -> Check:
        """At a meeting: Rayleigh-Ritz in the average of the blocks that the nodes would multiply next."""
        X = np.concatenate([tracked.next_block(node.current)[0] for node in state.nodes])
        shared, residual, gaps = tracked.ritz_of_average(covariance, network, X, state.nodes[0].current.k)
        healthy = bool(np.isfinite(residual).all())
        return Check(PacedState(state.nodes, shared), residual, healthy, gaps, free=True)


@dataclass(frozen=True)
class Deadlines(Asynchronous):
    """``Asynchronous`` with one clock for all nodes: rounds close after ``tick_s``. Late messages count later."""

    tick_s: float = 0.1
    name: ClassVar[str] = "deadlines"
    common_clock: ClassVar[bool] = True
