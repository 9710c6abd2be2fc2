"""Fewer bytes for block Krylov: which columns a step sends, and in how many bits."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from eigenmesh import arrays as ea
from eigenmesh import certificate as cert
from eigenmesh.arrays import Array, Parts
from eigenmesh.averaging import ALL_BITS, FEWER_BITS
from eigenmesh.errors import DataError
from eigenmesh.networks import Network

if TYPE_CHECKING:
    from eigenmesh.solvers.block_krylov import Copies, KrylovState

# Fewest columns that are multiplied. A component is accurate enough once its residual is at most ENOUGH of what is
# asked for, where of the gap after the last one only KNOWN_OF_LAST_GAP counts. Errors of few bits may take FOR_BITS of
# it, a product SHARE_OF_ERRORS of what is left, and no more than FOR_COMPLEMENT of the gap. If they take TOO_MUCH of
# all, or after MOST_IDLE steps without a certificate although all components seem accurate, a run begins again with all
# bits. The first product is accurate enough for gaps of some 1 / FIRST_RATIO of the largest eigenvalue.
FEWEST_COLUMNS, ENOUGH, FOR_BITS, KNOWN_OF_LAST_GAP, SHARE_OF_ERRORS, TOO_MUCH = 3, 0.4, 0.2, 0.7, 0.5, 0.9
FOR_COMPLEMENT, MOST_IDLE, FIRST_RATIO = 1e-4, 5, 1e4
LEAST = float(np.finfo(np.float64).tiny)
# Columns are turned to other axes only where none of them was about to fade out.
WELL_CONDITIONED = 1.1


class Sending(NamedTuple):
    """What the next step of block Krylov sends.

    Attributes
    ----------
    columns : int
        How many of the columns of the next block are multiplied.
    bits : int
        Bits of a number in a message.
    idle : int
        Steps since all components seem to be as accurate as asked for.
    sure : bool
        Whether no direction can have been missed any more.
    exact : bool
        Whether numbers keep all their bits, since fewer were not enough.
    """

    columns: int
    bits: int = ALL_BITS
    idle: int = 0
    sure: bool = False
    exact: bool = False


@dataclass(frozen=True)
class Lean:
    """Multiply only residuals of components that are not accurate enough, and send no more bits than they need.

    The root of a tree sees an average first. It decides what the next step sends before it sends the average down,
    because what nodes decide from eigenvectors may differ between processors.

    Attributes
    ----------
    tol : float
        The bound on the sines at which the run ends.
    """

    tol: float

    def first(self, columns: int, n_nodes: int) -> Sending:
        """What the first step sends."""
        # Each message adds its error.
        steps = 2 * n_nodes * FIRST_RATIO / self.tol
        return Sending(columns, next((bits for bits in FEWER_BITS if 2.0 ** (bits - 1) >= steps), ALL_BITS))

    def average(
        self,
        network: Network,
        products: Array | Parts,
        reports: Array,
        sending: Sending,
        grow: Callable[[Array, Array], Copies],
    ) -> tuple[Copies, np.ndarray, np.ndarray]:
        """The state that grows by the average of the products, the maxima of the reports, and what the root decides."""

        def grown(mean: np.ndarray, errors: np.ndarray) -> tuple[Copies, float]:
            largest = float(np.linalg.norm(mean, axis=1).max())
            noise = float(errors.max()) * 2.0**sending.bits / largest if largest > 0 else 0.0
            return grow(ea.like(mean, reports), ea.like(errors, reports)), max(noise, 1.0)

        def decide(found: tuple[Copies, float]) -> np.ndarray:
            (state,), noise = found
            following, axes = self.decided(state, noise)
            return np.concatenate([following, axes.ravel()])

        n_numbers = numbers_decided(reports.shape[-1])
        told = network.decided_mean_and_maximum(products, reports, sending.bits, grown, decide, n_numbers)
        return told.result[0], told.agreed, told.numbers

    def decided(self, state: KrylovState, noise: float) -> tuple[Sending, np.ndarray]:
        """What the next step sends, and axes (b, b) to which the columns of the next block are turned before.

        noise : error of the last product, relative to its largest column, times 2^bits.
        """
        b, k, sending, H = state.B.shape[-1], state.k, state.sending, ea.to_numpy(state.whitening)[0]
        values, ritz = (ea.to_numpy(part)[0] for part in state.T.leading(b))
        outside = ea.to_numpy(state.leak)[0] @ ritz[-state.leak.shape[-1] :]
        seen, off = np.linalg.norm(outside, axis=0), ea.to_numpy(state.errors)[0] @ np.abs(ritz)
        goal = self.tol * _spacing(values, k, state.resolution)
        too_much = bool(np.any((off[:k] > TOO_MUCH * goal) & (seen[:k] < off[:k])))
        # Eigenvalues that only the errors make equal would be certified as a cluster, which all bits tell apart.
        merged = bool(np.any(np.abs(np.diff(values[: k + 1])) < (off[:-1] + off[1:])[:k]))
        # The certificate knows the eigenvalue after the K-th only up to a part of the gap.
        goal[k - 1] *= KNOWN_OF_LAST_GAP
        still = np.flatnonzero(seen[:k] > ENOUGH * goal)
        if not sending.exact and (too_much or sending.idle >= MOST_IDLE or (merged and not len(still))):
            # Products in so few bits will not become accurate enough any more.
            return Sending(b, exact=True), np.eye(b)
        idle = 0 if len(still) else sending.idle + 1
        count = min(b, max(len(still) + 1, FEWEST_COLUMNS))
        whole = np.linalg.norm(H, 2) <= WELL_CONDITIONED and np.all(np.any(H != 0, axis=0))
        # Until no direction can have been missed, the complement needs all columns; and again, if all components seem
        # accurate and yet have no certificate.
        sure = sending.sure or _is_sure(state, values)
        if idle > 1 or not (whole and sure):
            count = b
        bits = ALL_BITS
        if not sending.exact:
            # What the errors of the next product may take of each component: a part of what is left for them.
            budget = FOR_BITS * goal
            left = SHARE_OF_ERRORS * np.maximum(budget - off[:k], 0.1 * budget) / np.sqrt(count)
            allowed = float(np.min(left / _share(values, seen + off, k, self.tol)))
            allowed = min(allowed, FOR_COMPLEMENT * float(goal[k - 1]) / self.tol)
            # Products with the next columns have a part along those before, the leak, and others that are smaller.
            size = min(float(values[0]), 1.5 * float(np.linalg.norm(ea.to_numpy(state.leak)[0], 2)))
            bits = next((bits for bits in FEWER_BITS if noise * size * 2.0**-bits <= allowed), ALL_BITS)
        following = Sending(count, bits, idle, sure, sending.exact)
        if count == b:
            return following, np.eye(b)
        wanted = [*still, *(j for j in range(k, b)), *(j for j in range(k) if j not in still)]
        chosen = outside[:, wanted[:count]]
        lengths = np.linalg.norm(chosen, axis=0)
        return following, np.linalg.svd(chosen / np.where(lengths > 0, lengths, 1.0))[0]

    def following(self, state: KrylovState, numbers: np.ndarray) -> KrylovState:
        """The state after the root has decided: columns that are multiplied next come first in the next block."""
        xp, b = ea.namespace(state.B), state.B.shape[-1]
        fields = len(Sending._fields)
        columns, bits, idle, sure, exact = numbers[:fields].astype(int).tolist()
        if not 1 <= columns <= b or bits not in (*FEWER_BITS, ALL_BITS):
            raise DataError(
                f"the root of the tree asks for {columns} of {b} columns in {bits} bits; it computes wrongly."
            )
        begins_again = exact and not state.sending.exact
        state = state._replace(sending=Sending(columns, bits, idle, bool(sure), bool(exact)))
        if begins_again:
            return state.begun_again
        if columns == b:
            return state
        axes = ea.like(numbers[fields:].reshape(1, b, b), state.B)
        turned = cert.by_rows(state.B @ (state.whitening @ axes))
        whole = xp.eye(b, dtype=axes.dtype, device=axes.device)[None, :, :]
        return state._replace(B=turned, whitening=whole, leak=axes.mT @ state.leak)


def numbers_decided(columns: int) -> int:
    """Numbers that the root of a tree sends with the average of a step, for so many columns of a block."""
    return len(Sending._fields) + columns**2


def _is_sure(state: KrylovState, values: np.ndarray) -> bool:
    """Whether the complement of the components is known well enough, as far as the root of a tree can see."""
    if state.products is None:
        # The certificate has to look for missed directions by itself.
        return True
    k, resolution = state.k, state.resolution * abs(float(values[0]))
    alike = cert.multiplicity(values[:k], resolution)
    # As if the components were invariant: those that are not yet will be multiplied further.
    known = cert.KnownComponents(k, float(values[k - 1]), 0.0, alike, resolution, resolution)
    return bool(state.complement.examine(known).chance <= cert.LARGEST_CHANCE)


def _share(values: np.ndarray, residuals: np.ndarray, k: int, least: float) -> np.ndarray:
    """About how much of each of the first k components lies in the next block: (b,), (b,) -> (k,)."""
    to_next = np.maximum(values[:k] - (values[k] if k < len(values) else 0.0), 0.0)
    return np.maximum(np.minimum(residuals[:k] / np.maximum(to_next, LEAST), 1.0), least)


def _spacing(values: np.ndarray, n_components: int, resolution: float) -> np.ndarray:
    """Distance of each of the first K values to the nearest one that can be told from it: (b,) -> (K,)."""
    apart = np.abs(values[:n_components, np.newaxis] - values)
    return np.asarray(
        np.min(np.where(apart > resolution * abs(values[0]), apart, np.inf), axis=1, initial=abs(values[0]))
    )
