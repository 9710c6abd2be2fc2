"""A fit is decided in one place: each decision has one caller in the package."""

import ast
from functools import cache
from pathlib import Path

import pytest

import eigenmesh

SOURCE = Path(eigenmesh.__file__).parent
# What decides or measures a fit -> the files that may call it.
CALLERS = {
    "draw_seed": {"fitting/prepare.py"},
    "pooled_moments": {"fitting/node_data.py"},
    "own_moments": {"fitting/node_data.py"},
    "moments_by_sums": {"data/moments.py", "coordinators/asked.py"},
    # A simulation in virtual time measures each node's.
    "build_covariance": {"data/covariance.py", "fitting/node_data.py", "rehearsal/simulation.py"},
    "choose_for_each": {"fitting/node_data.py"},
    "choose_by_size": {"data/choice.py", "data/covariance.py", "fitting/node_data.py", "coordinators/asked.py"},
    "choose_method": {"fitting/prepare.py"},
    # The planner asks what memory every solver would take.
    "choose_covariance": {"fitting/prepare.py", "fitting/planner.py"},
    "measure": {"fitting/prepare.py"},
    "run": {"fitting/fit.py", "iteration/loop.py"},
    "run_to_fraction": {"fitting/fit.py"},
}


@cache
def calls() -> list[tuple[str, ast.expr]]:
    """Every call in the package: its file, and what is called."""
    return [
        (path.relative_to(SOURCE).as_posix(), node.func)
        for path in SOURCE.rglob("*.py")
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8")))
        if isinstance(node, ast.Call)
    ]


def callers(name: str) -> set[str]:
    """Files in which a function or a method of that name is called."""
    named = (lambda function: getattr(function, "id", None)) if name == "run" else _name
    return {file for file, function in calls() if named(function) == name}


def _name(function: ast.expr) -> str | None:
    return getattr(function, "id", None) or getattr(function, "attr", None)


@pytest.mark.parametrize("name", CALLERS)
def test_each_decision_has_one_caller(name):
    assert callers(name) <= CALLERS[name]
    assert callers(name), "nobody calls it any more: take it off the list"
