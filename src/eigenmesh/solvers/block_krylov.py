"""Block Krylov with thick restarts: exact on any split, in a handful of averages."""

from __future__ import annotations

from abc import abstractmethod
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any, ClassVar, NamedTuple, TypeAlias

import numpy as np

from eigenmesh import arrays as ea
from eigenmesh import certificate as cert
from eigenmesh.arrays import Array, column_norms
from eigenmesh.certificate import Basis, Common, ComplementSpace, Projected, by_rows, own_signs, soft_polar
from eigenmesh.data import BlockProducts, Covariance, Gram
from eigenmesh.errors import InputError
from eigenmesh.networks import Network
from eigenmesh.solvers import base
from eigenmesh.solvers.base import Check, Solver, Traits
from eigenmesh.solvers.lean import Lean, Sending, numbers_decided

# What block Krylov with and without a known space share: the state, Rayleigh-Ritz, and what all nodes know of it.


class KrylovState(NamedTuple):
    """A growing space, computed from one copy of each average; ``n_nodes`` nodes in this process share it."""

    k: int  # K
    n_nodes: int  # nodes that share this copy
    V: Basis  # (1, d, w); processes differ in the last digits only
    B: Array  # (1, d, b) the next block, of which the first columns are multiplied next
    whitening: Array  # (1, b, b) H, where B H has orthonormal or zero columns
    T: Projected  # V^T C V and its eigenpairs
    leak: Array  # (1, b, c) the part of C times the last c columns of V outside V, in the basis B H
    lost: Array  # (1, 1) norm of the part of C V that neither V nor the leak contains
    agreed: np.ndarray  # (2, b) Ritz values and residuals of one step ago, as all nodes agreed on them
    before: np.ndarray  # (2, b) the same of two steps ago
    resolution: float  # eigenvalues closer than this, relative to the largest, count as equal
    start: Array  # Gaussian columns: (1, d, s) if C V is kept, else (1, b, s) in the basis of the first block
    size: Array  # (1, 1) largest norm of a product C_i b with a column b of a block, over the nodes in this process
    most: int  # widest V; a wider one is restarted
    errors: Array  # (1, w) bounds of what fewer bits took away from the columns of C V
    asymmetry: Array  # (1, 1) how far V^T C V was from symmetric beyond these errors
    sending: Sending  # what the next step sends
    quiet: int  # steps that are left without a report
    waited: int  # steps without one before the last or the next report
    products: int | None = 0  # products since the Gaussian columns; None after a restart, which loses them
    CV: Array = None  # (1, d, w) C V, only where the space was known at the start

    @classmethod
    def nothing_known(cls, whitening: Array) -> dict[str, Any]:
        """Fields before any average, for a block with this whitening (1, b, b)."""
        b = whitening.shape[-1]
        unknown = np.stack([np.zeros(b), np.full(b, np.inf)])
        return {
            "T": Projected(whitening[:, :0, :0], whitening[:, 0, :0]),
            "leak": whitening[:, :, :0],
            "lost": ea.namespace(whitening).zeros_like(whitening[:, 0, :1]),
            "errors": whitening[:, 0, :0],
            "asymmetry": ea.namespace(whitening).zeros_like(whitening[:, 0, :1]),
            "agreed": unknown,
            "before": unknown,
            "quiet": 0,
            "waited": 0,
        }

    @property
    def begun_again(self) -> KrylovState:
        """The state before any average, from the first columns of V: the start, or after a restart Ritz vectors."""
        b, V = self.B.shape[-1], self.V
        present = V.present[:, :b]
        whitening = ea.namespace(present).eye(b, dtype=present.dtype, device=present.device) * present[:, None, :]
        again = self._replace(V=V.first(0), B=by_rows(V.first(b).rows.mT), whitening=whitening)
        return again._replace(products=None if self.products is None else 0, **self.nothing_known(whitening))

    @property
    def report(self) -> Array:
        """Ritz values and residuals: (1, 2, b)."""
        T, leak, b = self.T, self.leak, self.agreed.shape[-1]
        if not T.width:
            return ea.like(self.agreed[np.newaxis], leak)
        values, ritz = T.leading(b)
        # C V leaves the space only through its last columns, so this is |C u - theta u| without forming u.
        residuals = column_norms(leak @ ritz[:, -leak.shape[-1] :, :])[:, 0, :] + self.inexactness(ritz)
        return ea.namespace(leak).stack([values, residuals], axis=1)

    @property
    def news(self) -> Array:
        """What travels with the next average: the report, or while it is quiet that nothing is known: (1, 2, b)."""
        return ea.like(self.agreed[np.newaxis], self.leak) if self.quiet else self.report

    def inexactness(self, ritz: Array) -> Array:
        """Bounds of the errors of products with ``V ritz``: (1, w, n) -> (1, n)."""
        xp = ea.namespace(ritz)
        return (self.errors[:, None, :] @ xp.abs(ritz))[:, 0, :]

    @property
    def complement(self) -> ComplementSpace:
        """What the space shows of the complement of the components."""
        gaussian = self.start if self.CV is None else self.V.along(self.start)
        counts = {"n_components": self.k, "dimension": self.V.buffer.shape[-1], "products": self.products or 0}
        return cert.complement_space(self.T, self.leak, float(self.lost[0, 0]), gaussian, self.errors, **counts)


