"""Tracked subspace iteration: exact without exact averages."""

from dataclasses import dataclass
from typing import ClassVar, Literal, NamedTuple

import numpy as np

from eigenmesh import arrays as ea
from eigenmesh.arrays import Array, column_norms, squared_norms
from eigenmesh.averaging import Average, Polynomial
from eigenmesh.averaging._gossip import ChebyshevAverage
from eigenmesh.certificate._bounds import gaps_from_ritz
from eigenmesh.data import Covariance
from eigenmesh.errors import InputError
from eigenmesh.networks import Network
from eigenmesh.solvers._base import Solver, Traits, Watch, largest_norm
from eigenmesh.solvers._bases import widened

# The first contraction of disagreement per iteration, and the part of it that may be made up for by unlike nodes.
FIRST_CONTRACTION, SAFETY = 0.1, 0.3
# Checks without half the residual before the mixes are raised.
PATIENCE = 2
# A little less than the smallest Ritz value, or the last column never gets clear of what lies beyond the block.
MOMENTUM_SHARE = 0.95


class TrackedSubspaceState(NamedTuple):
    """Iterates of tracked subspace iteration at the nodes held here."""

    k: int  # K; the block has b = K + oversample columns, or d
    X: Array  # (nodes, d, b) orthonormal basis
    S: Array  # (nodes, d, b) tracker of the mean of C_i X_i
    CX: Array  # (nodes, d, b) C_i X_i
    X_before: Array  # (nodes, d, b) the X before
    R: Array  # (nodes, b, b) the square root that made X
    start: Array  # (nodes, d, b) the common basis of the last start
    spread: Array  # (nodes,) how far S was from agreement before it was mixed, relative to S
    momentum: float  # coefficient, the same at all nodes
    mixing: Average  # the polynomial that mixes S
    scale: float  # largest |C_i|
    best: float  # the largest residual at its least
    waited: int  # checks since it last halved


