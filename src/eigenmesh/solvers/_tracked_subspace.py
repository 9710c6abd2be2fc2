"""Tracked subspace iteration: exact without exact averages."""

from dataclasses import dataclass
from typing import ClassVar, Literal, NamedTuple

import numpy as np

from eigenmesh import arrays as ea
from eigenmesh.arrays import Array, column_norms
from eigenmesh.certificate import Common
from eigenmesh.certificate._bounds import gaps_from_ritz
from eigenmesh.data import Covariance
from eigenmesh.errors import InputError
from eigenmesh.networks import Network
from eigenmesh.networks._mixes import Mixes
from eigenmesh.solvers._base import Solver, Traits, Watch
from eigenmesh.solvers._bases import widened
from eigenmesh.solvers._together import Together, meet

# Disagreement that an iteration may leave: before anything is known, and as a share of what is stable (see ``mixes``).
FIRST_CONTRACTION, SHARE = 1 / 6, 0.75
# Looks without half the residual before the mixes are raised, and the power to which they are.
PATIENCE, RAISED = 6, 2
# Disagreement need not be made smaller than this.
LEAST_CONTRACTION = 1e-12
# Products that find how unlike the nodes are: at the start, and in every iteration.
FIRST_PRODUCTS, PRODUCTS = 10, 2
# A certificate is asked for at so many times tol: what nodes have in common is nearer to the truth than the farthest.
EARLY = 2.0
# A little less than the smallest Ritz value, or the last column never gets clear of what lies beyond the block.
MOMENTUM_SHARE = 0.96


class TrackedSubspaceState(NamedTuple):
    """Iterates of tracked subspace iteration at the nodes held here."""

    k: int  # K; the block has b = K + oversample columns, or d
    X: Array  # (nodes, d, b) orthonormal basis
    S: Array  # (nodes, d + b, b) tracker of the sum of what nodes have added
    y: Array  # (nodes, 1, 1) push weight
    added: Array  # (nodes, d + b, b) C_i X_i, and below it X_i^T Z_i of the X before
    X_before: Array  # (nodes, d, b) the X before
    R: Array  # (nodes, b, b) the square root that made X
    moved: Array  # (nodes, d + b, b) what the last mixes changed in Z: how far the nodes were from agreement before
    unlike: Array  # (nodes, d, 1) P_i C_i P_i times a unit vector, P_i = I - X_i X_i^T
    momentum: float  # coefficient, the same at all nodes
    mixing: Mixes  # how S and y are mixed
    power: int  # to which the contraction of the rule is raised
    best: float  # the largest residual when it last halved
    waited: int  # looks since it last halved
    steps: int  # made so far
    together: Together | None = None  # the answer of all nodes, once they have met


