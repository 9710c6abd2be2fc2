"""Real processes on real engines give the simulator's answer: one launch an engine, all solvers in it."""

from functools import cache
from pathlib import Path
from tempfile import TemporaryDirectory

import numpy as np
import pytest

from networks.solver_runs import AVERAGINGS, SCENARIOS, SOLVERS, stacked
from problems import angles
from transports.engines import ENGINES, launch


@cache
def all_runs(name):
    engine = ENGINES[name]
    names = [scenario for scenario in SCENARIOS if engine.reduces or not scenario.endswith("-allreduce")]
    with TemporaryDirectory() as folder:
        return launch(engine, max(engine.sizes), "networks.solver_runs", names, Path(folder), limit_s=300)


@pytest.mark.parametrize("averaging", AVERAGINGS)
@pytest.mark.parametrize("solver", SOLVERS)
@pytest.mark.parametrize("engine", ENGINES)
def test_every_engine_gives_the_stacked_answer(engine, solver, averaging):
    if reason := ENGINES[engine].missing():
        pytest.skip(reason)
    if averaging == "allreduce" and not ENGINES[engine].reduces:
        pytest.skip(f"{engine} has no all-reduce")
    ended = all_runs(engine)
    assert ended.status == 0, ended.output
    assert ended.alive == ()
    size = max(ENGINES[engine].sizes)
    due = stacked(size, solver, averaging)
    at = [{key: ended.results[rank][f"{solver}-{averaging}/{key}"] for key in due} for rank in range(size)]
    for rank, got in enumerate(at):
        assert got["stop_reason"] == due["stop_reason"]
        assert (got["counts"] == due["counts"]).all(), (got["counts"], due["counts"])
        assert angles(got["node_components"][0], due["node_components"][rank].T).max() < 1e-12
        assert angles(got["components"], due["components"].T).max() < 1e-12
        # The same signs and order at all nodes, and the same decision from the same bits.
        assert (np.sum(got["components"] * due["components"], axis=1) > 0).all()
        assert (np.sum(got["node_components"][0] * at[0]["node_components"][0], axis=1) > 0).all()
        assert (got["values"] == at[0]["values"]).all()
        assert (got["error_bounds"] == at[0]["error_bounds"]).all()
