"""Certify components: bound their error without knowing the true eigenvectors.

All numbers of a certificate are agreed on through ``network.maximum``, so every node has the same bits and takes the
same decisions.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Sequence
from itertools import cycle
from math import fsum, sqrt
from typing import NamedTuple

import numpy as np

from eigenmesh import arrays as ea
from eigenmesh.arrays import Array, column_norms, normalised
from eigenmesh.certificate import bounds, krylov
from eigenmesh.certificate.bounds import Clusters, Precision, RitzView, residual_bounds, ritz_bounds, ritz_view
from eigenmesh.certificate.certificate import Certificate, Certified, agree_on_signs, own_signs
from eigenmesh.certificate.complement import agreed_complement, probe_complement
from eigenmesh.certificate.krylov import Complement, ComplementSpace, KnownComponents
from eigenmesh.data import BlockProducts, Covariance, Gram
from eigenmesh.networks import Network

# The estimates to certify: one answer shared by all nodes, or each node's own answer and their average.


class Common(NamedTuple):
    """What a solver knows about its components if all its nodes work with the same averages.

    Attributes
    ----------
    coordinates, product : arrays of shape (1, n, K)
        The components and C times them, in any orthonormal basis that holds both.
    size : array of shape (1, 1)
        Largest norm of a product ``C_i b`` with a unit vector, over the nodes in this process. It sets the rounding
        error.
    defect : array of shape (1, 1)
        Largest asymmetry of ``V^T C V`` or size of its negative eigenvalues. Both are rounding if C is a covariance.
    complement_space : ComplementSpace or None
        A Krylov space in the orthogonal complement of the components.
    vectors : callable or None
        Vectors from coordinates: (1, n, k) -> (1, d, k). Needed only if columns are split over the nodes.
    signed : bool
        True if the largest entry of each component is already positive, so that no copy is needed.
    errors : array of shape (1, K) or None
        Bounds of the errors of the columns of the product, where it was sent in fewer bits than it has.
    """

    coordinates: Array
    product: Array
    size: Array
    defect: Array
    complement_space: ComplementSpace | None
    vectors: Callable[[Array], Array] | None = None
    signed: bool = False
    errors: Array | None = None


class Estimates(NamedTuple):
    """The estimates to certify from one copy of an average, in signs and order that all nodes share.

    Attributes
    ----------
    local : array of shape (nodes, d, K)
        Estimates of the nodes with this copy.
    mean : array of shape (1, d, K)
        The average of all nodes, which is the same array if they share one.
    disagreement : array of shape (1, K)
        Sines of the largest angles between the two.
    known : Common
        The average and C times it, in one basis.
    beyond : array of shape (1, d, p) or None
        Average estimates of further eigenvectors.
    """

    local: Array
    mean: Array
    disagreement: Array
    known: Common
    beyond: Array | None


def estimates_in_common(X: Array, common: Sequence[Common], beyond: Array | None) -> list[Estimates]:
    """What all nodes share, measured once for each copy. The signs of coordinates do not matter."""
    agree, estimates = ea.namespace(X).zeros_like(X[:1, 0, :]), []
    for at, known in enumerate(common):
        own = X[at : at + 1, ...]
        mean = own if known.signed else own * own_signs(own)
        estimates.append(Estimates(mean, mean, agree, known, None if beyond is None else beyond[at : at + 1, ...]))
    return estimates


def estimates_apart(covariance: Covariance, network: Network, X: Array, beyond: Array | None) -> Estimates:
    """Each node's own estimates and their average, by two averages: of X, and of C times the first average."""
    xp, k = ea.namespace(X), X.shape[-1]
    local = agree_on_signs(network, normalised(X if beyond is None else xp.concat([X, beyond], axis=-1)))
    # The columns are unit vectors, so the entries of M nodes add up to M at most.
    mean = normalised(network.shared_mean(local, float(network.n_nodes)))
    local, mean, further = local[..., :k], mean[..., :k], None if beyond is None else mean[..., k:]
    products = BlockProducts(covariance, mean, X.shape[0])
    product = network.shared_mean(products.parts)
    # `maximum` gives every node the same bits, hence the same order.
    values = network.maximum(xp.sum(mean * product, axis=-2))
    order = xp.asarray(np.argsort(-ea.to_numpy(values[0, ...]), kind="stable"), device=X.device)
    local, mean, product = (xp.take(array, order, axis=-1) for array in (local, mean, product))
    size = network.size_of_products(products.norms, column_norms(product))
    across = local - mean * xp.sum(local * mean, axis=-2, keepdims=True)
    disagreement = xp.max(column_norms(across)[:, 0, :], axis=0, keepdims=True)
    below_zero = -xp.min(xp.sum(mean * product, axis=-2), axis=-1, keepdims=True)
    defect = xp.maximum(krylov.asymmetry(mean.mT @ product), below_zero)
    return Estimates(local, mean, disagreement, Common(mean, product, size, defect, None), further)


