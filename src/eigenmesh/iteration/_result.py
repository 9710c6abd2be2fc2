"""What a run gives back."""

from dataclasses import dataclass
from typing import Any

import numpy as np

from eigenmesh.certificate._certify import Certificate
from eigenmesh.events import Ended, Record
from eigenmesh.iteration._html import result_html
from eigenmesh.iteration._stopping import StopReason
from eigenmesh.networks import Traffic


@dataclass(frozen=True)
class Result:
    """Components at every node, with their certificate and what they cost.

    Attributes
    ----------
    components : array of shape (K, d)
        The components that all nodes agree on.
    node_components : array of shape (nodes, K, d)
        Each node's own estimate, in the same order and signs.
    explained_variance : array of shape (K,)
        Eigenvalues of the pooled covariance.
    traffic : Traffic
        Everything that was sent, from set-up to certificate; the last record of the history says the same.
    traffic_by_phase : dict of str to Traffic
        The same split into what it was for.
    total_variance : float or None
        Trace of the pooled covariance, where it is known: after a fit, not after ``run`` alone.
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
    total_variance: float | None = None

    def __repr__(self) -> str:
        return (
            f"Result(solver={self.solver!r}, n_components={len(self.explained_variance)}, n_nodes={self.n_nodes}, "
            f"converged={self.converged}, error_bound={self.certificate.error_bound:.2g}, "
            f"rounds={self.traffic.rounds}, bytes={self.traffic.bytes})"
        )

    def _repr_html_(self) -> str:
        return result_html(self)

    @property
    def converged(self) -> bool:
        """True if the certificate reached the tolerance."""
        return self.stop_reason is StopReason.CONVERGED

    @property
    def ended(self) -> Ended:
        """The event that ends a fit with this result."""
        return Ended("done", self.converged, self.stop_reason.label)

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
            "gaps": _finite(certificate.gaps),
            "error_bound": certificate.error_bound,
            "error_bounds": certificate.error_bounds.tolist(),
            "clusters": [[k + 1 for k in cluster] for cluster in certificate.clusters],
            "orthonormality": certificate.orthonormality,
            "disagreement": float(certificate.disagreement.max()),
            "warnings": list(certificate.warnings),
            "explained_variance": self.explained_variance.tolist(),
            "wall_s": self.wall_s,
        }


def _finite(values: np.ndarray) -> list[float | None]:
    """JSON has no infinity: None stands for 'nothing there'."""
    return [float(value) if np.isfinite(value) else None for value in values]
