"""The code on the pages runs as written, prints what they show, and their figures are those that the code gives."""

from __future__ import annotations

import ast
import json
import re
from pathlib import Path

import pytest

import pages
from eigenmesh import graphs
from eigenmesh.averaging import AVERAGINGS
from eigenmesh.events import KINDS, VERSION
from eigenmesh.fitting import Costs
from eigenmesh.solvers import SOLVERS

ROOT = Path(__file__).parents[2]
README = ROOT / "README.md"


WITH_CODE = [page for page in pages.PAGES if pages.BLOCK.search(page.read_text(encoding="utf-8"))]


def blocks(page: Path) -> list[pages.Block]:
    return pages.blocks(page.read_text(encoding="utf-8"))


@pytest.mark.slow
@pytest.mark.parametrize("page", WITH_CODE, ids=lambda page: page.stem)
def test_the_code_on_a_page_runs_and_prints_what_is_shown(page):
    for block, printed in pages.outputs(page.read_text(encoding="utf-8")):
        assert not pages.difference(block.body, printed), f"run python tools/pages.py {page.relative_to(ROOT)}"


@pytest.mark.parametrize("page", WITH_CODE, ids=lambda page: page.stem)
def test_every_block_says_where_it_comes_from_and_code_that_is_not_run_imports_what_there_is(page):
    for block in blocks(page):
        if block.language == "python" and block.not_run:
            imports = [node for node in ast.parse(block.body).body if isinstance(node, ast.Import | ast.ImportFrom)]
            ours = [ast.unparse(node) for node in imports if "eigenmesh" in ast.unparse(node)]
            exec("\n".join(ours), {})


def page_of(*parts: str) -> str:
    return "\n\n".join(parts) + "\n"


CODE = "```python\nx = 3\nprint(x, 'rounds')\n```"


def test_an_output_is_put_where_it_is_shown():
    page = page_of(CODE, "```text\nold\n```", "words", "```python\nprint(x + 1)\n```", "```text\n```")
    fresh = pages.refreshed(page)
    assert fresh == page.replace("old\n", "3 rounds\n").replace("```text\n```", "```text\n4\n```")
    assert pages.refreshed(fresh) == fresh


def test_a_block_that_is_not_run_is_left_as_it_is():
    page = page_of(
        "<!-- not run: needs a GPU -->", "```python\n1 / 0\n```", "<!-- not run: slow -->\n```text\nold\n```"
    )
    assert pages.refreshed(page) == page


@pytest.mark.parametrize(
    ("page", "message"),
    [
        (page_of("```python\n1 / 0\n```"), "ZeroDivisionError"),
        (page_of("```py\n1\n```"), "mark code as python"),
        (page_of("```text\n1\n```"), "say which command prints this"),
        (page_of(CODE, "words between", "```text\n3 rounds\n```"), "say which command prints this"),
    ],
    ids=["fails", "py", "unknown", "apart"],
)
def test_a_page_that_cannot_be_trusted_is_refused(page, message):
    with pytest.raises(pages.PageError, match=message):
        pages.outputs(page)


@pytest.mark.parametrize(
    ("shown", "printed", "same"),
    [
        ("converged: 53 rounds", "converged:  55 rounds", True),
        ("converged: 53 rounds", "converged: 75 rounds", False),
        ("converged: 53 rounds", "stopped: 53 rounds", False),
        ("1,797 samples", "1,797 samples of", False),
        ("at most 6.6e-09", "at most 1.2e-08", True),
        ("at most 6.6e-09", "at most 1.2e-05", False),
        ("0.0082 s. Done", "1.5 s. Done", True),
    ],
)
def test_words_are_compared_whole_and_numbers_roughly(shown, printed, same):
    assert (pages.difference(shown, printed) == "") == same


def test_readme_example_is_short():
    code, *_ = (block for block in blocks(README) if block.language == "python")
    assert len([line for line in code.body.splitlines() if line.strip()]) == 10


@pytest.mark.parametrize("name", SOLVERS)
def test_every_solver_has_a_page_and_a_place_in_the_table(name):
    page = (ROOT / "docs" / "solvers" / f"{name}.md").read_text(encoding="utf-8")
    assert f'`solver="{name}"`, `eigenmesh.solvers.{SOLVERS[name].__name__}`' in page
    assert f"[`{name}`](solvers/{name}.md)" in (ROOT / "docs" / "which-solver.md").read_text(encoding="utf-8")


