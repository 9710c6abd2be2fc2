"""What ``import eigenmesh`` offers: these names, all documented, and nothing else."""

from __future__ import annotations

import ast
import importlib
import importlib.util
import inspect
import re
from pathlib import Path
from types import ModuleType

import pytest

import eigenmesh

ROOT = Path(__file__).parents[1]
PACKAGES = ["averaging", "data", "errors", "graphs", "metrics", "networks", "solvers", "theory", "transports"]
NAMES = [
    "Certificate",
    "Compared",
    "Costs",
    "DecentralizedPCA",
    "GivenComponents",
    "Plan",
    "Record",
    "Result",
    "SavedModel",
    "StopReason",
    "StreamingPCA",
    "Traffic",
    "certify",
    "compare",
    "load_model",
    "run",
]
MODULES = ["eigenmesh", *(f"eigenmesh.{package}" for package in PACKAGES)]


def test_these_are_the_public_names():
    assert eigenmesh.__all__ == sorted(NAMES + PACKAGES, key=lambda name: (name.lower() == name, name))
    assert [name for name in eigenmesh.__all__ if isinstance(getattr(eigenmesh, name), ModuleType)] == PACKAGES


@pytest.mark.parametrize("module", MODULES)
def test_dir_shows_the_public_names_and_nothing_else(module):
    module = importlib.import_module(module)
    assert dir(module) == sorted(module.__all__)
    assert len(set(module.__all__)) == len(module.__all__)


@pytest.mark.parametrize("name", eigenmesh.__all__)
def test_every_public_name_is_there(name):
    value = getattr(eigenmesh, name)
    assert value is getattr(eigenmesh, name)
    assert getattr(value, "__name__", name).removeprefix("eigenmesh.") == name


def test_a_name_that_is_not_there_is_an_attribute_error():
    with pytest.raises(AttributeError, match="module 'eigenmesh' has no attribute 'PCA'"):
        _ = eigenmesh.PCA


def test_type_checkers_see_the_same_names():
    tree = ast.parse(Path(eigenmesh.__file__).read_text(encoding="utf-8"))
    (block,) = (node for node in tree.body if isinstance(node, ast.If))
    seen = [alias.name for statement in block.body for alias in statement.names]
    assert sorted(seen) == sorted(eigenmesh.__all__)


@pytest.mark.parametrize("module", MODULES)
def test_no_name_is_both_a_module_and_something_else(module):
    module = importlib.import_module(module)
    for name in module.__all__:
        value = getattr(module, name)
        if hasattr(module, "__path__") and not isinstance(value, ModuleType):
            assert importlib.util.find_spec(f"{module.__name__}.{name}") is None, name


API = {page.stem: page.read_text(encoding="utf-8") for page in sorted((ROOT / "docs" / "api").glob("eigenmesh*.md"))}


def documented() -> set[str]:
    """Full names of everything that the pages in docs/api show, as Sphinx reads them."""
    found = set()
    for module_name, text in API.items():
        found |= set(re.findall(r"^\.\. (?:autofunction|py:data):: (\S+)", text, re.MULTILINE))
        # Classes are listed on the page of their module, and have pages of their own.
        for listed in re.findall(r"^\.\. autosummary::\n(?:   :.*\n)+\n((?:   .+\n)+)", text, re.MULTILINE):
            found |= {f"{module_name}.{name}" for name in listed.split()}
        found |= {f"eigenmesh.{name}" for name in re.findall(r"`eigenmesh\.(\w+)` is that of", text)}
        if f".. automodule:: {module_name}\n```" in text:
            found |= {f"{module_name}.{name}" for name in importlib.import_module(module_name).__all__}
    return found


@pytest.mark.parametrize("module", MODULES)
def test_every_public_name_is_documented(module):
    names = {f"{module}.{name}" for name in importlib.import_module(module).__all__}
    assert names - documented() - set(API) == set()
    assert API[module].startswith(f"# {module}\n")


def test_everything_that_is_documented_is_public():
    for full_name in documented():
        module, _, name = full_name.rpartition(".")
        assert not any(part.startswith("_") for part in full_name.split(".")), full_name
        found = importlib.import_module(module)
        assert name in getattr(found, "__all__", vars(found)), full_name


@pytest.mark.parametrize("module", MODULES)
def test_classes_and_functions_say_what_they_are(module):
    module = importlib.import_module(module)
    for name in module.__all__:
        value = getattr(module, name)
        if inspect.isclass(value) or inspect.isfunction(value):
            assert (value.__doc__ or "").strip(), name
