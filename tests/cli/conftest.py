"""Small data in files, and a way to call the command line."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from typer.testing import CliRunner

from eigenmesh.cli import app
from eigenmesh.data.datasets import gaussian, geometric_spectrum


@pytest.fixture(scope="session")
def samples() -> np.ndarray:
    """Samples (240, 6) whose leading components are well apart."""
    return gaussian(geometric_spectrum(6, 2, 0.5, 0.6), 240, seed=3, mean=np.arange(6.0))


@pytest.fixture
def call(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable:
    """Run the command line in an empty folder."""
    monkeypatch.chdir(tmp_path)
    return lambda *words: CliRunner().invoke(app, [str(word) for word in words])


@pytest.fixture
def write_csv(tmp_path: Path) -> Callable:
    """Write a table with a header: columns c0, c1, .. and perhaps one of labels called site."""

    def write(name: str, X: np.ndarray, labels: np.ndarray | None = None) -> Path:
        header = [f"c{column}" for column in range(X.shape[1])] + (["site"] if labels is not None else [])
        lines = [",".join(header)]
        for row, values in enumerate(X):
            cells = ["" if np.isnan(value) else repr(float(value)) for value in values]
            lines.append(",".join([*cells, str(labels[row])] if labels is not None else cells))
        path = tmp_path / name
        path.write_text("\n".join(lines) + "\n")
        return path

    return write
