"""``eigenmesh site rehearse``: a table or values, and the exit status that a real peer would have."""

from __future__ import annotations

import json
import re

import pytest

from eigenmesh.rehearsal.conditions import EXAMPLE
from eigenmesh.sites.network_file import EXAMPLE as NETWORK

SHAPE = ("--features", 12, "--samples", "40,50,60")
TIMES = "[sites]\nproduct_ms = 1\n"


@pytest.fixture
def files(tmp_path):
    """A network of three sites, and conditions under which nothing goes wrong."""

    def write(conditions=TIMES, network=NETWORK):
        (tmp_path / "network.toml").write_text(network)
        (tmp_path / "conditions.toml").write_text(conditions)
        return "network.toml", "--conditions", "conditions.toml", *SHAPE

    return write


def test_it_says_how_every_site_ends(call, files):
    done = call("site", "rehearse", *files())
    assert done.exit_code == 0, done.stderr
    for name in ("oslo", "bergen", "trondheim"):
        assert any(name in line and "converged" in line for line in done.stdout.splitlines())
    assert "from start to end" in done.stdout


def test_values_are_the_same_for_the_same_seed(call, files):
    uncertain = TIMES + "[links]\njitter_ms = 30\nloss = 0.1\n"
    first, again, other = (call("site", "rehearse", *files(uncertain), "--json", "--seed", seed) for seed in (1, 1, 2))
    assert first.stdout == again.stdout != other.stdout
    found = json.loads(first.stdout)
    assert found["rounds_s"] < found["run_s"]
    assert len(found["links"]) == 6
    assert found["sites"]["oslo"]["product_s"] == 0.001


def test_its_own_example_runs_on_that_of_init(call, files):
    assert call("site", "rehearse", "--example").stdout == EXAMPLE
    done = call("site", "rehearse", *files(EXAMPLE), "--json")
    assert done.exit_code == 0, done.stderr
    assert json.loads(done.stdout)["sites"]["trondheim"]["starts"] == 2


@pytest.mark.parametrize(
    ("on_loss", "status", "end"), [("wait", 75, "parked"), ("abort", 4, "ended"), ("continue", 0, "converged")]
)
def test_the_status_is_that_of_a_real_peer(call, files, on_loss, status, end):
    network = NETWORK.replace('on_loss = "wait"', f'on_loss = "{on_loss}"').replace('"masked"', '"open"')
    done = call("site", "rehearse", *files(TIMES + '[[kill]]\nsite = "bergen"\nat_s = 0.2\n', network))
    assert done.exit_code == status
    assert any("oslo" in line and end in line for line in done.stdout.splitlines())
    assert ("oslo parked" in done.stderr) == (on_loss == "wait")
    assert bool(re.search(r"^lost +bergen", done.stdout, re.MULTILINE)) == (on_loss == "continue")


def test_a_run_that_needs_more_rounds_than_it_may_take_has_not_converged(call, files):
    network = NETWORK.replace("max_rounds = 5000", "max_rounds = 12").replace('"block-krylov"', '"fast-pca"')
    network = network.replace('"masked"', '"open"')
    done = call("site", "rehearse", *files(network=network))
    assert done.exit_code == 1
    assert "not converged" in done.stdout


@pytest.mark.parametrize(
    ("words", "said"),
    [
        ((), "no network file"),
        (("absent.toml",), "absent.toml does not exist"),
        (("network.toml", "--conditions", "absent.toml"), "eigenmesh site rehearse --example"),
        (("network.toml", "--samples", "10,20"), "or 3 of them"),
        (("network.toml", "--samples", "many"), "one number above 0"),
        (("network.toml", "--features", 4), "1 <= k < d"),
        (("network.toml", "--gap", 2), "gap must be in"),
    ],
)
def test_bad_input(call, files, words, said):
    files()
    done = call("site", "rehearse", *words)
    assert done.exit_code == 2
    assert said in done.stderr
