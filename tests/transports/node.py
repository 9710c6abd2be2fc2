"""What every process of an engine executes: connect, run scenarios, write down what came of them."""

from __future__ import annotations

import importlib
import os
import sys
import traceback
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from eigenmesh.transports import Transport, run_threads, transport_by_name


@dataclass(frozen=True)
class Settings:
    """One launch, as it is handed to every node.

    Attributes
    ----------
    engine : name of the transport.
    folder : where nodes write: ``RANK.pid``, then ``RANK.npz`` or ``RANK.error``.
    module : a module with a table ``SCENARIOS``: name -> function of a transport.
    scenarios : names, in the order in which they are run.
    timeout_s : deadline of the transport's waits.
    """

    engine: str
    folder: Path
    module: str
    scenarios: tuple[str, ...]
    timeout_s: float

    def words(self) -> list[str]:
        """Arguments for Python that run a node with these settings."""
        named = [self.engine, str(self.folder), self.module, ",".join(self.scenarios), repr(self.timeout_s)]
        return ["-m", "transports.node", *named]

    @classmethod
    def from_words(cls, words: list[str]) -> Settings:
        """The settings that ``words`` wrote."""
        engine, folder, module, scenarios, timeout_s = words
        return cls(engine, Path(folder), module, tuple(scenarios.split(",")), float(timeout_s))


def run_scenarios(settings: Settings, transport: Transport) -> None:
    """Run the scenarios at one node and write their results, or the error, into the folder."""
    rank, folder = transport.rank, settings.folder
    # The test kills by this number what a launch leaves behind.
    (folder / f"{rank}.pid").write_text(str(os.getpid()))
    table = importlib.import_module(settings.module).SCENARIOS
    results: dict[str, np.ndarray] = {}
    try:
        for name in settings.scenarios:
            outcome = table[name](transport)
            results |= {f"{name}/{key}": np.asarray(value) for key, value in outcome.items()}
    except BaseException:
        (folder / f"{rank}.error").write_text(traceback.format_exc())
        raise
    np.savez(folder / f"{rank}.npz", **results)


def run_in_threads(settings: Settings, size: int) -> tuple[int, str]:
    """Run all nodes as threads of this process: status and text, as a command would give them."""
    run_all = run_threads
    if settings.engine == "tls":
        from transports.sites import run_sites as run_all
    try:
        run_all(size, lambda transport: run_scenarios(settings, transport), settings.timeout_s)
    except Exception:
        return 1, traceback.format_exc()
    return 0, ""


def read(folder: Path, size: int) -> tuple[dict[int, dict[str, np.ndarray]], dict[int, str]]:
    """Results and errors of all nodes, by rank."""
    results, errors = {}, {}
    for rank in range(size):
        if (path := folder / f"{rank}.npz").exists():
            with np.load(path, allow_pickle=False) as stored:
                results[rank] = dict(stored)
        if (path := folder / f"{rank}.error").exists():
            errors[rank] = path.read_text()
    return results, errors


def be_one(settings: Settings) -> None:
    """All that the process of a node does."""
    with transport_by_name(settings.engine, timeout_s=settings.timeout_s) as transport:
        run_scenarios(settings, transport)


if __name__ == "__main__":
    be_one(Settings.from_words(sys.argv[1:]))
