"""What MPI does beside the contract of all transports."""

import importlib.util
from functools import cache
from pathlib import Path
from tempfile import TemporaryDirectory

import numpy as np
import pytest

from transports.engines import ENGINES, launch
from transports.failures import CULPRIT, FOR_EVER_S

MPI = ENGINES["mpi"]
SIZE = 3
pytestmark = [pytest.mark.slow, pytest.mark.skipif(MPI.missing() is not None, reason=str(MPI.missing()))]


@cache
def good_runs():
    names = ["refusals", "groups", "transposed", *(["tensors"] if importlib.util.find_spec("torch") else [])]
    with TemporaryDirectory() as folder:
        ended = launch(MPI, SIZE, "transports.mpi_scenarios", names, Path(folder))
    assert ended.status == 0, ended.output
    return ended.results


def failed(scenario, folder, timeout_s=FOR_EVER_S):
    ended = launch(MPI, SIZE, "transports.mpi_scenarios", [scenario], folder, timeout_s=timeout_s)
    assert ended.by_itself, ended.output
    assert ended.status != 0
    assert ended.alive == ()
    return ended


@pytest.mark.parametrize("rank", range(SIZE))
def test_what_cannot_be_worked_with_is_refused_with_the_fix(rank):
    results = good_runs()[rank]
    assert "MPI has no sum of float16; use float32" in str(results["refusals/float16"])
    assert "MPI has no mean of int64; use float32" in str(results["refusals/mean"])
    assert "needs links from MPITransport.links, not Links" in str(results["refusals/links"])
    assert "timeout_s = 0 must be above 0" in str(results["refusals/timeout"])


@pytest.mark.parametrize("rank", range(SIZE))
def test_a_group_of_ranks_is_a_network_of_its_own(rank):
    results = good_runs()[rank]
    members = [other for other in range(SIZE) if other % 2 == rank % 2]
    assert results["groups/size"] == len(members)
    inner, whole = sum(members) - rank, sum(range(SIZE)) - rank
    assert results["groups/sums"].tolist() == [inner, whole, inner]
    assert results["groups/total"] == sum(members)


@pytest.mark.parametrize("rows", [2, 10_000])
def test_arrays_in_any_order_are_reduced(rows):
    last = SIZE * np.arange(3.0 * rows).reshape(rows, 3)[-1] + sum(range(SIZE))
    for results in good_runs().values():
        assert (results[f"transposed/{rows}"] == last).all()


@pytest.mark.skipif(not importlib.util.find_spec("torch"), reason="torch is not installed")
@pytest.mark.parametrize("rank", range(SIZE))
def test_tensors_stay_tensors(rank):
    results = good_runs()[rank]
    order = [rank, *(other for other in range(SIZE) if other != rank)]
    assert results["tensors/kinds"] == "Tensortorch.float32"
    assert (results["tensors/stack"] == np.array(order, dtype="float32")[:, None, None]).all()
    assert (results["tensors/total"] == sum(range(SIZE))).all()


def test_unlike_reductions_are_refused(tmp_path):
    ended = failed("unlike-reduction", tmp_path)
    said = "".join(ended.errors.values())
    assert f"node {CULPRIT} has a different kind of array than node 0, which has float64[4]" in said


def test_nodes_at_different_calls_are_named(tmp_path):
    ended = failed("other-call", tmp_path)
    assert "is in a different call than node" in ended.output


def test_a_swallowed_failure_does_not_hang_the_exit(tmp_path):
    ended = failed("carries-on", tmp_path, timeout_s=1.0)
    assert "it ended after a failed wait" in ended.output
