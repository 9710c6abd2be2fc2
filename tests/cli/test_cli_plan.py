"""``eigenmesh plan``: it says what ``eigenmesh fit`` does with the same options."""

from __future__ import annotations

import json
import re

import numpy as np
import pytest


@pytest.mark.parametrize(
    "options",
    [
        (),
        ("--costs", "latency_ms=0,bandwidth_mbit=0.1,memory_gb=1e-6,gflops=1"),
        ("--solver", "fast-pca", "--averaging", "Chebyshev", "--tol", 1e-3),
        ("--scale", "--nodes", 4),
        ("--components", 0.8, "--averaging", "allreduce"),
    ],
    ids=lambda options: " ".join(str(option) for option in options if str(option).startswith("--")) or "usual",
)
def test_the_line_that_is_marked_is_what_fit_does(call, tmp_path, samples, options):
    np.save(tmp_path / "data.npy", samples)
    words = ("data.npy", "-k", 2, "--topology", "cycle", "--seed", 0, *options)
    planned = call("plan", *words)
    taken = re.search(r"^ *(\S+) +(\S+) +([\d,]+) .* taken *$", planned.stdout, re.MULTILINE)
    done = json.loads(call("fit", *words, "--json", "-").stdout)
    assert taken[1] == done["solver"]
    assert taken[2] == done["averaging"]
    assert int(taken[3].replace(",", "")) == done["rounds"]
    assert "Forecast from 240 samples of all nodes." in planned.stdout


def test_a_solver_that_will_not_converge_is_marked(call, tmp_path, samples):
    np.save(tmp_path / "data.npy", samples)
    planned = call("plan", "data.npy", "-k", 2, "--topology", "path", "--nodes", 20, "--max-rounds", 300)
    (line,) = re.findall(r"^ *fast-pca.*$", planned.stdout, re.MULTILINE)
    assert "> 300" in line
    assert "> 300: not within 300 rounds" in planned.stdout


def test_costs_are_checked(call, tmp_path, samples):
    np.save(tmp_path / "data.npy", samples)
    for command in ("plan", "fit"):
        done = call(command, "data.npy", "--costs", "bandwidth_mbit=-1")
        assert done.exit_code == 2
        assert "bandwidth" in done.stderr


LOSSY = "[links]\nlatency_ms = 10\njitter_ms = 40\nloss = 0.05\n[sites]\nproduct_ms = 10\n"


def test_under_conditions_it_says_which_solver_is_quickest(call, tmp_path):
    problem = (
        "synthetic:kind=paper,d=8,k=2,gap=0.6,n=400",
        "--nodes",
        4,
        "--topology",
        "cycle",
        "-k",
        2,
        "--tol",
        1e-4,
    )
    (tmp_path / "conditions.toml").write_text(LOSSY)
    words = (*problem, "--conditions", "conditions.toml")
    (said,) = re.findall(r"the quickest first: (.*)\.", " ".join(call("plan", *words).stdout.split()))
    order = re.findall(r"([a-z-]+)(?: \(which needs every link of a tree\))? in ([\d.]+) s", said)
    assert order[0][0] == "block-krylov"
    assert {name for name, _ in order} == {"block-krylov", "tracked-subspace", "deadlines", "asynchronous"}
    seconds = [float(each) for _, each in order]
    assert seconds == sorted(seconds)
    # The same as where they are played for themselves.
    played = json.loads(call("simulate", *words, "--json").stdout)
    assert {name: f"{each['seconds']:.1f}" for name, each in played.items()} == dict(order)


@pytest.mark.parametrize("options", [("-k", 0.9), ("-k", 2, "--privacy", "masked")], ids=["share", "masked"])
def test_conditions_are_refused_where_they_cannot_be_played(call, tmp_path, samples, options):
    np.save(tmp_path / "data.npy", samples)
    (tmp_path / "conditions.toml").write_text(LOSSY)
    done = call("plan", "data.npy", "--nodes", 4, *options, "--conditions", "conditions.toml")
    assert done.exit_code == 2
    assert "--conditions needs a whole number for --components and --privacy open" in " ".join(done.stderr.split())
