"""A federation of Flower, started for real: a superlink and three supernodes, each with the file of its site."""

import re

import numpy as np
import pytest

from eigenmesh import DecentralizedPCA, load_model
from eigenmesh.data.datasets import gaussian, geometric_spectrum
from federation import Federation, programs
from waiting import until

pytestmark = pytest.mark.slow

NAMES, K = ("bergen", "oslo", "tromso"), 3
# At one site every second row counts twice, and the others not at all.
WEIGHTS = np.arange(50) % 2 * 2


@pytest.fixture(scope="module")
def samples():
    rng = np.random.default_rng(0)
    X = gaussian(geometric_spectrum(20, K, 0.5, ratio=0.8), 400, 0) + rng.normal(scale=5, size=20)
    return np.split(X, [100, 350])


@pytest.fixture(scope="module")
def federation(tmp_path_factory, samples):
    if programs() is None:
        pytest.skip("Flower is not installed: make flower")
    folder, parts = tmp_path_factory.mktemp("flower"), dict(zip(NAMES, samples, strict=True))
    started = Federation(folder, programs(), parts, {"tromso": WEIGHTS})
    yield started
    started.close()


def test_the_components_of_the_simulation(federation, samples):
    out = federation.folder / "model.npz"
    assert federation.run(out=str(out)).wait(600) == 0
    assert out.exists(), federation.log("run")
    model = load_model(out)
    weights = [np.ones(len(part)) for part in samples[:2]]
    pca = DecentralizedPCA(K, tol=1e-10, random_state=0).fit(samples, sample_weight=[*weights, WEIGHTS])
    np.testing.assert_allclose(model.components_, pca.components_, rtol=0, atol=1e-12)
    assert model.n_samples_ == 400
    assert "400 samples of 3 sites, 2 requests: converged" in federation.log("run")


def test_a_site_that_is_gone_ends_the_fit_by_name(federation):
    out = federation.folder / "none.npz"
    running, before = federation.run(out=str(out), covariance="matrix-free", timeout=60), len(federation.log("link"))
    # A second request is answered once the answers of all sites to the first one, with their names, have come.
    until(
        lambda: federation.log("link")[before:].count("Push replies from") >= 4 or running.poll() is not None,
        lambda: federation.log("run"),
    )
    federation.kill(federation.sites["oslo"])
    running.wait(600)
    said = " ".join(federation.log("run").split())
    assert re.search(r"site oslo\b[^.]* did not answer: (nothing has come within 60 s|.*[Uu]navailable)", said), said
    assert not out.exists()
