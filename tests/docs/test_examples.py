"""Every example runs and prints what it promises."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = pytest.mark.slow
EXAMPLES = sorted((Path(__file__).parents[2] / "examples").glob("*.py"))


@pytest.fixture(scope="module")
def output(tmp_path_factory):
    """Output of an example by name, each run once."""
    known: dict[str, str] = {}

    def of(name: str) -> str:
        if name not in known:
            (path,) = (path for path in EXAMPLES if path.stem == name)
            folder = tmp_path_factory.mktemp(name)
            done = subprocess.run(
                [sys.executable, str(path)], cwd=folder, capture_output=True, text=True, timeout=300, check=False
            )
            assert done.returncode == 0, done.stderr
            assert not done.stderr, done.stderr
            assert not list(folder.iterdir()), "an example leaves no files"
            known[name] = done.stdout
        return known[name]

    return of


@pytest.mark.parametrize("path", EXAMPLES, ids=lambda path: path.stem)
def test_example_runs_and_says_what_it_shows(path, output):
    assert output(path.stem).strip()
    assert path.read_text(encoding="utf-8").startswith('"""')
    assert len(path.read_text(encoding="utf-8").splitlines()) <= 60


def test_unlike_sites_are_right_only_with_the_pooled_mean(output):
    text = output("sites_unlike")
    sines = {
        name: [float(number) for number in re.search(rf"^ *{name}  (.*)$", text, re.MULTILINE)[1].split()]
        for name in ("eigenmesh", "own mean", "averaged")
    }
    assert max(sines["eigenmesh"]) <= 1e-6
    assert min(sines["own mean"]) > 0.1
    assert min(sines["averaged"]) > 0.1
    assert "converged" in text


def test_poorly_connected_graphs_take_more_rounds_and_block_krylov_few(output):
    rows = [line.replace(",", "").split() for line in output("compare_graphs").splitlines()[2:]]
    assert [row[0] for row in rows] == ["complete", "erdos_renyi", "star", "cycle", "path"]
    fast_alike, fast_by_digit, krylov_alike, krylov_by_digit = (
        {row[0]: int(row[column]) for row in rows} for column in (3, 5, 7, 9)
    )
    assert fast_alike["complete"] < fast_alike["cycle"] < fast_alike["path"]
    for graph in fast_alike:
        assert fast_alike[graph] < fast_by_digit[graph]
        assert krylov_by_digit[graph] == pytest.approx(krylov_alike[graph], rel=0.2)
        assert 10 * krylov_alike[graph] < fast_alike[graph]


def test_weights_of_ones_own_are_compared(output):
    rows = {line.split()[0]: line.split() for line in output("custom_network").splitlines() if "e-0" in line}
    assert {"own", "metropolis", "best"} <= set(rows)
    assert all(float(rows[name][-1]) <= 1e-6 for name in ("own", "metropolis", "best"))