# Numbers that a process measures on its components, and their maxima over all nodes.


# Random projections that show whether nodes hold the same components.
PROJECTIONS = 3
# Bytes of a digest.
DIGEST_BYTES = 24


class Measured(NamedTuple):
    """Measured numbers of one process, arrays (K,) and scalars; or their maxima over all nodes."""

    values: np.ndarray
    residuals: np.ndarray
    disagreement: np.ndarray
    skewness: np.ndarray
    ritz: RitzView
    size: float
    defect: float
    total: float
    projections: np.ndarray

    @classmethod
    def of(cls, estimates: Estimates, rounding_size: float, total_variance: float) -> Measured:
        """Measure the estimates; ``rounding_size`` is a lower bound for ``size``, from cancellation inside products."""
        mean, known = estimates.mean, estimates.known
        coordinates, product = known.coordinates, known.product
        xp, k = ea.namespace(mean), mean.shape[-1]
        values = xp.sum(coordinates * product, axis=-2)
        residuals = column_norms(product - coordinates * values[:, None, :])[:, 0, :]
        if known.errors is not None:
            residuals = residuals + known.errors
        gram = mean.mT @ mean
        skewness = xp.max(xp.abs(gram - xp.eye(k, dtype=gram.dtype, device=gram.device)), axis=-1)
        frame = np.random.default_rng(0).standard_normal((1, mean.shape[-2], PROJECTIONS))
        projections = xp.reshape(ea.like(frame, mean).mT @ mean, (1, PROJECTIONS * k))
        # One copy to the host for all of them.
        row = xp.concat(
            [values, residuals, estimates.disagreement, skewness, known.size, known.defect, projections], axis=1
        )
        parts = np.split(ea.to_numpy(row)[0], np.cumsum([k, k, k, k, 2]))
        values, residuals, disagreement, skewness, (size, defect), projections = parts
        off = None if known.errors is None else ea.to_numpy(known.errors)
        ritz = RitzView(*(array[0] for array in ritz_view(ea.to_numpy(coordinates), ea.to_numpy(product), off)))
        size = max(size, rounding_size)
        return cls(values, residuals, disagreement, skewness, ritz, size, defect, total_variance, projections)

    def row(self, beyond: Complement, digest: np.ndarray) -> np.ndarray:
        """Numbers whose maxima over the nodes all agree on, see ``agreed_on``."""
        own = np.array([self.size, self.defect, self.total])
        twice = (self.projections, -self.projections, digest, -digest)
        return np.concatenate([*self[:4], *self.ritz, own, *twice, beyond.row])

    @classmethod
    def agreed_on(
        cls, network: Network, rows: Sequence[np.ndarray], k: int, digest: int, like: Array
    ) -> tuple[Measured, Complement | None, bool]:
        """Maxima over all nodes in one exchange: of the numbers, and of ``beyond`` if nodes agree on ``shared``.

        ``rows`` : one for each copy of an average; ``digest`` : words of a digest. The last value is whether all nodes
        have the same digest of their components.
        """
        agreed = ea.to_numpy(network.maximum(ea.like(np.stack(rows), like))[0, ...])
        sizes = [*[k] * 7, 1, 3, *[PROJECTIONS * k] * 2, *[digest] * 2]
        values, residuals, from_mean, skewness, *parts = np.split(agreed, np.cumsum(sizes))
        ritz, (own, high, low, first, last, other) = RitzView(*parts[:4]), parts[4:]
        disagreement = np.maximum(from_mean, (high + low).reshape(PROJECTIONS, k).max(axis=0))
        # The components are in order already; only within a cluster may rounding have changed it.
        ordered = np.sort(values)[::-1]
        size, defect, total = own.tolist()
        measured = cls(ordered, residuals, disagreement, skewness, ritz, size, defect, total, high)
        return measured, Complement.agreed(other), digest > 0 and bool((first == -last).all())


def digest_of(mean: Array) -> np.ndarray:
    """Hash of the components as numbers: all nodes have the same bits if maxima and minima are equal."""
    digest = hashlib.sha256(np.ascontiguousarray(ea.to_numpy(mean)).tobytes()).digest()
    return ea.as_numbers(digest[:DIGEST_BYTES])


# Error bounds of loadings when columns are split over the nodes: each node has the loadings of its own columns.


