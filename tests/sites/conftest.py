"""A description of a network to change, and the folders that are made from it."""

from __future__ import annotations

from pathlib import Path

import pytest
from typer.testing import CliRunner

NETWORK = """\
run = "cohort-1"
edges = [["oslo", "bergen"], ["bergen", "trondheim"], ["trondheim", "oslo"]]

[[site]]
name = "oslo"
address = "pca.oslo.example:7400"

[[site]]
name = "bergen"
address = "127.0.0.1:7401"

[[site]]
name = "trondheim"

[settings]
n_components = 3
tol = 1e-7
"""


@pytest.fixture
def write_network(tmp_path):
    """Write NETWORK with some of its text replaced."""

    def write(*changes: tuple[str, str]) -> Path:
        text = NETWORK
        for old, new in changes:
            assert old in text
            text = text.replace(old, new)
        path = tmp_path / "network.toml"
        path.write_text(text)
        return path

    return write


@pytest.fixture
def mesh(write_network, tmp_path) -> Path:
    """Folders of all sites and of the authority."""
    from eigenmesh.cli import app

    done = CliRunner().invoke(app, ["site", "init", str(write_network()), "--out", str(tmp_path / "mesh")])
    assert done.exit_code == 0, done.output
    return tmp_path / "mesh"