@dataclass(frozen=True)
class TrackedSubspace(Solver):
    """Subspace iteration whose product ``C X`` is tracked instead of averaged, with a polar factor and momentum.

    ::

        Z_i = S_i / y_i,   Y_i = Z_i - c X_i(t-1) R_i^-1,   X_i(t+1) = Y_i R_i^-1 with R_i = (Y_i^T Y_i)^(1/2)
        (S_i, y_i) = mixes of ( S_i + C_i X_i(t+1) - C_i X_i(t), y_i ),   y_i = 1 at the start
        (T_i, y_i) = the same mixes of ( T_i + X_i(t)^T Z_i(t) - X_i(t-1)^T Z_i(t-1), y_i )

    The sum of S_i is the sum of C_i X_i after every round, whatever the mixes leave undone, as long as what a node
    keeps and sends adds up to what it had; y_i, which is mixed alike, gives the scale. So the links may go one way,
    change from round to round and lose messages. The polar factor stops turning once the span is invariant (QR does
    not), so close eigenvalues cost nothing. Components are read off locally: ``Z_i v``, made orthonormal from the first
    on, with ``sym(T_i / y_i) = v Theta v^T``. Where in their blocks the components are is tracked as well, since the
    last columns settle last, and what a node does not know of them yet would turn its components if it had only its own
    ``X_i^T Z_i`` to go by. In the end all nodes multiply the average of their blocks once and take its Ritz vectors.
    For networks where an exact average in every iteration is not to be had.

    Parameters
    ----------
    oversample : int
        Columns beyond K.
    mixes : int or "auto"
        Rounds of mixing per iteration; "auto" takes as many as shrink disagreement to ``0.75 / (1 + 3 u)`` with
        ``u = max_i |P_i C_i P_i| / theta_b``, which says how unlike the nodes are; more if the residual does not fall.
    momentum : float or "auto"
        Coefficient c; "auto" is ``(0.96 theta_b)^2 / 4`` with theta_b the smallest Ritz value of the block, the same at
        all nodes; 0 is plain subspace iteration.
    """

    oversample: int = 5
    mixes: int | Literal["auto"] = "auto"
    momentum: float | Literal["auto"] = "auto"
    name: ClassVar[str] = "tracked-subspace"
    traits: ClassVar[Traits] = Traits(few_exchanges=True, early=EARLY, expected_products=30)

    def __post_init__(self) -> None:
        if self.oversample < 0:
            raise InputError(f"oversample = {self.oversample} must not be negative.")
        if self.mixes != "auto" and not (isinstance(self.mixes, int) and self.mixes >= 1):
            raise InputError(f'mixes = {self.mixes!r} must be a whole number of at least 1, or "auto".')
        if self.momentum != "auto" and not 0 <= self.momentum < np.inf:
            raise InputError(f'momentum = {self.momentum!r} must be a finite number not below 0, or "auto".')

    def columns(self, n_components: int, n_features: int) -> int:
        return min(n_components + self.oversample, n_features)

    def largest_message(self, n_components: int, n_features: int) -> int:
        # S and T, and what is agreed on along with them: residuals, Ritz values and two numbers.
        columns = self.columns(n_components, n_features)
        return (n_features + columns + 2) * columns + 2

    def init(self, covariance: Covariance, network: Network, basis: Array, seed: int = 0) -> TrackedSubspaceState:
        """X_i(0) = the basis and fresh directions; S_i(0) = C_i X_i(0), mixed once."""
        xp = ea.namespace(basis)
        n_nodes, d, k = basis.shape
        width = self.columns(k, d)
        common = widened(ea.to_numpy(basis[0, ...]), width, seed)
        X = ea.like(np.broadcast_to(common, (n_nodes, d, width)), basis)
        drawn = np.random.default_rng([seed, k]).standard_normal((1, d, 1))
        unlike = _outside(covariance, X, ea.everywhere(ea.like(drawn, basis), n_nodes), FIRST_PRODUCTS)
        CX, y = covariance.apply(X), xp.ones((n_nodes, 1, 1), dtype=basis.dtype, device=basis.device)
        added = xp.concat([CX, X.mT @ CX], axis=-2)
        mixing = network.mixes_to(FIRST_CONTRACTION) if self.mixes == "auto" else network.mixes(self.mixes)
        S, y = mixing(network, added, y)
        identity = ea.like(np.broadcast_to(np.eye(width), (n_nodes, width, width)), basis)
        momentum = 0.0 if self.momentum == "auto" else self.momentum
        kept = (xp.zeros_like(X), identity, S / y - added, unlike)
        return TrackedSubspaceState(k, X, S, y, added, *kept, momentum, mixing, 1, np.inf, 0, 0)

    def step(self, covariance: Covariance, network: Network, state: TrackedSubspaceState) -> TrackedSubspaceState:
        if state.steps and not network.riding:
            # What is known of the state so far travels with the mixes; of the start there is nothing to tell.
            network.ride(numbers_of(state))
        made = self.multiplied(covariance, state)
        S, y = state.mixing(network, made.S, made.y)
        return self.examined(covariance, made._replace(S=S, y=y, moved=S / y - made.S / made.y))

    def multiplied(self, covariance: Covariance, state: TrackedSubspaceState) -> TrackedSubspaceState:
        """The next X and its product, before it is mixed."""
        Z, _ = _tracked(state)
        X, R = following(state)
        added = ea.namespace(X).concat([covariance.apply(X), state.X.mT @ Z], axis=-2)
        made = state._replace(X=X, S=state.S + (added - state.added), added=added, X_before=state.X, R=R)
        return made._replace(steps=state.steps + 1, together=None)

    def examined(self, covariance: Covariance, state: TrackedSubspaceState) -> TrackedSubspaceState:
        """With what this X leaves of C_i."""
        return state._replace(unlike=_outside(covariance, state.X, state.unlike, PRODUCTS))

    def readout(self, state: TrackedSubspaceState) -> Array:
        """The leading columns of what each node reads off."""
        if state.together is not None:
            return ea.everywhere(state.together.components, state.X.shape[0])
        return _read(state)[..., : state.k]

    def common(self, state: TrackedSubspaceState) -> Common | None:
        return None if state.together is None else state.together.common

    def beyond(self, state: TrackedSubspaceState) -> Array:
        """The other columns."""
        if state.together is not None:
            return ea.everywhere(state.together.beyond, state.X.shape[0])
        return _read(state)[..., state.k :]

    def watch(self, covariance: Covariance, network: Network, state: TrackedSubspaceState) -> Watch:
        """Take what has come with the mixes: residuals, Ritz values, unlikeness; set momentum and mixes by them."""
        agreed = network.ridden()
        if agreed is None:
            return Watch(state, np.full(state.k, np.inf), healthy=True, free=True)
        numbers = ea.to_numpy(agreed)[0]
        residual, ritz = np.split(numbers[:-2], 2)
        if not np.isfinite(numbers).all():
            return Watch(state, residual[: state.k], healthy=False, free=True)
        state = self.adjusted(network, state, numbers)
        return Watch(state, residual[: state.k], True, gaps_from_ritz(ritz, state.k), free=True)

    def finish(self, covariance: Covariance, network: Network, watch: Watch) -> Watch:
        """Rayleigh-Ritz in the average of the blocks that would be next."""
        met = meet(covariance, network, following(watch.state)[0], watch.state.k)
        return Watch(watch.state._replace(together=met.together), met.residual, True, met.gaps, free=True)

    def adjusted(self, network: Network, state: TrackedSubspaceState, numbers: np.ndarray) -> TrackedSubspaceState:
        """Momentum and mixes by numbers that all nodes agree on."""
        residual, (smallest, unlike) = float(numbers[: state.k].max()), (-numbers[-2], numbers[-1])
        smallest = max(float(smallest), 0.0)
        if self.momentum == "auto":
            state = state._replace(momentum=(MOMENTUM_SHARE * smallest) ** 2 / 4)
        if self.mixes != "auto" or smallest == 0.0:
            return state
        halved = residual < 0.5 * state.best
        waited = 0 if halved else state.waited + 1
        power = state.power * (RAISED if waited >= PATIENCE else 1)
        wanted = max((SHARE / (1 + 3 * float(unlike) / smallest)) ** power, LEAST_CONTRACTION)
        mixing = network.mixes_to(wanted, state.mixing)
        best = residual if halved else state.best
        return state._replace(mixing=mixing, power=power, best=best, waited=waited % PATIENCE)


