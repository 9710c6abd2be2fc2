"""Spectra, and Gaussian samples with these spectra."""

from collections.abc import Sequence

import numpy as np

from eigenmesh.errors import InputError


def paper_spectrum(d: int, k: int, gap: float) -> np.ndarray:
    """The FAST-PCA authors' spectrum (d,): k values evenly from 1 to 0.8, the rest evenly from 0.8 gap to 0.1."""
    _check_split(d, k)
    if not 0.125 <= gap <= 1:
        raise InputError(f"gap must be in 0.125..1, so that 0.8 gap is at least 0.1; got {gap}.")
    return np.concatenate([np.linspace(1.0, 0.8, k), np.linspace(0.8 * gap, 0.1, d - k)])


def geometric_spectrum(d: int, k: int, gap: float, ratio: float = 0.9) -> np.ndarray:
    """Eigenvalues (d,) that fall by ``ratio`` each, but by ``gap`` from the k-th to the next."""
    _check_split(d, k)
    for name, value in (("gap", gap), ("ratio", ratio)):
        if not 0 < value <= 1:
            raise InputError(f"{name} must be in (0, 1]; got {value}.")
    falls = np.full(d, ratio)
    falls[[0, k]] = 1.0, gap
    return np.cumprod(falls)


def nearly_equal(spectrum: np.ndarray, k: int) -> np.ndarray:
    """The spectrum (d,) with its first k eigenvalues equal to the first; those of samples are then nearly equal."""
    _check_split(len(spectrum), k)
    return np.concatenate([np.full(k, spectrum[0]), spectrum[k:]])


def power_law_spectrum(d: int, exponent: float) -> np.ndarray:
    """Eigenvalues j^-exponent, j = 1..d."""
    if d < 1 or not exponent >= 0:
        raise InputError(f"a power law needs d >= 1 and exponent >= 0; got {d} and {exponent}.")
    return np.arange(1.0, d + 1) ** -exponent


def gaussian(spectrum: np.ndarray, n_samples: int, seed: int, mean: np.ndarray | float | None = None) -> np.ndarray:
    """Normal samples (n_samples, d) of covariance Q diag(spectrum) Q^T, the axes Q drawn at random (Haar)."""
    rng = np.random.default_rng(seed)
    axes = _random_axes(len(spectrum), rng)
    return _draw(spectrum, axes, n_samples, rng) + (0.0 if mean is None else mean)


def unlike_nodes(spectrum: np.ndarray, sizes: Sequence[int], seed: int, spread: float = 1.0) -> list[np.ndarray]:
    """Normal samples (N_i, d) of nodes that differ: node i's variance on axis j is l_j exp(spread N(0, 1)).

    The axes are common. Node i's samples depend on (seed, i) alone, not on how many nodes there are.
    """
    axes = _random_axes(len(spectrum), np.random.default_rng(seed))
    nodes = []
    for node, size in enumerate(sizes):
        # A spawn key, because [seed, 0] as a seed would repeat the stream of the axes.
        rng = np.random.default_rng(np.random.SeedSequence(seed, spawn_key=(node,)))
        variances = spectrum * np.exp(spread * rng.standard_normal(len(spectrum)))
        nodes.append(_draw(variances, axes, size, rng))
    return nodes


def _random_axes(d: int, rng: np.random.Generator) -> np.ndarray:
    Q, R = np.linalg.qr(rng.standard_normal((d, d)))
    # The signs of R's diagonal make QR unique, and Q uniform.
    return np.asarray(Q * np.where(np.diag(R) < 0, -1.0, 1.0))


def _draw(variances: np.ndarray, axes: np.ndarray, n_samples: int, rng: np.random.Generator) -> np.ndarray:
    if n_samples < 1 or not np.all(variances >= 0):
        raise InputError(f"a sample needs n_samples >= 1 and variances >= 0; got {n_samples}, {variances.min()}.")
    scaled = rng.standard_normal((n_samples, len(variances)))
    scaled *= np.sqrt(variances)
    return np.asarray(scaled @ axes.T)


def _check_split(d: int, k: int) -> None:
    if not 1 <= k < d:
        raise InputError(f"a spectrum needs 1 <= k < d; got k = {k}, d = {d}.")
