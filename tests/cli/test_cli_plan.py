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