def loading_residuals(covariance: Covariance, network: Network, estimates: Sequence[Estimates]) -> np.ndarray | None:
    """``|A^T r_k|`` by one average of K numbers, the same bits at all nodes: (K,); None unless columns are split."""
    if not isinstance(covariance, Gram):
        return None
    xp, sizes, units = ea.namespace(estimates[0].mean), [], []
    for one in (each.known for each in estimates):
        along = xp.sum(one.coordinates * one.product, axis=-2, keepdims=True)
        residual = one.product - one.coordinates * along
        sizes.append(column_norms(residual))
        unit = residual / xp.where(sizes[-1] > 0, sizes[-1], xp.ones_like(sizes[-1]))
        units.append(unit if one.vectors is None else one.vectors(unit))
    squares = covariance.squares_across(xp.concat(units))
    # The residuals are scaled to unit vectors, so the squares add up to M times the trace of G at most.
    bound = None if network.scales is None else network.n_nodes * network.scales.size
    largest = network.maximum(xp.concat(sizes)[:, 0, :] * xp.sqrt(network.common_mean(squares, bound)))
    return ea.to_numpy(largest[0, ...])


def loading_bounds(
    values: np.ndarray,
    projected: np.ndarray,
    gaps: np.ndarray,
    clusters: Clusters,
    floor: float,
    disagreement: np.ndarray,
) -> np.ndarray:
    """Bound on the angles of loadings ``v = A^T u / sqrt(theta)``, from ``|A^T r|`` of the residuals r of u: (K,).

    ``C v - theta v = A^T r / sqrt(theta)``, so the residual bound holds with this residual and the gaps of u. Errors of
    u grow by ``sqrt(theta_1 / theta)`` at most. A component without variance has no loadings.
    """
    has_variance = values > floor
    thetas = np.where(has_variance, values, 1.0)
    growth = np.sqrt(values[0] / thetas)
    residuals = projected / np.sqrt(thetas)
    for cluster in clusters:
        members = list(cluster)
        residuals[members] = sqrt(fsum(residuals[members] ** 2))
    angles = residual_bounds(residuals + growth * floor, gaps) + growth * disagreement
    return np.where(has_variance, angles, np.inf)


# A missing direction is a mixture of eigenvectors whose eigenvalues are within the residual divided by this share;
# eigenvectors farther away have no more than this share in it.
SHARE_OUTSIDE = 0.03


def certify(
    covariance: Covariance,
    network: Network,
    X: Array,
    *,
    common: Sequence[Common] | None = None,
    complement: Complement | None = None,
    beyond: Array | None = None,
    patient: bool = False,
    seed: int = 0,
    total_variance: float = np.nan,
) -> Certified:
    """Measure how far X is from the eigenvectors.

    In general this takes two averages and a search of the complement: the residual of the average X bounds its angle,
    and the angle of a node's own X is at most that plus its distance from the average. If all nodes already have the
    same X and C X (``common``), each node certifies its own copy, and only maxima of the measured numbers are sent.

    Parameters
    ----------
    X : array of shape (nodes, d, K)
        Each node's estimate.
    common : sequence of Common or None
        What the solver knows at every node about this X, for each copy of an average in this process.
    complement : Complement or None
        Bounds on the eigenvalues beyond K from an earlier call; None to compute them.
    beyond : array of shape (nodes, d, p) or None
        Each node's estimates of further eigenvectors, which speed up that search.
    patient : bool
        True if the solver continues when its own space is not conclusive, so that no separate search is needed yet.
    total_variance : float
        The trace of C. Its last digits may differ between nodes. The result has the maximum at every node.
    """
    if common is None or (common[0].vectors is None and isinstance(covariance, Gram)):
        estimates = [estimates_apart(covariance, network, X, beyond)]
    else:
        estimates = estimates_in_common(X, common, beyond)
    own = [Measured.of(one, covariance.rounding_size, total_variance) for one in estimates]
    # Read after the averages above: they may have been less accurate than earlier ones.
    spaces = [one.known.complement_space for one in estimates if one.known.complement_space is not None]
    accuracy = network.average.accuracy

    def components_of(measured: Measured) -> KnownComponents:
        precision = Precision.of(accuracy, network.n_nodes, abs(float(measured.values[0])), measured.size)
        numbers = (len(measured.values), float(measured.values[-1]), float(measured.ritz.total[0]))
        return KnownComponents(*numbers, bounds.multiplicity(measured.values, precision.resolution), *precision)

    # The bounds on the complement by this node's own numbers travels in the same message as those numbers.
    pairs = zip(spaces, own, strict=False)
    beyond_own = [space.examine(_mixing_close(components_of(one), one)) for space, one in pairs]
    # Integer averages have the same bits at all nodes, but what is computed from them depends on the processor.
    shares = network.integers and estimates[0].local is estimates[0].mean
    digest = digest_of(estimates[0].mean) if shares else np.zeros(0)
    seen = cycle(beyond_own or [krylov.NOTHING_BEYOND])
    rows = [one.row(beyond, digest) for one, beyond in zip(own, seen, strict=False)]
    measured, from_solver, alike = Measured.agreed_on(network, rows, X.shape[-1], len(digest), like=X)
    known = components_of(measured)
    if network.alike:
        krylov.require_symmetric(measured.defect, known.floor)
    else:
        # Nodes differ in the last digits of the blocks that they multiply, which makes C V inexact along directions
        # that are small in a block: the asymmetry of V^T C V shows by how much.
        uncertain = known.floor + measured.defect
        known = known._replace(floor=uncertain, resolution=max(known.resolution, uncertain))
    if complement is not None and known.smallest - known.residual <= complement.upper:
        # The last component may now belong to an eigenvalue beyond K, so the earlier bounds do not apply.
        complement = None
    if spaces:
        from_solver = from_solver or agreed_complement(network, spaces, _mixing_close(known, measured), like=X)
        complement = from_solver if patient or from_solver.chance <= krylov.LARGEST_CHANCE else complement
    if complement is None:
        basis, further = _in_one_copy(network, estimates)
        complement = probe_complement(covariance, network, basis, X.shape[0], known, seed, further)
    loadings = loading_residuals(covariance, network, estimates)
    certificate = _certificate(network, measured, estimates, complement, known, loadings)
    local = ea.everywhere(ea.namespace(X).concat([one.local for one in estimates]), X.shape[0])
    return Certified(estimates[0].mean, local, certificate, complement, measured.total, alike)


