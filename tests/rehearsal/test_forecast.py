"""Forecasts of runs: what they take, how they end, and that a seed decides them."""

import numpy as np
import pytest
from conditions_played import play

from eigenmesh.rehearsal.world import FLUSH_EVERY_S, OWN_DISK
from problems import angles, truth

KILL = '[[kill]]\nsite = "bergen"\nat_s = 0.3\n'
PATH = (("oslo", "bergen"), ("bergen", "trondheim"))


def ends(found):
    return {name: site.end for name, site in found.sites.items()}


def values(found):
    return {**vars(found), "components": found.components.tobytes()}


@pytest.mark.parametrize("solver", ["block-krylov", "auto"])
def test_the_rehearsed_fit_finds_the_components_of_all_samples(tmp_path, solver):
    found, tables = play(tmp_path, solver=solver)
    assert set(ends(found).values()) == {"converged"}
    assert angles(found.components, truth(np.vstack(list(tables.values())))[1]).max() < 1e-6
    assert found.error_bound < 1e-6
    assert (found.lost_sites, found.lost_links, found.unmet) == ((), (), ())


def test_a_seed_decides_everything(tmp_path):
    uncertain = "[links]\njitter_ms = 30\nloss = 0.05\n"
    first, again, other = (play(tmp_path, uncertain, seed=seed)[0] for seed in (3, 3, 4))
    assert values(first) == values(again)
    assert first.rounds_s != other.rounds_s


def test_rounds_take_what_the_path_to_the_middle_and_back_takes(tmp_path):
    """On a path of three, an average by a tree is a message to the middle and one back, one round each."""
    quick, slow = (
        play(tmp_path, f"[links]\nlatency_ms = {ms}\noverhead_ms = 0\nbandwidth_mbit = 1e6\n", edges=PATH)[0]
        for ms in (10, 110)
    )
    rounds = {site.rounds for site in quick.sites.values()}
    assert rounds == {site.rounds for site in slow.sites.values()}
    # Time runs from the first message of the middle, which waits for one, to the last message, which has yet to arrive.
    # After the set-up the ends wait for what the other end has heard, over two links.
    assert slow.rounds_s - quick.rounds_s == pytest.approx(0.1 * (rounds.pop() - 2 + 2), abs=1e-6)


def test_products_and_the_set_up_take_their_time(tmp_path):
    found, _ = play(tmp_path, '[[site]]\nname = "bodo"\nproduct_ms = 500\nset_up_ms = 2000\n')
    quick, _ = play(tmp_path)
    n_products = (quick.sites["bodo"].computes_s - 0.003) / 0.001
    assert n_products == pytest.approx(round(n_products))
    assert found.sites["bodo"].computes_s == pytest.approx(2 + 0.5 * n_products)
    # Some of it while the others' messages are under way.
    more = 1.997 + 0.499 * n_products
    assert more - 0.2 < found.rounds_s - quick.rounds_s <= more
    # Its parent in the tree waits for it, and the others for its parent.
    assert "bodo" in {next(iter(found.sites[name].waits_s)) for name in ("oslo", "trondheim")}


def test_times_that_are_not_stated_are_measured_and_scaled(tmp_path):
    found, _ = play(tmp_path, '[[site]]\nname = "oslo"\nslowdown = 1\n[[site]]\nname = "bodo"\nslowdown = 50\n')
    assert found.work["bodo"].product_s == pytest.approx(50 * found.work["oslo"].product_s)
    assert found.work["bergen"] == (0.003, 0.001)


def test_what_the_solver_computes_beside_its_products_takes_time_where_times_are_measured(tmp_path):
    measured, _ = play(tmp_path, '[[site]]\nname = "oslo"\nslowdown = 1000\n')
    stated = measured.sites["bodo"].computes_s
    product_s, n_products = measured.work["oslo"].product_s, round((stated - 0.003) / 0.001)
    beside_s = measured.sites["oslo"].computes_s - measured.work["oslo"].set_up_s - n_products * product_s
    assert beside_s > 0
    assert stated == pytest.approx(0.003 + 0.001 * n_products)


