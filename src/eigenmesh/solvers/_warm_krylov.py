"""Block Krylov from a nearly invariant space, such as the one of the previous batch of a stream."""

from dataclasses import dataclass, field
from typing import ClassVar, NamedTuple

import numpy as np

from eigenmesh import arrays as ea
from eigenmesh.arrays import Array, column_norms
from eigenmesh.certificate import Common
from eigenmesh.certificate._basis import Basis
from eigenmesh.certificate._bounds import Precision
from eigenmesh.certificate._krylov import asymmetry, leading_pairs, look_beyond, soft_polar
from eigenmesh.data import Covariance
from eigenmesh.data._covariance import BlockProducts
from eigenmesh.networks import Network
from eigenmesh.solvers._base import Traits
from eigenmesh.solvers._bases import fade, faded, fresh_directions
from eigenmesh.solvers._rayleigh_ritz import RayleighRitz

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
        Z, agreed = network.common_mean_and_worst(products.parts, xp.concat([own.report for own in state]))
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
