"""Why a run ends, and when it is worth asking whether it may."""

from dataclasses import dataclass
from enum import Enum

import numpy as np

# Checks without progress before a stall is called: a one-round solver may rest for long near a saddle; one that looks
# after every average does not.
PATIENCE, PATIENCE_OF_EXACT = 200, 12


class StopReason(Enum):
    """Why a run ended; the value is the advice that goes with it."""

    CONVERGED = "Every node's components are certified to be within tol of the true ones."
    MAX_ROUNDS = (
        "The round budget ended before the certificate reached tol. Raise max_rounds, loosen tol, or use a better "
        'connected network; if the solver makes one round an iteration, use solver="auto", which takes far fewer '
        "rounds on unlike nodes and on sparse networks. The certificate says how good the components are as they stand."
    )
    STALLED = (
        "The residual stopped falling before the certificate reached tol: the eigenvalues are too close for this "
        'solver, or the precision is used up. Use solver="auto", a looser tol, another n_components, or float64 data.'
    )
    DIVERGED = (
        "The iterates blew up; the components are those of the last sound check. Use a smaller step_size, or "
        'step_size="auto", which shortens the step by itself; with deepca, more mixes; or solver="auto".'
    )

    SKETCHED = (
        "Nothing is certified: the products were those of a sketch, which drops what it has no room for. Leave out "
        "sketch for exact components, or give it more rows."
    )

    @property
    def label(self) -> str:
        """Short name for tables and JSON."""
        return self.name.lower()

    @property
    def advice(self) -> str:
        """What it means and what to do."""
        return str(self.value)


@dataclass
class StallDetector:
    """Calls a stall when no component has improved over the whole second half of the run so far.

    Convergence goes in phases, with plateaus while one component overtakes another; so patience grows with the run
    instead of being a fixed number of checks.
    """

    best: np.ndarray | float = np.inf
    checks: int = 0
    last_progress: int = 0

    def stalled(self, residual: np.ndarray | None, patience: int = PATIENCE) -> bool:
        """Take in the (K,) residuals of a check and say whether the run has stalled; at least ``patience`` checks."""
        self.checks += 1
        if residual is None or not np.isfinite(residual).all():
            # Not known yet, so it does not show whether there was progress.
            self.last_progress = self.checks
            return False
        if np.any(residual < 0.99 * self.best):
            self.last_progress = self.checks
        self.best = np.fmin(self.best, residual)
        return self.checks - self.last_progress > max(patience, self.checks // 2)


@dataclass
class CertificateGate:
    """Says when a solver's own estimate of its residual is good enough to spend averages on a certificate.

    The residual is held against ``tol * gap_k``, with the gaps that the solver knows or that the last certificate
    found; before there are any, against ``tol * scale``, where no gap can be larger than scale. A certificate that
    failed is not asked for again until the residual has halved, or could have several times over. ``early``: so many
    times tol is good enough.
    """

    tol: float
    early: float = 1.0
    scale: float | None = None
    gaps: np.ndarray | None = None
    tried_at: float = np.inf
    tries: int = 0
    refused: int = 0

    def opens(self, residual: np.ndarray | None, gaps: np.ndarray | None = None) -> bool:
        """Decide from the (K,) residuals that all nodes agree on; None means that the solver has no estimate."""
        if residual is None:
            return True
        if not self._near(residual, gaps, self.early * self.tol):
            return False
        self.refused += 1
        return float(residual.max()) < 0.5 * self.tried_at or self.refused > 4 * 2**self.tries

    def passes(self, residual: np.ndarray | None, gaps: np.ndarray | None = None) -> bool:
        """Whether a certificate of what a solver has found in the end can be good enough."""
        return residual is None or self._near(residual, gaps, self.tol)

    def _near(self, residual: np.ndarray, gaps: np.ndarray | None, tol: float) -> bool:
        if not np.isfinite(residual).all():
            return False
        known = gaps if gaps is not None else self.gaps
        largest = np.inf if self.scale is None else self.scale
        # Where a gap is not positive the certificate will have to say more.
        allowed = largest if known is None else np.where(known > 0, known, largest)
        return bool(np.all(residual <= tol * allowed))

    def learn(self, residual: np.ndarray | None, gaps: np.ndarray | None) -> None:
        """Take in a certificate that did not reach tol: residuals of the solver and certified gaps, (K,) each."""
        self.gaps, self.refused = gaps, 0
        self.tries += 1
        self.tried_at = float(residual.max()) if residual is not None else np.inf
