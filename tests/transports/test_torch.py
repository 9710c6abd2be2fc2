"""torch.distributed: what is special to it. The contract that all transports keep is in test_contract.py."""

import os
import signal
import socket
import subprocess
import sys
import threading
from functools import cache
from pathlib import Path
from tempfile import TemporaryDirectory

import numpy as np
import pytest

torch = pytest.importorskip("torch", reason="torch is not installed")

from eigenmesh.errors import InputError, TransportError  # noqa: E402
from eigenmesh.transports.torch import MessageLayout, TorchTransport, short_reason  # noqa: E402
from transports.engines import ENGINES, launch  # noqa: E402
from transports.failures import CULPRIT, FOR_EVER_S  # noqa: E402
from transports.torch_scenarios import SOLVED  # noqa: E402

pytestmark = pytest.mark.slow

RANKS = 4


@cache
def suite():
    """All that ends well, in one launch."""
    names = ["tensors", "reduced", "existing-group", *SOLVED]
    with TemporaryDirectory() as folder:
        ended = launch(ENGINES["torch"], RANKS, "transports.torch_scenarios", names, Path(folder))
    assert ended.status == 0, ended.output
    assert ended.alive == ()
    return ended


def outcome(scenario, rank):
    prefix = f"{scenario}/"
    results = suite().results[rank]
    return {key.removeprefix(prefix): value for key, value in results.items() if key.startswith(prefix)}


def test_tensors_and_numpy_arrays_come_back_in_their_own_library():
    for rank in range(RANKS):
        got = outcome("tensors", rank)
        assert len(got) == 2
        assert all(got.values())


def test_an_all_reduce_leaves_its_argument_alone():
    for rank in range(RANKS):
        got = outcome("reduced", rank)
        assert got["own"].tolist() == [1, rank]
        assert got["total"].tolist() == [RANKS, sum(range(RANKS))]
        assert got["largest"].tolist() == [1, RANKS - 1]
        assert got["tensor"]


def test_a_group_that_exists_is_used_and_left():
    for rank in range(RANKS):
        got = outcome("existing-group", rank)
        assert got["heard"] == 7 + min((rank - 1) % RANKS, (rank + 1) % RANKS)
        assert got["there"]
        assert got["after"] == RANKS


@pytest.mark.parametrize("scenario", SOLVED)
def test_solvers_on_tensors_give_the_stacked_answer_of_numpy(scenario):
    for rank in range(RANKS):
        got = outcome(scenario, rank)
        assert got["angle"] < 1e-12
        assert got["same traffic"]
        assert got["same end"]
        assert got["same signs"]
        assert (got["values"] == outcome(scenario, 0)["values"]).all()
        assert (got["components"] == outcome(scenario, 0)["components"]).all()


@pytest.mark.skipif(not torch.cuda.is_available(), reason="there is no CUDA device")
@pytest.mark.parametrize("size", [1, 2])
def test_tensors_stay_on_the_gpu(size, tmp_path):
    ended = launch(ENGINES["torch"], size, "transports.torch_scenarios", ["on-gpu"], tmp_path)
    assert ended.status == 0, ended.output
    for rank in range(size):
        got = {key.removeprefix("on-gpu/"): value for key, value in ended.results[rank].items()}
        assert got["backend"] == ("nccl" if torch.cuda.device_count() >= size else "gloo")
        assert got["right"]
        assert (got["total"] == size * (size + 1) / 2).all()
        assert got["angle"] < 1e-12
        assert got["same traffic"]


def test_every_survivor_names_the_node_that_was_killed(tmp_path):
    scenarios = ["reduce-until-one-dies"]
    ended = launch(ENGINES["torch"], RANKS, "transports.torch_scenarios", scenarios, tmp_path, timeout_s=FOR_EVER_S)
    assert ended.status != 0
    assert ended.alive == ()
    assert sorted(ended.errors) == [rank for rank in range(RANKS) if rank != CULPRIT]
    for text in ended.errors.values():
        assert f"lost node {CULPRIT}: the process ended or the connection broke" in text


