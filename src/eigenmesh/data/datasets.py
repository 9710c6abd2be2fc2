"""Data sets by name, for examples, experiments and checks; spectra, and Gaussian samples that have them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from eigenmesh.data.archives import Archive, cifar10_originals, find_archive, mnist_originals
from eigenmesh.data.block import Table
from eigenmesh.data.source import as_source
from eigenmesh.data.table import read_table
from eigenmesh.errors import InputError, UnknownNameError
from eigenmesh.words import canonical_name, find_name, lookup

MNIST = Archive("mnist.npz", "a1085d645b3fdb59fc81b7e8125bb6aa3a46aa9d742b7b6286a598e0452b2e0b", mnist_originals)
CIFAR10 = Archive(
    "cifar10_gray.npz", "279245faa3f0b624fb177823723d9e69f83bbfd4ba72aa4f50b353823b7023d1", cifar10_originals
)
HAPMAP3 = Archive("hapmap3.npz", "362f21c2899a5db4dc1378387504a358af0f7f5c808a3b3cef3e9e47d2066cd9")
_SYNTHETIC = "synthetic"


def load(name: str) -> Table:
    """A data set by name.

    Parameters
    ----------
    name : str
        One of ``DATASETS``, or ``synthetic:kind=paper,d=20,k=5,gap=0.8,n=1000,seed=0``.
    """
    if isinstance(name, str) and _is_synthetic(name):
        return replace(synthetic(name.partition(":")[2]), name=name)
    name = canonical_name("data set", name, [*DATASETS, f"{_SYNTHETIC}:..."])
    return replace(DATASETS[name](), name=name)


def is_dataset(name: str) -> bool:
    """Whether a name is a data set, not a path.

    Parameters
    ----------
    name : str
        What a user wrote.
    """
    return find_name(name, DATASETS) is not None or _is_synthetic(name)


def _is_synthetic(name: str) -> bool:
    return find_name(name.partition(":")[0], [_SYNTHETIC]) is not None


def digits() -> Table:
    """Handwritten digits of UCI, as in scikit-learn: X (1797, 64) in 0..16, labels 0..9."""
    from sklearn.datasets import load_digits

    bunch = load_digits()
    return Table(as_source(bunch.data, feature_names=tuple(bunch.feature_names)), bunch.target)


def _images(archive: Archive) -> Table:
    table = read_table(find_archive(archive))
    return replace(table, source=as_source(np.divide(table.X, 255.0)))


def mnist(archive: Archive = MNIST) -> Table:
    """MNIST training images: X (60000, 784) float64 in [0, 1] (376 MB), labels 0..9."""
    return _images(archive)


def cifar10(archive: Archive = CIFAR10) -> Table:
    """CIFAR-10 in grey, training then test: X (60000, 1024) float64 in [0, 1] (492 MB), labels 0..9."""
    return _images(archive)


def hapmap3(archive: Archive = HAPMAP3) -> Table:
    """HapMap phase 3 genotypes: X (957, 14079), allele copies 0..2; labels are the 11 site names.

    The file holds float32, column after column; X is float64, so that components can be certified to 1e-6 and beyond,
    and row after row.
    """
    table = read_table(find_archive(archive))
    return replace(table, source=as_source(table.X.astype(np.float64, order="C"), feature_names=table.feature_names))


def synthetic(spec: str) -> Table:
    """Gaussian samples from a text such as ``kind=paper,d=20,k=5,gap=0.8,n=100000,seed=0``.

    kind: paper, geometric, equal (k ones, then evenly from the gap to 0.1) or power. Keys that are left out
    take their defaults.
    """
    given = {}
    for part in filter(str.strip, spec.split(",")):
        key, equals, text = part.partition("=")
        if not equals:
            raise InputError(f"{part!r} is not a setting of synthetic data; write synthetic:key=value,key=value.")
        given[key.strip().lower()] = text.strip()
    kind = given.pop("kind", "paper")
    spectrum, defaults = lookup("kind of synthetic data", kind, SPECTRA)
    settings: dict[str, Any] = {**defaults, "n": 100_000, "seed": 0}
    for key, text in given.items():
        if key not in settings:
            raise UnknownNameError(f"key of synthetic data of kind {kind}", key, ["kind", *settings])
        number = type(settings[key])
        try:
            settings[key] = number(text)
        except ValueError as error:
            noun = "a whole number" if number is int else "a number"
            raise InputError(f"{key} of synthetic data must be {noun}; got {text!r}.") from error
    n_samples, seed = settings.pop("n"), settings.pop("seed")
    return Table(as_source(gaussian(spectrum(**settings), n_samples, seed)), name=_SYNTHETIC)


def paper_spectrum(d: int, k: int, gap: float) -> np.ndarray:
    """The FAST-PCA authors' spectrum (d,): k values evenly from 1 to 0.8, the rest evenly from 0.8 gap to 0.1.

    Parameters
    ----------
    d, k : int
        Number of eigenvalues, and of those before the gap.
    gap : float
        Ratio of the eigenvalues after and before the gap.
    """
    _check_split(d, k)
    if not 0.125 <= gap <= 1:
        raise InputError(f"gap must be in 0.125..1, so that 0.8 gap is at least 0.1; got {gap}.")
    return np.concatenate([np.linspace(1.0, 0.8, k), np.linspace(0.8 * gap, 0.1, d - k)])


def geometric_spectrum(d: int, k: int, gap: float, ratio: float = 0.9) -> np.ndarray:
    """Eigenvalues (d,) that fall by ``ratio`` each, but by ``gap`` from the k-th to the next.

    Parameters
    ----------
    d, k : int
        Number of eigenvalues, and of those before the gap.
    gap, ratio : float
        Factors in (0, 1].
    """
    _check_split(d, k)
    for name, value in (("gap", gap), ("ratio", ratio)):
        if not 0 < value <= 1:
            raise InputError(f"{name} must be in (0, 1]; got {value}.")
    falls = np.full(d, ratio)
    falls[[0, k]] = 1.0, gap
    return np.cumprod(falls)


def nearly_equal(spectrum: np.ndarray, k: int) -> np.ndarray:
    """The spectrum (d,) with its first k eigenvalues equal to the first; those of samples are then nearly equal.

    Parameters
    ----------
    spectrum : array of shape (d,)
        Eigenvalues, largest first.
    k : int
        How many become equal.
    """
    _check_split(len(spectrum), k)
    return np.concatenate([np.full(k, spectrum[0]), spectrum[k:]])


def _equal_spectrum(d: int, k: int, gap: float) -> np.ndarray:
    """k ones, then values evenly from the gap to 0.1: (d,)."""
    _check_split(d, k)
    if not 0.1 <= gap <= 1:
        raise InputError(f"gap must be in 0.1..1; got {gap}.")
    return np.concatenate([np.ones(k), np.linspace(gap, 0.1, d - k)])


def power_law_spectrum(d: int, exponent: float) -> np.ndarray:
    """Eigenvalues j^-exponent, j = 1..d: (d,).

    Parameters
    ----------
    d : int
        Number of eigenvalues.
    exponent : float
        How fast they fall, at least 0.
    """
    if d < 1 or not exponent >= 0:
        raise InputError(f"a power law needs d >= 1 and exponent >= 0; got {d} and {exponent}.")
    return np.arange(1.0, d + 1) ** -exponent


def gaussian(spectrum: np.ndarray, n_samples: int, seed: int, mean: np.ndarray | float = 0.0) -> np.ndarray:
    """Normal samples (n_samples, d) of covariance Q diag(spectrum) Q^T, the axes Q drawn at random (Haar).

    Parameters
    ----------
    spectrum : array of shape (d,)
        Eigenvalues of the covariance.
    n_samples : int
        Number of rows.
    seed : int
        Seed of the axes and the samples.
    mean : array of shape (d,) or float
        Mean of the samples.
    """
    rng = np.random.default_rng(seed)
    return _draw(spectrum, random_axes(len(spectrum), rng), n_samples, rng) + mean


def unlike_nodes(spectrum: np.ndarray, sizes: Sequence[int], seed: int, spread: float = 1.0) -> list[np.ndarray]:
    """Normal samples (N_i, d) of nodes that differ: node i's variance on axis j is l_j exp(spread N(0, 1)).

    The axes are common. Node i's samples depend on (seed, i) alone, not on how many nodes there are.

    Parameters
    ----------
    spectrum : array of shape (d,)
        The eigenvalues l_j around which nodes vary.
    sizes : sequence of int
        Number of samples of each node.
    seed : int
        Seed of the axes and the samples.
    spread : float
        How unlike the nodes are; 0 for equal covariances.
    """
    axes = random_axes(len(spectrum), np.random.default_rng(seed))
    nodes = []
    for node, size in enumerate(sizes):
        # A spawn key, because [seed, 0] as a seed would repeat the stream of the axes.
        rng = np.random.default_rng(np.random.SeedSequence(seed, spawn_key=(node,)))
        variances = spectrum * np.exp(spread * rng.standard_normal(len(spectrum)))
        nodes.append(_draw(variances, axes, size, rng))
    return nodes


def random_axes(d: int, rng: np.random.Generator) -> np.ndarray:
    """A random orthogonal matrix, uniform among all."""
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


# To add a data set: a function above, a row here.
DATASETS: dict[str, Callable[[], Table]] = {"digits": digits, "mnist": mnist, "cifar10": cifar10, "hapmap3": hapmap3}

# Spectrum of each kind of synthetic data, and the defaults of its keys.
SPECTRA: dict[str, tuple[Callable[..., np.ndarray], dict[str, int | float]]] = {
    "paper": (paper_spectrum, {"d": 20, "k": 5, "gap": 0.8}),
    "geometric": (geometric_spectrum, {"d": 20, "k": 5, "gap": 0.8, "ratio": 0.9}),
    "equal": (_equal_spectrum, {"d": 20, "k": 5, "gap": 0.8}),
    "power": (power_law_spectrum, {"d": 20, "exponent": 1.0}),
}
