"""The contract that every transport keeps, on every engine: one launch a size, many scenarios in it."""

import re
from functools import cache
from pathlib import Path
from tempfile import TemporaryDirectory

import numpy as np
import pytest

from transports.engines import ENGINES, launch, row
from transports.failures import CULPRIT, FOR_EVER_S
from transports.scenarios import DUE

NAMES = list(DUE)
# A busy machine must not make those late that are well.
DEADLINE_S = 2
each_engine = pytest.mark.parametrize("engine", [row(name) for name in ENGINES])


def engine_named(name):
    engine = ENGINES[name]
    if reason := engine.missing():
        pytest.skip(reason)
    return engine


@cache
def whole_suite(name, size):
    """All scenarios at all nodes of one launch."""
    engine = ENGINES[name]
    names = [scenario for scenario in NAMES if engine.reduces or scenario != "all-reduced"]
    with TemporaryDirectory() as folder:
        return launch(engine, size, "transports.scenarios", names, Path(folder), by_launcher=size > 1)


LAUNCHES = [row(name, size) for name in ENGINES for size in ENGINES[name].sizes]
UNLIKE = ("size", "dtype", "shape", "big", "later")


@pytest.mark.parametrize("scenario", NAMES)
@pytest.mark.parametrize(("engine", "size"), LAUNCHES)
def test_every_node_gets_what_is_due(engine, size, scenario):
    if scenario == "all-reduced" and not engine_named(engine).reduces:
        pytest.skip(f"{engine} has no all-reduce")
    engine_named(engine)
    ended = whole_suite(engine, size)
    assert ended.status == 0, ended.output
    assert ended.alive == ()
    for rank in range(size):
        prefix = f"{scenario}/"
        got = {key.removeprefix(prefix): value for key, value in ended.results[rank].items() if key.startswith(prefix)}
        due = DUE[scenario](rank, size)
        assert sorted(got) == sorted(due)
        for key, value in due.items():
            value = np.asarray(value)
            assert got[key].shape == value.shape, key
            assert got[key].dtype == value.dtype, key
            assert (got[key] == value).all(), key


def failed(engine, scenario, folder, timeout_s=FOR_EVER_S, size=3):
    """A launch that must end badly, with nothing left running and no result at any node that failed.

    Unless a deadline is asked for, it lies beyond the limit of the launch, so that the failure itself must end it.
    """
    ended = launch(engine_named(engine), size, "transports.failures", [scenario], folder, timeout_s=timeout_s)
    assert ended.by_itself, ended.output
    assert ended.status != 0, ended.output
    assert ended.alive == (), ended.output
    return ended


@each_engine
def test_a_node_that_raises_ends_all_with_its_reason(engine, tmp_path):
    ended = failed(engine, "raises", tmp_path)
    assert "no such data here" in ended.output
    assert "ValueError: no such data here" in ended.errors[CULPRIT]
    assert not ended.results


@pytest.mark.parametrize("engine", [row(name) for name, engine in ENGINES.items() if engine.processes])
def test_a_node_that_dies_ends_all_and_is_named(engine, tmp_path):
    ended = failed(engine, "dies", tmp_path)
    assert re.search(rf"\b(node|rank) {CULPRIT}\b", ended.output), ended.output
    assert not ended.results


@pytest.mark.slow
@each_engine
def test_a_node_that_is_stuck_is_named_at_the_deadline(engine, tmp_path):
    ended = failed(engine, "sleeps", tmp_path, timeout_s=DEADLINE_S)
    late = [text for text in ended.errors.values() if "DeadlineError" in text]
    assert re.search(rf"waited {DEADLINE_S} s for node {CULPRIT}\b", late[0])
    assert CULPRIT not in ended.results


@pytest.mark.slow
@each_engine
def test_a_node_that_left_early_is_named_at_the_deadline(engine, tmp_path):
    ended = failed(engine, "leaves", tmp_path, timeout_s=DEADLINE_S)
    assert f"node {CULPRIT}" in ended.output


@pytest.mark.parametrize("engine", [row(name) for name, engine in ENGINES.items() if engine.reduces])
def test_an_all_reduce_has_a_deadline(engine, tmp_path):
    ended = failed(engine, "reduces-alone", tmp_path, timeout_s=DEADLINE_S)
    assert any("DeadlineError" in text for text in ended.errors.values())


# A launch of torch takes long, and all kinds go the same way there: one that is caught at once, and one that is not.
@pytest.mark.parametrize(
    ("engine", "kind"),
    [row(engine, kind) for engine in ENGINES for kind in (("big", "later") if engine == "torch" else UNLIKE)],
)
def test_unlike_messages_are_refused(engine, kind, tmp_path):
    # Kinds that have both gone over the links before may just not meet, until the deadline; others meet, however late.
    meets = kind != "later"
    ended = failed(engine, f"unlike-{kind}", tmp_path, timeout_s=10.0 if meets else 3.0)
    refusal = "InputError" if meets else "InputError|DeadlineError"
    assert any(re.search(refusal, text) for text in ended.errors.values()), ended.output
    assert not ended.results
