"""Block Krylov with thick restarts: exact on any split, in a handful of averages."""

from dataclasses import dataclass
from typing import ClassVar, NamedTuple

import numpy as np

from eigenmesh import arrays as ea
from eigenmesh.arrays import Array, column_norms
from eigenmesh.certificate._bounds import complement_from_ritz, gaps_from_ritz, relative_resolution
from eigenmesh.certificate._krylov import rayleigh_ritz, soft_polar
from eigenmesh.data import Covariance
from eigenmesh.errors import InputError
from eigenmesh.networks import Network
from eigenmesh.solvers._base import Solver, Traits, Watch
from eigenmesh.solvers._bases import widened

# Widest basis by default, in blocks, and the memory that it and its image may take in this process.
USUAL_BLOCKS, FEWEST_BLOCKS, BASIS_BYTES = 12, 4, 2**30


class BlockKrylovState(NamedTuple):
    """A growing basis. All but the number of nodes is the same at every node, so there is one copy."""

    k: int  # K; the block has b = K + oversample columns, or d
    n_nodes: int  # nodes held here
    V: Array  # (1, d, w) orthonormal columns, or zero ones where a block had less than full rank
    CV: Array  # (1, d, w) C V
    B: Array  # (1, d, b) the next block, the same in all processes up to the accuracy of an average
    whitening: Array  # (1, b, b) B times it has orthonormal or zero columns
    U: Array  # (1, d, b) leading Ritz vectors
    CU: Array  # (1, d, b) C U
    report: Array  # (1, 2, b) Ritz values and residuals, to be agreed on with the next average
    agreed: np.ndarray  # (2, b) the same as all nodes saw them one step ago
    before: np.ndarray  # (2, b) two steps ago
    resolution: float  # eigenvalues this close, relative to the largest, are one


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
        Widest basis, at least 3 (K + oversample); None: as many as 12 blocks, fewer for large d.
    """

    oversample: int = 5
    max_width: int | None = None
    name: ClassVar[str] = "block-krylov"
    traits: ClassVar[Traits] = Traits(exact_averages=True, few_exchanges=True, expected_products=12)

    def __post_init__(self) -> None:
        if self.oversample < 1:
            raise InputError(f"oversample = {self.oversample} must be at least 1: the certificate needs l_(K+1).")
        if self.max_width is not None and self.max_width < 1:
            raise InputError(f"max_width = {self.max_width} must be at least 1.")

    def columns(self, n_components: int, n_features: int) -> int:
        return min(n_components + self.oversample, n_features)

    def largest_message(self, n_components: int, n_features: int) -> int:
        # A (d, b) block, and beside it the Ritz values and residuals, (2, b).
        return (n_features + 2) * self.columns(n_components, n_features)

    def kept_numbers(self, n_components: int, n_features: int) -> int:
        # The widest basis and its image.
        return 2 * n_features * self._max_width(n_features, self.columns(n_components, n_features))

    def init(self, covariance: Covariance, network: Network, basis: Array) -> BlockKrylovState:
        xp = ea.namespace(basis)
        n_nodes, d, k = basis.shape
        width = self.columns(k, d)
        B = ea.like(widened(ea.to_numpy(basis[0, ...]), width, seed=k)[np.newaxis], basis)
        nothing = xp.zeros((1, d, 0), dtype=basis.dtype, device=basis.device)
        identity = ea.like(np.eye(width)[np.newaxis], basis)
        unknown = np.stack([np.zeros(width), np.full(width, np.inf)])
        report = ea.like(unknown[np.newaxis], basis)
        resolution = relative_resolution(float(xp.finfo(basis.dtype).eps), network.average.accuracy)
        # Until the first product the estimates are the start itself.
        return BlockKrylovState(k, n_nodes, nothing, nothing, B, identity, B, B, report, unknown, unknown, resolution)

    def step(self, covariance: Covariance, network: Network, state: BlockKrylovState) -> BlockKrylovState:
        xp = ea.namespace(state.B)
        product = covariance.apply(ea.everywhere(state.B, state.n_nodes))
        Z, agreed = network.common_mean_and_worst(product, state.report)
        V, CV = state.V, state.CV
        # A block with nothing new in it means that the space is full.
        if bool(xp.any(state.whitening != 0)):
            V = xp.concat([V, state.B @ state.whitening], axis=-1)
            CV = xp.concat([CV, Z @ state.whitening], axis=-1)
        values, U, CU = rayleigh_ritz(V, CV, state.B.shape[-1])
        residuals = column_norms(CU - U * values[:, None, :])[:, 0, :]
        B, whitening = soft_polar(Z, V, noise=network.average.accuracy)
        if V.shape[-1] + B.shape[-1] > self._max_width(B.shape[-2], B.shape[-1], ea.item_bytes(B)):
            V, CV = U, CU
        report, seen = xp.stack([values, residuals], axis=1), ea.to_numpy(agreed[0, ...])
        return state._replace(
            V=V, CV=CV, B=B, whitening=whitening, U=U, CU=CU, report=report, agreed=seen, before=state.agreed
        )

    def _max_width(self, d: int, block: int, item_bytes: int = 8) -> int:
        if self.max_width is not None:
            return max(self.max_width, 3 * block)
        return min(USUAL_BLOCKS * block, max(FEWEST_BLOCKS * block, BASIS_BYTES // (2 * d * item_bytes)))

    def readout(self, state: BlockKrylovState) -> Array:
        """Leading Ritz vectors, in a frame that all nodes share where eigenvalues coincide."""
        vectors = state.U
        # Before anything is agreed on there are no eigenvalues to compare.
        if np.isfinite(state.agreed[1]).all():
            vectors = align_clusters(vectors, state.agreed[0], state.resolution)
        return ea.everywhere(vectors[:, :, : state.k], state.n_nodes)

    def watch(self, covariance: Covariance, network: Network, state: BlockKrylovState) -> Watch:
        """Residuals that came with the last average, carried forward by the rate at which they fall."""
        (values, residuals), k = state.agreed, state.k
        earlier = state.before[1]
        fall = np.divide(residuals, earlier, out=np.ones_like(residuals), where=np.isfinite(earlier) & (earlier > 0))
        forecast = residuals * np.clip(fall, 0.0, 1.0)
        if not np.isfinite(forecast).all():
            return Watch(state, np.full(k, np.inf), healthy=True, free=True)
        resolution = state.resolution * abs(float(values[0]))
        # The forecast says when to ask for a certificate; what vouches for it is measured.
        complement = complement_from_ritz(values, residuals, k, state.U.shape[-2], resolution)
        return Watch(state, forecast[:k], True, gaps_from_ritz(values, k), complement, free=True)


def align_clusters(U: Array, values: np.ndarray, resolution: float) -> Array:
    """Turn the vectors of eigenvalues that cannot be told apart towards a fixed frame: (nodes, d, b) -> (nodes, d, b).

    Inside such a group any rotation is as good, and rounding would pick a different one at each node.
    """
    apart = np.abs(np.diff(values)) > resolution * abs(values[0])
    groups = [g for g in np.split(np.arange(len(values)), np.flatnonzero(apart) + 1) if len(g) > 1]
    if not groups:
        return U
    xp = ea.namespace(U)
    columns = [U[:, :, k : k + 1] for k in range(U.shape[-1])]
    frame = np.random.default_rng(0).standard_normal((U.shape[-2], U.shape[-1]))
    for group in groups:
        vectors = U[:, :, int(group[0]) : int(group[-1]) + 1]
        left, _, right = xp.linalg.svd(vectors.mT @ ea.like(frame[:, group], U), full_matrices=False)
        turned = vectors @ (left @ right)
        for position, k in enumerate(group):
            columns[int(k)] = turned[:, :, position : position + 1]
    return xp.concat(columns, axis=-1)
