"""Block Krylov with thick restarts: exact on any split, in a handful of averages."""

from dataclasses import dataclass
from typing import ClassVar, NamedTuple

import numpy as np

from eigenmesh import arrays as ea
from eigenmesh.arrays import Array, column_norms
from eigenmesh.certificate import Common
from eigenmesh.certificate._bounds import Precision, gaps_from_ritz
from eigenmesh.certificate._krylov import asymmetry, columns_present, leading_pairs, look_beyond, soft_polar
from eigenmesh.data import Covariance
from eigenmesh.data._pooled import product_to_average
from eigenmesh.errors import InputError
from eigenmesh.networks import Network
from eigenmesh.solvers._base import Solver, Traits, Watch
from eigenmesh.solvers._bases import gaussian_start, widened

# Widest basis by default, in blocks, and the memory that it and its image may take in this process.
USUAL_BLOCKS, FEWEST_BLOCKS, BASIS_BYTES = 20, 4, 2**30
# Random columns beside a start that was given: with fewer, the certificate would need many products to be sure.
BESIDE_GIVEN = 12


class BlockKrylovState(NamedTuple):
    """A growing basis. All but the number of nodes is the same at every node, so there is one copy."""

    k: int  # K; the block has b = K + oversample columns, or d
    n_nodes: int  # nodes held here
    V: Array  # (1, d, w) orthonormal columns, or zero ones where a block had less than full rank
    CV: Array  # (1, d, w) C V
    B: Array  # (1, d, b) the next block, the same in all processes up to the accuracy of an average
    whitening: Array  # (1, b, b) B times it has orthonormal or zero columns
    T: Array  # (1, w, w) V^T C V
    leak: Array  # (1, b, b) what C times the last block of V has outside V, in an orthonormal basis
    ritz: Array  # (1, w, b) leading Ritz vectors, in the basis V
    report: Array  # (1, 2, b) Ritz values and residuals, to be agreed on with the next average
    agreed: np.ndarray  # (2, b) the same as all nodes saw them one step ago
    before: np.ndarray  # (2, b) two steps ago
    resolution: float  # eigenvalues this close, relative to the largest, are one
    start: Array  # (1, d, s) Gaussian columns in the first block
    size: Array  # (1, 1) largest norm of a product C_i b with a column of a block at the nodes held here
    products: int | None = 0  # that V was built from; None after a restart, when V has lost the first block