@dataclass(frozen=True)
class TrackedSubspace(Solver):
    """Subspace iteration whose product ``C X`` is tracked instead of averaged, with a polar factor and momentum.

    ::

        Y_i = S_i - c X_i(t-1) R_i^-1,   X_i(t+1) = Y_i R_i^-1 with R_i = (Y_i^T Y_i)^(1/2)
        S_i = mixes of ( S_i + C_i X_i(t+1) - C_i X_i(t) )

    The mean of S_i is the mean of C_i X_i after every round, whatever the mixes leave undone. The polar factor stops
    turning once the span is invariant (QR does not), so close eigenvalues cost nothing. Components are read off
    locally: ``x = X_i v`` with ``sym(X_i^T S_i) = v Theta v^T``. For networks where an exact average is not to be had.

    Parameters
    ----------
    oversample : int
        Columns beyond K.
    mixes : int or "auto"
        Rounds of (Chebyshev) mixing per iteration; "auto" begins with a contraction of 0.1, goes to what the unlikeness
        of the nodes asks for once that is known (``0.3 theta_b / max |C_i|``), and on while the residual does not
        shrink. When it rises while the nodes are far apart, all begin again from the common basis.
    momentum : float or "auto"
        Coefficient c; "auto" is ``(0.95 theta_b)^2 / 4`` with theta_b the smallest Ritz value of the block, the same at
        all nodes; 0 is plain subspace iteration.
    """

    oversample: int = 5
    mixes: int | Literal["auto"] = "auto"
    momentum: float | Literal["auto"] = "auto"
    name: ClassVar[str] = "tracked-subspace"
    traits: ClassVar[Traits] = Traits(few_exchanges=True, expected_products=30)

    def __post_init__(self) -> None:
        if self.oversample < 0:
            raise InputError(f"oversample = {self.oversample} must not be negative.")
        if self.mixes != "auto" and not (isinstance(self.mixes, int) and self.mixes >= 1):
            raise InputError(f'mixes = {self.mixes!r} must be a whole number of at least 1, or "auto".')
        if self.momentum != "auto" and not 0 <= self.momentum < np.inf:
            raise InputError(f'momentum = {self.momentum!r} must be a finite number not below 0, or "auto".')

    def columns(self, n_components: int, n_features: int) -> int:
        return min(n_components + self.oversample, n_features)

    def init(self, covariance: Covariance, network: Network, basis: Array, seed: int = 0) -> TrackedSubspaceState:
        """X_i(0) = the basis and fresh directions; S_i(0) = C_i X_i(0), mixed once."""
        n_nodes, d, k = basis.shape
        width = self.columns(k, d)
        common = widened(ea.to_numpy(basis[0, ...]), width, seed)
        start = ea.like(np.broadcast_to(common, (n_nodes, d, width)), basis)
        scale = largest_norm(covariance, network, basis)
        mixing: Average
        if self.mixes == "auto":
            mixing = Polynomial(FIRST_CONTRACTION).prepare(network.weights)
        else:
            mixing = ChebyshevAverage.of_rounds(network.weights, self.mixes)
        return self._begin(covariance, network, k, start, mixing, scale)

    def _begin(
        self, covariance: Covariance, network: Network, k: int, start: Array, mixing: Average, scale: float
    ) -> TrackedSubspaceState:
        xp = ea.namespace(start)
        CX = covariance.apply(start)
        S = mixing(network, CX)
        identity = ea.like(np.broadcast_to(np.eye(start.shape[-1]), (*start.shape[:1], *start.shape[-1:] * 2)), start)
        momentum = 0.0 if self.momentum == "auto" else self.momentum
        return TrackedSubspaceState(
            k, start, S, CX, xp.zeros_like(start), identity, start, _spread(CX, S), momentum, mixing, scale, np.inf, 0
        )

    def step(self, covariance: Covariance, network: Network, state: TrackedSubspaceState) -> TrackedSubspaceState:
        Y = state.S
        if state.momentum:
            Y = Y - state.momentum * (state.X_before @ _inverse(state.R))
        X, R = polar(Y)
        CX = covariance.apply(X)
        unmixed = state.S + (CX - state.CX)
        S = state.mixing(network, unmixed)
        return state._replace(X=X, S=S, CX=CX, X_before=state.X, R=R, spread=_spread(unmixed, S))

    def readout(self, state: TrackedSubspaceState) -> Array:
        """``X_i v`` for the leading eigenvectors v of ``sym(X_i^T S_i)``."""
        _, vectors = _ritz(state)
        return state.X @ vectors[:, :, : state.k]

    def watch(self, covariance: Covariance, network: Network, state: TrackedSubspaceState) -> Watch:
        """Agree on residuals, disagreement and the smallest Ritz value; set momentum and mixes by them."""
        xp = ea.namespace(state.X)
        values, vectors = _ritz(state)
        away = state.S @ vectors - (state.X @ vectors) * values[:, None, :]
        # What the mixes leave undone counts too: a square X sees no residual at all, however far the nodes are apart.
        undone = state.mixing.accuracy * state.spread[:, None] * xp.abs(values)
        residuals = column_norms(away)[:, 0, :] + undone
        numbers = xp.concat([residuals, values, -values[:, -1:], state.spread[:, None]], axis=1)
        agreed = ea.to_numpy(network.worst(numbers)[0, ...])
        spread, smallest = float(agreed[-1]), -float(agreed[-2])
        residual, ritz = np.split(agreed[:-2], 2)
        if not np.isfinite(agreed).all():
            return Watch(state, residual[: state.k], healthy=False)
        if self.momentum == "auto":
            state = state._replace(momentum=(MOMENTUM_SHARE * max(smallest, 0.0)) ** 2 / 4)
        if self.mixes == "auto":
            largest = float(residual[: state.k].max())
            state = self._mix_enough(covariance, network, state, largest, spread, smallest)
        return Watch(state, residual[: state.k], True, gaps_from_ritz(ritz, state.k))

    def _mix_enough(
        self,
        covariance: Covariance,
        network: Network,
        state: TrackedSubspaceState,
        residual: float,
        spread: float,
        smallest: float,
    ) -> TrackedSubspaceState:
        """Raise the mixes where the nodes are too unlike for them, or what they leave undone holds the residual up."""
        waited = 0 if residual < 0.5 * state.best else state.waited + 1
        state = state._replace(best=min(residual, state.best), waited=waited)
        contraction = state.mixing.accuracy
        # A product turns disagreement of X into up to max |C_i| / theta_b times as much in S.
        needed = SAFETY * max(smallest, 0.0) / state.scale
        if waited >= PATIENCE:
            needed = min(needed, contraction**2)
        if contraction <= max(needed, 1e-12):
            return state
        mixing = Polynomial(max(needed, 1e-12)).prepare(network.weights)
        if spread < 0.1:
            return state._replace(mixing=mixing, waited=0)
        return self._begin(covariance, network, state.k, state.start, mixing, state.scale)


def polar(Y: Array) -> tuple[Array, Array]:
    """``Y = X R`` with orthonormal X and symmetric R: (nodes, d, b) -> (nodes, d, b), (nodes, b, b)."""
    xp = ea.namespace(Y)
    basis, triangle = xp.linalg.qr(Y)
    left, s, right = xp.linalg.svd(triangle, full_matrices=False)
    return basis @ (left @ right), (right.mT * s[:, None, :]) @ right


def _inverse(R: Array) -> Array:
    """Inverse of symmetric positive R, with its smallest directions left out."""
    xp = ea.namespace(R)
    values, vectors = xp.linalg.eigh(R)
    floor = 1e-12 * xp.max(xp.abs(values), axis=-1, keepdims=True)
    kept = values > floor
    inverse = xp.where(kept, 1 / xp.where(kept, values, xp.ones_like(values)), xp.zeros_like(values))
    return (vectors * inverse[:, None, :]) @ vectors.mT


def _ritz(state: TrackedSubspaceState) -> tuple[Array, Array]:
    """Eigenpairs of ``sym(X_i^T S_i)``, largest first: (nodes, b), (nodes, b, b)."""
    xp = ea.namespace(state.X)
    T = state.X.mT @ state.S
    values, vectors = xp.linalg.eigh((T + T.mT) / 2)
    return xp.flip(values, axis=-1), xp.flip(vectors, axis=-1)


def _spread(before: Array, after: Array) -> Array:
    """How much mixing changed an array, relative to it: (nodes, d, b) twice -> (nodes,)."""
    xp = ea.namespace(after)
    change = xp.sum(squared_norms(after - before), axis=-1)
    size = xp.sum(squared_norms(after), axis=-1)
    return xp.sqrt(change / xp.where(size > 0, size, xp.ones_like(size)))
