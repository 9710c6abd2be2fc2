"""Block Krylov with thick restarts: exact on any split, in a handful of averages."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from functools import partial
from typing import ClassVar, NamedTuple, TypeAlias

import numpy as np

from eigenmesh import arrays as ea
from eigenmesh.arrays import Array, column_norms
from eigenmesh.certificate import (
    ROUNDING,
    Basis,
    Common,
    Precision,
    asymmetry,
    bordered,
    leading_pairs,
    look_beyond,
    own_signs,
    soft_polar,
)
from eigenmesh.data import BlockProducts, Covariance
from eigenmesh.networks import Network
from eigenmesh.solvers.base import (
    RayleighRitz,
    Traits,
    Watch,
    fade,
    faded,
    fresh_directions,
    gaussian_coefficients,
    require_count,
    write_widened,
)

# Default width of the basis, in blocks: USUAL_BLOCKS, or as many as fit into BASIS_BYTES, but at least FEWEST_BLOCKS.
USUAL_BLOCKS, FEWEST_BLOCKS, BASIS_BYTES = 20, 4, 2**30
# A basis and its next block that take more than LARGE_BYTES are halved, to no fewer than NARROW_BLOCKS blocks, once the
# certificate has looked beyond the components. That look costs an exchange; it usually succeeds once the sines of the
# components are below SURE_SINE.
LARGE_BYTES, NARROW_BLOCKS, SURE_SINE = 12 * 2**20, 3, 2e-3
# Random columns next to a start that the user gave: with fewer, the certificate would need many more products.
BESIDE_GIVEN = 12


class BlockKrylovState(NamedTuple):
    """A growing basis, computed from one copy of each average; ``n_nodes`` nodes in this process share it."""

    k: int  # K; the block has b = K + oversample columns, or d
    n_nodes: int  # nodes that share this copy
    V: Basis  # (1, d, w), and behind it in memory the next block B (1, d, b); processes differ in the last digits only
    whitening: Array  # (1, b, b) H, where B H has orthonormal or zero columns
    T: Array  # (1, w, w) V^T C V
    leak: Array  # (1, b, b) the part of C times the last block of V that lies along B H
    lost: Array  # (1, 1) norm of the part of C V outside both V and B
    ritz: Array  # (1, w, b) leading Ritz vectors, in the basis V
    report: Array  # (1, 2, b) Ritz values and residuals, which travel with the next average
    agreed: np.ndarray  # (2, b) the report of one step ago, as all nodes agreed on it
    before: np.ndarray  # (2, b) the report of two steps ago
    resolution: float  # eigenvalues closer than this, relative to the largest, count as equal
    start: Array  # (1, b, s) Gaussian columns, in the basis of the first block
    size: Array  # (1, 1) largest norm of a product C_i b with a column b of a block, over the nodes in this process
    most: int  # widest V; a wider one is restarted
    products: int | None = 0  # products that V was built from; None after a restart, which loses the first block

    @property
    def B(self) -> Array:
        """The next block, (1, d, b)."""
        return self.V.next_block(self.whitening.shape[-2])


Copies: TypeAlias = tuple[BlockKrylovState, ...]


@dataclass(frozen=True)
class BlockKrylov(RayleighRitz):
    """Rayleigh-Ritz on the block Krylov space of C, built from exact network averages.

    With b = K + oversample columns, each step is one average of a (d, b) matrix::

        Z = mean(C_i B),  V <- [V, B],  B <- polar((I - V V^T) Z),

    and the eigenpairs of ``V^T C V`` give the estimates. C V leaves the span of V only through the product with its
    last block, so the residuals are known without another message; they travel with the next average. When V is wider
    than ``max_width``, its leading Ritz vectors, half as many, replace it in the same memory (thick restart); before
    that, the certificate uses V to look beyond the components.

    Processes whose averages differ in the last digits must still send the same block. So B is the polar factor, which
    unlike QR or the SVD has no freedom of sign or order. And where a block loses rank, directions of B at the level of
    those digits fade out continuously, because nodes could disagree on a sharp cut. What fades out of C V is counted as
    rounding error.

    Parameters
    ----------
    oversample : int
        Columns beyond K; they speed up convergence and show l_{K+1} to the certificate.
    max_width : int or None
        Columns of the widest basis, at least 3 (K + oversample). None: up to 20 blocks; for large d, only until the
        certificate has looked beyond the components.
    """

    oversample: int = 5
    max_width: int | None = None
    name: ClassVar[str] = "block-krylov"
    traits: ClassVar[Traits] = Traits(few_exchanges=True, integers=True, expected_products=12)

    def __post_init__(self) -> None:
        # With none the certificate could not see l_{K+1}.
        require_count("oversample", self.oversample)
        if self.max_width is not None:
            require_count("max_width", self.max_width, also="None")

    def columns(self, n_components: int, n_features: int) -> int:
        return min(n_components + self.oversample, n_features)

    def largest_message(self, n_components: int, n_features: int) -> int:
        # A (d, b) block, and with it the Ritz values and residuals, (2, b).
        return (n_features + 2) * min(n_components + max(self.oversample, BESIDE_GIVEN), n_features)

    def kept_numbers(self, n_components: int, n_features: int) -> int:
        return n_features * self._max_width(n_features, self.columns(n_components, n_features))

    def init(self, covariance: Covariance, network: Network, basis: Array, seed: int = 0) -> Copies:
        """One state for each copy of an average in this process."""
        return tuple(self._begun(network, basis, seed) for _ in range(network.copies))

    def _begun(self, network: Network, basis: Array, seed: int) -> BlockKrylovState:
        xp = ea.namespace(basis)
        _, d, k = basis.shape
        coefficients = gaussian_coefficients(ea.to_numpy(basis[0, ...]), seed)
        is_random = coefficients is not None
        width = min(k + (self.oversample if is_random else max(self.oversample, BESIDE_GIVEN)), d)
        most = self._max_width(d, width)
        V = Basis.empty(basis, min(most, USUAL_BLOCKS * width) + width)
        # Written directly into the memory of the basis, without a temporary array of that size.
        R = write_widened(V.next_block(width), basis[:1, ...], seed)
        start = R[:, :, k:]
        if coefficients is not None:
            start = xp.concat([R[:, :, :k] @ ea.like(coefficients[np.newaxis], basis), start], axis=-1)
        identity, zero = ea.like(np.eye(width)[np.newaxis], basis), xp.zeros_like(R[:, 0, :1])
        unknown = np.stack([np.zeros(width), np.full(width, np.inf)])
        report = ea.like(unknown[np.newaxis], basis)
        precision = Precision.of(network.average.accuracy, network.n_nodes, 1.0, 1.0)
        empty = V.whitening
        return BlockKrylovState(
            k=k,
            n_nodes=basis.shape[0] // network.copies,
            V=V,
            whitening=identity,
            T=empty,
            leak=identity[:, :, :0],
            lost=zero,
            ritz=empty,
            report=report,
            agreed=unknown,
            before=unknown,
            resolution=precision.resolution,
            start=start,
            size=zero,
            most=most,
        )

    def step(self, covariance: Covariance, network: Network, state: Copies) -> Copies:
        xp = ea.namespace(state[0].whitening)
        products = BlockProducts(covariance, xp.concat([own.B for own in state]), len(network.ids))
        Z, agreed = network.common_mean_and_maximum(products.parts, xp.concat([own.report for own in state]))
        size = network.size_of_products(products.norms, column_norms(Z))
        # Free them before the next block is made.
        del products
        numbers, accuracy = ea.to_numpy(agreed[0, ...]), network.average.accuracy
        places = [slice(at, at + 1) for at in range(len(state))]
        pairs = zip(state, places, strict=True)
        return tuple(_grown(own, Z[at, ...], numbers, size[at, ...], accuracy) for own, at in pairs)

    def narrowed(self, state: Copies) -> Copies:
        """Restart to half the width now, and keep that width, if the basis is large and was not restarted before."""
        return tuple(self._narrowed(own) for own in state)

    def _narrowed(self, state: BlockKrylovState) -> BlockKrylovState:
        width = state.V.width
        is_wide = width >= NARROW_BLOCKS * state.whitening.shape[-1] and self._is_large(state)
        return _restarted(state._replace(most=width)) if state.products is not None and is_wide else state

    def _max_width(self, d: int, block: int) -> int:
        if self.max_width is not None:
            return max(self.max_width, NARROW_BLOCKS * block)
        return min(USUAL_BLOCKS * block, max(FEWEST_BLOCKS * block, BASIS_BYTES // (d * ea.ITEM_BYTES)))

    def watch(self, covariance: Covariance, network: Network, state: Copies) -> Watch:
        watch, own = super().watch(covariance, network, state), state[0]
        b, width = own.whitening.shape[-1], own.V.width
        restarts_next = width + 2 * b > own.most
        may_be_narrowed = self._is_large(own) and (_is_near(watch) or width == NARROW_BLOCKS * b)
        return replace(watch, last_look=bool(own.products) and (restarts_next or may_be_narrowed))

    def _is_large(self, state: BlockKrylovState) -> bool:
        """Whether the basis and its next block take so much memory that halving it is worth an exchange."""
        buffer, width = state.V.buffer, state.V.width + state.whitening.shape[-1]
        return self.max_width is None and width * buffer.shape[-1] * ea.ITEM_BYTES > LARGE_BYTES

    def _components(self, state: BlockKrylovState) -> Array:
        if state.products == 0:
            return state.B[:, :, : state.k]
        components = state.V.times(self._aligned_ritz(state))
        components *= own_signs(components)
        return components

    def common(self, state: Copies) -> tuple[Common, ...] | None:
        """C U is known at every node, and so is a look beyond the components, until a restart loses the first block."""
        return None if state[0].products == 0 else tuple(self._common(own) for own in state)

    def _common(self, state: BlockKrylovState) -> Common:
        xp, T, leak = ea.namespace(state.T), state.T, state.leak
        (_, d), present, defect, look = state.V.buffer.shape[1:], state.V.present, asymmetry(T), None
        if state.products is not None:
            look = look_beyond(
                T,
                present,
                leak,
                float(state.lost[0, 0]),
                state.start,
                n_components=state.k,
                dimension=d,
                products=state.products,
            )
            defect = xp.maximum(defect, ea.like(np.array([[-np.min(look.values, initial=0.0)]]), defect))
        components = self._aligned_ritz(state)
        image = xp.concat([T @ components, leak @ components[:, -leak.shape[-1] :, :]], axis=-2)
        coordinates = xp.concat([components, xp.zeros_like(leak[:, :, : state.k])], axis=-2)
        # The part of C V outside V and B is missing in the image: count it as rounding error.
        size = state.size * state.V.width**0.5 + state.lost / (ROUNDING * ea.EPS)
        return Common(coordinates, image, size, defect, look, partial(_vectors, state), signed=True)


def _grown(state: BlockKrylovState, Z: Array, agreed: np.ndarray, size: Array, accuracy: float) -> BlockKrylovState:
    """The state with the average product Z of its block (1, d, b), and the report that all nodes agreed on."""
    xp = ea.namespace(Z)
    V, T, leak, lost, b = state.V, state.T, state.leak, state.lost, state.whitening.shape[-1]
    # An all-zero block means that the space is complete. Its product carries no information.
    grows = bool(xp.any(state.whitening != 0))
    if grows:
        V = V.grown(state.whitening)
    V = V.holding(Z)
    following = soft_polar(V, b, accuracy, recent=state.leak.shape[-1] + b if grows else None)
    if grows:
        T, leak = bordered(T, following.along @ state.whitening, leak), following.leak @ state.whitening
        lost = _hypot(lost, following.faded @ state.whitening)
    values, ritz = leading_pairs(T, V.present, b)
    # C V leaves the space only through its last columns, so this is |C u - theta u| without forming u.
    residuals = column_norms(leak @ ritz[:, -leak.shape[-1] :, :])[:, 0, :]
    grown = state._replace(
        V=V,
        whitening=following.whitening,
        T=T,
        leak=leak,
        lost=lost,
        ritz=ritz,
        report=xp.stack([values, residuals], axis=1),
        agreed=agreed,
        before=state.agreed,
        size=xp.maximum(state.size, size),
        products=None if state.products is None else state.products + 1,
    )
    return _restarted(grown) if V.width + b > grown.most else grown


def _vectors(state: BlockKrylovState, coordinates: Array) -> Array:
    """Vectors from their coordinates in V and in the next block: (1, w + b, k) -> (1, d, k)."""
    width = state.V.width
    return state.V.times(coordinates[:, :width, :]) + state.B @ (state.whitening @ coordinates[:, width:, :])


def _is_near(watch: Watch) -> bool:
    """Whether the components are accurate enough for a look beyond them, by numbers that all nodes agree on."""
    residual, gaps = watch.residual, watch.gaps
    return residual is not None and gaps is not None and bool(np.all(residual <= SURE_SINE * gaps))


def _restarted(state: BlockKrylovState) -> BlockKrylovState:
    """The basis replaced by half of its width in leading Ritz vectors; the next block stays the same."""
    b, V, T, leak = state.whitening.shape[-1], state.V, state.T, state.leak
    # With fewer vectors, more products would be needed to regain the lost accuracy.
    _, ritz = leading_pairs(T, V.present, max(1, state.most // (2 * b)) * b)
    small = ritz.mT @ T @ ritz
    # The Ritz vectors are eigenvectors of T only up to rounding, which is counted as lost.
    lost, leak = _hypot(state.lost, T @ ritz - ritz @ small), leak @ ritz[:, -leak.shape[-1] :, :]
    eye = ea.like(np.eye(ritz.shape[-1])[np.newaxis], T)
    return state._replace(V=V.recombined(ritz, b), T=small, leak=leak, lost=lost, ritz=eye[:, :, :b], products=None)


def _hypot(lost: Array, more: Array) -> Array:
    """``sqrt(lost^2 + |more|^2)``: (1, 1), (1, n, b) -> (1, 1)."""
    xp = ea.namespace(lost)
    return xp.sqrt(lost * lost + xp.sum(more * more, axis=(-2, -1))[:, None])


# Block Krylov from a nearly invariant space, such as the one of the previous batch of a stream.


# Gaussian columns next to the known space, from which the certificate bounds the chance that it missed a new direction.
GAUSSIAN_COLUMNS = 16
# Widest basis, in blocks. A wider one is cut to its leading Ritz vectors, and the certificate looks by itself.
MOST_BLOCKS = 20


class Known(NamedTuple):
    """An orthonormal basis (d, w) shared by all nodes, and its image under C, (d, w).

    norms : (nodes, 1, w) norms of ``C_i b`` for the columns b of the basis, at the nodes in this process.
    """

    basis: np.ndarray
    image: np.ndarray
    norms: np.ndarray


class WarmState(NamedTuple):
    """A space and its image, computed from one copy of each average; ``n_nodes`` nodes in this process share it."""

    k: int
    n_nodes: int  # nodes that share this copy
    V: Basis  # (1, d, w) orthonormal or zero columns, and behind them in memory the next block B (1, d, c)
    CV: Array  # (1, d, w) C V
    whitening: Array  # (1, c, c) H, where B H has orthonormal or zero columns
    T: Array  # (1, w, w) V^T C V
    leak: Array  # (1, w, w) the part of C V outside the space, in an orthonormal basis
    ritz: Array  # (1, w, b) leading Ritz vectors, in the basis V
    report: Array  # (1, 2, b) Ritz values and residuals, which travel with the next average
    agreed: np.ndarray  # (2, b) the report of one step ago, as all nodes agreed on it
    before: np.ndarray  # (2, b) the report of two steps ago
    resolution: float  # eigenvalues closer than this, relative to the largest, count as equal
    start: Array  # (1, d, s) Gaussian columns
    size: Array  # (1, 1) largest norm of a product C_i b with a column b of a block, over the nodes in this process
    products: int | None = 0  # products with the Gaussian columns; None once V has lost them


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

    known: Known = field(repr=False)
    oversample: int = 5
    name: ClassVar[str] = "block-krylov"
    traits: ClassVar[Traits] = Traits(few_exchanges=True, integers=True, expected_products=4)

    def columns(self, n_components: int, n_features: int) -> int:
        return min(n_components + self.oversample, n_features)

    def largest_message(self, n_components: int, n_features: int) -> int:
        return (n_features + 2) * min(self.columns(n_components, n_features) + GAUSSIAN_COLUMNS, n_features)

    def kept_numbers(self, n_components: int, n_features: int) -> int:
        # The widest basis and its image.
        return 2 * n_features * MOST_BLOCKS * self.columns(n_components, n_features)

    def init(self, covariance: Covariance, network: Network, basis: Array, seed: int = 0) -> tuple[WarmState, ...]:
        """One state for each copy of an average in this process."""
        return tuple(self._begun(network, basis, seed, slice(at, at + 1)) for at in range(network.copies))

    def _begun(self, network: Network, basis: Array, seed: int, copy: slice) -> WarmState:
        known, (_, d, k) = self.known, basis.shape
        b, w = self.columns(k, d), known.basis.shape[1]
        first, CV = (ea.like(part[np.newaxis], basis) for part in (known.basis, known.image))
        identity = ea.like(np.eye(w)[np.newaxis], basis)
        V = Basis.empty(first, w + 5 * (b + GAUSSIAN_COLUMNS)).holding(first).grown(identity)
        unknown = np.stack([np.zeros(b), np.full(b, np.inf)])
        precision = Precision.of(network.average.accuracy, network.n_nodes, 1.0, 1.0)
        # A block has no more than d columns.
        start = ea.like(fresh_directions(known.basis, w + min(GAUSSIAN_COLUMNS, d - b), seed)[np.newaxis], basis)
        norms = ea.like(known.norms, basis)
        size = network.size_of_products(norms if network.copies == 1 else norms[copy, ...], column_norms(CV))
        state = WarmState(
            k=k,
            n_nodes=basis.shape[0] // network.copies,
            V=V,
            CV=CV,
            # These five are placeholders: `_with_next_block` computes them from V and C V.
            whitening=identity,
            T=identity,
            leak=identity,
            ritz=identity[:, :, :b],
            report=identity[:, :2, :b],
            agreed=unknown,
            before=unknown,
            resolution=precision.resolution,
            start=start,
            size=size,
        )
        return self._with_next_block(network, state, b)

    def step(self, covariance: Covariance, network: Network, state: tuple[WarmState, ...]) -> tuple[WarmState, ...]:
        xp = ea.namespace(state[0].CV)
        blocks = xp.concat([own.V.next_block(own.whitening.shape[-2]) for own in state])
        products = BlockProducts(covariance, blocks, len(network.ids))
        Z, agreed = network.common_mean_and_maximum(products.parts, xp.concat([own.report for own in state]))
        size, numbers = network.size_of_products(products.norms, column_norms(Z)), ea.to_numpy(agreed[0, ...])
        places = [slice(at, at + 1) for at in range(len(state))]
        pairs = zip(state, places, strict=True)
        return tuple(self._grown(network, own, Z[at, ...], numbers, size[at, ...]) for own, at in pairs)

    def _grown(self, network: Network, state: WarmState, Z: Array, agreed: np.ndarray, size: Array) -> WarmState:
        """The state with the average product Z of its block, and the report that all nodes agreed on."""
        xp, V, CV = ea.namespace(Z), state.V, state.CV
        # An all-zero block means that the space is complete.
        if bool(xp.any(state.whitening != 0)):
            V, CV = V.grown(state.whitening), xp.concat([CV, Z @ state.whitening], axis=-1)
        grown = state._replace(
            V=V,
            CV=CV,
            agreed=agreed,
            before=state.agreed,
            size=xp.maximum(state.size, size),
            products=None if state.products is None else state.products + 1,
        )
        return self._with_next_block(network, grown, state.report.shape[-1])

    def _with_next_block(self, network: Network, state: WarmState, b: int) -> WarmState:
        """The state with estimates from V and C V, and the next block to multiply."""
        xp = ea.namespace(state.CV)
        V, CV, products = state.V, state.CV, state.products
        T = V.along(CV)
        values, ritz = leading_pairs(T, V.present, b)
        leak = xp.linalg.qr(CV - V.times(T)).R
        residuals = column_norms(leak @ ritz)[:, 0, :]
        if V.width + b + GAUSSIAN_COLUMNS > max(MOST_BLOCKS * b, state.start.shape[-1] + self.known.basis.shape[1] + b):
            first, eye = V.times(ritz), ea.like(np.eye(b)[np.newaxis], CV)
            V, CV, leak = Basis.empty(first, V.buffer.shape[-2]).holding(first).grown(eye), CV @ ritz, leak @ ritz
            T, ritz, products = ritz.mT @ T @ ritz, eye, None
        Z = CV @ self._directions(T, values, ritz, V.along(state.start), products, network.average.accuracy)
        if products == 0 and state.start.shape[-1]:
            # Scaled to one size, so that neither part is mistaken for rounding of the other.
            Z = xp.concat([Z / xp.max(column_norms(Z)), state.start / xp.max(column_norms(state.start))], axis=-1)
        V = V.holding(Z)
        following = soft_polar(V, Z.shape[-1], network.average.accuracy)
        return state._replace(
            V=V,
            CV=CV,
            whitening=following.whitening,
            T=T,
            leak=leak,
            ritz=ritz,
            report=xp.stack([values, residuals], axis=1),
            products=products,
        )

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

    def _components(self, state: WarmState) -> Array:
        return state.V.times(self._aligned_ritz(state))

    def common(self, state: tuple[WarmState, ...]) -> tuple[Common, ...]:
        """C U is known, and so is a look beyond the components, once the Gaussian columns have been multiplied."""
        return tuple(self._common(own) for own in state)

    def _common(self, state: WarmState) -> Common:
        xp, T, leak, components = ea.namespace(state.T), state.T, state.leak, self._aligned_ritz(state)
        defect, look = asymmetry(T), None
        if state.products:
            look = look_beyond(
                T,
                state.V.present,
                leak,
                0.0,
                state.V.along(state.start),
                n_components=state.k,
                dimension=state.CV.shape[-2],
                products=state.products,
            )
            defect = xp.maximum(defect, ea.like(np.array([[-np.min(look.values, initial=0.0)]]), defect))
        image = xp.concat([T @ components, leak @ components], axis=-2)
        coordinates = xp.concat([components, xp.zeros_like(leak @ components)], axis=-2)
        return Common(coordinates, image, state.size * state.V.width**0.5, defect, look)
