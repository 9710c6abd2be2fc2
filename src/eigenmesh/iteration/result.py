"""The result of a run, and how it is shown: as JSON, and as HTML in notebooks."""

from __future__ import annotations

from dataclasses import dataclass
from html import escape
from typing import Any

import numpy as np

from eigenmesh import arrays as ea
from eigenmesh.arrays import Array
from eigenmesh.certificate import Certificate
from eigenmesh.data import make_frame
from eigenmesh.events import CertificateInWords, Ended, Record
from eigenmesh.iteration.stopping import StopReason
from eigenmesh.networks import Traffic
from eigenmesh.words import html_paragraphs, html_table


@dataclass(frozen=True)
class Result:
    """Components at every node, with their certificate and their cost.

    Attributes
    ----------
    components : array of shape (K, d)
        The average over all nodes.
    node_components : array of shape (nodes, K, d)
        Each node's own estimate, in the same order and signs.
    explained_variance : array of shape (K,)
        Eigenvalues of the pooled covariance.
    traffic, traffic_by_phase : Traffic, dict of str to Traffic
        Everything that was sent, from set-up to certificate, as in the last record; and the same split by purpose.
    seed : int
        Seed of the start, with which the run can be repeated.
    total_variance, variance_left : float
        Trace of the pooled covariance, and the part that the components leave out; NaN if ``run`` was not given the
        trace.
    space : array of shape (d, w) or None
        Orthonormal columns to start a later fit from, if ``keep`` asked for them.
    alike : bool
        True if ``components`` is known to have the same bits at all nodes, which integer averages make possible.
    """

    solver: str
    components: np.ndarray
    node_components: np.ndarray
    explained_variance: np.ndarray
    certificate: Certificate
    stop_reason: StopReason
    iterations: int
    traffic: Traffic
    traffic_by_phase: dict[str, Traffic]
    history: tuple[Record, ...]
    n_nodes: int
    wall_s: float
    seed: int = 0
    total_variance: float = np.nan
    variance_left: float = np.nan
    space: np.ndarray | None = None
    alike: bool = False

    def __repr__(self) -> str:
        traffic, bound = self.traffic, self.certificate.error_bound
        return (
            f"Result(solver={self.solver!r}, n_components={len(self.explained_variance)}, n_nodes={self.n_nodes}, "
            f"converged={self.converged}, error_bound={bound:.2g}, rounds={traffic.rounds}, bytes={traffic.bytes})"
        )

    def _repr_html_(self) -> str:
        """Components with their bounds, the certificate in words, and what was sent in each phase."""
        certificate, total = self.certificate, self.total_variance
        state = "converged" if self.converged else f"not converged ({self.stop_reason.label})"
        title = f"{self.solver} on {self.n_nodes} nodes: {state} after {self.iterations} iterations"
        # Shares need the total variance, which a plain `run` may not have.
        known = not np.isnan(total)
        columns = ["component", "variance", *(["share"] if known else []), "sin(angle) at most"]
        components = [
            [str(k), f"{value:.6g}", *([f"{value / total:.2%}"] if known else []), f"{bound:.1e}"]
            for k, (value, bound) in enumerate(zip(self.explained_variance, certificate.error_bounds, strict=True), 1)
        ]
        words = [*certificate.words, *certificate.disclosure.words]
        if not self.converged:
            words.append(self.stop_reason.advice)
        phases = {**self.traffic_by_phase, "all": self.traffic}.items()
        sent = [[phase, str(spent.rounds), str(spent.messages), str(spent.bytes)] for phase, spent in phases]
        found, traffic = html_table(columns, components), html_table(["phase", "rounds", "messages", "bytes"], sent)
        return f"<div><p><b>{escape(title)}</b></p>{found}{html_paragraphs(words)}{traffic}</div>"

    @property
    def converged(self) -> bool:
        """True if the certificate reached the tolerance."""
        return self.stop_reason is StopReason.CONVERGED

    @property
    def history_frame(self) -> Any:
        """The history as a data frame: a row per record, with a column for each of its fields.

        The frame is of pandas, polars or pyarrow, the first of them that is installed.
        """
        return make_frame({name: np.array([getattr(one, name) for one in self.history]) for name in Record._fields})

    @property
    def ended(self) -> Ended:
        """The event that ends a fit with this result."""
        return Ended("done", self.converged, self.stop_reason.words)

    def certificate_words(self, tol: float) -> CertificateInWords:
        """What is known about the components, in sentences, for a fit with this ``tol``."""
        certificate = self.certificate
        verdict = "reached" if self.converged else "did not reach"
        return CertificateInWords(
            (
                f"The largest bound, {certificate.error_bound:.2g}, {verdict} tol = {tol:g}.",
                *certificate.words,
                *certificate.disclosure.words,
                f"The components of two nodes differ by at most {float(certificate.disagreement.max()):.2g}, and are "
                f"orthonormal to {certificate.orthonormality:.2g}.",
                f"Seed {self.seed}, {'drawn by all nodes at run time' if certificate.seed_drawn else 'as given'}.",
            )
        )

    def summary(self) -> dict[str, Any]:
        """Plain numbers and strings for a table or a JSON file."""
        certificate = self.certificate
        return {
            "solver": self.solver,
            "n_components": len(self.explained_variance),
            "nodes": self.n_nodes,
            "converged": self.converged,
            "stop_reason": self.stop_reason.label,
            "advice": self.stop_reason.advice,
            "iterations": self.iterations,
            "rounds": self.traffic.rounds,
            "messages": self.traffic.messages,
            "matrices": self.traffic.matrices,
            "bytes": self.traffic.bytes,
            "rounds_by_phase": {phase: spent.rounds for phase, spent in self.traffic_by_phase.items()},
            "residuals": certificate.residuals.tolist(),
            # JSON has no infinity; None means that there is no other eigenvalue.
            "gaps": [float(gap) if np.isfinite(gap) else None for gap in certificate.gaps],
            "error_bound": certificate.error_bound,
            "error_bounds": certificate.error_bounds.tolist(),
            "chance": certificate.chance,
            "seed": self.seed,
            "seed_drawn": certificate.seed_drawn,
            "clusters": [[k + 1 for k in cluster] for cluster in certificate.clusters],
            "orthonormality": certificate.orthonormality,
            "disagreement": float(certificate.disagreement.max()),
            "warnings": list(certificate.warnings),
            "privacy": certificate.disclosure.numbers(),
            "explained_variance": self.explained_variance.tolist(),
            "wall_s": self.wall_s,
        }


def by_rows(local: Array) -> np.ndarray:
    """Components as rows: (nodes, d, K) -> (nodes, K, d); one copy if the nodes share one."""
    rows = np.ascontiguousarray(np.swapaxes(ea.to_numpy(ea.held(local)), -1, -2))
    return np.broadcast_to(rows, (local.shape[0], *rows.shape[1:]))