Copies: TypeAlias = tuple[KrylovState, ...]


@dataclass(frozen=True)
class RayleighRitz(Solver):
    """Components read off a space whose product with C is known at every node, one state per ``network.copies``."""

    oversample: int = 5

    def __post_init__(self) -> None:
        # With none the certificate could not see l_{K+1}.
        base.require_count("oversample", self.oversample)

    def columns(self, n_components: int, n_features: int) -> int:
        return min(n_components + self.oversample, n_features)

    @property
    def _lean(self) -> Lean | None:
        """What decides which columns and bits are sent over a tree; by default all."""
        return None

    @abstractmethod
    def _begun(self, network: Network, basis: Array, seed: int, copy: slice) -> KrylovState:
        """The first state of one copy."""

    @abstractmethod
    def _grown(self, network: Network, state: KrylovState, Z: Array, errors: Array) -> KrylovState:
        """The state with the average product Z (1, d, n) of the first columns of B, and bounds of its errors (1, n)."""

    def _first_state(
        self, network: Network, basis: Array, V: Basis, B: Array, start: Array, size: Array, most: int
    ) -> KrylovState:
        """A state before any average, which reports as many Ritz pairs as B has columns."""
        identity = ea.like(np.eye(B.shape[-1])[np.newaxis], basis)
        return KrylovState(
            k=basis.shape[-1],
            n_nodes=basis.shape[0] // network.copies,
            V=V,
            B=B,
            whitening=identity,
            resolution=cert.Precision.of(network.average.accuracy, network.n_nodes, 1.0, 1.0).resolution,
            start=start,
            size=size,
            most=most,
            sending=Sending(B.shape[-1]),
            **KrylovState.nothing_known(identity),
        )

    def init(self, covariance: Covariance, network: Network, basis: Array, seed: int = 0) -> Copies:
        """One state for each copy of an average in this process."""
        return tuple(self._begun(network, basis, seed, slice(at, at + 1)) for at in range(network.copies))

    def step(self, covariance: Covariance, network: Network, state: Copies) -> Copies:
        """Average the products of the next block, and let each copy grow by it."""
        xp = ea.namespace(state[0].B)
        blocks, reports = (
            xp.concat(parts)
            for parts in ([own.B[:, :, : own.sending.columns] for own in state], [own.news for own in state])
        )
        products = BlockProducts(covariance, blocks, len(network.ids))

        def grow(Z: Array, errors: Array) -> Copies:
            size, grown = network.size_of_products(products.norms, column_norms(Z)), []
            # Free them before the next block is made.
            del products.parts
            for at, own in enumerate(state):
                one_more = None if own.products is None else own.products + 1
                told = own._replace(size=xp.maximum(own.size, size[at : at + 1, ...]), products=one_more)
                grown.append(self._grown(network, told, Z[at : at + 1, ...], errors))
            return tuple(grown)

        # Where columns are split over the nodes, errors of products are not those of the loadings.
        lean = self._lean if network.decides and not isinstance(covariance, Gram) else None
        if lean is None:
            Z, agreed = network.common_mean_and_maximum(products.parts, reports)
            grown = grow(Z, xp.zeros_like(Z[:1, 0, :]))
        else:
            grown, agreed, numbers = lean.average(network, products.parts, reports, state[0].sending, grow)
        numbers_agreed = ea.to_numpy(agreed[0, ...])
        grown = tuple(self._told(own, numbers_agreed) for own in grown)
        return grown if lean is None else (lean.following(grown[0], numbers),)

    def _told(self, state: KrylovState, numbers: np.ndarray) -> KrylovState:
        """The state after a step, in which all nodes have agreed on the news of the state before."""
        return state._replace(agreed=numbers, before=state.agreed)

    def _components(self, state: KrylovState) -> Array:
        """Estimates of one copy, with their largest entries positive: (1, d, K)."""
        if not state.V.width:
            return state.B[:, :, : state.k]
        components = state.V.times(self._aligned_ritz(state))
        components *= own_signs(components)
        return components

    def readout(self, state: Copies) -> Array:
        pairs = [ea.everywhere(self._components(own), own.n_nodes) for own in state]
        return pairs[0] if len(pairs) == 1 else ea.namespace(pairs[0]).concat(pairs)

    def _aligned_ritz(self, state: KrylovState) -> Array:
        """K leading Ritz vectors in the basis V; where eigenvalues coincide, turned to a frame that all nodes share."""
        _, ritz = state.T.leading(state.agreed.shape[-1])
        # Before the first agreement there are no eigenvalues to compare.
        if np.isfinite(state.agreed[1]).all():
            ritz = _align_clusters(state.V, ritz, state.agreed[0], state.resolution)
        return ritz[:, :, : state.k]

    def space(self, state: Copies, width: int) -> Array:
        """Leading Ritz vectors; those without variance, which are rounding noise, are replaced by fixed directions."""
        own = state[0]
        width = min(width, own.V.width)
        values, ritz = own.T.leading(width)
        count = int(np.count_nonzero(ea.to_numpy(values > own.resolution * values[:, :1])))
        leading = ea.to_numpy(own.V.times(ritz[:, :, :count]))[0]
        return _in_fixed_frame(ea.like(base.widened(leading, width, seed=0)[np.newaxis], ritz))

    def check(self, covariance: Covariance, network: Network, state: Copies) -> Check:
        """Residuals that came with the last average, extrapolated by one step."""
        (values, residuals), k = state[0].agreed, state[0].k
        forecast = _forecast(residuals, state[0].before[1], least=ea.EPS * abs(values[0]))
        if forecast is None:
            return Check(state, np.full(k, np.inf), healthy=True, free=True)
        # The forecast only decides when to ask for a certificate; the certificate measures the residuals.
        return Check(state, forecast[:k], True, cert.gaps_from_ritz(values, k), free=True)

    def common(self, state: Copies) -> tuple[Common, ...] | None:
        """C U is known at every node, and so is a space in their complement, until a restart loses its start."""
        return tuple(self._common(own) for own in state) if state[0].V.width else None

    def _common(self, state: KrylovState) -> Common:
        xp, T, leak, V = ea.namespace(state.leak), state.T.matrix, state.leak, state.V
        defect, space = xp.maximum(cert.asymmetry(T, state.errors), state.asymmetry), None
        if state.products:
            space = state.complement
            below_zero = -np.min(space.values, initial=0.0) - np.linalg.norm(ea.to_numpy(state.errors))
            defect = xp.maximum(defect, ea.like(np.array([[below_zero]]), defect))
        components = self._aligned_ritz(state)
        outside = leak @ components[:, -leak.shape[-1] :, :]
        image = xp.concat([T @ components, outside], axis=-2)
        coordinates = xp.concat([components, xp.zeros_like(outside)], axis=-2)
        # What neither V nor the leak contains is missing in the image: count it as rounding error.
        size = state.size * V.width**0.5 + state.lost / (cert.ROUNDING * ea.EPS)
        # Where C V is kept, the leak is in a basis of its own, whose vectors nobody needs: such samples are in rows.
        vectors = partial(_vectors, state) if state.CV is None else None
        off = state.inexactness(components)
        return Common(coordinates, image, size, defect, space, vectors, signed=True, errors=off)


