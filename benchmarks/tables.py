"""The whole command ``eigenmesh fit table.csv`` against a program of pandas and scikit-learn that does the same.

Run it with ``make bench-tables``. Both are processes of their own, from start to written model, in turns in one run.
The ratios are medians over the turns, of wall-clock time and of processor time.
"""

from __future__ import annotations

import resource
import subprocess
import sys
import time
from pathlib import Path
from statistics import median
from tempfile import TemporaryDirectory

import numpy as np
import pandas as pd
from rich.console import Console
from rich.table import Table

ROWS, COLUMNS, TURNS = 200_000, 50, 5
PANDAS = """
import sys
import numpy as np, pandas as pd
from sklearn.decomposition import PCA
frame = pd.read_csv(sys.argv[1])
if "id" in frame:
    frame = frame.set_index("id")
X = frame.to_numpy()
if np.isnan(X).any():
    from sklearn.impute import SimpleImputer
    X = SimpleImputer().fit_transform(X)
pca = PCA(5).fit(X)
np.savez(sys.argv[2], components=pca.components_, mean=pca.mean_, variance=pca.explained_variance_)
"""
# A module that is None cannot be imported.
WITHOUT = "import sys; sys.modules['pyarrow'] = None; from eigenmesh.cli import main; main()"


def write(folder: Path) -> dict[str, tuple[Path, list[str]]]:
    """Files, and the options that they are fitted with."""
    rng = np.random.default_rng(0)
    X = rng.standard_normal((ROWS, COLUMNS)) * np.linspace(3, 1, COLUMNS)
    frame = pd.DataFrame(X, columns=[f"x{column}" for column in range(COLUMNS)])
    small = frame.iloc[:500]
    tables = {"numbers": frame, "a field is empty": frame.copy(), "with ids": frame.copy(), "500 rows": small}
    tables["a field is empty"].iloc[ROWS // 2, 3] = np.nan
    tables["with ids"].insert(0, "id", [f"P{row:06}" for row in range(ROWS)])
    options = {"a field is empty": ["--missing", "mean"], "with ids": ["--table", "id_column=id"]}
    found = {}
    for number, (name, table) in enumerate(tables.items()):
        table.to_csv(folder / f"{number}.csv", index=False)
        found[name] = folder / f"{number}.csv", options.get(name, [])
    return found


def cost(command: list[str]) -> tuple[float, float]:
    """Seconds of wall-clock and of processor time of a command."""
    before, began = resource.getrusage(resource.RUSAGE_CHILDREN), time.perf_counter()
    subprocess.run(command, check=True, stdout=subprocess.DEVNULL)
    wall, after = time.perf_counter() - began, resource.getrusage(resource.RUSAGE_CHILDREN)
    return wall, after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime


def main() -> None:
    console = Console()
    table = Table("table", "pandas and scikit-learn", "eigenmesh", "ratio", "of processor time", "without pyarrow")
    with TemporaryDirectory() as name:
        folder = Path(name)
        for what, (file, options) in write(folder).items():
            fit = ["fit", str(file), *options, "--quiet", "--out", str(folder / "model.npz")]
            commands = {
                "pandas": [sys.executable, "-c", PANDAS, str(file), str(folder / "pandas.npz")],
                "eigenmesh": [str(Path(sys.executable).with_name("eigenmesh")), *fit],
                "without": [sys.executable, "-c", WITHOUT, *fit],
            }
            taken: dict[str, list[tuple[float, float]]] = {contestant: [] for contestant in commands}
            for _ in range(TURNS):
                for contestant, command in commands.items():
                    taken[contestant].append(cost(command))
            wall, processor = (
                {contestant: [each[kind] for each in costs] for contestant, costs in taken.items()} for kind in (0, 1)
            )
            ratios = [
                median(ours / theirs for ours, theirs in zip(kind[contestant], kind["pandas"], strict=True))
                for kind, contestant in ((wall, "eigenmesh"), (processor, "eigenmesh"), (wall, "without"))
            ]
            seconds = [f"{median(wall[contestant]):.2f} s" for contestant in ("pandas", "eigenmesh")]
            console.print(f"{what}: {', '.join(f'{ratio:.2f}' for ratio in ratios)}")
            table.add_row(what, *seconds, *(f"{ratio:.2f}" for ratio in ratios))
    console.print(table)


if __name__ == "__main__":
    main()
