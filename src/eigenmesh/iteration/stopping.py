"""Reasons to stop, stall detection, and when a certificate is worth its cost."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum
from math import fsum

import numpy as np

from eigenmesh import arrays as ea
from eigenmesh.certificate import Certified
from eigenmesh.data import Covariance
from eigenmesh.networks import Network

# Checks without progress before a run counts as stalled. A solver with one round per iteration may linger near a saddle
# point; one that is checked after every exact average does not.
PATIENCE, PATIENCE_OF_EXACT = 200, 12


class StopReason(Enum):
    """Why a run ended. The value is advice for the user."""

    CONVERGED = "Every node's components are certified to be within tol of the true ones."
    MAX_ROUNDS = (
        "The round budget ended before the certificate reached tol. Raise max_rounds, loosen tol, or use a better "
        'connected network. If the solver makes one round per iteration, use solver="auto": it needs far fewer rounds '
        "if the data of the nodes differ or the network is sparse. The certificate bounds the error of the components."
    )
    STALLED = (
        "The residual stopped falling before the certificate reached tol: the eigenvalues are too close for this "
        'solver, or rounding errors dominate. Use solver="auto", a looser tol, or another n_components.'
    )
    DIVERGED = (
        "The iterates diverged; the components are those of the last check before that. Use a smaller step_size, or "
        'step_size="auto", which shortens the step when needed; with deepca, more mixes; or solver="auto".'
    )

    @property
    def label(self) -> str:
        """Short name for tables and JSON."""
        return self.name.lower()

    @property
    def words(self) -> str:
        """What it means, as the second half of a sentence."""
        first = self.advice.partition(". ")[0]
        return first[0].lower() + first[1:].removesuffix(".")

    @property
    def advice(self) -> str:
        """What it means and what to do."""
        return str(self.value)


@dataclass
class StallDetector:
    """Detects a stall: no component has improved in the second half of the run so far.

    Convergence has plateaus while one component overtakes another, so patience grows with the length of the run.
    """

    best: np.ndarray | float = np.inf
    checks: int = 0
    last_progress: int = 0

    def stalled(self, residual: np.ndarray | None, patience: int = PATIENCE) -> bool:
        """Whether the run has stalled, given the (K,) residuals of one more check; never before ``patience`` checks."""
        self.checks += 1
        if residual is None or not np.isfinite(residual).all():
            # An unknown residual does not show a lack of progress.
            self.last_progress = self.checks
            return False
        if np.any(residual < 0.99 * self.best):
            self.last_progress = self.checks
        self.best = np.fmin(self.best, residual)
        return self.checks - self.last_progress > max(patience, self.checks // 2)


@dataclass
class CertificateGate:
    """Decides when a solver's own residual is small enough to be worth a certificate, which costs averages.

    The residual is compared with ``tol * gap_k``, with the gaps from the solver or from the last certificate; before
    any are known, with ``tol * scale``, where scale bounds all gaps. After a failed certificate the gate stays closed
    until the largest residual has halved, in absolute numbers or in units of its gap, or for 8, 16, 32, ... checks.
    With ``early``, a residual for that multiple of tol is enough.
    """

    tol: float
    early: float = 1.0
    scale: float | None = None
    gaps: np.ndarray | None = None
    seen: tuple[np.ndarray | None, np.ndarray | None] = (None, None)
    tried_at: tuple[float, float] = (np.inf, np.inf)
    tries: int = 0
    waited: int = 0

    def opens(self, residual: np.ndarray | None, gaps: np.ndarray | None = None) -> bool:
        """Decide from the (K,) residuals that all nodes agree on; None means that the solver has no estimate."""
        if residual is None:
            return True
        self.seen, largest = (residual, gaps), self._largest(residual, gaps)
        if not largest <= self.early * self.tol:
            return False
        self.waited += 1
        has_halved = float(residual.max()) < 0.5 * self.tried_at[0] or largest < 0.5 * self.tried_at[1]
        return has_halved or self.waited > 4 * 2**self.tries

    def passes(self, residual: np.ndarray | None, gaps: np.ndarray | None = None) -> bool:
        """Whether a certificate of the solver's final answer can reach tol, given its (K,) residuals."""
        return residual is None or self._largest(residual, gaps) <= self.tol

    def _largest(self, residual: np.ndarray, gaps: np.ndarray | None) -> float:
        """The largest residual in units of its gap; infinite if one is not known."""
        if not np.isfinite(residual).all():
            return np.inf
        known = gaps if gaps is not None else self.gaps
        largest = np.inf if self.scale is None else self.scale
        # Without a positive gap only the certificate can decide: the gate does not stand in its way.
        allowed = largest if known is None else np.where(known > 0, known, largest)
        return float(np.max(residual / allowed))

    def learn(self, gaps: np.ndarray | None) -> None:
        """Remember a certificate that did not reach tol, with its gaps, (K,), for the residuals seen last."""
        self.gaps, self.waited = gaps, 0
        self.tries += 1
        residual, own = self.seen
        # In the units in which later residuals are measured: those of the solver's gaps, or of the ones just learned.
        self.tried_at = (np.inf, np.inf)
        if residual is not None:
            self.tried_at = float(residual.max()), self._largest(residual, own)


# The variance that the components of a run leave out.


# If less than this share of the total variance is left, ``total - explained`` is mostly rounding.
SHARE_LOST = 1e-6


def variance_left(covariance: Covariance, network: Network, certified: Certified, total: float) -> float:
    """``tr C - sum_k l_k``: the trace of C beyond the components, (1, d, K) in ``certified.common``.

    ``total`` is tr C. Where the difference would cancel, the trace of the rest is averaged over the nodes instead.
    """
    agreed, (d, k) = certified.total_variance, certified.common.shape[-2:]
    if k == d:
        return 0.0
    explained = fsum(certified.certificate.values)
    if np.isnan(agreed) or agreed - explained > SHARE_LOST * agreed:
        return float(np.maximum(total - explained, 0.0))
    U = np.linalg.qr(ea.to_numpy(certified.common)[0])[0]
    traces = covariance.place(covariance.traces_beyond(U)[:, np.newaxis])
    bound = None if network.scales is None else network.n_nodes * network.scales.size
    # Traces of nothing but rounding may be negative.
    return float(np.maximum(ea.to_numpy(network.common_mean(traces, bound))[0, 0], 0.0))