def _vectors(state: KrylovState, coordinates: Array) -> Array:
    """Vectors from their coordinates in V and in the next block: (1, w + b, k) -> (1, d, k)."""
    width = state.V.width
    return state.V.times(coordinates[:, :width, :]) + state.B @ (state.whitening @ coordinates[:, width:, :])


def _forecast(residuals: np.ndarray, earlier: np.ndarray, least: float) -> np.ndarray | None:
    """Residuals of the next step if they fall at the same rate as in the last one: (b,); None if they are not known.

    No forecast is below ``least``: rounding errors fluctuate, and the smallest of them would seem to be progress.
    """
    fall = np.divide(residuals, earlier, out=np.ones_like(residuals), where=np.isfinite(earlier) & (earlier > 0))
    forecast = residuals * np.clip(fall, 0.0, 1.0)
    return np.maximum(forecast, least) if np.isfinite(forecast).all() else None


def _align_clusters(V: Basis, ritz: Array, values: np.ndarray, resolution: float) -> Array:
    """Turn the vectors ``V ritz`` of indistinguishable eigenvalues towards a fixed frame: ritz (1, w, b).

    Within such a group every rotation is equally good, and rounding would pick a different one at each node.
    """
    apart = np.abs(np.diff(values)) > resolution * abs(values[0])
    groups = [g for g in np.split(np.arange(len(values)), np.flatnonzero(apart) + 1) if len(g) > 1]
    if not groups:
        return ritz
    frame = np.random.default_rng(0).standard_normal((1, V.buffer.shape[-1], ritz.shape[-1]))
    overlap = ea.to_numpy(ritz.mT @ V.along(ea.like(frame, ritz)))[0]
    turn = np.eye(len(values))
    for group in groups:
        inside = np.ix_(group, group)
        left, _, right = np.linalg.svd(overlap[inside])
        turn[inside] = left @ right
    return ritz @ ea.like(turn[np.newaxis], ritz)


