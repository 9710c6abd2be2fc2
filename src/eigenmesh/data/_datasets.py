"""Data sets by name, for examples, experiments and checks."""

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np

from eigenmesh._lookup import canonical_name, find_name, lookup
from eigenmesh.data._archives import Archive, Cifar10Originals, MnistOriginals, find_archive
from eigenmesh.data._files import read_table
from eigenmesh.data._source import as_source
from eigenmesh.data._synthetic import gaussian, geometric_spectrum, nearly_equal, paper_spectrum, power_law_spectrum
from eigenmesh.data._table import Table
from eigenmesh.errors import InputError, UnknownNameError

MNIST = Archive(
    "mnist.npz",
    "837054502bdb4fa15cafeafb2f3c6686094e613cf192d13ab06faed888d771a7",
    "06eb7b005049176803accd6597672d7d0c2ab8b7d4b9445692486f9ccce1ec9c",
    MnistOriginals(),
)
CIFAR10 = Archive(
    "cifar10_gray.npz",
    "e89f8c09e48f99dd2f6a30f15103188b8b2616884f100d251d77e79ae56aa234",
    "5020bdbe82c441a0e9fc3ad40624cbed785701732d078094d96396656ed09113",
    Cifar10Originals(),
)
HAPMAP3 = Archive(
    "hapmap3.npz",
    "6ddc69ad0cba2ac1978c9babb649aad044fe7f1f3bd589fc16da74edda42fd18",
    "f1bd5118db4555697461b1891c3e25a67952b151762903627c9fbae95f244b73",
)
_SYNTHETIC = "synthetic"


def load(name: str) -> Table:
    """A data set by name: one of ``DATASETS``, or ``synthetic:kind=paper,d=20,k=5,gap=0.8,n=1000,seed=0``."""
    if isinstance(name, str) and _is_synthetic(name):
        return replace(synthetic(name.partition(":")[2]), name=name)
    name = canonical_name("data set", name, [*DATASETS, f"{_SYNTHETIC}:..."])
    return replace(DATASETS[name](), name=name)


def is_dataset(name: str) -> bool:
    """Whether a name is that of a data set, not a path."""
    return find_name(name, DATASETS) is not None or _is_synthetic(name)


def _is_synthetic(name: str) -> bool:
    return find_name(name.partition(":")[0], [_SYNTHETIC]) is not None


def digits() -> Table:
    """Handwritten digits of UCI, as in scikit-learn: X (1797, 64) in 0..16, labels 0..9."""
    from sklearn.datasets import load_digits

    bunch = load_digits()
    return Table(as_source(bunch.data, feature_names=tuple(bunch.feature_names)), bunch.target)


def mnist(archive: Archive = MNIST) -> Table:
    """MNIST training images: X (60000, 784) float64 in [0, 1] (376 MB), labels 0..9."""
    return _images(archive)


def cifar10(archive: Archive = CIFAR10) -> Table:
    """CIFAR-10 in grey, training then test: X (60000, 1024) float64 in [0, 1] (492 MB), labels 0..9."""
    return _images(archive)


def hapmap3(archive: Archive = HAPMAP3) -> Table:
    """HapMap phase 3 genotypes: X (957, 14079), allele copies 0..2; labels are the 11 site names.

    The file holds float32; X is float64, so that components can be certified to 1e-6 and beyond.
    """
    table = read_table(find_archive(archive))
    return replace(table, source=as_source(table.X.astype(np.float64), feature_names=table.feature_names))


def synthetic(spec: str) -> Table:
    """Gaussian samples from a text such as ``kind=paper,d=20,k=5,gap=0.8,n=100000,seed=0``.

    kind: paper, geometric, equal (paper's with equal top k) or power. Keys that are left out take their defaults.
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


def _images(archive: Archive) -> Table:
    table = read_table(find_archive(archive))
    return replace(table, source=as_source(np.divide(table.X, 255.0)))


# To add a data set: a function above, a row here.
DATASETS: dict[str, Callable[[], Table]] = {"digits": digits, "mnist": mnist, "cifar10": cifar10, "hapmap3": hapmap3}

# Spectrum of each kind of synthetic data, and the defaults of its keys.
SPECTRA: dict[str, tuple[Callable[..., np.ndarray], dict[str, int | float]]] = {
    "paper": (paper_spectrum, {"d": 20, "k": 5, "gap": 0.8}),
    "geometric": (geometric_spectrum, {"d": 20, "k": 5, "gap": 0.8, "ratio": 0.9}),
    "equal": (lambda d, k, gap: nearly_equal(paper_spectrum(d, k, gap), k), {"d": 20, "k": 5, "gap": 0.8}),
    "power": (power_law_spectrum, {"d": 20, "exponent": 1.0}),
}
