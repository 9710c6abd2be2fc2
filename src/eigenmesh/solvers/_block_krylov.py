"""Block Krylov with thick restarts: exact on any split, in a handful of averages."""

from dataclasses import dataclass, replace
from functools import partial
from typing import ClassVar, NamedTuple

import numpy as np

from eigenmesh import arrays as ea
from eigenmesh.arrays import Array, column_norms
from eigenmesh.certificate import Common
from eigenmesh.certificate._basis import Basis
from eigenmesh.certificate._bounds import ROUNDING, Precision
from eigenmesh.certificate._krylov import asymmetry, bordered, leading_pairs, look_beyond, soft_polar
from eigenmesh.certificate._signs import own_signs
from eigenmesh.data import Covariance
from eigenmesh.data._pooled import product_to_average
from eigenmesh.errors import InputError
from eigenmesh.networks import Network
from eigenmesh.solvers._base import Traits, Watch
from eigenmesh.solvers._bases import drawn_from, write_widened
from eigenmesh.solvers._rayleigh_ritz import RayleighRitz

# Widest basis by default, in blocks, and the memory that it may take in this process.
USUAL_BLOCKS, FEWEST_BLOCKS, BASIS_BYTES = 20, 4, 2**30
# A basis and its next block that take more are made narrow once the certificate has looked beyond the components, with
# so many blocks at least. To look takes an exchange, and is sure as a rule once components are known to such a sine.
LARGE_BYTES, NARROW_BLOCKS, SURE_SINE = 12 * 2**20, 3, 2e-3
# Random columns beside a start that was given: with fewer, the certificate would need many products to be sure.
BESIDE_GIVEN = 12


class BlockKrylovState(NamedTuple):
    """A growing basis. All but the number of nodes is the same at every node, so there is one copy."""

    k: int  # K; the block has b = K + oversample columns, or d
    n_nodes: int  # nodes held here
    V: Basis  # (1, d, w) columns; behind them lies the next block B (1, d, b), the same in all processes up to averages
    whitening: Array  # (1, b, b) B times it has orthonormal or zero columns
    T: Array  # (1, w, w) V^T C V
    leak: Array  # (1, b, b) what C times the last columns of V has outside V, along those of the next block
    lost: Array  # (1, 1) norm of what C V has outside of both
    ritz: Array  # (1, w, b) leading Ritz vectors, in the basis V
    report: Array  # (1, 2, b) Ritz values and residuals, to be agreed on with the next average
    agreed: np.ndarray  # (2, b) the same as all nodes saw them one step ago
    before: np.ndarray  # (2, b) two steps ago
    resolution: float  # eigenvalues this close, relative to the largest, are one
    start: Array  # (1, b, s) Gaussian columns, in the basis of the first block
    size: Array  # (1, 1) largest norm of a product C_i b with a column of a block at the nodes held here
    most: int  # columns of V, beyond which it is restarted
    products: int | None = 0  # that V was built from; None after a restart, when V has lost the first block

    @property
    def B(self) -> Array:
        return self.V.following(self.whitening.shape[-2])