def test_a_narrow_link_takes_the_time_of_its_bytes(tmp_path):
    """0.01 Mbit/s are 1250 bytes a second; the end waits for everything that was sent before it."""
    found, _ = play(tmp_path, "[links]\nlatency_ms = 0\nbandwidth_mbit = 0.01\n", edges=PATH)
    assert set(ends(found).values()) == {"converged"}
    assert found.run_s >= max(size for _, size, _ in found.links.values()) / 1250


def test_lost_packets_are_sent_again_and_take_time(tmp_path):
    lossy, _ = play(tmp_path, "[links]\nloss = 0.2\n")
    clean, _ = play(tmp_path)
    assert sum(resent for _, _, resent in lossy.links.values()) > 10
    assert sum(resent for _, _, resent in clean.links.values()) == 0
    assert lossy.rounds_s > clean.rounds_s + 1
    np.testing.assert_array_equal(lossy.components, clean.components)


def test_an_outage_is_waited_out(tmp_path):
    outage = '[[outage]]\nlink = ["oslo", "bergen"]\nat_s = 0.3\nfor_s = 10\n'
    found, _ = play(tmp_path, outage)
    assert set(ends(found).values()) == {"converged"}
    assert 10 < found.run_s < 14


def test_a_killed_site_that_comes_back_takes_the_run_up_again(tmp_path):
    found, _ = play(tmp_path, KILL + "restart_after_s = 5\n")
    assert set(ends(found).values()) == {"converged"}
    assert found.sites["bergen"].starts == 2
    assert 5 < found.run_s < 10


@pytest.mark.parametrize(("on_loss", "end"), [("wait", "parked"), ("abort", "ended")])
@pytest.mark.parametrize("fault", [KILL, '[[outage]]\nsite = "bergen"\nat_s = 0.3\nfor_s = 500\n'], ids=["kill", "out"])
def test_a_loss_ends_as_the_settings_say(tmp_path, on_loss, end, fault):
    found, _ = play(tmp_path, fault, on_loss=on_loss)
    others = {name: site for name, site in found.sites.items() if name != "bergen"}
    assert {site.end for site in others.values()} == {end}
    assert all("bergen" in site.why for site in others.values())
    assert found.sites["bergen"].end == ("killed" if fault is KILL else end)
    assert found.error_bound is None
    # The patience of the sites, and how long the host is silent before.
    assert 20 < max(site.at_s for site in others.values()) < 45


def test_the_others_continue_without_a_killed_site(tmp_path):
    found, tables = play(tmp_path, KILL, on_loss="continue")
    assert ends(found) == {**dict.fromkeys(tables, "converged"), "bergen": "killed"}
    assert found.lost_sites == ("bergen",)
    assert found.lost_links == (("bergen", "oslo"), ("bergen", "trondheim"))
    pooled = np.vstack([table for name, table in tables.items() if name != "bergen"])
    assert angles(found.components, truth(pooled)[1]).max() < 1e-6


def test_a_parked_run_that_is_started_again_goes_on_once_the_link_is_back(tmp_path):
    outage = '[[outage]]\nsite = "bergen"\nat_s = 0.3\nfor_s = 50\n'
    parked, _ = play(tmp_path, outage)
    assert set(ends(parked).values()) == {"parked"}
    (tmp_path / "again").mkdir()
    found, _ = play(tmp_path / "again", outage, parked_s=10)
    assert set(ends(found).values()) == {"converged"}
    assert found.sites["oslo"].starts > 1


def test_faults_after_the_end_are_told(tmp_path):
    found, _ = play(tmp_path, '[[kill]]\nsite = "bergen"\nat_s = 1000\n')
    assert [fault.at_s for fault in found.unmet] == [1000.0]


def test_a_flush_of_the_journal_takes_as_long_as_that_of_a_real_site(tmp_path):
    journal = pytest.importorskip("eigenmesh.transports.tls.journal")
    assert FLUSH_EVERY_S == journal.FLUSH_EVERY_S
    found, _ = play(tmp_path, privacy="open")
    assert found.sites["oslo"].waits_s[OWN_DISK] > FLUSH_EVERY_S
