"""``eigenmesh simulate``: seconds, bytes and errors of solvers, and input that cannot be worked with."""

from __future__ import annotations

import json
import re
from types import SimpleNamespace

import numpy as np
import pytest

from eigenmesh.cli.messages import Messages
from eigenmesh.cli.simulate import _print_tables
from eigenmesh.iteration import StopReason
from eigenmesh.rehearsal.simulation import Simulated

TIMES = "[links]\nlatency_ms = 20\noverhead_ms = 0\n[sites]\nproduct_ms = 10\n"
# Data of four nodes on a ring.
PROBLEM = ("synthetic:kind=paper,d=8,k=2,gap=0.6,n=400", "--nodes", 4, "--topology", "cycle", "-k", 2, "--tol", 1e-4)


@pytest.fixture
def simulate(call, tmp_path):
    def simulate(conditions, *words):
        (tmp_path / "conditions.toml").write_text(conditions)
        return call("simulate", *PROBLEM, "--conditions", "conditions.toml", *words)

    return simulate


def test_solvers_that_wait_and_that_do_not(simulate, tmp_path):
    done = simulate(TIMES, "--json", "--solvers", "block-krylov,deadlines", "--plot", tmp_path / "seconds.svg")
    assert done.exit_code == 0, done.stderr
    found = json.loads(done.stdout)
    for each in found.values():
        assert each["stop_reason"] == "converged"
        assert each["error_bound"] <= 1e-4
        assert each["curve"][-1][1] <= 1e-8
        assert each["bytes"] > 0
    assert found["block-krylov"]["seconds"] < found["deadlines"]["seconds"]
    assert (tmp_path / "seconds.svg").read_bytes().startswith(b"<?xml")


def test_the_quickest_is_named_first(simulate):
    words = ("--solvers", "tracked-subspace,block-krylov")
    lossy = "[links]\nlatency_ms = 10\njitter_ms = 40\nloss = 0.05\n[sites]\nproduct_ms = 10\n"
    (said,) = re.findall(r"the quickest first: (.*)\.", " ".join(simulate(lossy, *words).stdout.split()))
    order = re.findall(r"([a-z-]+) in ([\d.]+) s", said)
    assert [name for name, _ in order] == ["block-krylov", "tracked-subspace"]
    numbers = json.loads(simulate(lossy, *words, "--json").stdout)
    assert {name: f"{each['seconds']:.1f}" for name, each in numbers.items()} == dict(order)


def test_a_node_that_is_gone_is_named_and_the_status_says_so(simulate):
    done = simulate(TIMES + '[[kill]]\nsite = "2"\nat_s = 0.1\n', "--solvers", "block-krylov")
    assert done.exit_code == 1
    assert "all nodes wait for node 2 forever" in done.stderr


def test_the_table_is_whole_at_eighty_columns(monkeypatch, capsys):
    monkeypatch.setenv("COLUMNS", "80")
    certificate = SimpleNamespace(error_bound=1.2e-7)
    result = SimpleNamespace(stop_reason=StopReason.MAX_ROUNDS, certificate=certificate)
    curve = np.array([[987.64, 1e-7], [12345.6, 1e-11]])
    _print_tables(Messages.of(), {"tracked-subspace": Simulated(result, "", 987654.0, curve, 1, 999_900_000)})
    cells = capsys.readouterr().out.splitlines()[3].split()
    assert cells == [
        "tracked-subspace",
        "max_rounds",
        "987.6",
        "s",
        "12,346",
        "s",
        "274",
        "h",
        "999.9",
        "MB",
        "1.2e-07",
    ]


def test_no_node_is_left_and_that_is_said(simulate):
    gone = "".join(f'[[kill]]\nsite = "{node}"\nat_s = 0.1\n' for node in range(4))
    done = simulate(TIMES + gone, "--solvers", "block-krylov,deadlines,asynchronous")
    assert done.exit_code == 1
    assert "all nodes wait for node 1 forever" in done.stderr
    assert done.stderr.count("node 0, 1, 2, 3 is gone forever") == 2


@pytest.mark.parametrize(
    ("conditions", "words", "said"),
    [
        ("[links]\nlatency_ms = -1\n", (), "links.latency_ms = -1 must be a number from 0"),
        ("[links]\nloss = 1\n", (), "links.loss = 1 must be a number from 0 to below 1"),
        ("[links]\nloss = nan\n", (), "links.loss = nan must be a number from 0 to below 1"),
        (TIMES + '[[outage]]\nsite = "9"\nat_s = 1\nfor_s = 1\n', (), "unknown outage.site"),
        ("[sites]\nspread = -1\n", (), "sites.spread = -1 must be a number from 0"),
        ('[[site]]\nname = "9"\nslowdown = 2\n', (), "unknown site.name"),
        (TIMES, ("--solvers", "asynchronus"), "Did you mean 'asynchronous'"),
        (TIMES, ("--solvers", "deadlines,deadlines"), "names a solver twice"),
        (TIMES, ("--solvers", "deadlines:tick_s=0"), "tick_s = 0 must be"),
    ],
)
def test_wrong_input_is_named(simulate, conditions, words, said):
    done = simulate(conditions, *words)
    assert done.exit_code == 2
    assert said in done.stderr
