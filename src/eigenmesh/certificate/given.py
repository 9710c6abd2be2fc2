"""Certify components that came from elsewhere: their angles to components with a certificate, plus its bounds."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from eigenmesh.certificate.certificate import Certificate
from eigenmesh.words import html_paragraphs, html_table

# Lengths, cosines and means that differ by less are rounding of the tool that wrote them.
ROUNDED = 1e-5
# A component is called another one if more than this share of its squared length lies along that.
NEARLY = 0.5


@dataclass(frozen=True)
class GivenComponents:
    """What is certain about components that were given, compared with the true ones.

    Attributes
    ----------
    error_bounds : array of shape (K,)
        Bound on sin(angle) between each given component and the true one of the same number, whatever its length and
        sign. Where eigenvalues cannot be told apart, it is the angle to the eigenspace of their cluster.
    nearest : tuple of int or None
        The true component, counted from 0, that each is nearest to; None if it is near none of those that were found.
    span_bound : float
        Bound on the sine of the largest angle between the span of all given components and that of the true ones.
    lengths : array of shape (K,)
        Their lengths. Only directions are compared.
    cosine : float
        Largest cosine of the angle between two of them, which is 0 for components.
    mean_distance : float or None
        Distance of the given mean from the pooled mean, relative to the square root of the total variance.
    certificate : Certificate
        That of the components which they were compared with, a few more than K.
    """

    error_bounds: np.ndarray
    nearest: tuple[int | None, ...]
    span_bound: float
    lengths: np.ndarray
    cosine: float
    mean_distance: float | None
    certificate: Certificate

    @classmethod
    def compare(
        cls, given: np.ndarray, found: np.ndarray, certificate: Certificate, mean_distance: float | None = None
    ) -> GivenComponents:
        """Bound the angles of rows to the true components.

        Parameters
        ----------
        given : array of shape (K, d)
            Components of any lengths and signs.
        found : array of shape (K + more, d)
            Components with a certificate, at least as many.
        certificate : Certificate
            The certificate of ``found``.
        mean_distance : float or None
            Distance of a given mean from the pooled mean, if one was given.
        """
        k = len(given)
        lengths = np.linalg.norm(given, axis=1)
        units = given / lengths[:, np.newaxis]
        among = np.abs(units @ units.T - np.eye(k))
        overlaps = (units @ found.T) ** 2
        rounding = 8 * np.finfo(float).eps * np.sqrt(given.shape[1])
        nearest = tuple(int(row.argmax()) if row.max() > NEARLY else None for row in overlaps)
        own = [list(next((c for c in certificate.clusters if j in c), (j,))) for j in range(k)]
        bounds = [_sine(units[[j]], found[own[j]], certificate.error_bounds[own[j]]) for j in range(k)]
        together = _sine(units, found[:k], certificate.error_bounds[:k])
        # The span of the leading K is not unique if a cluster goes on beyond it.
        cut = any(max(cluster) >= k for cluster in own)
        return cls(
            error_bounds=np.minimum(np.array(bounds) + rounding, 1.0),
            nearest=nearest,
            span_bound=1.0 if cut else min(together + rounding, 1.0),
            lengths=lengths,
            cosine=float(among.max()),
            mean_distance=mean_distance,
            certificate=certificate,
        )

    @property
    def error_bound(self) -> float:
        """Largest of the bounds on sin(angle)."""
        return float(self.error_bounds.max())

    @property
    def rows(self) -> list[tuple[str, str, str]]:
        """For each component its number, its bound, and what it is nearest to."""
        clusters = {k: cluster for cluster in self.certificate.clusters for k in cluster}
        rows = []
        for k, (bound, nearest) in enumerate(zip(self.error_bounds, self.nearest, strict=True)):
            if nearest is None:
                what = f"none of the first {len(self.certificate.values)}"
            elif nearest in clusters.get(k, ()):
                what = f"the cluster {', '.join(str(j + 1) for j in clusters[k])}"
            else:
                what = f"component {nearest + 1}"
            rows.append((str(k + 1), f"{bound:.1e}", what))
        return rows

    @property
    def words(self) -> list[str]:
        """What is known about the given components, in sentences."""
        k = len(self.lengths)
        sentences = [
            "The sine of the angle between a given component and the true one of its number is at most "
            f"{self.error_bound:.1e}.",
            f"The chance that a direction of larger variance was missed is at most "
            f"{max(self.certificate.chance, 1e-300):.1e}.",
        ]
        if k > 1 and self.span_bound < 0.1 * self.error_bound:
            turned = "but are other directions in it, or in another order"
            sentences.append(f"Together they span the true space up to a sine of {self.span_bound:.1e}, {turned}.")
        if np.abs(self.lengths - 1).max() > ROUNDED:
            lengths = " to ".join(dict.fromkeys(f"{end:.3g}" for end in (self.lengths.min(), self.lengths.max())))
            sentences.append(f"They are no unit vectors (length {lengths}), so only their directions were compared.")
        if self.cosine > ROUNDED:
            sentences.append(f"They are not orthogonal to each other: the largest cosine is {self.cosine:.1e}.")
        if self.mean_distance is not None and self.mean_distance > ROUNDED:
            far = f"{self.mean_distance:.1e} of the standard deviation of all features together"
            sentences.append(f"The given mean is away from the pooled mean by {far}.")
        return sentences

    def _repr_html_(self) -> str:
        head = ["component", "sin(angle) at most", "nearest to"]
        return f"<div>{html_table(head, self.rows)}{html_paragraphs(self.words)}</div>"


def _sine(units: np.ndarray, found: np.ndarray, bounds: np.ndarray) -> float:
    """Bound on the sine of the largest angle between the span of unit vectors and the true one: (j, d), (k, d), (k,).

    It is the sine to the span of the components that were found, and that from there to the truth.
    """
    basis, axes = np.linalg.qr(units.T)[0], np.linalg.qr(found.T)[0]
    away = basis - axes @ (axes.T @ basis)
    return float(np.linalg.norm(away, 2) + np.linalg.norm(bounds))
