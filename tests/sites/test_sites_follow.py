"""Peers that stay: files arrive, a site is killed, one joins, one leaves, and every result is that of what is in."""

import numpy as np
import pytest

from eigenmesh.sites._audit_summary import summary
from eigenmesh.sites._schedule import Schedule
from following import Following
from mesh import ring

pytest.importorskip("cryptography")
pytest.importorskip("cryptography")

pytestmark = pytest.mark.slow

NAMES = ("oslo", "bergen", "bodo", "voss", "narvik")
# Time alone begins nothing here: a batch begins with the first site that has ten new rows.
SETTINGS = {"n_components": 2, "every_s": 1e6, "batch_rows": 10, "min_new_samples": 10}
SCALE = np.array([4, 2.5, 1, 1, 1, 1])
BATCHES = 6


def test_every_batch_is_exact_through_a_kill_a_join_and_a_leave(tmp_path):
    rng = np.random.default_rng(0)
    schedule = Schedule(joins={"narvik": 2}, leaves={"voss": 4}, heirs={"voss": "oslo"})
    sites = Following(tmp_path, NAMES, ring(NAMES), schedule, **SETTINGS)
    # So that who joins has something to bring.
    sites.drop({"narvik": rng.standard_normal((12, len(SCALE))) * SCALE})
    batch, killed = 0, False
    with sites.mesh:
        sites.tend()
        while batch < BATCHES:
            sizes = {name: int(rng.integers(10, 30)) for name in sites.members}
            sites.drop({name: rng.standard_normal((size, len(SCALE))) * SCALE for name, size in sizes.items()})
            if batch and not killed:
                sites.mesh.kill("bodo")
                sites.start("bodo")
                killed = True
            batch = sites.wait()
        counted = [one for one in range(batch) if "put_off" not in sites.numbers("oslo", one)]
        assert len(counted) >= 3
        assert max(map(sites.off_by, counted)) < 1e-8
    # The heir has the number, mean and scatter of who left, and none of its rows.
    handed, own = np.load(sites.folder("oslo") / "handover-voss.npy"), sites.rows_in("voss", 3)
    np.testing.assert_allclose(np.cov(handed.T), np.cov(own.T), atol=1e-12)
    np.testing.assert_allclose(handed.mean(axis=0), own.mean(axis=0), atol=1e-12)
    assert np.abs(handed[:, np.newaxis] - own).max(axis=2).min() > 1e-6
    assert not list(sites.mesh.out("voss").glob("resume-*"))
    for name in NAMES:
        assert not summary(sites.mesh.out(name) / "audit.jsonl").chain.broken
