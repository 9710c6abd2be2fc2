"""Peers that stay: files arrive, a site is killed, one joins, one leaves, and every result is that of what is in."""

import itertools
import shutil
import signal
from contextlib import suppress

import numpy as np
import pytest

from eigenmesh.sites.audit import summary
from eigenmesh.sites.site import Schedule
from eigenmesh.transports.tls.journal import has_rounds
from following import Following
from mesh import ring
from waiting import until

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
        counted = sites.counted(0, batch)
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


def test_a_site_with_a_bad_file_is_taken_back_by_those_who_have_begun_the_batch(tmp_path):
    """The others have used numbers, with the key of this site, when it ends; it has sent none, and keeps its key."""
    rng, names = np.random.default_rng(2), NAMES[:3]
    sites = Following(tmp_path, names, list(itertools.pairwise(names)), Schedule(), **SETTINGS)

    def arrive(*where):
        sites.drop({name: rng.standard_normal((12, len(SCALE))) * SCALE for name in where})

    def journal_of(name):
        return next(sites.mesh.out(name).glob("resume-test-*/journal"), None)

    def begun(name):
        with suppress(OSError):
            return journal_of(name) is not None and has_rounds(journal_of(name))

    def greeted():
        return all(sum(link["connected"] for link in sites.mesh.status(name)["neighbours"]) for name in names)

    arrive(*names)
    first, middle, last = names
    with sites.mesh:
        sites.tend()
        batch = sites.wait()
        until(lambda: all(sites.mesh.status(name)["phase"] == "connecting" for name in names) and greeted(), sites.told)
        sites.mesh.kill(last, signal.SIGSTOP)
        bad = sites.folder(last) / "bad.npy"
        np.save(bad, np.full((12, len(SCALE)), np.nan))
        arrive(first, middle)
        until(lambda: begun(middle), sites.told)
        sites.mesh.kill(last, signal.SIGCONT)
        assert sites.mesh.wait(last) == {last: 2}
        assert "bad.npy" in sites.mesh.said(last)
        bad.unlink()
        arrive(last)
        sites.start(last)
        assert sites.wait() > batch
        assert max(map(sites.off_by, sites.counted(0, sites.batch))) < 1e-8


def test_files_count_once_through_kills_and_a_site_that_lost_everything_joins_anew(tmp_path):
    rng, names = np.random.default_rng(1), NAMES[:4]
    sites = Following(tmp_path, names, ring(names), Schedule(), **SETTINGS)

    def arrive():
        sites.drop({name: rng.standard_normal((12, len(SCALE))) * SCALE for name in sites.members})

    with sites.mesh:
        sites.tend()
        for _ in range(3):
            arrive()
            for name in ("bergen", "bodo"):
                sites.mesh.kill(name)
                sites.start(name)
            batch = sites.wait()
        for name in names:
            sites.mesh.kill(name)
        assert max(map(sites.off_by, sites.counted(0, batch))) < 1e-8
        # The disk of one site is gone, with all that it knew of the run.
        shutil.rmtree(sites.mesh.out("voss"))
        first, join, lost = batch, batch + 1, sites.n_dropped("voss")
        sites.schedule = Schedule(joins={"voss": join})
        for name in names:
            path = sites.mesh.folder(name) / "site.toml"
            path.write_text("\n".join([path.read_text(), *sites.schedule.lines()]))
            sites.mesh.running.pop(name)
        # The others go on, and then all of its samples count again.
        while not sites.counted(join, batch):
            arrive()
            batch = sites.wait()
        counted = sites.counted(first, batch)
        assert max(map(sites.off_by, counted)) < 1e-8
        assert len(sites.rows_in("voss", counted[-1])) >= lost