def test_a_deadline_is_not_taken_for_the_death_of_the_node_that_met_it(tmp_path):
    ended = launch(ENGINES["torch"], 3, "transports.torch_scenarios", ["wait-behind"], tmp_path, timeout_s=2.0)
    assert ended.status != 0
    assert f"DeadlineError: node 0 waited 2 s for node {CULPRIT}" in ended.errors[0]
    # gloo has closed the connection between nodes 0 and 2 by then.
    assert f"node 0 ended the run: DeadlineError: node 0 waited 2 s for node {CULPRIT}" in ended.errors[2]


def test_a_node_that_is_told_to_end_tells_the_others(tmp_path):
    ended = launch(
        ENGINES["torch"], RANKS, "transports.torch_scenarios", ["terminated"], tmp_path, timeout_s=FOR_EVER_S
    )
    assert ended.status != 0
    assert ended.alive == ()
    assert len(ended.errors) == RANKS
    for text in ended.errors.values():
        assert f"node {CULPRIT} was told to end (SIGTERM)" in text
    assert ended.by_itself


def free_port():
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


@pytest.mark.parametrize(("rank", "absent"), [(0, "nodes 1, 2"), (2, "node 0")])
def test_a_node_that_never_joins_is_named(rank, absent):
    code = "from eigenmesh.transports.torch import TorchTransport; TorchTransport(join_timeout_s=1.5)"
    place = {"RANK": str(rank), "WORLD_SIZE": "3", "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(free_port())}
    ended = subprocess.run(
        [sys.executable, "-c", code], env={**os.environ, **place}, capture_output=True, text=True, timeout=300
    )
    assert ended.returncode == 1
    assert f"DeadlineError: node {rank} waited 1.5 s for {absent} to join" in ended.stderr


@pytest.fixture
def alone(monkeypatch):
    """The environment of the only rank of a run."""
    place = {"RANK": "0", "WORLD_SIZE": "1", "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(free_port())}
    for name, value in place.items():
        monkeypatch.setenv(name, value)


def test_closing_leaves_nothing_behind(alone):
    threads, handler = threading.active_count(), signal.getsignal(signal.SIGTERM)
    for _ in range(2):
        with TorchTransport(device="cpu") as transport:
            assert (transport.rank, transport.size, transport.device, transport.backend) == (0, 1, "cpu", "gloo")
            assert transport.all_reduce(np.array([3.0]), "sum").tolist() == [3.0]
            assert transport.exchange((np.ones(2),), transport.links([], [])) == {}
            assert signal.getsignal(signal.SIGTERM) is not handler
        transport.close()
        assert not torch.distributed.is_initialized()
        assert threading.active_count() == threads
        assert signal.getsignal(signal.SIGTERM) is handler
    with pytest.raises(TransportError, match="node 0 has closed its links"):
        transport.all_reduce(np.ones(1), "sum")


def test_without_torchrun_the_command_is_named(monkeypatch):
    monkeypatch.delenv("RANK", raising=False)
    with pytest.raises(InputError, match=r"RANK.* is not set; start the processes with torchrun"):
        TorchTransport()


@pytest.mark.parametrize("settings", [{"timeout_s": 0}, {"join_timeout_s": -1.0}, {"backend": "smoke"}])
def test_bad_settings(alone, settings):
    with pytest.raises(InputError, match=f"{next(iter(settings))} = "):
        TorchTransport(**settings)


def test_one_array_is_sent_from_where_it_lies():
    array = np.arange(6.0).reshape(2, 3)
    packed = MessageLayout(torch, (array,), torch.device("cpu")).pack()
    array[0, 0] = 9
    assert packed.view(torch.float64)[0] == 9


def test_an_error_of_the_engine_is_cut_to_what_it_says():
    raw = "[/a/b/gloo/transport/tcp/pair.cc:553] Connection closed by peer [127.0.0.1]:20. This is typically caused by"
    assert short_reason(RuntimeError(raw)) == "Connection closed by peer [127.0.0.1]:20"
    assert short_reason(RuntimeError("")) == "RuntimeError"
