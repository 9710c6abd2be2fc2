"""Tracked subspace iteration: exact without exact averages."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import ClassVar, Literal, NamedTuple

import numpy as np

from eigenmesh import arrays as ea
from eigenmesh.arrays import Array, column_norms
from eigenmesh.certificate import Common, asymmetry, gaps_from_ritz, ritz_pairs
from eigenmesh.data import BlockProducts, Covariance
from eigenmesh.networks import Mixes, Network
from eigenmesh.solvers.base import Check, Solver, Traits, require_count, require_positive, widened

# The last step of nodes that track a subspace: Rayleigh-Ritz in the average of their blocks.


class SharedRitz(NamedTuple):
    """Ritz vectors of a block that all nodes share, for each copy of an average in this process.

    Attributes
    ----------
    components, beyond : (1, d, K) and (1, d, p)
        The K leading Ritz vectors, and the others.
    common : Common
        Input of the certificate.
    """

    components: Array
    beyond: Array
    common: Common


def ritz_of_average(
    covariance: Covariance, network: Network, X: Array, k: int
) -> tuple[SharedRitz, np.ndarray, np.ndarray]:
    """Average the blocks of all nodes, multiply the average once, and take its Ritz vectors: two averages in all.

    ::

        B = orth(mean_i X_i),   T = B^T (C B) = v Theta v^T,   components B v

    The span of a block converges long before all nodes agree on the components within it, and errors of single nodes
    cancel in the average. The result is the Ritz vectors, and the residuals (K,) and gaps (K,) of the components that
    all nodes agree on.

    Parameters
    ----------
    X : array of shape (nodes, d, b)
        Each node's orthonormal block.
    k : int
        K, the number of Ritz vectors that are components.
    """
    block, xp = ea.orthonormal(network.shared_mean(X, float(network.n_nodes))), ea.namespace(X)
    products = BlockProducts(covariance, block, X.shape[0])
    product = network.shared_mean(products.parts)
    T = block.mT @ product
    values, vectors = ritz_pairs(T)
    ritz, image = block @ vectors, product @ vectors
    residuals = column_norms(image - ritz * values[:, None, :])[:, 0, :]
    defect = xp.maximum(asymmetry(T), -values[:, -1:])
    # A column of the image combines b columns of the product by a unit vector: its norm is at most sqrt(b) size.
    size = network.size_of_products(products.norms, column_norms(product)) * T.shape[-1] ** 0.5
    shared = SharedRitz(ritz[..., :k], ritz[..., k:], Common(ritz[..., :k], image[..., :k], size, defect, None))
    agreed = network.maximum(xp.concat([residuals, values], axis=1))
    residual, values = np.split(ea.to_numpy(agreed)[0], 2)
    return shared, residual[:k], gaps_from_ritz(values, k)


# Factor by which the first mixes shrink disagreement, before anything is known; later the rule of ``mixes`` applies.
FIRST_CONTRACTION, SHARE = 1 / 6, 0.75
# If the residual has not halved in PATIENCE checks, the contraction is raised to the power RAISED.
PATIENCE, RAISED = 6, 2
# Disagreement need not shrink further than this, so powers beyond the largest one change nothing.
LEAST_CONTRACTION = 1e-12
LARGEST_POWER = math.ceil(math.log(LEAST_CONTRACTION) / math.log(SHARE))
# Power-iteration products that measure how different the nodes are: at the start, and in every iteration.
FIRST_PRODUCTS, STEP_PRODUCTS = 10, 2
# Ask for a certificate at this multiple of tol: the average of all nodes is more accurate than any single node.
EARLY = 2.0
# Below 1: with momentum at the smallest Ritz value itself, the last column would never separate from the directions
# beyond the block.
MOMENTUM_SHARE = 0.96


class TrackedSubspaceState(NamedTuple):
    """Iterates of tracked subspace iteration at the nodes in this process."""

    k: int  # K; the block has b = K + oversample columns, or d
    X: Array  # (nodes, d, b) orthonormal basis
    S: Array  # (nodes, d + b, b) tracker of the sum of `added` over the nodes
    y: Array  # (nodes, 1, 1) push weight
    added: Array  # (nodes, d + b, b) C_i X_i, and below it X_i^T Z_i of the previous X
    X_before: Array  # (nodes, d, b) the previous X
    R: Array  # (nodes, b, b) the polar factor R_i that belongs to X
    moved: Array  # (nodes, d + b, b) change of S / y in the last mixes: the disagreement before them
    outside: Array  # (nodes, d, 1) P_i C_i P_i times a unit vector, P_i = I - X_i X_i^T
    momentum: float  # coefficient c, the same at all nodes
    mixing: Mixes  # how S and y are mixed
    power: int = 1  # exponent of the contraction in the rule of `mixes`
    best: float = np.inf  # largest residual when it last halved
    waited: int = 0  # checks since it last halved
    steps: int = 0  # steps taken
    shared: SharedRitz | None = None  # the answer of all nodes, after `finish`


@dataclass(frozen=True)
class TrackedSubspace(Solver):
    """Subspace iteration whose product ``C X`` is tracked instead of averaged, with a polar factor and momentum.

    ::

        Z_i = S_i / y_i,   Y_i = Z_i - c X_i(t-1) R_i^-1,   X_i(t+1) = Y_i R_i^-1 with R_i = (Y_i^T Y_i)^(1/2)
        (S_i, y_i) = mixes of ( S_i + C_i X_i(t+1) - C_i X_i(t), y_i ),   y_i = 1 at the start
        (T_i, y_i) = the same mixes of ( T_i + X_i(t)^T Z_i(t) - X_i(t-1)^T Z_i(t-1), y_i )

    The sum of the S_i equals the sum of the C_i X_i after every round, however incomplete the mixes are, as long as
    what a node keeps and sends adds up to what it had. y_i is mixed in the same way and gives the scale. So links may
    be one-way, change from round to round and lose messages. The polar factor stops turning once the span is invariant
    (QR does not), so close eigenvalues cost nothing. Components are read off locally: ``Z_i v``, made orthonormal from
    the first column on, with ``sym(T_i / y_i) = v Theta v^T``. T is tracked too: the last columns of a block converge
    last, and with its own ``X_i^T Z_i`` alone a node's errors in them would turn its components. At the end all nodes
    multiply the average of their blocks once and take its Ritz vectors. Use it on networks where an exact average in
    every iteration is not available.

    Parameters
    ----------
    oversample : int
        Columns beyond K.
    mixes : int or "auto"
        Rounds of mixing per iteration; "auto" takes as many as shrink disagreement by ``0.75 / (1 + 3 u)``, where
        ``u = max_i |P_i C_i P_i| / theta_b`` measures how different the nodes are; more if the residual stalls.
    momentum : float or "auto"
        Coefficient c, the same at all nodes; "auto" is ``(0.96 theta_b)^2 / 4``, where theta_b is the smallest Ritz
        value of the block; 0 is plain subspace iteration.
    """

    oversample: int = 5
    mixes: int | Literal["auto"] = "auto"
    momentum: float | Literal["auto"] = "auto"
    name: ClassVar[str] = "tracked-subspace"
    traits: ClassVar[Traits] = Traits(early=EARLY, expected_products=30)

    def __post_init__(self) -> None:
        require_count("oversample", self.oversample, least=0)
        if self.mixes != "auto":
            require_count("mixes", self.mixes, also='"auto"')
        # Without momentum it is plain subspace iteration.
        if self.momentum != "auto" and self.momentum != 0:
            require_positive("momentum", self.momentum, also='0 or "auto"')

    def columns(self, n_components: int, n_features: int) -> int:
        return min(n_components + self.oversample, n_features)

    def largest_message(self, n_components: int, n_features: int) -> int:
        # S and T, and the numbers to agree on that travel with them: residuals, Ritz values and two more.
        columns = self.columns(n_components, n_features)
        return (n_features + columns + 2) * columns + 2

    def init(self, covariance: Covariance, network: Network, basis: Array, seed: int = 0) -> TrackedSubspaceState:
        """X_i(0) = the basis and fresh directions; S_i(0) = C_i X_i(0), mixed once."""
        xp = ea.namespace(basis)
        n_nodes, d, k = basis.shape
        width = self.columns(k, d)
        common = widened(ea.to_numpy(basis[0, ...]), width, seed)
        X = ea.like(np.broadcast_to(common, (n_nodes, d, width)), basis)
        drawn = np.random.default_rng([seed, k, 1]).standard_normal((1, d, 1))
        outside = _outside(covariance, X, ea.everywhere(ea.like(drawn, basis), n_nodes), FIRST_PRODUCTS)
        CX, y = covariance.apply(X), xp.ones((n_nodes, 1, 1), dtype=basis.dtype, device=basis.device)
        added = xp.concat([CX, X.mT @ CX], axis=-2)
        mixing = network.mixes_to(FIRST_CONTRACTION) if self.mixes == "auto" else network.mixes(self.mixes)
        S, y = mixing(network, added, y)
        identity = ea.like(np.broadcast_to(np.eye(width), (n_nodes, width, width)), basis)
        return TrackedSubspaceState(
            k=k,
            X=X,
            S=S,
            y=y,
            added=added,
            X_before=xp.zeros_like(X),
            R=identity,
            moved=S / y - added,
            outside=outside,
            momentum=0.0 if self.momentum == "auto" else self.momentum,
            mixing=mixing,
        )

    def step(self, covariance: Covariance, network: Network, state: TrackedSubspaceState) -> TrackedSubspaceState:
        if state.steps and not network.piggybacking:
            # The numbers of this state travel with the mixes. The first state, steps = 0, has none yet.
            network.piggyback(numbers_to_agree_on(state))
        unmixed = self.multiplied(covariance, state)
        S, y = state.mixing(network, unmixed.S, unmixed.y)
        mixed = unmixed._replace(S=S, y=y, moved=S / y - unmixed.S / unmixed.y)
        return self.with_outside(covariance, mixed)

    def multiplied(self, covariance: Covariance, state: TrackedSubspaceState) -> TrackedSubspaceState:
        """The state with the next X and its product, before the mixes."""
        Z, _ = _tracked(state)
        X, R = next_block(state)
        added = ea.namespace(X).concat([covariance.apply(X), state.X.mT @ Z], axis=-2)
        S = state.S + (added - state.added)
        return state._replace(X=X, S=S, added=added, X_before=state.X, R=R, steps=state.steps + 1, shared=None)

    def with_outside(self, covariance: Covariance, state: TrackedSubspaceState) -> TrackedSubspaceState:
        """The state with P_i C_i P_i measured for its X."""
        return state._replace(outside=_outside(covariance, state.X, state.outside, STEP_PRODUCTS))

    def readout(self, state: TrackedSubspaceState) -> Array:
        """The K leading eigenvectors that each node reads off."""
        if state.shared is not None:
            return ea.everywhere(state.shared.components, state.X.shape[0])
        return _eigenvectors(state)[..., : state.k]

    def common(self, state: TrackedSubspaceState) -> tuple[Common, ...] | None:
        return None if state.shared is None else (state.shared.common,)

    def beyond(self, state: TrackedSubspaceState) -> Array:
        """The remaining b - K eigenvectors that each node reads off."""
        if state.shared is not None:
            return ea.everywhere(state.shared.beyond, state.X.shape[0])
        return _eigenvectors(state)[..., state.k :]

    def check(self, covariance: Covariance, network: Network, state: TrackedSubspaceState) -> Check:
        """Read the maxima that came with the mixes, and set momentum and mixes by them."""
        agreed = network.piggybacked()
        if agreed is None:
            return Check(state, np.full(state.k, np.inf), healthy=True, free=True)
        numbers = ea.to_numpy(agreed)[0]
        residual, ritz = np.split(numbers[:-2], 2)
        if not np.isfinite(numbers).all():
            return Check(state, residual[: state.k], healthy=False, free=True)
        state = self.adjusted(network, state, numbers)
        return Check(state, residual[: state.k], True, gaps_from_ritz(ritz, state.k), free=True)

    def finish(self, covariance: Covariance, network: Network, check: Check) -> Check:
        """Rayleigh-Ritz in the average of the blocks that the nodes would multiply next."""
        state = check.state
        shared, residual, gaps = ritz_of_average(covariance, network, next_block(state)[0], state.k)
        return Check(state._replace(shared=shared), residual, True, gaps, free=True)

    def adjusted(self, network: Network, state: TrackedSubspaceState, numbers: np.ndarray) -> TrackedSubspaceState:
        """The state with momentum and mixes set by the maxima of ``numbers_to_agree_on``."""
        residual, (smallest, outside) = float(numbers[: state.k].max()), (-numbers[-2], numbers[-1])
        smallest = max(float(smallest), 0.0)
        if self.momentum == "auto":
            state = state._replace(momentum=(MOMENTUM_SHARE * smallest) ** 2 / 4)
        if self.mixes != "auto" or smallest == 0.0:
            return state
        halved = residual < 0.5 * state.best
        waited = 0 if halved else state.waited + 1
        # Without the bound, a thousand stalls would make an integer that no float can hold.
        power = min(state.power * (RAISED if waited >= PATIENCE else 1), LARGEST_POWER)
        wanted = max((SHARE / (1 + 3 * float(outside) / smallest)) ** power, LEAST_CONTRACTION)
        mixing = network.mixes_to(wanted, state.mixing)
        best = residual if halved else state.best
        return state._replace(mixing=mixing, power=power, best=best, waited=waited % PATIENCE)


def numbers_to_agree_on(state: TrackedSubspaceState) -> Array:
    """Numbers whose maxima over the nodes all agree on: residuals, Ritz values, minus the smallest Ritz value, |P C P|.

    A residual counts only what lies outside the block: ``finish`` removes the part inside. Shape (nodes, 2 b + 2).
    """
    xp = ea.namespace(state.X)
    (Z, T), d = _tracked(state), state.X.shape[1]
    # Ritz values of the current X; the tracked T belongs to the previous one.
    (values, _), (_, vectors) = ritz_pairs(state.X.mT @ Z), ritz_pairs(T)
    # The disagreement that the mixes have left is an error too.
    left_over = state.mixing.accuracy * state.moved[:, :d, :]
    outside = (part @ vectors - state.X @ (state.X.mT @ part @ vectors) for part in (Z, left_over))
    residuals = sum(column_norms(part) for part in outside)[:, 0, :]
    return xp.concat([residuals, values, -values[:, -1:], column_norms(state.outside)[:, 0, :]], axis=1)


def _tracked(state: TrackedSubspaceState) -> tuple[Array, Array]:
    """``Z_i = S_i / y_i`` and ``T_i / y_i``: (nodes, d, b), (nodes, b, b)."""
    d, averaged = state.X.shape[1], state.S / state.y
    return averaged[:, :d, :], averaged[:, d:, :]


def next_block(state: TrackedSubspaceState) -> tuple[Array, Array]:
    """The next X_i and R_i, from ``Y_i = Z_i - c X_i(t-1) R_i^-1``: (nodes, d, b), (nodes, b, b)."""
    Z, _ = _tracked(state)
    if state.momentum:
        # A direction without length stays without one.
        inverse = ea.namespace(Z).linalg.pinv(state.R, rtol=1e-12)
        Z = Z - state.momentum * (state.X_before @ inverse)
    return polar(Z)


def _eigenvectors(state: TrackedSubspaceState) -> Array:
    """Estimates of b eigenvectors: ``Z_i v``, made orthonormal from the first column on: (nodes, d, b)."""
    Z, T = _tracked(state)
    return ea.orthonormal(Z @ ritz_pairs(T)[1])


def _outside(covariance: Covariance, X: Array, vector: Array, products: int) -> Array:
    """``P_i C_i P_i v`` for v from a local power iteration, P_i = I - X_i X_i^T: (nodes, d, b), (nodes, d, 1)."""
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
