"""Frequent Directions: a sketch of fixed size, near the truth, within its bound, and never certified."""

import numpy as np
import pytest
from sklearn.exceptions import ConvergenceWarning

from eigenmesh import DecentralizedPCA, StopReason
from eigenmesh.data import gaussian, power_law_spectrum
from eigenmesh.data._running import RunningScatter
from eigenmesh.data._running_sketch import RunningSketch
from eigenmesh.errors import InputError
from problems import angles

D = 60


def batches(n=6):
    rows = gaussian(power_law_spectrum(D, 1.5), n * 100, seed=4) + np.linspace(-9, 9, D)
    return np.split(rows, n)


@pytest.mark.parametrize("forgetting", [1.0, 0.8])
def test_a_sketch_is_within_its_bound(forgetting):
    sketch, exact = RunningSketch.empty(D, 10), RunningScatter.empty(D)
    for rows in [*batches(), np.zeros((0, D))]:
        sketch, exact = (each.ticked(rows, forgetting) for each in (sketch, exact))
    assert len(sketch.rows) <= 20
    assert np.allclose(sketch.mean, exact.mean, rtol=1e-12)
    assert np.allclose(sketch.squares, exact.squares, rtol=1e-12)
    missing = np.linalg.eigvalsh(exact.product(np.eye(D)) - sketch.product(np.eye(D)))
    total = np.sum(exact.squares)
    assert -1e-9 * total <= missing[0]
    assert missing[-1] <= sketch.dropped * (1 + 1e-9) <= total / 10
    U = np.linalg.eigh(exact.product(np.eye(D)))[1][:, -3:]
    assert exact.trace_beyond(U, 1.0) <= sketch.trace_beyond(U, 1.0) * (1 + 1e-9)


def test_a_sketch_that_has_room_for_everything_is_exact():
    rows = batches(1)[0][:30]
    sketch = RunningSketch.empty(D, 20).ticked(rows[:11], 1.0).ticked(rows[11:], 1.0)
    assert sketch.dropped == 0
    assert np.allclose(sketch.product(np.eye(D)), (rows - rows.mean(axis=0)).T @ (rows - rows.mean(axis=0)), atol=1e-9)


def test_nothing_is_certified_and_that_is_said():
    pca = DecentralizedPCA(3, n_nodes=4, sketch=25)
    for rows in batches():
        with pytest.warns(ConvergenceWarning, match=r"bounded by 1, above tol.*Nothing is certified"):
            pca.partial_fit(rows)
    assert not pca.result_.converged
    assert pca.stop_reason_ is StopReason.SKETCHED
    assert pca.certificate_.error_bound == 1
    assert pca.certificate_.warnings[0] == "nothing is certified: the products were computed from a sketch"
    whole = np.vstack(batches())
    truth = np.linalg.eigh(np.cov(whole.T))[1][:, ::-1][:, :3]
    assert angles(pca.components_, truth).max() < 0.1
    # Without it the same is exact, and certified.
    exact = DecentralizedPCA(3, n_nodes=4)
    for rows in batches():
        exact.partial_fit(rows)
    assert angles(exact.components_, truth).max() < exact.certificate_.error_bound < 1e-6


@pytest.mark.parametrize("settings", [{"window": 2}, {"store": "."}])
def test_what_a_sketch_does_not_go_with_is_refused(settings):
    with pytest.raises(InputError, match="sketch = 5 keeps no rows"):
        DecentralizedPCA(2, sketch=5, **settings).partial_fit(batches(1)[0])
