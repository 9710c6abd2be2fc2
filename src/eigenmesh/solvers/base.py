"""The interface of a solver: pure functions of a state, without loops, stopping rules or traffic counts."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, Literal, NamedTuple

import numpy as np

from eigenmesh import arrays as ea
from eigenmesh.arrays import Array, column_norms, normalised, orthonormal, squared_norms
from eigenmesh.certificate import Common
from eigenmesh.data import Covariance
from eigenmesh.errors import InputError
from eigenmesh.networks import Network


@dataclass(frozen=True)
class Check:
    """A solver's report on its own state, made every few rounds from values that every node agrees on.

    Attributes
    ----------
    state : object
        The state to continue from. A solver may have repaired it, for example with a smaller step.
    residual : array of shape (K,) or None
        Estimate of ``|C x_k - theta_k x_k|``, maximum over the nodes; None: the loop measures it.
    healthy : bool
        False when the iterates have blown up or collapsed and the solver cannot repair them.
    gaps : array of shape (K,) or None
        Distance of each eigenvalue from its nearest neighbour. It is None if the solver does not know it.
    free : bool
        True if the check sent no message, so that the loop may check after every iteration.
    complement_now : bool
        True if the certificate must examine the orthogonal complement now, because the solver is about to discard it.
    """

    state: Any
    residual: np.ndarray | None
    healthy: bool
    gaps: np.ndarray | None = None
    free: bool = False
    complement_now: bool = False


@dataclass(frozen=True)
class Traits:
    """Properties of a solver that the rest of the library needs. The defaults fit one mix per iteration.

    Attributes
    ----------
    centralised : bool
        Published for data in one place. Comparisons run it on a single node with the pooled covariance.
    integers : bool
        Averages only products with columns of norm at most 1, which have public scales as integers, and sends nothing
        else that is private to one node. Integer averages, and so masked sums, require this.
    sums_covariances : bool
        The nodes sum up their covariance matrices themselves, so all of them learn the pooled one.
    fixed_schedule : bool
        As published, it runs without checks of its iterates, provided that no setting is "auto".
    early : float
        Ask for a certificate at this multiple of tol, because ``finish`` reduces the error further.
    expected_products : int
        Products with the covariance in a typical run. They decide how the covariance is stored. Where sites are
        asked for sums, solvers with 100 or more are refused.
    """

    centralised: bool = False
    integers: bool = False
    sums_covariances: bool = False
    fixed_schedule: bool = False
    early: float = 1.0
    expected_products: int = 1000


class Iterate(NamedTuple):
    """The state of a method that stores only its estimates."""

    X: Array  # (nodes, d, K) estimates
    residual: Array  # (nodes, K) residuals of the previous X, as each node estimates them
    iteration: int = 0  # steps taken, only for methods whose step depends on it; the same at all nodes


class Solver(ABC):
    """An algorithm as a frozen dataclass of hyperparameters with functions of its state.

    The state is a NamedTuple of arrays with a leading axis over the nodes that this process holds. A subclass defines
    ``name`` and ``step``, and overrides the other methods where their defaults do not fit. It need not be registered to
    be used.

    Attributes
    ----------
    name : str
        Name on the command line and in reports.
    traits : Traits
        Properties that the rest of the library needs.
    """

    name: ClassVar[str]
    traits: ClassVar[Traits] = Traits()

    def init(self, covariance: Covariance, network: Network, basis: Array, seed: int = 0) -> Any:
        """Start from a basis shared by all nodes: (nodes, d, K) -> state, by default with fields X and residual.

        The seed, the same at every node, is the one that drew the basis. Use it for further random directions.
        """
        return Iterate(basis, unmeasured(basis))

    def towards(self, tol: float) -> Solver:
        """The solver for a run that ends at this bound on the sines. By default unchanged."""
        return self

    @abstractmethod
    def step(self, covariance: Covariance, network: Network, state: Any) -> Any:
        """One iteration."""

    def readout(self, state: Any) -> Array:
        """Unit-norm estimates of q_1 .. q_K: state -> (nodes, d, K), by default ``state.X``."""
        X: Array = state.X
        return X

    def common(self, state: Any) -> Sequence[Common] | None:
        """What all nodes know about ``readout(state)``, which saves the certificate its averages. By default None.

        One for each copy of an average in this process (``network.copies``).
        """
        return None

    def beyond(self, state: Any) -> Array | None:
        """Estimates of further eigenvectors, for a cheaper certificate: state -> (nodes, d, p), by default None."""
        return None

    def narrowed(self, state: Any) -> Any:
        """The same estimates in less memory, once their complement has been examined. By default unchanged."""
        return state

    def space(self, state: Any, width: int) -> Array:
        """At most ``width`` orthonormal columns to start a later fit from, estimates first: state -> (1, d, w).

        By default the estimates of the first node in this process.
        """
        return orthonormal(self.readout(state)[:1, ...])

    def check(self, covariance: Covariance, network: Network, state: Any) -> Check:
        """Check every few rounds. Nodes agree only by ``network.maximum``, by default on ``state.residual``."""
        return check_residual(network, state)

    def finish(self, covariance: Covariance, network: Network, check: Check) -> Check:
        """Make the nodes agree on one answer before the certificate. If that is refused, the run drops the answer.

        By default unchanged: the nodes agree all the time, or each node ends with its own answer.
        """
        return check

    def columns(self, n_components: int, n_features: int) -> int:
        """Columns of one product with the covariance, at most d, by default K."""
        return min(n_components, n_features)

    def largest_message(self, n_components: int, n_features: int) -> int:
        """Numbers in the largest message of an iteration, checks excluded, by default one product, d times columns."""
        return n_features * self.columns(n_components, n_features)

    def kept_numbers(self, n_components: int, n_features: int) -> int:
        """Upper bound on the numbers that a node stores besides its covariance, by default six times a product."""
        return 6 * n_features * self.columns(n_components, n_features)

    def current_step(self, state: Any) -> float:
        """Step size of the next iteration. It is NaN for a solver without one."""
        return np.nan


def largest_norm(covariance: Covariance, network: Network, like: Array, products: int = 10) -> float:
    """Largest ``|C_i|`` over the nodes, by a local power iteration at each node: a scale that all nodes agree on.

    C is the mean of the C_i, so this is at least ``|C| = l_1`` up to the error of the power iteration. ``like``,
    (nodes, d, k), gives the library, dtype and device. With integer averages it is tr C, which all nodes know.
    """
    if network.scales is not None:
        return network.scales.size
    xp = ea.namespace(like)
    # Random, not a column of `like`: the user may have chosen those in the null space of C.
    start = np.random.default_rng(0).standard_normal((1, like.shape[1], 1))
    vector = ea.everywhere(ea.like(start, like), like.shape[0])
    norm = column_norms(vector)
    for _ in range(products):
        # Where the covariance is zero, the vector stays zero: avoid dividing by its norm.
        vector = covariance.apply(vector / xp.where(norm > 0, norm, xp.ones_like(norm)))
        norm = column_norms(vector)
    return float(network.maximum(norm[:, 0, :])[0, 0])


def product_residuals(X: Array, Z: Array) -> Array:
    """``|z_k - theta_k x_k| / |x_k|`` with ``theta_k = x_k^T z_k / |x_k|^2``: (nodes, d, K) twice -> (nodes, K).

    If Z is C X, or a node's estimate of it, this is the residual of X without an extra product or round.
    """
    xp = ea.namespace(X)
    squares = squared_norms(X)
    theta = xp.vecdot(X, Z, axis=-2) / squares
    return xp.sqrt(squared_norms(Z - X * theta[:, None, :]) / squares)


def unmeasured(X: Array) -> Array:
    """Infinite residuals, for the state before the first product: (nodes, d, K) -> (nodes, K)."""
    return ea.namespace(X).full((X.shape[0], X.shape[2]), np.inf, dtype=X.dtype, device=X.device)


def check_residual(network: Network, state: Any) -> Check:
    """Agree on ``state.residual``, (nodes, K); infinite: not measured yet, NaN: the iterates have diverged."""
    residual = ea.to_numpy(network.maximum(state.residual)[0, ...])
    return Check(state, residual, healthy=not bool(np.any(np.isnan(residual))))


def require_positive(name: str, value: Any, also: str = "") -> None:
    """Raise InputError unless the value is a positive number; ``also`` names what else would be valid."""
    if isinstance(value, bool) or not isinstance(value, int | float | np.number) or not 0 < value < np.inf:
        raise InputError(f"{name} = {value!r} must be a finite number above 0{also and f', or {also}'}.")


def require_count(name: str, value: Any, least: int = 1, also: str = "") -> None:
    """Raise InputError unless the value is a whole number of at least ``least``."""
    if isinstance(value, bool) or not isinstance(value, int | np.integer) or value < least:
        raise InputError(f"{name} = {value!r} must be a whole number of at least {least}{also and f', or {also}'}.")


# Starting bases of solvers: orthonormal, random, and the same at every node without communication.


def random_basis(n_features: int, n_components: int, seed: int) -> np.ndarray:
    """Orthonormal columns, uniformly distributed and the same at every node: (d, K)."""
    drawn = np.random.default_rng(seed).standard_normal((n_features, n_components))
    orthonormalise_in_place(drawn[np.newaxis])
    return drawn


def orthonormalise_in_place(X: Array) -> Array:
    """Overwrite X by Q of ``X = Q R``, where R has a nonnegative diagonal, and return R: (1, d, k) -> (1, k, k)."""
    xp, R = ea.namespace(X), ea.qr_in_place(X)
    diagonal = xp.linalg.diagonal(R)
    signs = xp.where(diagonal < 0, -xp.ones_like(diagonal), xp.ones_like(diagonal))
    X *= signs[:, None, :]
    return R * signs[:, :, None]


def gaussian_coefficients(basis: np.ndarray, seed: int) -> np.ndarray | None:
    """S with ``basis S = G``, the Gaussian columns that ``random_basis`` drew, (K, K); None for any other basis.

    G is drawn again in pieces, so that no second array of the size of the basis is needed.
    """
    (d, k), rng, squares = basis.shape, np.random.default_rng(seed), 0.0
    gram, along = np.zeros((k, k)), np.zeros((k, k))
    for start in range(0, d, ea.PIECE):
        own = basis[start : start + ea.PIECE]
        drawn = rng.standard_normal(own.shape)
        gram += own.T @ own
        along += own.T @ drawn
        squares += float(np.vdot(drawn, drawn))
    S = np.linalg.solve(gram, along)
    # |G - basis S|^2, the squared norm of the part of G outside the span of the basis.
    return S if squares - np.vdot(along, S) <= 1e-12 * squares else None


def fresh_directions(basis: np.ndarray, n_columns: int, seed: int) -> np.ndarray:
    """Gaussian columns that widen a basis to ``n_columns``, the same at every node: (d, K) -> (d, n_columns - K)."""
    d, k = basis.shape
    return _fresh_generator(k, seed).standard_normal((d, n_columns - k))


def _fresh_generator(k: int, seed: int) -> np.random.Generator:
    return np.random.default_rng([seed, k])


def write_widened(out: Array, basis: Array, seed: int) -> Array:
    """Write Q of ``[basis, fresh directions] = Q R`` into out, and return R: (1, d, n), (1, d, K) -> (1, n, n)."""
    if ea.on_gpu(out):
        # QR of a few columns is faster on the host than on the GPU.
        host = np.empty(out.shape)
        R = write_widened(host, ea.to_numpy(basis), seed)
        out[...] = ea.like(host, out)
        return ea.like(R, out)
    k, (_, d, n) = basis.shape[-1], out.shape
    out[:, :, :k], fresh = basis, _fresh_generator(k, seed)
    for piece in (slice(start, min(start + ea.PIECE, d)) for start in range(0, d, ea.PIECE)):
        out[:, piece, k:] = ea.like(fresh.standard_normal((1, piece.stop - piece.start, n - k)), out)
    return orthonormalise_in_place(out)


def widened(basis: np.ndarray, n_columns: int, seed: int) -> np.ndarray:
    """The basis and random directions, together orthonormal: (d, K) -> (d, n_columns)."""
    out = np.empty((1, len(basis), n_columns))
    write_widened(out, basis[np.newaxis], seed)
    return np.asarray(out[0])


# Base of the methods with a step size: their state, and an automatic step that is halved when it is too long.


# With a stable step, Sanger's rule pulls columns to norm one and overshoots by a few tens of per cent at most.
LONGEST_COLUMN = 3.0
# No rule recovers from columns longer than this.
BLOWN_UP = 1e6


class SteppedState(NamedTuple):
    """Iterates of a method with a step size at the nodes in this process."""

    X: Array  # (nodes, d, K) estimates, of any norm
    residual: Array  # (nodes, K) residuals of the previous X, as each node estimates them
    step_size: float  # a, the same at all nodes
    scale: float  # largest |C_i| over the nodes
    anchor: Array  # X at the smallest residual so far, to restart from
    best: float  # largest residual over the components at the anchor


@dataclass(frozen=True)
class SteppedSolver(Solver):
    """A solver whose only setting is its step size. The state has a field ``step_size``.

    If the iterates blow up with an automatic step, the next check halves the step and restarts.
    """

    step_size: float | Literal["auto"] = "auto"
    # No column gets longer than this while an automatic step is stable.
    longest: ClassVar[float] = LONGEST_COLUMN

    def __post_init__(self) -> None:
        if self.step_size != "auto":
            require_positive("step_size", self.step_size)

    @staticmethod
    @abstractmethod
    def suggested_step(scale: float, second: float) -> float:
        """The first automatic step, from the largest ``|C_i|`` and lambda_2 of W."""

    def init(self, covariance: Covariance, network: Network, basis: Array, seed: int = 0) -> Any:
        scale = largest_norm(covariance, network, basis)
        step_size = self.step_size
        if step_size == "auto":
            step_size = self.suggested_step(scale, network.second_eigenvalue)
        return SteppedState(basis, unmeasured(basis), float(step_size), scale, anchor=basis, best=np.inf)

    def readout(self, state: Any) -> Array:
        return normalised(state.X)

    def check(self, covariance: Covariance, network: Network, state: Any) -> Check:
        """Agree on the residual and the longest column; on a blow-up, halve an automatic step and restart.

        The restart is from one orthonormal basis for all nodes, the average of their best X so far. A fixed step is the
        user's choice: there, only a true blow-up ends the run.
        """
        automatic = self.step_size == "auto"
        xp = ea.namespace(state.X)
        lengths = xp.max(column_norms(state.X)[:, 0, :], axis=1, keepdims=True)
        agreed = ea.to_numpy(network.maximum(xp.concat([state.residual, lengths], axis=1))[0, ...])
        residual, length = agreed[:-1], float(agreed[-1])
        stable = bool(np.all(np.isfinite(residual))) and length < (self.longest if automatic else BLOWN_UP)
        if not automatic:
            return Check(state, residual, healthy=stable)
        if not stable:
            basis = common_basis(network, state.anchor)
            state = state._replace(X=basis, step_size=state.step_size / 2, anchor=basis)
            return Check(state, np.full_like(residual, np.inf), healthy=True)
        if residual.max() < state.best:
            state = state._replace(anchor=state.X, best=float(residual.max()))
        return Check(state, residual, healthy=True)

    def current_step(self, state: Any) -> float:
        return float(state.step_size)


def common_basis(network: Network, X: Array) -> Array:
    """One orthonormal basis for all nodes, from the average of their X: (nodes, d, K) -> (nodes, d, K)."""
    return orthonormal(network.mean(normalised(X), float(network.n_nodes)))