def _in_fixed_frame(Q: Array) -> Array:
    """Orthonormal basis of the span of Q that depends only on the span: (1, w, k) -> (1, w, k).

    Of all such bases it is the nearest to a fixed random frame, so nodes whose last digits differ get the same one.
    """
    xp = ea.namespace(Q)
    frame = ea.like(np.random.default_rng(0).standard_normal((1, *Q.shape[1:])), Q)
    left, _, right = xp.linalg.svd(Q.mT @ frame, full_matrices=False)
    return Q @ (left @ right)


# Block Krylov from any start.


# Default width of the basis, in blocks: USUAL_BLOCKS, or as many as fit into BASIS_BYTES, but at least FEWEST_BLOCKS.
USUAL_BLOCKS, FEWEST_BLOCKS, BASIS_BYTES = 20, 4, 2**30
# A basis and its next block that take more than LARGE_BYTES are halved, to no fewer than NARROW_BLOCKS blocks, once the
# certificate has examined their complement. That costs an exchange, and usually succeeds once the sines of the
# components are below SURE_SINE.
LARGE_BYTES, NARROW_BLOCKS, SURE_SINE = 12 * 2**20, 3, 2e-3
# Where larger sines are expected of a complete space, the nodes exchange its residuals.
SOLVED_SINE = 1e-6
# In a space of more than FEW_COLUMNS, Ritz pairs are only computed where residuals may be small enough by now: relative
# to the largest eigenvalue, they are expected to fall by no more than FASTEST_FALL in a step, or if they have fallen
# faster, BEYOND_SEEN times as fast as before.
FEW_COLUMNS, FASTEST_FALL, BEYOND_SEEN = 256, 10.0, 3.0
LEAST = float(np.finfo(np.float64).tiny)
# Random columns next to a start that the user gave: with fewer, the certificate would need many more products.
BESIDE_GIVEN = 12


