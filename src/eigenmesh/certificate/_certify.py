"""How true an answer is, measured by the nodes themselves without knowing the truth.

All numbers of a certificate are agreed through ``network.worst``, so every node holds the same bits and takes the
same decision from them.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from typing import NamedTuple

import numpy as np

from eigenmesh import arrays as ea
from eigenmesh.arrays import Array, column_norms, normalised
from eigenmesh.certificate._bounds import (
    Precision,
    RitzView,
    find_clusters,
    multiplicity,
    residual_bounds,
    ritz_bounds,
    ritz_view,
    separation,
)
from eigenmesh.certificate._certificate import Certificate, Certified
from eigenmesh.certificate._complement import agreed_complement, probe_complement
from eigenmesh.certificate._krylov import asymmetry, require_symmetric
from eigenmesh.certificate._loadings import loading_bounds, loading_residuals
from eigenmesh.certificate._look import LARGEST_CHANCE, NOTHING_BEYOND, Complement, Found, Look
from eigenmesh.certificate._signs import agree_on_signs, own_signs
from eigenmesh.data import Covariance
from eigenmesh.data._gram import Gram
from eigenmesh.data._pooled import product_to_average
from eigenmesh.networks import Network

# Random projections that show whether nodes hold the same components.
PROJECTIONS = 3
# Words of a digest, and their bytes: float32 holds 24 bits exactly.
DIGEST_WORDS, WORD_BYTES = 4, 3


class Common(NamedTuple):
    """What a solver knows whose nodes all work with the same averages.

    Attributes
    ----------
    coordinates, product : arrays of shape (1, n, K)
        The components and C times them, in any orthonormal basis that holds both.
    size : array of shape (1, 1)
        How large a product ``C_i b`` with a unit vector was at the nodes held here; its rounding is what these lack.
    defect : array of shape (1, 1)
        Largest asymmetry of ``V^T C V``, or size of its negative eigenvalues.
    look : Look or None
        A look beyond the components.
    vectors : callable or None
        What has these coordinates: (1, n, k) -> (1, d, k). Only split columns ask for it.
    """

    coordinates: Array
    product: Array
    size: Array
    defect: Array
    look: Look | None
    vectors: Callable[[Array], Array] | None = None


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
    xp = ea.namespace(X)
    eps, accuracy = float(xp.finfo(X.dtype).eps), network.average.accuracy
    if common is not None and common.vectors is None and isinstance(covariance, Gram):
        common = None
    if common is None:
        local, mean, product, largest, beyond = _averaged(covariance, network, X, beyond)
        coordinates, apart = mean, _apart(local, mean)
        defect = xp.maximum(
            asymmetry(mean.mT @ product), -xp.min(xp.sum(mean * product, axis=-2), axis=-1, keepdims=True)
        )
    else:
        # All nodes held here share one copy, which is measured once.
        signs = own_signs(X[:1, ...])
        local = mean = X[:1, ...] * signs
        coordinates, product = common.coordinates * signs, common.product * signs
        largest, defect, apart = common.size, common.defect, xp.zeros_like(signs[:, 0, :])
    # What cancels inside a product is rounded in float64, whatever the product is stored in.
    cancelled = covariance.rounding_size * float(np.finfo(np.float64).eps) / eps
    largest = xp.maximum(largest, xp.asarray(cancelled, dtype=X.dtype, device=X.device))
    total = xp.asarray([[total_variance]], dtype=X.dtype, device=X.device)
    here = _Measured.of(mean, coordinates, product, apart, xp.concat([largest, defect, total], axis=1))
    # Averages in integers are the same bits everywhere; what nodes make of them depends on their processors.
    digest = _digest(mean) if network.integers and common is not None else np.zeros(0)
    look = None if common is None else common.look

    def found(measured: _Measured) -> Found:
        precision = Precision.of(eps, accuracy, network.n_nodes, abs(float(measured.values[0])), measured.size)
        numbers = (len(measured.values), float(measured.values[-1]), float(measured.ritz.total[0]))
        return Found(*numbers, multiplicity(measured.values, precision.resolution), *precision)

    # What this node sees beyond K rides along with what it measured.
    guess = NOTHING_BEYOND if look is None else look.examine(found(here))
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
        complement = probe_complement(covariance, network, mean, X.shape[0], known, seed, beyond)
    vectors = None if common is None else common.vectors
    loadings = loading_residuals(covariance, network, coordinates, product, vectors)
    certificate = _certificate(network, measured, coordinates, product, complement, known, drawn, loadings)
    return Certified(mean, ea.everywhere(local, X.shape[0]), certificate, complement, measured.total, alike)


def _averaged(
    covariance: Covariance, network: Network, X: Array, beyond: Array | None
) -> tuple[Array, Array, Array, Array, Array | None]:
    """Estimates in shared signs and order, their average, C times it, and the largest product of a node held here.

    And the average of what is held beyond them.
    """
    xp, k = ea.namespace(X), X.shape[-1]
    local = agree_on_signs(network, normalised(X if beyond is None else xp.concat([X, beyond], axis=-1)))
    # Of unit vectors, so that the moduli of M nodes add up to M at most.
    mean = normalised(network.common_mean(local, float(network.n_nodes)))
    local, mean, further = local[..., :k], mean[..., :k], None if beyond is None else mean[..., k:]
    products = product_to_average(covariance, mean, X.shape[0])
    # `worst` gives every node the same bits, and so the same order.
    product, values = network.worst_after_mean(products, lambda product: (product, xp.sum(mean * product, axis=-2)))
    order = xp.asarray(np.argsort(-ea.to_numpy(values[0, ...]), kind="stable"), device=X.device)
    local, mean, product = (xp.take(array, order, axis=-1) for array in (local, mean, product))
    return local, mean, product, network.size_of_products(column_norms(products), column_norms(product)), further


def _apart(local: Array, mean: Array) -> Array:
    """Sines of the angles between estimates and their average, the largest of the nodes held here: (1, K)."""
    xp = ea.namespace(mean)
    across = local - mean * xp.sum(local * mean, axis=-2, keepdims=True)
    return xp.max(column_norms(across)[:, 0, :], axis=0, keepdims=True)


class _Measured(NamedTuple):
    """What a process measured, (K,) and numbers; or the largest of it over all nodes."""

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
    def of(cls, mean: Array, coordinates: Array, product: Array, apart: Array, numbers: Array) -> _Measured:
        xp = ea.namespace(mean)
        k = mean.shape[-1]
        values = xp.sum(coordinates * product, axis=-2)
        residuals = column_norms(product - coordinates * values[:, None, :])[:, 0, :]
        gram = mean.mT @ mean
        skewness = xp.max(xp.abs(gram - xp.eye(k, dtype=gram.dtype, device=gram.device)), axis=-1)
        frame = np.random.default_rng(0).standard_normal((1, mean.shape[-2], PROJECTIONS))
        shown = xp.reshape(ea.like(frame, mean).mT @ mean, (1, PROJECTIONS * k))
        row = ea.to_numpy(xp.concat([values, residuals, apart, skewness, numbers, shown], axis=1))[0]
        values, residuals, apart, skewness, own, shown = np.split(row.astype(np.float64), np.cumsum([k, k, k, k, 3]))
        ritz = RitzView(*(array[0] for array in ritz_view(ea.to_numpy(coordinates), ea.to_numpy(product))))
        size, defect, total = own.tolist()
        return cls(values, residuals, apart, skewness, ritz, size, defect, total, shown)

    @property
    def per_component(self) -> tuple[np.ndarray, ...]:
        return self.values, self.residuals, self.disagreement, self.skewness

    def agreed(
        self, network: Network, beyond: Complement, digest: np.ndarray, like: Array
    ) -> tuple[_Measured, Complement | None, bool]:
        """The largest over all nodes, in one exchange; of ``beyond`` too, unless nodes differ in what is shared.

        And whether all nodes have this digest of their components.
        """
        k = len(self.values)
        own = np.array([self.size, self.defect, self.total])
        mine = (*self.per_component, *self.ritz, own, self.projections, -self.projections, digest, -digest, beyond.row)
        row = ea.like(np.concatenate(mine)[np.newaxis], like)
        agreed = ea.to_numpy(network.worst(row)[0, ...]).astype(np.float64)
        sizes = [*[k] * 7, 1, 3, *[PROJECTIONS * k] * 2, *[len(digest)] * 2]
        values, residuals, apart, skewness, *parts = np.split(agreed, np.cumsum(sizes))
        ritz, (own, high, low, first, last, other) = RitzView(*parts[:4]), parts[4:]
        disagreement = np.maximum(apart, (high + low).reshape(PROJECTIONS, k).max(axis=0))
        # The order was settled before; in a cluster rounding may have left another one.
        ordered = np.sort(values)[::-1]
        size, defect, total = own.tolist()
        measured = _Measured(ordered, residuals, disagreement, skewness, ritz, size, defect, total, high)
        return measured, Complement.agreed(other), len(digest) > 0 and bool((first == -last).all())


def _digest(mean: Array) -> np.ndarray:
    """Words of a hash of the components, as numbers whose largest and smallest show whether all nodes have the same."""
    digest = hashlib.sha256(np.ascontiguousarray(ea.to_numpy(mean)).tobytes()).digest()
    words = (digest[WORD_BYTES * place : WORD_BYTES * (place + 1)] for place in range(DIGEST_WORDS))
    return np.array([float(int.from_bytes(word, "big")) for word in words])


def _certificate(
    network: Network,
    measured: _Measured,
    coordinates: Array,
    product: Array,
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
        angles[members] = residual_bounds(_span_residual(network, coordinates, product, members) + floor, gaps[members])
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


def _span_residual(network: Network, coordinates: Array, product: Array, members: list[int]) -> float:
    """``|C Q - Q (Q^T C Q)|`` for an orthonormal basis Q of the members' span, the largest over the nodes."""
    view = ritz_view(ea.to_numpy(coordinates)[..., members], ea.to_numpy(product)[..., members])
    return float(network.worst(ea.like(view.total, coordinates))[0, 0])
