"""How true an answer is, measured by the nodes themselves without knowing the truth.

All numbers of a certificate are agreed through ``network.worst``: every node holds the same bits and decides the same.
"""

from dataclasses import dataclass

import numpy as np

from eigenmesh import arrays as ea
from eigenmesh.arrays import Array, column_norms, normalised
from eigenmesh.certificate import _bounds as bounds
from eigenmesh.certificate._complement import Complement, probe_complement
from eigenmesh.data import Covariance
from eigenmesh.networks import Network


@dataclass(frozen=True)
class Certificate:
    """Bounds on the angles between the components at every node and the true eigenvectors.

    Attributes
    ----------
    values : array of shape (K,)
        Ritz values theta_k = x_k^T C x_k, largest first.
    residuals : array of shape (K,)
        ``r_k = |C x_k - theta_k x_k|``, measured at the average X of all nodes.
    gaps : array of shape (K,)
        Distance from theta_k to the nearest other eigenvalue, less what is not known of that one; for a component in a
        cluster, of the cluster to the rest.
    error_bounds : array of shape (K,)
        Bound on sin(angle) at the worst node, at most ``r_k / gap_k + disagreement_k``; for a component in a cluster
        the angle is that to the eigenspace of the cluster.
    clusters : tuple of tuples of int
        Groups of components (counted from 0) whose eigenvalues are too close to tell apart at this precision: their
        span is certain, the vectors inside it are not.
    open_cluster : bool
        True if the last cluster goes on beyond component K, so that its span too is a choice.
    next_value : float
        Upper estimate of l_{K+1}, by a deflated Lanczos iteration; -inf if K = d.
    orthonormality : float
        Largest entry of ``|X^T X - I|``.
    disagreement : array of shape (K,)
        Largest sine of an angle between a node's component and the average one.
    """

    values: np.ndarray
    residuals: np.ndarray
    gaps: np.ndarray
    error_bounds: np.ndarray
    clusters: tuple[tuple[int, ...], ...]
    open_cluster: bool
    next_value: float
    orthonormality: float
    disagreement: np.ndarray

    def __repr__(self) -> str:
        return (
            f"Certificate(n_components={len(self.values)}, error_bound={self.error_bound:.2g}, "
            f"clusters={self.clusters}, warnings={len(self.warnings)})"
        )

    @property
    def error_bound(self) -> float:
        """Largest of the bounds on sin(angle)."""
        return float(np.max(self.error_bounds))

    @property
    def warnings(self) -> tuple[str, ...]:
        """What a reader of the components should know, in words."""
        notes = []
        for index, cluster in enumerate(self.clusters):
            names = ", ".join(str(k + 1) for k in cluster)
            if self.open_cluster and index == len(self.clusters) - 1:
                value, one = f"an eigenvalue (about {self.values[cluster[-1]]:.3g})", len(cluster) == 1
                belongs = f"component {names} belongs" if one else f"components {names} belong"
                choice = f"{'it is' if one else 'they are'} one choice out of many"
                notes.append(f"{belongs} to {value} that goes on beyond component {len(self.values)}: {choice}")
            else:
                certain = "their span is certain, the vectors inside it are not"
                notes.append(f"components {names} have eigenvalues too close to tell apart: {certain}")
        if self.next_value > self.values[-1] and not self.open_cluster:
            than = f"({self.next_value:.6g}) than component {len(self.values)} ({self.values[-1]:.6g})"
            notes.append(f"a direction outside the components has more variance {than}: they are not the leading ones")
        return tuple(notes)


@dataclass(frozen=True)
class Certified:
    """Components in the order and signs that all nodes share, with their certificate.

    common : (1, d, K), the average over all nodes; local : (nodes, d, K), each node's own estimate; complement : what
    was learnt of the spectrum beyond K, to be reused.
    """

    common: Array
    local: Array
    certificate: Certificate
    complement: Complement


def certify(
    covariance: Covariance,
    network: Network,
    X: Array,
    *,
    tol: float,
    complement: Complement | None = None,
    seed: int = 0,
) -> Certified:
    """Measure how far X, (nodes, d, K), is from the eigenvectors: two averages and, the first time, a look beyond K.

    The average of all X is certified by its residual (the bounds are in ``_bounds``); each node's own angle is at most
    that plus its distance from the average. ``tol``, the angle that is asked for, says how far to look beyond K;
    ``complement`` is what an earlier call learnt of l_{K+1}, None to look.
    """
    local = agree_on_signs(network, normalised(X))
    common = normalised(network.common_mean(local))
    product = network.common_mean(covariance.apply(ea.everywhere(common, X.shape[0])))
    xp = ea.namespace(X)
    # `worst` gives every node the same bits, and so the same order.
    values = ea.to_numpy(network.worst(xp.sum(common * product, axis=-2))[0, ...]).astype(np.float64)
    order = np.argsort(-values, kind="stable")
    local, common, product = (_reordered(array, order) for array in (local, common, product))
    values = values[order]
    if complement is None:
        smallest = float(values[-1])
        complement = probe_complement(covariance, network, common, X.shape[0], smallest=smallest, tol=tol, seed=seed)
    return Certified(common, local, _certificate(network, values, local, common, product, complement), complement)


