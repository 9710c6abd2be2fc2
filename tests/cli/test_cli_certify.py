"""``eigenmesh certify``: what it prints, and its exit status."""

from __future__ import annotations

import numpy as np
from sklearn.decomposition import PCA


def test_components_within_the_tolerance_are_certified(call, tmp_path, samples):
    np.save(tmp_path / "data.npy", samples)
    np.save(tmp_path / "pca.npy", PCA(2).fit(samples).components_)
    done = call("certify", "data.npy", "--components", "pca.npy")
    assert done.exit_code == 0
    assert "component 2" in done.stdout


def test_components_beyond_the_tolerance_have_status_1(call, tmp_path, samples):
    np.save(tmp_path / "data.npy", samples)
    np.save(tmp_path / "pca.npy", PCA(2).fit(samples[::2]).components_)
    assert call("certify", "data.npy", "--components", "pca.npy", "--tol", 1e-4).exit_code == 1


def test_a_file_that_is_not_there_has_status_2(call, tmp_path, samples):
    np.save(tmp_path / "data.npy", samples)
    done = call("certify", "data.npy", "--components", "none.npy")
    assert done.exit_code == 2
    assert "none.npy does not exist" in done.stderr