@dataclass(frozen=True)
class BlockKrylov(RayleighRitz):
    """Rayleigh-Ritz on the block Krylov space of C, built from exact network averages.

    With b = K + oversample columns, each step is one average of a (d, b) matrix::

        Z = mean(C_i B),  V <- [V, B],  B <- polar((I - V V^T) Z),

    and the eigenpairs of ``V^T C V`` give the estimates. C V is in the span of V but for what its last block adds to
    the next one, so their residuals are known without any further message; these ride along with the next average. When
    V is wider than ``max_width`` it is replaced by its leading Ritz vectors, half as many (thick restart), in the same
    memory; what it tells of directions beyond the components is certified before. B is the polar factor, which unlike
    QR or the SVD has no choice of signs or order, so processes whose averages differ in the last digits still send the
    same block; directions of B at the level of those digits are faded out instead of being cut, which deflates blocks
    that lose rank without any node deciding alone. What they had of C V counts as its rounding.

    Parameters
    ----------
    oversample : int
        Columns beyond K; they speed convergence and show l_{K+1} to the certificate.
    max_width : int or None
        Widest basis, at least 3 (K + oversample); None: as many as 20 blocks, fewer for large d: there it grows only
        until it has told enough of directions beyond the components.
    """

    oversample: int = 5
    max_width: int | None = None
    name: ClassVar[str] = "block-krylov"
    traits: ClassVar[Traits] = Traits(few_exchanges=True, averages_products=True, integers=True, expected_products=12)

    def __post_init__(self) -> None:
        if self.oversample < 1:
            raise InputError(f"oversample = {self.oversample} must be at least 1: the certificate needs l_(K+1).")
        if self.max_width is not None and self.max_width < 1:
            raise InputError(f"max_width = {self.max_width} must be at least 1.")

    def columns(self, n_components: int, n_features: int) -> int:
        return min(n_components + self.oversample, n_features)

    def largest_message(self, n_components: int, n_features: int) -> int:
        # A (d, b) block, and beside it the Ritz values and residuals, (2, b).
        return (n_features + 2) * min(n_components + max(self.oversample, BESIDE_GIVEN), n_features)

    def kept_numbers(self, n_components: int, n_features: int) -> int:
        return n_features * self._max_width(n_features, self.columns(n_components, n_features))

    def init(self, covariance: Covariance, network: Network, basis: Array, seed: int = 0) -> BlockKrylovState:
        xp = ea.namespace(basis)
        n_nodes, d, k = basis.shape
        drawn = drawn_from(ea.to_numpy(basis[0, ...]), seed)
        width = min(k + (self.oversample if drawn is not None else max(self.oversample, BESIDE_GIVEN)), d)
        most = self._max_width(d, width, ea.item_bytes(basis))
        V = Basis.empty(basis, min(most, USUAL_BLOCKS * width) + width)
        # In its place already: anything as large beside it would be memory that is never needed again.
        R = write_widened(V.following(width), basis[:1, ...], seed)
        start = R[:, :, k:]
        if drawn is not None:
            start = xp.concat([R[:, :, :k] @ ea.like(drawn[np.newaxis], basis), start], axis=-1)
        identity, zero = ea.like(np.eye(width)[np.newaxis], basis), xp.zeros_like(R[:, 0, :1])
        unknown = np.stack([np.zeros(width), np.full(width, np.inf)])
        report = ea.like(unknown[np.newaxis], basis)
        precision = Precision.of(float(xp.finfo(basis.dtype).eps), network.average.accuracy, network.n_nodes, 1.0, 1.0)
        # Until the first product the estimates are the start itself.
        small = V.whitening
        estimate = (small, identity[:, :, :0], zero, small, report, unknown, unknown)
        return BlockKrylovState(k, n_nodes, V, identity, *estimate, precision.resolution, start, zero, most)

    def step(self, covariance: Covariance, network: Network, state: BlockKrylovState) -> BlockKrylovState:
        xp = ea.namespace(state.whitening)
        # In its place already, like the start.
        room = state.V.after_next(state.whitening.shape[-1])
        product = product_to_average(covariance, state.B, state.n_nodes, room)
        norms = column_norms(ea.held(product))
        Z, agreed = network.common_mean_and_worst(product, state.report)
        size = xp.maximum(state.size, network.size_of_products(norms, column_norms(Z)))
        V, T, leak, lost, b = state.V, state.T, state.leak, state.lost, state.whitening.shape[-1]
        # A block with nothing new in it means that the space is full; what it is then says nothing of the product.
        grows = bool(xp.any(state.whitening != 0))
        if grows:
            V = V.grown(state.whitening)
        V = V.holding(Z)
        # As large as a block, and in the basis now.
        del product, Z
        following = soft_polar(V, b, network.average.accuracy, recent=state.leak.shape[-1] + b if grows else None)
        if grows:
            T, leak = bordered(T, following.along @ state.whitening, leak), following.leak @ state.whitening
            lost = _together(lost, following.faded @ state.whitening)
        values, ritz = leading_pairs(T, V.present, b)
        # C V leaves the space through the last columns alone, so this is |C u - theta u| without u.
        residuals = column_norms(leak @ ritz[:, -leak.shape[-1] :, :])[:, 0, :]
        grown = state._replace(
            V=V,
            whitening=following.whitening,
            T=T,
            leak=leak,
            lost=lost,
            ritz=ritz,
            report=xp.stack([values, residuals], axis=1),
            agreed=ea.to_numpy(agreed[0, ...]),
            before=state.agreed,
            size=size,
            products=None if state.products is None else state.products + 1,
        )
        return _restarted(grown) if V.width + b > grown.most else grown

    def narrowed(self, state: BlockKrylovState) -> BlockKrylovState:
        """No wider than it is now, and half as wide, if it is large and was not restarted before."""
        width = state.V.width
        narrow = state.products is None or width < NARROW_BLOCKS * state.whitening.shape[-1] or not self._large(state)
        return state if narrow else _restarted(state._replace(most=width))

    def _max_width(self, d: int, block: int, item_bytes: int = 8) -> int:
        if self.max_width is not None:
            return max(self.max_width, NARROW_BLOCKS * block)
        return min(USUAL_BLOCKS * block, max(FEWEST_BLOCKS * block, BASIS_BYTES // (d * item_bytes)))

    def watch(self, covariance: Covariance, network: Network, state: BlockKrylovState) -> Watch:
        watch, b, width = super().watch(covariance, network, state), state.whitening.shape[-1], state.V.width
        looks = width + 2 * b > state.most or (self._large(state) and (_is_near(watch) or width == NARROW_BLOCKS * b))
        return replace(watch, last_look=bool(state.products) and looks)

    def _large(self, state: BlockKrylovState) -> bool:
        """Whether the basis and its next block take so much memory that less of it is worth an exchange."""
        room, width = state.V.room, state.V.width + state.whitening.shape[-1]
        return self.max_width is None and width * room.shape[-1] * ea.item_bytes(room) > LARGE_BYTES

    def readout(self, state: BlockKrylovState) -> Array:
        if state.products == 0:
            return ea.everywhere(state.B[:, :, : state.k], state.n_nodes)
        found = state.V.times(self._turned(state))
        found *= own_signs(found)
        return ea.everywhere(found, state.n_nodes)

    def common(self, state: BlockKrylovState) -> Common | None:
        """C U is at hand, and so is a look beyond the components, until a restart loses the first block."""
        if state.products == 0:
            return None
        xp, T, leak = ea.namespace(state.T), state.T, state.leak
        (_, d), present, defect, look = state.V.room.shape[1:], state.V.present, asymmetry(T), None
        if state.products is not None:
            kept = (T, present, leak, float(state.lost[0, 0]), state.start)
            look = look_beyond(*kept, found=state.k, room=d, products=state.products)
            defect = xp.maximum(defect, ea.like(np.array([[-np.min(look.values, initial=0.0)]]), defect))
        turned = self._turned(state)
        image = xp.concat([T @ turned, leak @ turned[:, -leak.shape[-1] :, :]], axis=-2)
        found = xp.concat([turned, xp.zeros_like(leak[:, :, : state.k])], axis=-2)
        # What is not in the image counts as rounding.
        size = state.size * state.V.width**0.5 + state.lost / (ROUNDING * float(xp.finfo(T.dtype).eps))
        return Common(found, image, size, defect, look, partial(_vectors, state), signed=True)


def _vectors(state: BlockKrylovState, found: Array) -> Array:
    """What has these coordinates in V and in the next block behind it: (1, w + b, k) -> (1, d, k)."""
    width = state.V.width
    return state.V.times(found[:, :width, :]) + state.B @ (state.whitening @ found[:, width:, :])


def _is_near(watch: Watch) -> bool:
    """Whether components are so well known that the basis tells what is beyond them, as far as all nodes know."""
    residual, gaps = watch.residual, watch.gaps
    return residual is not None and gaps is not None and bool(np.all(residual <= SURE_SINE * gaps))


def _restarted(state: BlockKrylovState) -> BlockKrylovState:
    """The basis replaced by its leading Ritz vectors, half as many as it may have, before the same next block."""
    b, V, T, leak = state.whitening.shape[-1], state.V, state.T, state.leak
    # A smaller part would take more products until it is as good again.
    _, ritz = leading_pairs(T, V.present, max(1, state.most // (2 * b)) * b)
    small = ritz.mT @ T @ ritz
    # Eigenvectors of T up to rounding.
    lost, leak = _together(state.lost, T @ ritz - ritz @ small), leak @ ritz[:, -leak.shape[-1] :, :]
    eye = ea.like(np.eye(ritz.shape[-1])[np.newaxis], T)
    return state._replace(V=V.turned(ritz, b), T=small, leak=leak, lost=lost, ritz=eye[:, :, :b], products=None)


def _together(lost: Array, more: Array) -> Array:
    """Norm of two parts, of which one is given by its norm: (1, 1), (1, n, b) -> (1, 1)."""
    xp = ea.namespace(lost)
    return xp.sqrt(lost * lost + xp.sum(more * more, axis=(-2, -1))[:, None])