@dataclass(frozen=True)
class BlockKrylov(Solver):
    """Rayleigh-Ritz on the block Krylov space of C, built from exact network averages.

    With b = K + oversample columns, each step is one average of a (d, b) matrix::

        Z = mean(C_i B),  V <- [V, B],  CV <- [CV, Z],  B <- polar((I - V V^T) Z),

    and the eigenpairs of ``V^T C V`` give the estimates and, as C V is at hand, their residuals without any further
    message; these ride along with the next average. When V is wider than ``max_width`` it is replaced by its leading
    Ritz vectors (thick restart). B is the polar factor, which unlike QR or the SVD has no choice of signs or order, so
    processes whose averages differ in the last digits still send the same block; directions of B at the level of those
    digits are faded out instead of being cut, which deflates blocks that lose rank without any node deciding alone.

    Parameters
    ----------
    oversample : int
        Columns beyond K; they speed convergence and show l_{K+1} to the certificate.
    max_width : int or None
        Widest basis, at least 3 (K + oversample); None: as many as 20 blocks, fewer for large d.
    """

    oversample: int = 5
    max_width: int | None = None
    name: ClassVar[str] = "block-krylov"
    traits: ClassVar[Traits] = Traits(
        exact_averages=True, few_exchanges=True, averages_products=True, integers=True, expected_products=12
    )

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
        # The widest basis and its image.
        return 2 * n_features * self._max_width(n_features, self.columns(n_components, n_features))

    def init(self, covariance: Covariance, network: Network, basis: Array, seed: int = 0) -> BlockKrylovState:
        xp = ea.namespace(basis)
        n_nodes, d, k = basis.shape
        width, common = self.columns(k, d), ea.to_numpy(basis[0, ...])
        gaussian = gaussian_start(common, width, seed)
        if gaussian.shape[1] < width:
            width = min(k + max(self.oversample, BESIDE_GIVEN), d)
            gaussian = gaussian_start(common, width, seed)
        B = ea.like(widened(common, width, seed)[np.newaxis], basis)
        start = ea.like(gaussian[np.newaxis], basis)
        nothing = xp.zeros((1, d, 0), dtype=basis.dtype, device=basis.device)
        identity = ea.like(np.eye(width)[np.newaxis], basis)
        unknown = np.stack([np.zeros(width), np.full(width, np.inf)])
        report = ea.like(unknown[np.newaxis], basis)
        precision = Precision.of(float(xp.finfo(basis.dtype).eps), network.average.accuracy, network.n_nodes, 1.0, 1.0)
        size = xp.zeros((1, 1), dtype=basis.dtype, device=basis.device)
        # Until the first product the estimates are the start itself.
        small = xp.zeros((1, 0, 0), dtype=basis.dtype, device=basis.device)
        estimate = (small, xp.zeros_like(identity), small, report, unknown, unknown)
        return BlockKrylovState(k, n_nodes, nothing, nothing, B, identity, *estimate, precision.resolution, start, size)

    def step(self, covariance: Covariance, network: Network, state: BlockKrylovState) -> BlockKrylovState:
        xp = ea.namespace(state.B)
        product = product_to_average(covariance, state.B, state.n_nodes)
        Z, agreed = network.common_mean_and_worst(product, state.report)
        V, CV, T, b = state.V, state.CV, state.T, state.B.shape[-1]
        # A block with nothing new in it means that the space is full.
        grows = bool(xp.any(state.whitening != 0))
        if grows:
            V = xp.concat([V, state.B @ state.whitening], axis=-1)
            CV = xp.concat([CV, Z @ state.whitening], axis=-1)
        B, whitening, along, outside = soft_polar(Z, V, noise=network.average.accuracy)
        leak = state.leak
        if grows:
            T, leak = _bordered(T, along @ state.whitening), outside @ state.whitening
        values, ritz = leading_pairs(T, columns_present(V), b)
        # C V leaves the space through the last block alone, so this is |C u - theta u| without u.
        residuals = column_norms(leak @ ritz[:, -b:, :])[:, 0, :]
        products = None if state.products is None else state.products + 1
        if V.shape[-1] + b > self._max_width(B.shape[-2], b, ea.item_bytes(B)):
            V, CV, leak, products = V @ ritz, CV @ ritz, leak @ ritz[:, -b:, :], None
            T, ritz = ritz.mT @ T @ ritz, ea.like(np.eye(b)[np.newaxis], B)
        return state._replace(
            V=V,
            CV=CV,
            B=B,
            whitening=whitening,
            T=T,
            leak=leak,
            ritz=ritz,
            report=xp.stack([values, residuals], axis=1),
            agreed=ea.to_numpy(agreed[0, ...]),
            before=state.agreed,
            size=xp.maximum(state.size, network.size_of_products(column_norms(ea.held(product)))),
            products=products,
        )

    def _max_width(self, d: int, block: int, item_bytes: int = 8) -> int:
        if self.max_width is not None:
            return max(self.max_width, 3 * block)
        return min(USUAL_BLOCKS * block, max(FEWEST_BLOCKS * block, BASIS_BYTES // (2 * d * item_bytes)))

    def readout(self, state: BlockKrylovState) -> Array:
        start = state.B[:, :, : state.k]
        return ea.everywhere(state.V @ self._turned(state) if state.products != 0 else start, state.n_nodes)

    def common(self, state: BlockKrylovState) -> Common | None:
        """C U is at hand, and so is a look beyond the components, until a restart loses the first block."""
        if state.products == 0:
            return None
        d, width = state.V.shape[-2:]
        T = state.V.mT @ state.CV
        defect, look = asymmetry(T), None
        if state.products is not None:
            kept = (state.V, T, state.leak, state.start)
            look = look_beyond(*kept, found=state.k, room=d, products=state.products)
            negative = ea.like(np.array([[-np.min(look.values, initial=0.0)]]), defect)
            defect = ea.namespace(defect).maximum(defect, negative)
        return Common(state.CV @ self._turned(state), state.size * width**0.5, defect, look)

    def _turned(self, state: BlockKrylovState) -> Array:
        """K leading Ritz vectors in the basis V, in a frame that all nodes share where eigenvalues coincide."""
        ritz = state.ritz
        # Before anything is agreed on there are no eigenvalues to compare.
        if np.isfinite(state.agreed[1]).all():
            ritz = align_clusters(state.V, ritz, state.agreed[0], state.resolution)
        return ritz[:, :, : state.k]

    def watch(self, covariance: Covariance, network: Network, state: BlockKrylovState) -> Watch:
        """Residuals that came with the last average, carried forward by the rate at which they fall."""
        (values, residuals), k = state.agreed, state.k
        earlier = state.before[1]
        fall = np.divide(residuals, earlier, out=np.ones_like(residuals), where=np.isfinite(earlier) & (earlier > 0))
        forecast = residuals * np.clip(fall, 0.0, 1.0)
        if not np.isfinite(forecast).all():
            return Watch(state, np.full(k, np.inf), healthy=True, free=True)
        # The forecast says when to ask for a certificate, which measures.
        return Watch(state, forecast[:k], True, gaps_from_ritz(values, k), free=True)


def _bordered(T: Array, column: Array) -> Array:
    """A symmetric T with one more block: (1, w, w), its column (1, w + b, b) -> (1, w + b, w + b)."""
    xp = ea.namespace(T)
    above, corner = column[:, : T.shape[-1], :], column[:, T.shape[-1] :, :]
    return xp.concat([xp.concat([T, above.mT], axis=-2), xp.concat([above, corner], axis=-2)], axis=-1)


def align_clusters(V: Array, ritz: Array, values: np.ndarray, resolution: float) -> Array:
    """Turn vectors ``V ritz`` of eigenvalues that cannot be told apart towards a fixed frame: ritz (1, w, b).

    Inside such a group any rotation is as good, and rounding would pick a different one at each node.
    """
    apart = np.abs(np.diff(values)) > resolution * abs(values[0])
    groups = [g for g in np.split(np.arange(len(values)), np.flatnonzero(apart) + 1) if len(g) > 1]
    if not groups:
        return ritz
    frame = ea.like(np.random.default_rng(0).standard_normal((1, V.shape[-2], ritz.shape[-1])), V)
    overlap = ea.to_numpy(ritz.mT @ (V.mT @ frame))[0]
    turn = np.eye(len(values))
    for group in groups:
        inside = np.ix_(group, group)
        left, _, right = np.linalg.svd(overlap[inside])
        turn[inside] = left @ right
    return ritz @ ea.like(turn[np.newaxis], ritz)
