"""What ``import eigenmesh`` offers."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest

import eigenmesh


def test_dir_shows_the_public_names_and_nothing_else():
    assert dir(eigenmesh) == sorted(eigenmesh.__all__)


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
