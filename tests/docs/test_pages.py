"""The code on the pages runs as written, and their figures are those that the code gives."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from eigenmesh import graphs
from eigenmesh.averaging import averaging_by_name
from eigenmesh.fitting._planner import Costs
from eigenmesh.solvers import SOLVERS

ROOT = Path(__file__).parents[2]
PAGES = sorted(page for page in (ROOT / "docs").rglob("*.md") if "_build" not in page.parts)
WITH_CODE = [page for page in PAGES if "```python" in page.read_text(encoding="utf-8")]


def blocks(page: Path, language: str) -> list[str]:
    return re.findall(rf"^```{language}\n(.*?)^```", page.read_text(encoding="utf-8"), re.MULTILINE | re.DOTALL)


def run_python(code: str, folder: Path) -> str:
    # Threads of several tests at once would wait for each other far longer than they work.
    environment = {**os.environ, "OMP_NUM_THREADS": "1"}
    done = subprocess.run(
        [sys.executable, "-c", code],
        cwd=folder,
        env=environment,
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


@pytest.fixture(scope="module")
def readme_output(tmp_path_factory: pytest.TempPathFactory) -> str:
    (code,) = blocks(ROOT / "README.md", "python")
    return run_python(code, tmp_path_factory.mktemp("readme"))


def test_readme_example_converges_to_what_scikit_learn_gives(readme_output):
    converged, certified, true = readme_output.splitlines()
    assert converged.startswith("converged: 10 sites")
    bound, angle = float(certified.split()[-1]), float(true.split()[-1])
    assert angle <= bound <= 1e-6


def test_readme_shows_the_output_of_its_example(readme_output):
    shown = blocks(ROOT / "README.md", "text")[0]
    words = [re.sub(r"\d[\d.,e-]*", "#", text) for text in (shown, readme_output)]
    assert words[0] == words[1]
    rounds = [int(re.search(r"(\d+) rounds", text)[1]) for text in (shown, readme_output)]
    assert rounds[0] == pytest.approx(rounds[1], rel=0.25)


def test_readme_example_is_short():
    (code,) = blocks(ROOT / "README.md", "python")
    assert len([line for line in code.splitlines() if line.strip()]) == 10


@pytest.mark.parametrize("name", SOLVERS)
def test_every_solver_has_a_page_and_a_place_in_the_readme(name):
    page = (ROOT / "docs" / "solvers" / f"{name}.md").read_text(encoding="utf-8")
    assert f'`solver="{name}"`, `eigenmesh.solvers.{SOLVERS[name].__name__}`' in page
    assert f"[`{name}`](docs/solvers/{name}.md)" in (ROOT / "README.md").read_text(encoding="utf-8")


def test_costs_are_the_defaults_of_the_planner():
    text = (ROOT / "docs" / "planner.md").read_text(encoding="utf-8")
    cells = re.findall(r"^\| `(\w+)`: .* \| ([\d.e]+)[^|]*\|$", text, re.MULTILINE)
    assert {name: float(value) for name, value in cells} == vars(Costs())


@pytest.mark.parametrize("page", WITH_CODE, ids=lambda page: page.stem)
def test_code_on_a_page_runs(page, tmp_path):
    run_python("\n".join(blocks(page, "python")), tmp_path)


def test_rounds_of_averages_are_as_printed():
    text = (ROOT / "docs" / "networks.md").read_text(encoding="utf-8")
    table = re.search(r"^\| graph \| links.*?\n\n", text, re.MULTILINE | re.DOTALL)[0]
    heading, _, *rows = [[cell.strip() for cell in line.strip("|\n").split("|")] for line in table.split("\n") if line]
    assert {row[0] for row in rows} == set(graphs.TOPOLOGIES)
    for name, links, diameter, beta, *rounds in rows:
        weights = graphs.metropolis(graphs.topology(name, 16 if name == "hypercube" else 20))
        spectrum = weights.spectrum
        assert (links, diameter, beta) == (f"{weights.edges}", f"{spectrum.diameter}", f"{spectrum.beta:.4f}")
        for kernel, cell in zip(heading[4:], rounds, strict=True):
            assert cell == f"{averaging_by_name(kernel).prepare(weights).rounds:,}", (name, kernel)


@pytest.mark.parametrize("page", [ROOT / "README.md", *PAGES], ids=lambda page: page.stem)
def test_links_lead_somewhere(page):
    for target in re.findall(r"\]\(([^)#:]+)(?:#[^)]*)?\)", page.read_text(encoding="utf-8")):
        assert (page.parent / target).exists(), target