def _in_one_copy(network: Network, estimates: Sequence[Estimates]) -> tuple[Array, Array]:
    """Components (1, d, K) and estimates beyond them (1, d, p), with the same bits at all nodes."""
    xp, k = ea.namespace(estimates[0].mean), estimates[0].mean.shape[-1]
    wide = [one.mean if one.beyond is None else xp.concat([one.mean, one.beyond], axis=-1) for one in estimates]
    held = network.same_bits(xp.concat(wide))
    return held[..., :k], held[..., k:]


def _mixing_close(known: KnownComponents, measured: Measured) -> KnownComponents:
    """The components as seen by a space from the same start, which counts close eigenvalues as one.

    Components and space both lack the direction that the start has least of. It need not be an eigenvector: components
    whose residual is r cannot tell eigenvectors apart whose eigenvalues are within about r of each other, so any
    mixture of those may be the one that is missing.
    """
    spacing = max(known.resolution, known.residual / SHARE_OUTSIDE)
    return known._replace(multiplicity=bounds.multiplicity(measured.values, spacing))


def _certificate(
    network: Network,
    measured: Measured,
    estimates: Sequence[Estimates],
    complement: Complement,
    known: KnownComponents,
    loadings: np.ndarray | None,
) -> Certificate:
    values, residuals, floor = measured.values, measured.residuals, known.floor
    clusters = bounds.find_clusters(values, complement.shared, known.resolution, measured.ritz.values)
    skewness = float(measured.skewness.max())
    gaps = bounds.separation(values, residuals + floor, skewness, complement, clusters)
    by_residual, by_ritz = residual_bounds(residuals + floor, gaps), ritz_bounds(measured.ritz, complement, floor)
    angles = np.minimum(by_residual, by_ritz)
    for cluster in clusters:
        members = list(cluster)
        angles[members] = residual_bounds(_span_residual(network, estimates, members) + floor, gaps[members])
    largest = angles + measured.disagreement
    if loadings is not None:
        by_loadings = loading_bounds(values, loadings, gaps, clusters, floor, measured.disagreement)
        largest = np.maximum(largest, by_loadings)
    chance = max(complement.chance, network.chance)
    # Columns this far from orthogonal may be one direction twice, which no residual shows.
    if len(values) * skewness > 0.5 or chance > krylov.LARGEST_CHANCE:
        largest[:] = np.inf
    return Certificate(
        values=values,
        residuals=residuals,
        gaps=gaps,
        error_bounds=np.minimum(largest, 1.0),
        clusters=clusters,
        open_cluster=complement.shared > 0,
        next_value=complement.upper,
        chance=complement.chance + network.chance,
        orthonormality=skewness,
        disagreement=measured.disagreement,
    )


def _span_residual(network: Network, estimates: Sequence[Estimates], members: list[int]) -> float:
    """``|C Q - Q (Q^T C Q)|`` for an orthonormal basis Q of the members' span, maximum over the nodes."""
    known = [one.known for one in estimates]
    totals = []
    for one in known:
        off = None if one.errors is None else ea.to_numpy(one.errors)[..., members]
        view = ritz_view(ea.to_numpy(one.coordinates)[..., members], ea.to_numpy(one.product)[..., members], off)
        totals.append(view.total)
    return float(network.maximum(ea.like(np.concatenate(totals), estimates[0].mean))[0, 0])