def numbers_of(state: TrackedSubspaceState) -> Array:
    """What nodes agree on the maxima of, (nodes, 2 b + 2): residuals, Ritz values, less the smallest, |P C P|.

    Of residuals what lies outside of the block: the rest is mended when all meet.
    """
    xp = ea.namespace(state.X)
    (seen, T), d = _tracked(state), state.X.shape[1]
    # Values of this X; those that were tracked are of the X before.
    (values, _), (_, vectors) = _eigenpairs(state.X.mT @ seen), _eigenpairs(T)
    # What the mixes leave undone counts too.
    undone = state.mixing.accuracy * state.moved[:, :d, :]
    away = (part @ vectors - state.X @ (state.X.mT @ part @ vectors) for part in (seen, undone))
    residuals = sum(column_norms(part) for part in away)[:, 0, :]
    return xp.concat([residuals, values, -values[:, -1:], column_norms(state.unlike)[:, 0, :]], axis=1)


def _tracked(state: TrackedSubspaceState) -> tuple[Array, Array]:
    """``Z_i = S_i / y_i`` and ``T_i / y_i``: (nodes, d, b), (nodes, b, b).

    In the precision of the data, which running sums of lossy links exceed.
    """
    d = state.X.shape[1]
    averaged = ea.namespace(state.X).astype(state.S / state.y, state.X.dtype, copy=False)
    return averaged[:, :d, :], averaged[:, d:, :]


def following(state: TrackedSubspaceState) -> tuple[Array, Array]:
    """The next X_i and R_i, from ``Y_i = Z_i - c X_i(t-1) R_i^-1``: (nodes, d, b), (nodes, b, b)."""
    Z, _ = _tracked(state)
    return polar(Z - state.momentum * (state.X_before @ _inverse(state.R)) if state.momentum else Z)


def _read(state: TrackedSubspaceState) -> Array:
    """Estimates of b eigenvectors: ``Z_i v``, made orthonormal from the first on: (nodes, d, b)."""
    Z, T = _tracked(state)
    return ea.orthonormal(Z @ _eigenpairs(T)[1])


def _outside(covariance: Covariance, X: Array, vector: Array, products: int) -> Array:
    """``P_i C_i P_i v`` with v from a local power iteration, P_i = I - X_i X_i^T: (nodes, d, b), (nodes, d, 1)."""
    xp = ea.namespace(X)
    for _ in range(products):
        vector = vector - X @ (X.mT @ vector)
        norm = column_norms(vector)
        image = covariance.apply(vector / xp.where(norm > 0, norm, xp.ones_like(norm)))
        vector = image - X @ (X.mT @ image)
    return vector


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


def _eigenpairs(T: Array) -> tuple[Array, Array]:
    """Eigenpairs of ``sym(T)``, largest first: (nodes, b, b) -> (nodes, b), (nodes, b, b)."""
    xp = ea.namespace(T)
    values, vectors = xp.linalg.eigh((T + T.mT) / 2)
    return xp.flip(values, axis=-1), xp.flip(vectors, axis=-1)
