from __future__ import annotations

import numpy as np
import pytest

from eigenmesh.data import gaussian, geometric_spectrum, nearly_equal, paper_spectrum, power_law_spectrum, unlike_nodes
from eigenmesh.errors import InputError


def test_spectra_of_the_paper():
    spectrum = paper_spectrum(20, 5, 0.8)
    np.testing.assert_allclose(spectrum[:5], [1, 0.95, 0.9, 0.85, 0.8])
    np.testing.assert_allclose(spectrum[5:], np.linspace(0.64, 0.1, 15))
    assert paper_spectrum(20, 5, 0.97)[5] / 0.8 == pytest.approx(0.97)
    np.testing.assert_allclose(nearly_equal(spectrum, 5), [1] * 5 + spectrum[5:].tolist())
    assert spectrum[1] == 0.95


def test_other_spectra():
    np.testing.assert_allclose(geometric_spectrum(5, 2, 0.5), [1, 0.9, 0.45, 0.405, 0.3645])
    np.testing.assert_allclose(geometric_spectrum(3, 1, 0.5, ratio=0.1), [1, 0.5, 0.05])
    np.testing.assert_allclose(power_law_spectrum(4, 2), [1, 1 / 4, 1 / 9, 1 / 16])


def test_gaussian_has_the_spectrum_and_the_mean():
    spectrum = paper_spectrum(10, 3, 0.5)
    X = gaussian(spectrum, 200_000, seed=1, mean=np.arange(10))
    np.testing.assert_allclose(X.mean(axis=0), np.arange(10), atol=0.02)
    values, axes = np.linalg.eigh(np.cov(X.T))
    np.testing.assert_allclose(values[::-1], spectrum, rtol=0.02)
    assert np.abs(axes).max() < 0.99
    assert np.array_equal(X[:5], gaussian(spectrum, 200_000, seed=1, mean=np.arange(10))[:5])
    assert not np.allclose(X[:5], gaussian(spectrum, 5, seed=2))


def test_axes_are_uniform():
    # Entries of a Haar matrix have mean 0 and variance 1/d; without the sign rule of QR the mean is not 0.
    corner = [gaussian(np.array([1.0, 0, 0]), 50, seed)[:, 0] for seed in range(400)]
    first = np.array([np.sign(x[0]) * x.std() for x in corner])
    assert abs(first.mean()) < 0.12
    assert (first**2).mean() == pytest.approx(1 / 3, abs=0.05)


def test_unlike_nodes():
    spectrum = paper_spectrum(6, 2, 0.8)
    nodes = unlike_nodes(spectrum, [40_000, 30_000, 7], seed=3)
    assert [node.shape for node in nodes] == [(40_000, 6), (30_000, 6), (7, 6)]
    first, second = (np.cov(node.T) for node in nodes[:2])
    # Common axes: the covariances commute, to within what samples allow; the variances differ.
    assert np.abs(first @ second - second @ first).max() < 0.05
    assert np.abs(np.linalg.eigvalsh(first) - np.linalg.eigvalsh(second)).max() > 0.2
    assert np.array_equal(unlike_nodes(spectrum, [40_000], seed=3)[0], nodes[0])
    alike = unlike_nodes(spectrum, [50_000, 50_000], seed=3, spread=0.0)
    np.testing.assert_allclose(np.cov(alike[0].T), np.cov(alike[1].T), atol=0.03)
    np.testing.assert_allclose(np.linalg.eigvalsh(np.cov(alike[0].T))[::-1], spectrum, rtol=0.03)


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: paper_spectrum(5, 5, 0.8), "1 <= k < d; got k = 5, d = 5"),
        (lambda: paper_spectrum(5, 2, 0.1), "gap must be in 0.125..1.* got 0.1"),
        (lambda: geometric_spectrum(5, 2, 0.0), r"gap must be in \(0, 1\]; got 0.0"),
        (lambda: geometric_spectrum(5, 2, 0.5, 2.0), "ratio must be in .* got 2.0"),
        (lambda: nearly_equal(np.ones(3), 0), "got k = 0, d = 3"),
        (lambda: power_law_spectrum(0, 1.0), "d >= 1 and exponent >= 0; got 0 and 1.0"),
        (lambda: gaussian(np.ones(3), 0, seed=0), "n_samples >= 1"),
        (lambda: gaussian(-np.ones(3), 5, seed=0), "variances >= 0; got 5, -1.0"),
    ],
)
def test_errors(make, message):
    with pytest.raises(InputError, match=message):
        make()
