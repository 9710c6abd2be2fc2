"""How true an answer is, measured by the nodes themselves without knowing the truth.

All numbers of a certificate are agreed through ``network.worst``, so every node holds the same bits and takes the
same decision from them.
"""

from __future__ import annotations

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
from eigenmesh.certificate._held import Common, Held, held_apart, held_in_common
from eigenmesh.certificate._krylov import require_symmetric
from eigenmesh.certificate._loadings import loading_bounds, loading_residuals
from eigenmesh.certificate._look import LARGEST_CHANCE, NOTHING_BEYOND, Complement, Found
from eigenmesh.certificate._measured import Measured, digest_of
from eigenmesh.data import Covariance
from eigenmesh.data._gram import Gram
from eigenmesh.networks import Network


def certify(
    covariance: Covariance,
    network: Network,
    X: Array,
    *,
    common: Common | None = None,
    complement: Complement | None = None,
    beyond: Array | None = None,
    patient: bool = False,
    seed: int = 0,
    drawn: bool = False,
    total_variance: float = np.nan,
) -> Certified:
    """Measure how far X is from the eigenvectors; the bounds are in ``_bounds``, the look beyond K in ``_look``.

    Usually it takes two averages and a look: the average of all X is certified by its residual, and each node's own
    angle is at most that plus its distance from the average. Where all nodes hold the same X and C X already
    (``common``), each certifies its own, and nothing is sent but the maxima of what they found.

    Parameters
    ----------
    X : array of shape (nodes, d, K)
        Each node's estimate.
    common : Common or None
        What the solver knows at every node; it must be of this X, the same at all nodes held here.
    complement : Complement or None
        What an earlier call learnt of the eigenvalues beyond K; None to look.
    beyond : array of shape (nodes, d, p) or None
        Each node's estimates of further directions, from which a look of its own begins.
    patient : bool
        True if the solver will go on should its own look not be enough, so that no other one is needed yet.
    drawn : bool
        True if the seed was drawn at run time, so that no data could know it.
    total_variance : float
        The trace of C, which averages may give nodes with other last digits; all get the largest of them back.
    """
    eps, accuracy = float(ea.namespace(X).finfo(X.dtype).eps), network.average.accuracy
    if common is None or (common.vectors is None and isinstance(covariance, Gram)):
        held = held_apart(covariance, network, X, beyond)
    else:
        held = held_in_common(X, common, beyond)
    # What cancels inside a product is rounded in float64, whatever the product is stored in.
    here = Measured.of(held, covariance.rounding_size * float(np.finfo(np.float64).eps) / eps, total_variance)
    look = held.look

    def found(measured: Measured) -> Found:
        precision = Precision.of(eps, accuracy, network.n_nodes, abs(float(measured.values[0])), measured.size)
        numbers = (len(measured.values), float(measured.values[-1]), float(measured.ritz.total[0]))
        return Found(*numbers, multiplicity(measured.values, precision.resolution), *precision)

    # What this node sees beyond K rides along with what it measured.
    guess = NOTHING_BEYOND if look is None else look.examine(found(here))
    # Averages in integers are the same bits everywhere; what nodes make of them depends on their processors.
    digest = digest_of(held.mean) if network.integers and held.local is held.mean else np.zeros(0)
    measured, seen, alike = here.agreed(network, guess, digest, like=X)
    known = found(measured)
    require_symmetric(measured.defect, known.floor)
    if complement is not None and known.smallest - known.residual <= complement.upper:
        # The last component may belong to an eigenvalue beyond K, and one of the first K to none.
        complement = None
    if look is not None:
        seen = seen or agreed_complement(network, look, known, like=X)
        complement = seen if patient or seen.chance <= LARGEST_CHANCE else complement
    if complement is None:
        complement = probe_complement(covariance, network, held.mean, X.shape[0], known, seed, held.beyond)
    loadings = loading_residuals(covariance, network, held.coordinates, held.product, held.vectors)
    certificate = _certificate(network, measured, held, complement, known, drawn, loadings)
    return Certified(held.mean, ea.everywhere(held.local, X.shape[0]), certificate, complement, measured.total, alike)


def _certificate(
    network: Network,
    measured: Measured,
    held: Held,
    complement: Complement,
    found: Found,
    drawn: bool,
    loadings: np.ndarray | None,
) -> Certificate:
    values, residuals, floor = measured.values, measured.residuals, found.floor
    clusters = find_clusters(values, complement.shared, found.resolution)
    gaps = separation(values, residuals, complement, clusters)
    angles = np.minimum(residual_bounds(residuals + floor, gaps), ritz_bounds(measured.ritz, complement, floor))
    for cluster in clusters:
        members = list(cluster)
        angles[members] = residual_bounds(_span_residual(network, held, members) + floor, gaps[members])
    bounds = angles + measured.disagreement
    if loadings is not None:
        bounds = np.maximum(bounds, loading_bounds(values, loadings, gaps, clusters, floor, measured.disagreement))
    skewness, chance = float(measured.skewness.max()), max(complement.chance, network.chance)
    # Columns this far from orthogonal may be the same direction twice, and no residual would tell.
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


def _span_residual(network: Network, held: Held, members: list[int]) -> float:
    """``|C Q - Q (Q^T C Q)|`` for an orthonormal basis Q of the members' span, the largest over the nodes."""
    view = ritz_view(ea.to_numpy(held.coordinates)[..., members], ea.to_numpy(held.product)[..., members])
    return float(network.worst(ea.like(view.total, held.mean))[0, 0])