@dataclass(frozen=True)
class BlockKrylov(RayleighRitz):
    """Rayleigh-Ritz on the block Krylov space of C, built from exact network averages.

    With b = K + oversample columns, each step is one average of a (d, b) matrix::

        Z = mean(C_i B),  V <- [V, B],  B <- polar((I - V V^T) Z),

    and the eigenpairs of ``V^T C V`` give the estimates. C V leaves the span of V only through the product with its
    last block, so the residuals are known without another message. They travel with the next average. When V is wider
    than ``max_width``, its leading Ritz vectors, half as many, replace it in the same memory (thick restart); before
    that, the certificate uses V to examine their complement.

    Processes whose averages differ in the last digits must still send the same block. So B is the polar factor, which
    unlike QR or the SVD has no freedom of sign or order. And where a block loses rank, directions of B at the level of
    those digits fade out continuously, because nodes could disagree on a sharp cut. What fades out of C V is counted as
    rounding error.

    Parameters
    ----------
    oversample : int
        Columns beyond K. They speed up convergence and show l_{K+1} to the certificate.
    max_width : int or None
        Columns of the widest basis, at least 3 (K + oversample). None: up to 20 blocks; for large d, only until the
        certificate has examined their complement.
    lean : bool
        Send fewer bytes where sums go over a tree. From the second product on, only the residuals of components that
        are not yet as accurate as asked for, and of the one after the K-th, are multiplied, three columns at least
        (locking); and numbers in messages have as many bits as the certificate needs, which bounds what is lost.
        Locking may take one or two more averages. By default all bits of all columns are sent.
    """

    max_width: int | None = None
    lean: bool = False
    # The bound on the sines at which a run ends.
    tol: float = field(default=1e-6, repr=False, compare=False)
    name: ClassVar[str] = "block-krylov"
    traits: ClassVar[Traits] = Traits(integers=True, expected_products=12)

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.max_width is not None:
            base.require_count("max_width", self.max_width, also="None")
        if not isinstance(self.lean, bool):
            raise InputError(f"lean = {self.lean!r} must be True or False.")

    def towards(self, tol: float) -> BlockKrylov:
        return replace(self, tol=tol)

    @property
    def _lean(self) -> Lean | None:
        return Lean(self.tol) if self.lean else None

    def largest_message(self, n_components: int, n_features: int) -> int:
        columns = min(n_components + max(self.oversample, BESIDE_GIVEN), n_features)
        # A (d, b) block, with it the Ritz values and residuals, (2, b), and in a lean run what the root decides.
        return (n_features + 2) * columns + (numbers_decided(columns) if self.lean else 0)

    def kept_numbers(self, n_components: int, n_features: int) -> int:
        return n_features * self._max_width(n_features, self.columns(n_components, n_features))

    def _begun(self, network: Network, basis: Array, seed: int, copy: slice) -> KrylovState:
        xp = ea.namespace(basis)
        _, d, k = basis.shape
        coefficients = base.gaussian_coefficients(ea.to_numpy(basis[0, ...]), seed)
        is_random = coefficients is not None
        width = min(k + (self.oversample if is_random else max(self.oversample, BESIDE_GIVEN)), d)
        most = self._max_width(d, width)
        # Written directly into the memory of the block, without a temporary array of that size.
        B = xp.empty((1, width, d), dtype=basis.dtype, device=basis.device).mT
        R = base.write_widened(B, basis[:1, ...], seed)
        start = R[:, :, k:]
        if coefficients is not None:
            start = xp.concat([R[:, :, :k] @ ea.like(coefficients[np.newaxis], basis), start], axis=-1)
        V = Basis.empty(basis, min(most, USUAL_BLOCKS * width))
        state = self._first_state(network, basis, V, B, start, xp.zeros_like(R[:, 0, :1]), most)
        return state if self._lean is None else state._replace(sending=self._lean.first(width, network.n_nodes))

    def _grown(self, network: Network, state: KrylovState, Z: Array, errors: Array) -> KrylovState:
        xp, n, b, w = ea.namespace(Z), Z.shape[-1], state.B.shape[-1], state.V.width
        H, leak, found = state.whitening[:, :n, :n], state.leak, dict[str, Array]()
        # An all-zero block means that the space is complete. Its product carries no information.
        grows = bool(xp.any(H != 0))
        # The next block is orthogonal to the columns that wait, too.
        held = state.V.grown(state.B, state.whitening) if grows else state.V
        exact = not bool(xp.any(errors > 0))
        recent = leak.shape[-1] + b if grows and exact else None
        following = soft_polar(held, Z, network.average.accuracy, recent=recent)
        B, whitening, V = following.B, following.whitening, held.first(w + n) if grows else held
        if grows:
            along, lower = following.along @ H, leak[:, :n, :]
            column, asymmetry = along[:, : w + n, :], state.asymmetry
            errors = xp.concat([state.errors, (errors[:, None, :] @ xp.abs(H))[:, 0, :]], axis=-1)
            if bool(xp.any(errors > 0)):
                column, lower, errors, beyond = cert.reconciled(column, lower, errors)
                asymmetry = xp.maximum(asymmetry, beyond)
            T = Projected(cert.bordered(state.T.matrix, column, lower), V.present)
            lost = _hypot(state.lost, following.faded @ H)
            waiting = xp.concat([leak[:, n:, :], along[:, w + n :, :]], axis=-1)
            leak = following.leak @ H
            if n < b:
                # Columns that wait are orthonormal, and first in the next block.
                B = xp.concat([state.B.mT[:, n:, :], B.mT], axis=-2).mT
                whitening = cert.block_diagonal(state.whitening[:, n:, n:], whitening)
                nothing = xp.zeros((1, n, waiting.shape[-1] - n), dtype=leak.dtype, device=leak.device)
                leak = xp.concat([waiting, xp.concat([nothing, leak], axis=-1)], axis=-2)
            found = {"T": T, "leak": leak, "lost": lost, "errors": errors, "asymmetry": asymmetry}
        grown = state._replace(V=V, B=B, whitening=whitening, **found)
        return _restarted(grown) if V.width + b > grown.most else grown

    def _told(self, state: KrylovState, numbers: np.ndarray) -> KrylovState:
        """As the base class; or it is quiet until the residuals may be small enough, if Ritz pairs cost much."""
        if state.quiet:
            return state._replace(quiet=state.quiet - 1)
        told, (values, residuals) = super()._told(state, numbers)._replace(waited=0), numbers
        earlier = state.agreed[1] if np.isfinite(state.agreed[1]).all() else state.before[1]
        largest, before = (float(each[: state.k].max()) for each in (residuals, earlier))
        if state.V.width <= FEW_COLUMNS or not 0 < largest <= before < np.inf:
            return told
        fall = max(FASTEST_FALL, BEYOND_SEEN * (before / largest) ** (1 / (1 + state.waited)))
        steps = int(np.log(largest / (self.tol * abs(float(values[0])) + LEAST)) / np.log(fall))
        # Two reports in a row, from which the next one can be forecast, are in time.
        if (waited := steps - 2) < 1:
            return told
        unknown = np.stack([values, np.full_like(residuals, np.inf)])
        return told._replace(agreed=unknown, before=numbers, quiet=waited, waited=waited)

    def narrowed(self, state: Copies) -> Copies:
        """Restart to half the width now, and keep that width, if the basis is large and was not restarted before."""
        return tuple(self._narrowed(own) for own in state)

    def _narrowed(self, state: KrylovState) -> KrylovState:
        width = state.V.width
        is_wide = width >= NARROW_BLOCKS * state.B.shape[-1] and self._is_large(state)
        return _restarted(state._replace(most=width)) if state.products is not None and is_wide else state

    def _max_width(self, d: int, block: int) -> int:
        if self.max_width is not None:
            return max(self.max_width, NARROW_BLOCKS * block)
        return min(USUAL_BLOCKS * block, max(FEWEST_BLOCKS * block, BASIS_BYTES // (d * ea.ITEM_BYTES)))

    def check(self, covariance: Covariance, network: Network, state: Copies) -> Check:
        b, width = state[0].B.shape[-1], state[0].V.width
        check = super().check(covariance, network, state)
        if width >= state[0].V.buffer.shape[-1] > width - b and not _is_near(check, SOLVED_SINE):
            # So many columns usually span the whole space: another product would tell nothing but the residuals.
            check = super().check(covariance, network, _told(network, state))
        own = check.state[0]
        restarts_next = width + 2 * b > own.most
        may_be_narrowed = self._is_large(own) and (_is_near(check, SURE_SINE) or width == NARROW_BLOCKS * b)
        return replace(check, complement_now=bool(own.products) and (restarts_next or may_be_narrowed))

    def _is_large(self, state: KrylovState) -> bool:
        """Whether the basis and its next block take so much memory that halving it is worth an exchange."""
        buffer, width = state.V.buffer, state.V.width + state.B.shape[-1]
        return self.max_width is None and width * buffer.shape[-1] * ea.ITEM_BYTES > LARGE_BYTES


def _told(network: Network, state: Copies) -> Copies:
    """The state after all nodes have agreed on its residuals, by an exchange of them alone."""
    xp = ea.namespace(state[0].whitening)
    reports = xp.concat([xp.reshape(own.report, (1, -1)) for own in state])
    agreed = ea.to_numpy(network.maximum(reports)[0, ...]).reshape(state[0].agreed.shape)
    return tuple(own._replace(agreed=agreed, before=own.agreed, quiet=0) for own in state)


def _is_near(check: Check, sine: float) -> bool:
    """Whether the sines of the components are expected to be at most this, by numbers that all nodes agree on."""
    residual, gaps = check.residual, check.gaps
    return residual is not None and gaps is not None and bool(np.all(residual <= sine * gaps))


def _restarted(state: KrylovState) -> KrylovState:
    """The basis replaced by half of its width in leading Ritz vectors. The next block stays the same."""
    b, V, T, leak = state.B.shape[-1], state.V, state.T, state.leak
    # With fewer vectors, more products would be needed to regain the lost accuracy.
    _, ritz = T.leading(max(1, state.most // (2 * b)) * b)
    xp, image = ea.namespace(leak), T.matrix @ ritz
    values = xp.vecdot(ritz, image, axis=-2)[:, None, :]
    small = xp.eye(ritz.shape[-1], dtype=leak.dtype, device=leak.device) * values
    # The Ritz vectors are eigenvectors of T only up to rounding, which is counted as lost.
    lost, leak = _hypot(state.lost, image - ritz * values), leak @ ritz[:, -leak.shape[-1] :, :]
    errors = state.inexactness(ritz)
    V = V.recombined(ritz)
    return state._replace(V=V, T=Projected(small, V.present), leak=leak, lost=lost, errors=errors, products=None)


def _hypot(lost: Array, more: Array) -> Array:
    """``sqrt(lost^2 + |more|^2)``: (1, 1), (1, n, b) -> (1, 1)."""
    xp = ea.namespace(lost)
    return xp.sqrt(lost * lost + xp.sum(more * more, axis=(-2, -1))[:, None])


# Block Krylov from a nearly invariant space, such as the one of the previous batch of a stream.


# Gaussian columns next to the known space, from which the certificate bounds the chance that it missed a new direction.
GAUSSIAN_COLUMNS = 16
# Widest basis, in blocks. A wider one is cut to its leading Ritz vectors, and the certificate searches by itself.
MOST_BLOCKS = 20


class Known(NamedTuple):
    """An orthonormal basis (d, w) shared by all nodes, and its image under C, (d, w).

    norms : (nodes, 1, w) norms of ``C_i b`` for the columns b of the basis, at the nodes in this process.
    """

    basis: np.ndarray
    image: np.ndarray
    norms: np.ndarray


@dataclass(frozen=True, eq=False)
class WarmKrylov(RayleighRitz):
    """Rayleigh-Ritz on a space whose image is known, and which grows by the part of its image outside it.

    The basis V begins with that of ``known``, at least b = K + oversample columns. Each step is one average of a
    (d, b + s) matrix::

        B <- polar((I - V V^T) C V [Y, H]),  Z = mean(C_i B),  V <- [V, B],  CV <- [CV, Z],

    where Y are the leading b Ritz vectors and H the last Krylov vectors of s Gaussian columns, both in the basis V. In
    the first step the Gaussian columns themselves take the place of C V H. The known space is not random, so only these
    columns show the certificate whether a direction was missed.
    """

    known: Known = field(repr=False, kw_only=True)
    name: ClassVar[str] = "block-krylov"
    traits: ClassVar[Traits] = Traits(integers=True, expected_products=4)

    def largest_message(self, n_components: int, n_features: int) -> int:
        return (n_features + 2) * min(self.columns(n_components, n_features) + GAUSSIAN_COLUMNS, n_features)

    def kept_numbers(self, n_components: int, n_features: int) -> int:
        # The widest basis and its image.
        return 2 * n_features * MOST_BLOCKS * self.columns(n_components, n_features)

    def _begun(self, network: Network, basis: Array, seed: int, copy: slice) -> KrylovState:
        known, (_, d, k) = self.known, basis.shape
        b, w = self.columns(k, d), known.basis.shape[1]
        first, CV = (ea.like(part[np.newaxis], basis) for part in (known.basis, known.image))
        # A block has no more than d columns.
        gaussian = base.fresh_directions(known.basis, w + min(GAUSSIAN_COLUMNS, d - b), seed)[np.newaxis]
        norms = ea.like(known.norms, basis)
        size = network.size_of_products(norms if network.copies == 1 else norms[copy, ...], column_norms(CV))
        V = Basis.empty(first, w + 5 * (b + GAUSSIAN_COLUMNS)).grown(first, ea.like(np.eye(w)[np.newaxis], basis))
        most = max(MOST_BLOCKS * b, gaussian.shape[-1] + w + b)
        state = self._first_state(network, basis, V, first[:, :, :b], ea.like(gaussian, basis), size, most)
        return self._with_next_block(network, state._replace(CV=CV), b)

    def _grown(self, network: Network, state: KrylovState, Z: Array, errors: Array) -> KrylovState:
        xp, V, CV = ea.namespace(Z), state.V, state.CV
        # An all-zero block means that the space is complete.
        if bool(xp.any(state.whitening != 0)):
            V, CV = V.grown(state.B, state.whitening), xp.concat([CV, Z @ state.whitening], axis=-1)
        return self._with_next_block(network, state._replace(V=V, CV=CV), state.agreed.shape[-1])

    def _with_next_block(self, network: Network, state: KrylovState, b: int) -> KrylovState:
        """The state with estimates from V and C V, and the next block to multiply."""
        xp = ea.namespace(state.CV)
        V, CV, products = state.V, state.CV, state.products
        T, exact = Projected(V.along(CV), V.present), xp.zeros_like(V.present)
        values, ritz = T.leading(b)
        leak = xp.linalg.qr(CV - V.times(T.matrix)).R
        if V.width + b + GAUSSIAN_COLUMNS > state.most:
            first, eye = V.times(ritz), ea.like(np.eye(b)[np.newaxis], CV)
            V, CV, leak = Basis.empty(first, V.buffer.shape[-2]).grown(first, eye), CV @ ritz, leak @ ritz
            T, ritz, products = Projected(ritz.mT @ T.matrix @ ritz, V.present), eye, None
            exact = exact[:, :b]
        Z = CV @ self._directions(T.matrix, values, ritz, V.along(state.start), products, network.average.accuracy)
        if products == 0 and state.start.shape[-1]:
            # Scaled to one size, so that neither part is mistaken for rounding of the other.
            Z = xp.concat([Z / xp.max(column_norms(Z)), state.start / xp.max(column_norms(state.start))], axis=-1)
        following = soft_polar(V, Z, network.average.accuracy)
        sending = Sending(Z.shape[-1])
        found = {"whitening": following.whitening, "T": T, "leak": leak, "errors": exact, "sending": sending}
        return state._replace(V=V, B=following.B, CV=CV, products=products, **found)

    def _directions(
        self, T: Array, values: Array, ritz: Array, start: Array, products: int | None, noise: float
    ) -> Array:
        """Columns that span [Y, H] in the basis V and depend only on that span: (1, w, b + s).

        If C lacks full rank, some Ritz vectors and Krylov directions are rounding noise. They fade out, so that nodes
        whose last digits differ still multiply the same block.
        """
        xp = ea.namespace(T)
        chosen = Y = ritz * fade(xp.maximum(values, xp.zeros_like(values)), noise)[:, None, :]
        if products and start.shape[-1]:
            last, largest = start, xp.max(column_norms(start))
            for _ in range(products):
                last = faded(start - Y @ (Y.mT @ start), noise, largest)
                start, largest = T @ last, xp.max(values)
            chosen = xp.concat([Y, last], axis=-1)
        frame = ea.like(np.random.default_rng(0).standard_normal((1, *chosen.shape[1:])), chosen)
        return faded(chosen @ (chosen.mT @ frame), noise)


def fade(sizes: Array, noise: float, largest: Array | None = None) -> Array:
    """Factor that removes noise: 0 for sizes up to the noise level, 1 from 100 times that level on: (1, k).

    The level is relative to ``largest``, by default the largest of the sizes. In between the factor grows linearly: a
    sharp threshold could fall differently at nodes whose last digits differ.
    """
    xp = ea.namespace(sizes)
    level = (64 * ea.EPS + 10 * noise) * (xp.max(sizes) if largest is None else largest)
    return xp.clip((sizes - level) / xp.where(level > 0, 99 * level, xp.ones_like(sizes)), 0.0, 1.0)


def faded(W: Array, noise: float, largest: Array | None = None) -> Array:
    """``P f R^T`` for ``W = P s R^T``, where f is 1 but fades to 0 for directions near the noise level: (1, w, k).

    Unlike the Q factor of a block without full rank, it is a continuous function of W.
    """
    left, s, right = ea.namespace(W).linalg.svd(W, full_matrices=False)
    return (left * fade(s, noise, largest)[:, None, :]) @ right