def agree_on_signs(network: Network, X: Array) -> Array:
    """Flip columns so that the entry at a row all nodes agree on is positive: (nodes, d, K) -> (nodes, d, K).

    The row is where a column is largest in modulus; where nodes see a near tie differently, the last such row
    is taken by all, and there every node's entry is far from zero.
    """
    xp = ea.namespace(X)
    rows = xp.astype(xp.argmax(xp.abs(X), axis=-2), X.dtype)
    agreed = ea.to_numpy(network.worst(rows)[0, ...]).astype(int)
    entries = xp.stack([X[:, int(row), k] for k, row in enumerate(agreed)], axis=1)
    signs = xp.where(entries < 0, -xp.ones_like(entries), xp.ones_like(entries))
    return X * signs[:, None, :]


def _reordered(array: Array, order: np.ndarray) -> Array:
    xp = ea.namespace(array)
    return xp.take(array, xp.asarray(order, device=array.device), axis=-1)


def _certificate(
    network: Network, values: np.ndarray, local: Array, common: Array, product: Array, complement: Complement
) -> Certificate:
    residuals, disagreement, skewness, ritz = _measure(network, local, common, product)
    eps, largest = float(ea.namespace(common).finfo(common.dtype).eps), abs(float(values[0]))
    floor = bounds.relative_floor(eps, network.average.accuracy) * largest
    resolution = bounds.relative_resolution(eps, network.average.accuracy) * largest
    clusters, is_open = bounds.find_clusters(values, complement, resolution)
    gaps = bounds.separation(values, residuals, complement, clusters, is_open)
    angles = np.minimum(bounds.residual_bounds(residuals + floor, gaps), bounds.ritz_bounds(ritz, complement, floor))
    for members in map(list, clusters):
        residual = _span_residual(network, common, product, members) + floor
        angles[members] = bounds.residual_bounds(residual, gaps[members])
    if len(values) * float(skewness.max()) > 0.5:
        # Columns this far from orthogonal may be the same direction twice, and no residual would tell.
        angles[:] = np.inf
    return Certificate(
        values=values,
        residuals=residuals,
        gaps=gaps,
        error_bounds=np.minimum(angles + disagreement, 1.0),
        clusters=clusters,
        open_cluster=is_open,
        next_value=complement.upper,
        orthonormality=float(skewness.max()),
        disagreement=disagreement,
    )


def _measure(
    network: Network, local: Array, common: Array, product: Array
) -> tuple[np.ndarray, np.ndarray, np.ndarray, bounds.RitzView]:
    """Residuals, disagreement and skewness of each component and the Ritz view, the largest over all nodes."""
    xp = ea.namespace(common)
    away = product - common * xp.sum(common * product, axis=-2, keepdims=True)
    across = local - common * xp.sum(local * common, axis=-2, keepdims=True)
    gram = common.mT @ common
    identity = xp.eye(gram.shape[-1], dtype=gram.dtype, device=gram.device)
    skewness = xp.max(xp.abs(gram - identity), axis=-1)
    ritz = bounds.ritz_view(ea.to_numpy(common), ea.to_numpy(product))
    total = np.broadcast_to(ritz.total, ritz.values.shape)
    seen = [ea.like(array, common) for array in (ritz.values, ritz.inside, ritz.outside, total)]
    apart = xp.max(column_norms(across)[:, 0, :], axis=0, keepdims=True)
    measured = xp.stack([column_norms(away)[:, 0, :], apart, skewness, *seen], axis=1)
    residuals, disagreement, skewness, *view = ea.to_numpy(network.worst(measured)[0, ...])
    return residuals, disagreement, skewness, bounds.RitzView(*view)


def _span_residual(network: Network, common: Array, product: Array, members: list[int]) -> float:
    """``|C Q - Q (Q^T C Q)|`` for an orthonormal basis Q of the members' span, the largest over the nodes."""
    view = bounds.ritz_view(ea.to_numpy(common)[..., members], ea.to_numpy(product)[..., members])
    return float(network.worst(ea.like(view.total, common))[0, 0])