@pytest.mark.parametrize("page", sorted((ROOT / "docs" / "howto").glob("*.md")), ids=lambda page: page.stem)
def test_a_page_on_how_to_do_something_ends_with_a_next_step(page):
    _, last = page.read_text(encoding="utf-8").rsplit("\n## ", 1)
    assert re.match(r"Next\n\n.*\]\(\S+\)", last, re.DOTALL)


def test_the_first_page_has_ten_lines_of_code_and_three_doors():
    page = (ROOT / "docs" / "index.md").read_text(encoding="utf-8")
    (code,) = (block for block in pages.blocks(page) if block.language == "python")
    assert len([line for line in code.body.splitlines() if line.strip()]) == 10
    doors = re.findall(r"^````\{container\} door\n.*?^````$", page, re.MULTILINE | re.DOTALL)
    assert [re.search(r"rubric\} (.+)", door)[1] for door in doors] == ["I have data", "I do research", "I run a site"]
    for door in doors:
        assert len(re.findall(r"^\d+\. .*(?:\]\(|\{doc\})", door, re.MULTILINE)) >= 8


def test_the_curve_over_the_history_is_that_of_the_file_and_names_no_machine():
    history = json.loads((ROOT / "benchmarks" / "history.json").read_text(encoding="utf-8"))
    assert len(history["commits"]) >= 5
    assert re.fullmatch(r"\w+, \d+ cores, \d+ GB, Python [\d.]+", history["machine"])
    picture = (ROOT / "docs" / "images" / "history.svg").read_text(encoding="utf-8")
    assert all(f">{one['commit'][:7]}<" in picture for one in history["commits"])


def test_costs_are_the_defaults_of_the_planner():
    text = (ROOT / "docs" / "planner.md").read_text(encoding="utf-8")
    cells = re.findall(r"^\| `(\w+)`: .* \| ([\d.e]+)[^|]*\|$", text, re.MULTILINE)
    assert {name: float(value) for name, value in cells} == vars(Costs())


def test_the_page_of_events_lists_every_kind_with_its_fields():
    text = (ROOT / "docs" / "events.md").read_text(encoding="utf-8")
    rows = re.findall(r"^\| `(\w+)` \| [^|]+ \| ((?:`\w+`(?:, )?)+) \|$", text, re.MULTILINE)
    assert {kind: tuple(re.findall(r"\w+", fields)) for kind, fields in rows} == {
        kind: event._fields for kind, event in KINDS.items()
    }
    assert list(dict(rows)) == list(KINDS)
    assert f"| `version` | {VERSION};" in text


def test_rounds_of_averages_are_as_printed():
    text = (ROOT / "docs" / "networks.md").read_text(encoding="utf-8")
    table = re.search(r"^\| graph \| links.*?\n\n", text, re.MULTILINE | re.DOTALL)[0]
    heading, _, *rows = [[cell.strip() for cell in line.strip("|\n").split("|")] for line in table.split("\n") if line]
    assert {row[0] for row in rows} == set(graphs.TOPOLOGIES)
    for name, links, diameter, beta, *rounds in rows:
        weights = graphs.weighting("auto", graphs.topology(name, 16 if name == "hypercube" else 20))
        spectrum = weights.spectrum
        assert (links, diameter, beta) == (f"{weights.edges}", f"{spectrum.diameter}", f"{spectrum.beta:.4f}")
        for kernel, cell in zip(heading[4:], rounds, strict=True):
            assert cell == f"{AVERAGINGS[kernel]().prepare(weights).rounds:,}", (name, kernel)


@pytest.mark.parametrize(
    "page", [*pages.PAGES, ROOT / "CONTRIBUTING.md", ROOT / "SECURITY.md"], ids=lambda page: page.stem
)
def test_links_lead_somewhere(page):
    for target in re.findall(r"\]\(([^)#:]+)(?:#[^)]*)?\)", page.read_text(encoding="utf-8")):
        assert (page.parent / target).exists(), target
