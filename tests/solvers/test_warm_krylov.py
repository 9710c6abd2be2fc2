"""The start of a stream's next batch: what all nodes multiply, where their last digits differ."""

import numpy as np
import pytest

from eigenmesh.certificate import Projected
from eigenmesh.solvers.block_krylov import Known, WarmKrylov, fade, faded

W, BLOCK, COLUMNS = 14, 6, 5


@pytest.mark.parametrize("rank", [3, 8, W])
@pytest.mark.parametrize("products", [0, 1, 3])
def test_a_block_that_has_lost_rank_is_the_same_where_last_digits_differ(rank, products):
    rng = np.random.default_rng(0)
    axes = np.linalg.qr(rng.standard_normal((W, W)))[0]
    T = (axes * np.append(np.linspace(5, 1, rank), np.zeros(W - rank))) @ axes.T
    start, solver = rng.standard_normal((1, W, COLUMNS)), WarmKrylov(known=Known(*np.zeros((3, 1, 1, 1))))
    found = []
    for seed in range(2):
        noise = 1e-15 * np.random.default_rng(seed).standard_normal((W, W))
        own = (T + noise + noise.T)[np.newaxis]
        values, ritz = Projected(own, np.ones((1, W))).leading(BLOCK)
        found.append(own @ solver._directions(own, values, ritz, start, products, 0.0))
    assert np.abs(found[0] - found[1]).max() < 1e-9
    # All that the components need is in it.
    inside = found[0][0]
    assert np.linalg.norm(axes[:, :3] - inside @ np.linalg.lstsq(inside, axes[:, :3])[0]) < 1e-9


def test_noise_fades_and_the_rest_stays():
    assert np.allclose(fade(np.array([[2.0, 1e-3, 1e-17, 0.0]]), 0.0), [[1, 1, 0, 0]], atol=1e-3)
    assert not fade(np.zeros((1, 3)), 0.0).any()
    Q = np.linalg.qr(np.random.default_rng(0).standard_normal((9, 3)))[0]
    found = faded((Q * [1, 1e-4, 0])[np.newaxis], 0.0)[0]
    assert np.allclose(found.T @ found, np.diag([1, 1, 0]), atol=1e-8)
