"""Kept runs: what is there is not made again, what is not or is broken is."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from small import made_up, small_experiment, small_panel

from eigenmesh.errors import EigenmeshError, UnreadableFileError
from eigenmesh.experiments import experiment
from eigenmesh.experiments import runs as _runs
from eigenmesh.experiments.experiment import DataSet, Method, TrialRun
from eigenmesh.experiments.runs import Store, kept_runs, make_runs, missing_data, runs_of
from eigenmesh.solvers import DeEPCA


@pytest.fixture
def store(tmp_path) -> Store:
    return Store(tmp_path)


@pytest.fixture
def runs() -> list[TrialRun]:
    return runs_of(small_experiment(), trials=2, seed=0)


def make_missing(runs, store) -> list[TrialRun]:
    """Make the runs that are not kept, and give them."""
    kept = kept_runs(runs, store)
    made: list[TrialRun] = []
    make_runs([run for run in runs if run not in kept], store, jobs=1, report=made.append)
    return made


def test_a_curve_comes_back_as_it_was(store, runs):
    curve = made_up([0.5, np.nan, 1e-17], rounds=[5, 10, 15])
    assert store.load(runs[0]) is None
    store.save(runs[0], curve)
    for before, after in zip(curve, store.load(runs[0]), strict=True):
        np.testing.assert_array_equal(before, after)
    assert store.load(runs[1]) is None


def test_all_is_made_once_and_one_deleted_file_is_made_again(store, runs):
    assert make_missing(runs, store) == runs
    assert len(list(store.folder.iterdir())) == len(runs) == 6
    assert make_missing(runs, store) == []
    before = store.load(runs[3])
    store.path(runs[3]).unlink()
    assert make_missing(runs, store) == [runs[3]]
    for old, new in zip(before, store.load(runs[3]), strict=True):
        np.testing.assert_array_equal(old, new)


@pytest.mark.parametrize("harm", ["empty", "text", "half", "other arrays"])
def test_a_broken_file_is_made_again(store, runs, harm):
    make_missing(runs, store)
    path = store.path(runs[0])
    content = path.read_bytes()
    match harm:
        case "empty":
            path.write_bytes(b"")
        case "text":
            path.write_text("not an archive")
        case "half":
            path.write_bytes(content[: len(content) // 2])
        case "other arrays":
            np.savez(path, error=np.ones(3))
    assert make_missing(runs, store) == [runs[0]]
    assert store.load(runs[0]) is not None


def test_more_trials_keep_those_that_are_done(store, runs):
    make_missing(runs, store)
    more = runs_of(small_experiment(), trials=3, seed=0)
    assert {run.trial for run in make_missing(more, store)} == {2}


def test_everything_that_matters_is_in_the_name(store, runs, monkeypatch):
    run = runs[0]
    others = [
        run._replace(seed=1),
        run._replace(trial=1),
        run._replace(panel=small_panel(rounds=61)),
        run._replace(panel=small_panel(topology="path")),
        run._replace(panel=small_panel(data=DataSet("digits"))),
        run._replace(method=Method("OI", DeEPCA(mixes=3))),
        run._replace(method=Method("OI", DeEPCA(mixes=4))),
    ]
    names = {store.path(each) for each in (run, *others)}
    assert len(names) == 1 + len(others)
    relabelled = run._replace(panel=replace(run.panel, title="Other words"), method=replace(run.method, label="x"))
    assert store.path(relabelled) == store.path(run)
    monkeypatch.setattr(experiment, "FORMAT", experiment.FORMAT + 1)
    assert store.path(run) not in names


@pytest.mark.slow
def test_processes_give_what_one_process_gives(tmp_path, runs):
    alone, together = Store(tmp_path / "a"), Store(tmp_path / "b")
    for store in (alone, together):
        store.folder.mkdir()
    make_missing(runs, alone)
    told: list[TrialRun] = []
    make_runs(runs, together, jobs=2, report=told.append)
    assert sorted(map(runs.index, told)) == list(range(len(runs)))
    for run in runs:
        for one, other in zip(alone.load(run), together.load(run), strict=True):
            np.testing.assert_allclose(one, other, rtol=1e-6, atol=1e-25)


@pytest.mark.slow
def test_an_error_in_a_worker_comes_back(tmp_path):
    runs = runs_of(small_experiment(data=DataSet("no such data")), trials=2, seed=0)
    with pytest.raises(EigenmeshError, match="unknown data set 'no such data'"):
        make_runs(runs, Store(tmp_path), jobs=2, report=lambda run: None)


def test_missing_data_say_where_to_put_them(monkeypatch):
    def nowhere(archive):
        raise UnreadableFileError(f"{archive.file} was not found; put it into /there")

    monkeypatch.setattr(_runs, "find_archive", nowhere)
    panels = [small_panel(data=DataSet(name)) for name in ("mnist", "digits", "cifar10", "mnist")]
    assert missing_data([*panels, small_panel()]) == {
        "mnist": "mnist.npz was not found; put it into /there",
        "cifar10": "cifar10_gray.npz was not found; put it into /there",
    }
