"""Certify components: bound their error without knowing the true eigenvectors.

All numbers of a certificate are agreed on through ``network.worst``, so every node has the same bits and takes the same
decisions.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import cycle

import numpy as np

from eigenmesh import arrays as ea
from eigenmesh.arrays import Array
from eigenmesh.certificate._bounds import (
    Precision,
    find_clusters,
    multiplicity,
    residual_bounds,
    ritz_bounds,
    ritz_view,
    separation,
)
from eigenmesh.certificate._certificate import Certificate, Certified
from eigenmesh.certificate._complement import agreed_complement, probe_complement
from eigenmesh.certificate._estimates import Common, Estimates, estimates_apart, estimates_in_common
from eigenmesh.certificate._krylov import require_symmetric
from eigenmesh.certificate._loadings import loading_bounds, loading_residuals
from eigenmesh.certificate._look import LARGEST_CHANCE, NOTHING_BEYOND, Complement, KnownComponents
from eigenmesh.certificate._measured import Measured, digest_of
from eigenmesh.data import Covariance
from eigenmesh.data._gram import Gram
from eigenmesh.networks import Network

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
    drawn: bool = False,
    total_variance: float = np.nan,
) -> Certified:
    """Measure how far X is from the eigenvectors; the bounds are in ``_bounds``, the look beyond K in ``_look``.

    In general this takes two averages and a look beyond K: the residual of the average X bounds its angle, and the
    angle of a node's own X is at most that plus its distance from the average. If all nodes already have the same X and
    C X (``common``), each node certifies its own copy, and only the maxima of the measured numbers are sent.

    Parameters
    ----------
    X : array of shape (nodes, d, K)
        Each node's estimate.
    common : sequence of Common or None
        What the solver knows at every node about this X, for each copy of an average in this process.
    complement : Complement or None
        Bounds on the eigenvalues beyond K from an earlier call; None to compute them.
    beyond : array of shape (nodes, d, p) or None
        Each node's estimates of further eigenvectors, which speed up the look beyond K.
    patient : bool
        True if the solver continues when its own look is not conclusive, so that no separate look is needed yet.
    drawn : bool
        True if the seed was drawn at run time, so that the data cannot depend on it.
    total_variance : float
        The trace of C. Its last digits may differ between nodes; the result has the maximum at every node.
    """
    if common is None or (common[0].vectors is None and isinstance(covariance, Gram)):
        estimates = estimates_apart(covariance, network, X, beyond)
    else:
        estimates = estimates_in_common(X, common, beyond)
    own = [Measured.of(one, covariance.rounding_size, total_variance) for one in estimates]
    # Read after the averages above: they may have been less accurate than earlier ones.
    looks, accuracy = [one.look for one in estimates if one.look is not None], network.average.accuracy

    def components_of(measured: Measured) -> KnownComponents:
        precision = Precision.of(accuracy, network.n_nodes, abs(float(measured.values[0])), measured.size)
        numbers = (len(measured.values), float(measured.values[-1]), float(measured.ritz.total[0]))
        return KnownComponents(*numbers, multiplicity(measured.values, precision.resolution), *precision)

    # The look beyond K by this node's own numbers travels in the same message as those numbers.
    pairs = zip(looks, own, strict=False)
    beyond_own = [look.examine(_mixing_close(components_of(one), one)) for look, one in pairs] or [NOTHING_BEYOND]
    # Integer averages have the same bits at all nodes, but what is computed from them depends on the processor.
    shares = network.integers and estimates[0].local is estimates[0].mean
    digest = digest_of(estimates[0].mean) if shares else np.zeros(0)
    rows = [one.row(seen, digest) for one, seen in zip(own, cycle(beyond_own), strict=False)]
    measured, from_look, alike = Measured.agreed_on(network, rows, X.shape[-1], len(digest), like=X)
    known = components_of(measured)
    if network.alike:
        require_symmetric(measured.defect, known.floor)
    else:
        # Nodes differ in the last digits of the blocks that they multiply, which makes C V inexact along directions
        # that are small in a block: the asymmetry of V^T C V shows by how much.
        uncertain = known.floor + measured.defect
        known = known._replace(floor=uncertain, resolution=max(known.resolution, uncertain))
    if complement is not None and known.smallest - known.residual <= complement.upper:
        # The last component may now belong to an eigenvalue beyond K, so the earlier bounds do not apply.
        complement = None
    if looks:
        from_look = from_look or agreed_complement(network, looks, _mixing_close(known, measured), like=X)
        complement = from_look if patient or from_look.chance <= LARGEST_CHANCE else complement
    if complement is None:
        basis, further = _in_one_copy(network, estimates)
        complement = probe_complement(covariance, network, basis, X.shape[0], known, seed, further)
    loadings = loading_residuals(covariance, network, estimates)
    certificate = _certificate(network, measured, estimates, complement, known, drawn, loadings)
    local = ea.everywhere(ea.namespace(X).concat([one.local for one in estimates]), X.shape[0])
    return Certified(estimates[0].mean, local, certificate, complement, measured.total, alike)


def _in_one_copy(network: Network, estimates: Sequence[Estimates]) -> tuple[Array, Array]:
    """Components (1, d, K) and estimates beyond them (1, d, p), with the same bits at all nodes."""
    xp, k = ea.namespace(estimates[0].mean), estimates[0].mean.shape[-1]
    wide = [one.mean if one.beyond is None else xp.concat([one.mean, one.beyond], axis=-1) for one in estimates]
    held = network.same_bits(xp.concat(wide))
    return held[..., :k], held[..., k:]


def _mixing_close(known: KnownComponents, measured: Measured) -> KnownComponents:
    """The components as seen by a look from the same start, which counts close eigenvalues as one.

    Components and look both lack the direction that the start has least of. It need not be an eigenvector: components
    whose residual is r cannot tell eigenvectors apart whose eigenvalues are within about r of each other, so any
    mixture of those may be the one that is missing.
    """
    spacing = max(known.resolution, known.residual / SHARE_OUTSIDE)
    return known._replace(multiplicity=multiplicity(measured.values, spacing))


def _certificate(
    network: Network,
    measured: Measured,
    estimates: Sequence[Estimates],
    complement: Complement,
    known: KnownComponents,
    drawn: bool,
    loadings: np.ndarray | None,
) -> Certificate:
    values, residuals, floor = measured.values, measured.residuals, known.floor
    clusters = find_clusters(values, complement.shared, known.resolution, measured.ritz.values)
    skewness = float(measured.skewness.max())
    gaps = separation(values, residuals, skewness, complement, clusters)
    angles = np.minimum(residual_bounds(residuals + floor, gaps), ritz_bounds(measured.ritz, complement, floor))
    for cluster in clusters:
        members = list(cluster)
        angles[members] = residual_bounds(_span_residual(network, estimates, members) + floor, gaps[members])
    bounds = angles + measured.disagreement
    if loadings is not None:
        bounds = np.maximum(bounds, loading_bounds(values, loadings, gaps, clusters, floor, measured.disagreement))
    chance = max(complement.chance, network.chance)
    # Columns this far from orthogonal may be one direction twice, which no residual shows.
    if len(values) * skewness > 0.5 or chance > LARGEST_CHANCE:
        bounds[:] = np.inf
    return Certificate(
        values=values,
        residuals=residuals,
        gaps=gaps,
        error_bounds=np.minimum(bounds, 1.0),
        clusters=clusters,
        open_cluster=complement.shared > 0,
        next_value=complement.upper,
        chance=complement.chance + network.chance,
        seed_drawn=drawn,
        orthonormality=skewness,
        disagreement=measured.disagreement,
    )


def _span_residual(network: Network, estimates: Sequence[Estimates], members: list[int]) -> float:
    """``|C Q - Q (Q^T C Q)|`` for an orthonormal basis Q of the members' span, maximum over the nodes."""
    pairs = [(ea.to_numpy(one.coordinates), ea.to_numpy(one.product)) for one in estimates]
    totals = [ritz_view(coordinates[..., members], product[..., members]).total for coordinates, product in pairs]
    return float(network.worst(ea.like(np.concatenate(totals), estimates[0].mean))[0, 0])
