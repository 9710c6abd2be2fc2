"""The settings of a run: defaults and validation."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from eigenmesh.errors import InputError, TooFewSamplesError

DEFAULT_TOL = 1e-6
DEFAULT_MAX_ROUNDS = 5000


@dataclass(frozen=True, eq=False)
class Settings:
    """Settings of one run, documented at ``run``."""

    tol: float
    max_rounds: int
    check_every: int | None
    seed: int
    drawn: bool
    on_estimate: Callable[[np.ndarray], Any] | None
    reference: np.ndarray | None
    total_variance: float
    max_iterations: int | None
    keep: int

    def __post_init__(self) -> None:
        require_settings(self.tol, self.max_rounds)


def require_settings(tol: float, max_rounds: int) -> None:
    """Raise unless 0 < tol < 1 and max_rounds >= 1."""
    if not 0 < tol < 1:
        raise InputError(f"tol = {tol!r} must be strictly between 0 and 1: it is the sine of an angle.")
    if max_rounds < 1:
        raise InputError(f"max_rounds = {max_rounds!r} must be at least 1.")


def require_components(n_components: int, n_features: int, n_samples: int | None = None) -> None:
    """Raise unless 1 <= K <= min(d, N - 1)."""
    asked = f"n_components = {n_components}"
    if isinstance(n_components, bool) or not isinstance(n_components, int | np.integer):
        raise InputError(f"n_components = {n_components!r} must be a whole number.")
    if n_components < 1:
        raise InputError(f"{asked} must be at least 1.")
    if n_components > n_features:
        raise InputError(f"{asked} must be at most {n_features}, the number of features; ask for fewer.")
    if n_samples is not None and n_components >= n_samples:
        most = f"at most {n_samples - 1:g}, the number of samples less one"
        raise TooFewSamplesError(f"{asked} must be {most}; ask for fewer.")


def require_basis(basis: np.ndarray, shape: tuple[int, int]) -> None:
    """Raise unless the start has the right shape and orthonormal columns."""
    if basis.shape != shape:
        raise InputError(f"basis has shape {basis.shape}; it must be (d, K) = {shape}.")
    skewness = np.abs(basis.T @ basis - np.eye(shape[1])).max()
    if not skewness < 1e-3:
        raise InputError(f"columns of basis must be orthonormal; |B^T B - I| is {skewness:.2g}. Use numpy.linalg.qr.")
