"""The certificate of a result, in numbers that every node agrees on."""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np

from eigenmesh import arrays as ea
from eigenmesh.arrays import Array
from eigenmesh.certificate.krylov import LARGEST_CHANCE, Complement
from eigenmesh.masking import Disclosure
from eigenmesh.networks import Network
from eigenmesh.words import html_paragraphs, html_table


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
        Lower bound of the distance from theta_k to the nearest other eigenvalue; for a component in a cluster, from the
        cluster to the rest of the spectrum.
    error_bounds : array of shape (K,)
        Bound on sin(angle) at the node farthest away, at most ``r_k / gap_k + disagreement_k``. For a component in a
        cluster the angle is that to the eigenspace of the cluster.
    clusters : tuple of tuples of int
        Groups of components (counted from 0) whose eigenvalues cannot be distinguished at this precision: their span is
        certain, the vectors inside it are not.
    open_cluster : bool
        True if the last cluster continues beyond component K, so that even its span is not unique.
    next_value : float
        Upper bound of l_{K+1}; -inf if K = d.
    chance : float
        Bound on the probability, over the random start, that a leading direction was missed or that the probes of a
        push sum overstated its accuracy. If one of the two is above 1e-9, nothing is certified.
    seed_drawn : bool
        True if all nodes together drew the seed at run time. Then the chance holds for all data; otherwise only for
        data that were not constructed with knowledge of the seed.
    orthonormality : float
        Largest entry of ``|X^T X - I|``.
    disagreement : array of shape (K,)
        Largest sine of an angle between a node's component and the average one. If all nodes compute the same
        components from the same averages, it is estimated from random projections.
    disclosure : Disclosure
        What all nodes learned about the pooled samples and about the samples of single nodes; after a masked run,
        ``words`` states it in sentences.
    """

    values: np.ndarray
    residuals: np.ndarray
    gaps: np.ndarray
    error_bounds: np.ndarray
    clusters: tuple[tuple[int, ...], ...]
    open_cluster: bool
    next_value: float
    chance: float
    orthonormality: float
    disagreement: np.ndarray
    seed_drawn: bool = False
    disclosure: Disclosure = field(default_factory=Disclosure)

    def __repr__(self) -> str:
        return (
            f"Certificate(n_components={len(self.values)}, error_bound={self.error_bound:.2g}, "
            f"chance={self.chance:.1g}, clusters={self.clusters}, warnings={len(self.warnings)})"
        )

    def _repr_html_(self) -> str:
        columns = ["component", "eigenvalue", "residual", "gap", "sin(angle) at most"]
        numbers = zip(self.values, self.residuals, self.gaps, self.error_bounds, strict=True)
        rows = [
            [str(k), f"{value:.6g}", f"{residual:.1e}", f"{gap:.2g}", f"{bound:.1e}"]
            for k, (value, residual, gap, bound) in enumerate(numbers, 1)
        ]
        return f"<div>{html_table(columns, rows)}{html_paragraphs([*self.words, *self.disclosure.words])}</div>"

    @property
    def words(self) -> list[str]:
        """What is known about the components, in sentences."""
        bound = self.error_bound
        return [
            f"The sine of the angle between a component at any node and the true one is at most {bound:.1e}.",
            f"The chance that a direction of larger variance was missed is at most {max(self.chance, 1e-300):.1e}.",
            *(f"{note[0].upper()}{note[1:]}." for note in self.warnings),
        ]

    @property
    def error_bound(self) -> float:
        """Largest of the bounds on sin(angle)."""
        return float(np.max(self.error_bounds))

    @property
    def warnings(self) -> tuple[str, ...]:
        """Caveats about the components, one phrase each."""
        notes: list[str] = []
        for index, cluster in enumerate(self.clusters):
            names = ", ".join(str(k + 1) for k in cluster)
            if self.open_cluster and index == len(self.clusters) - 1:
                value, one = f"an eigenvalue (about {self.values[cluster[-1]]:.3g})", len(cluster) == 1
                share = f"component {names} shares" if one else f"components {names} share"
                choice = f"{'it is' if one else 'they are'} one choice out of many"
                notes.append(f"{share} {value} with directions beyond component {len(self.values)}: {choice}")
            else:
                certain = "their span is certain, the vectors inside it are not"
                notes.append(f"components {names} have eigenvalues too close to tell apart: {certain}")
        if self.next_value > self.values[-1] and not self.open_cluster:
            than = f"({self.next_value:.6g}) than component {len(self.values)} ({self.values[-1]:.6g})"
            more = f"a direction outside the components has more variance {than}"
            notes.append(f"{more}: the components are not the leading ones")
        elif self.chance > LARGEST_CHANCE and self.error_bound >= 1:
            chance = f"{self.chance:.1g}, above {LARGEST_CHANCE:g}"
            notes.append(f"nothing is certified: the chance that a leading direction was missed is {chance}")
        return tuple(notes)


@dataclass(frozen=True)
class Certified:
    """Components in the order and signs that all nodes share, with their certificate.

    Attributes
    ----------
    common : array of shape (1, d, K)
        Average over all nodes.
    local : array of shape (nodes, d, K)
        Each node's own estimate.
    complement : Complement
        Bounds on the spectrum beyond K, for reuse in a later certificate.
    total_variance : float
        The trace of C, the same bits at every node. It is NaN if it was not given.
    alike : bool
        True if ``common`` is known to have the same bits at all nodes.
    """

    common: Array
    local: Array
    certificate: Certificate
    complement: Complement
    total_variance: float
    alike: bool = False


# One sign convention for all nodes: the largest entry of a component is positive.


def agree_on_signs(network: Network, X: Array) -> Array:
    """Flip columns so that the entry in one row, agreed on by all nodes, is positive: (nodes, d, K) -> (nodes, d, K).

    It is the row with the largest modulus in the column. On a near tie nodes may pick different rows. All take the last
    of them, where every node's entry is far from zero.
    """
    xp = ea.namespace(X)
    rows = xp.astype(xp.argmax(xp.abs(X), axis=-2), X.dtype)
    agreed = ea.to_numpy(network.maximum(rows)[0, ...]).astype(int)
    entries = xp.stack([X[:, int(row), k] for k, row in enumerate(agreed)], axis=1)
    return X * _signs(entries)


def own_signs(X: Array) -> Array:
    """Signs that make the largest entry of each column positive: (1, d, K) -> (1, 1, K).

    If several entries are the largest up to rounding, the first one counts, so that nodes whose last digits differ
    agree.
    """
    return _signs(ea.namespace(X).stack([_leading_entry(X[:, :, k]) for k in range(X.shape[-1])], axis=1))


def _leading_entry(column: Array) -> Array:
    """The first of the largest entries: (1, d) -> (1,)."""
    xp, sizes = ea.namespace(column), ea.namespace(column).abs(column)
    large = xp.astype(sizes >= 0.999 * xp.max(sizes), xp.int32)
    # An index on the device: a Python number would have to wait for the GPU.
    return xp.take(column, xp.argmax(large, axis=-1), axis=-1)[:, 0]


def _signs(entries: Array) -> Array:
    xp = ea.namespace(entries)
    return xp.where(entries < 0, -xp.ones_like(entries), xp.ones_like(entries))[:, None, :]
