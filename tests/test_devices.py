"""Where arrays lie: NumPy by default, PyTorch on a device by name."""

import subprocess
import sys

import array_api_compat
import numpy as np
import pytest

from eigenmesh import arrays as _gpu
from eigenmesh import run
from eigenmesh.arrays import devices_here, namespace_for, small_work_on_host
from eigenmesh.data import Shards, build_covariance, pooled_moments
from eigenmesh.data.datasets import geometric_spectrum
from eigenmesh.errors import InputError
from eigenmesh.networks import Stacked
from eigenmesh.solvers import BlockKrylov, FastPCA, TrackedSubspace
from problems import angles, make_problem

torch = pytest.importorskip("torch", reason="torch is not installed")
gpu = pytest.mark.skipif(not torch.cuda.is_available(), reason="there is no CUDA device")


def test_nothing_asked_for_is_numpy():
    xp, device = namespace_for(None)
    assert type(xp.asarray([1.0])) is np.ndarray
    assert device is None


@pytest.mark.parametrize("name", ["cpu", pytest.param("cuda", marks=gpu), pytest.param("cuda:0", marks=gpu)])
def test_a_name_is_pytorch_there(name):
    xp, device = namespace_for(name)
    placed = xp.asarray([1.0, 2.0], device=device)
    assert isinstance(placed, torch.Tensor)
    assert str(placed.device).startswith(name)
    assert xp is array_api_compat.array_namespace(placed)


@pytest.mark.parametrize("name", ["cuda:77", "tpu", "", "cpu:x"])
def test_what_is_not_there_is_refused_with_what_is(name):
    with pytest.raises(InputError, match=rf"device = '{name}' cannot be used; available devices: cpu"):
        namespace_for(name)


def test_a_device_without_float64_is_refused(monkeypatch):
    make = torch.empty

    def empty(*shape, dtype=None, device=None):
        if dtype is torch.float64:
            raise TypeError("Cannot convert a MPS Tensor to float64 dtype")
        return make(*shape, dtype=dtype, device="cpu")

    monkeypatch.setattr(torch, "empty", empty)
    with pytest.raises(InputError, match=r"device = 'mps' has no float64, .*; leave it out"):
        namespace_for("mps")


def test_devices_here_can_all_be_used():
    for name in devices_here(torch):
        assert str(namespace_for(name)[1]) in (name, f"{name}:0")


def test_without_pytorch_the_install_command_is_given():
    code = """
import sys

class NoTorch:
    def find_spec(self, name, path=None, target=None):
        if name == "torch":
            raise ImportError(name)

sys.meta_path.insert(0, NoTorch())
from eigenmesh.arrays import namespace_for
namespace_for("cpu")
"""
    ended = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=300)
    assert ended.returncode == 1
    assert "device = 'cpu' needs torch; install it with: pip install 'eigenmesh[torch]'" in ended.stderr


@pytest.mark.parametrize("name", ["cpu", pytest.param("cuda", marks=gpu)])
@pytest.mark.parametrize("dtype", ["float64", "float32", "float16"])
@pytest.mark.parametrize("solver", [FastPCA(), BlockKrylov(), TrackedSubspace()], ids=lambda solver: solver.name)
def test_a_stacked_run_on_a_device_gives_the_answer_of_numpy(name, dtype, solver):
    problem = make_problem(geometric_spectrum(12, 3, 0.6), 6, "cycle", seed=1)
    shards = Shards.from_list([part.astype(dtype) for part in problem.parts])

    def fit(device):
        network = Stacked(problem.network.weights)
        xp, place = namespace_for(device)
        covariance = build_covariance(shards, pooled_moments(shards, network), xp=xp, device=place)
        return run(solver, covariance, network, 3, tol=1e-6, max_rounds=200, seed=5)

    numpy, placed = fit(None), fit(name)
    assert placed.components.dtype == np.float64
    assert placed.traffic == numpy.traffic
    assert angles(placed.components, numpy.components.T).max() < 1e-12


def test_numpy_works_with_one_thread_beside_a_gpu_and_with_all_after_it(monkeypatch):
    from threadpoolctl import threadpool_info

    def threads():
        return [library["num_threads"] for library in threadpool_info() if library["user_api"] == "blas"]

    before = threads()
    with small_work_on_host(np.empty(0)):
        assert threads() == before
    monkeypatch.setattr(_gpu, "on_gpu", lambda array: True)
    with small_work_on_host(np.empty(0)):
        assert set(threads()) == {1}
    assert threads() == before
