"""Real processes on real engines give the simulator's answer: one launch an engine, all solvers in it."""

from functools import cache
from pathlib import Path
from tempfile import TemporaryDirectory

import numpy as np
import pytest

from networks.solver_runs import AVERAGINGS, FITS, SCENARIOS, SOLVERS, fit_with, stacked
from problems import angles
from transports.engines import ENGINES, launch, row

KEYS = ("components", "traffic", "result", "history", "sent")
SIZE = 4


def unable(engine, scenario):
    """What the engine lacks for it, or None."""
    if scenario.endswith("-allreduce") and not engine.reduces:
        return "no all-reduce"
    return "links that stay" if scenario == "fit-changing" and not engine.changes_links else None


@cache
def all_runs(name):
    engine = ENGINES[name]
    names = [name for name in SCENARIOS if not unable(engine, name)]
    with TemporaryDirectory() as folder:
        return launch(engine, SIZE, "networks.solver_runs", names, Path(folder))


@pytest.mark.parametrize("averaging", AVERAGINGS)
@pytest.mark.parametrize("solver", SOLVERS)
@pytest.mark.parametrize("engine", [row(name) for name in ENGINES])
def test_every_engine_gives_the_stacked_answer(engine, solver, averaging):
    if reason := ENGINES[engine].missing():
        pytest.skip(reason)
    if lack := unable(ENGINES[engine], f"{solver}-{averaging}"):
        pytest.skip(f"{engine} has {lack}")
    ended = all_runs(engine)
    assert ended.status == 0, ended.output
    assert ended.alive == ()
    due = stacked(SIZE, solver, averaging)
    at = [{key: ended.results[rank][f"{solver}-{averaging}/{key}"] for key in due} for rank in range(SIZE)]
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
        assert (got["sent_by_all"] == due["sent_by_all"]).all()
    sent = sum(ended.results[rank][f"{solver}-{averaging}/sent"] for rank in range(SIZE))
    assert sent.tolist() == due["sent_by_all"].tolist()


@pytest.mark.parametrize("fit", FITS)
@pytest.mark.parametrize("engine", [row(name) for name in ENGINES])
def test_every_count_of_a_fit_is_what_the_transports_have_sent(engine, fit):
    if reason := ENGINES[engine].missing():
        pytest.skip(reason)
    if lack := unable(ENGINES[engine], fit):
        pytest.skip(f"{engine} has {lack}")
    ended = all_runs(engine)
    assert ended.status == 0, ended.output
    at = [{key: ended.results[rank][f"{fit}/{key}"] for key in KEYS} for rank in range(SIZE)]
    for got in at:
        assert (got["traffic"] == got["result"]).all()
        assert (got["traffic"] == got["history"]).all()
    _, messages, _, n_bytes = at[0]["traffic"]
    assert sum(got["sent"] for got in at).tolist() == [messages, n_bytes]
    # Which averaging is cheapest depends on whether there is an all-reduce.
    if fit != "fit-auto" or not ENGINES[engine].reduces:
        simulated = fit_with(fit, SIZE)
        assert at[0]["traffic"].tolist() == [*vars(simulated.traffic_).values()]
        if "integers" in fit or "masked" in fit:
            assert {got["components"].tobytes() for got in at} == {simulated.components_.tobytes()}
        assert angles(at[0]["components"], simulated.components_.T).max() < 1e-12
