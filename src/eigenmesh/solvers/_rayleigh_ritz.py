"""Base of the solvers that read components off a space whose product with C is known at every node."""

from abc import abstractmethod
from typing import Any

import numpy as np

from eigenmesh import arrays as ea
from eigenmesh.arrays import Array
from eigenmesh.certificate._basis import Basis
from eigenmesh.certificate._bounds import gaps_from_ritz
from eigenmesh.certificate._krylov import leading_pairs
from eigenmesh.data import Covariance
from eigenmesh.networks import Network
from eigenmesh.solvers._base import Solver, Watch
from eigenmesh.solvers._bases import in_fixed_frame, widened


class RayleighRitz(Solver):
    """A solver whose state has a basis V, ``T = V^T C V`` and the leading Ritz vectors in that basis.

    There is one such state for each copy of an average in this process (``network.copies``). It also has k and
    ``n_nodes``, the number of nodes that share it; the Ritz values and residuals (2, b) that all nodes agreed on one
    step ago (``agreed``) and two steps ago (``before``); and ``resolution``: eigenvalues closer than this, relative to
    the largest, count as equal.
    """

    @abstractmethod
    def _components(self, state: Any) -> Array:
        """Estimates of one copy: (1, d, K)."""

    def readout(self, state: Any) -> Array:
        pairs = [ea.everywhere(self._components(own), own.n_nodes) for own in state]
        return pairs[0] if len(pairs) == 1 else ea.namespace(pairs[0]).concat(pairs)

    def _aligned_ritz(self, state: Any) -> Array:
        """K leading Ritz vectors in the basis V; where eigenvalues coincide, turned to a frame that all nodes share."""
        ritz = state.ritz
        # Before the first agreement there are no eigenvalues to compare.
        if np.isfinite(state.agreed[1]).all():
            ritz = _align_clusters(state.V, ritz, state.agreed[0], state.resolution)
        return ritz[:, :, : state.k]

    def space(self, state: Any, width: int) -> Array:
        """Leading Ritz vectors; those without variance, which are rounding noise, are replaced by fixed directions."""
        own = state[0]
        width = min(width, own.V.width)
        values, ritz = leading_pairs(own.T, own.V.present, width)
        count = int(np.count_nonzero(ea.to_numpy(values > own.resolution * values[:, :1])))
        leading = ea.to_numpy(own.V.times(ritz[:, :, :count]))[0]
        return in_fixed_frame(ea.like(widened(leading, width, seed=0)[np.newaxis], ritz))

    def watch(self, covariance: Covariance, network: Network, state: Any) -> Watch:
        """Residuals that came with the last average, extrapolated by one step."""
        (values, residuals), k = state[0].agreed, state[0].k
        forecast = _forecast(residuals, state[0].before[1], least=ea.EPS * abs(values[0]))
        if forecast is None:
            return Watch(state, np.full(k, np.inf), healthy=True, free=True)
        # The forecast only decides when to ask for a certificate; the certificate measures the residuals.
        return Watch(state, forecast[:k], True, gaps_from_ritz(values, k), free=True)


def _forecast(residuals: np.ndarray, earlier: np.ndarray, least: float) -> np.ndarray | None:
    """Residuals of the next step if they fall at the same rate as in the last one: (b,); None if they are not known.

    No forecast is below ``least``: rounding errors fluctuate, and the smallest of them would look like progress.
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
