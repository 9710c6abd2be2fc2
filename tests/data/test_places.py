"""Samples as tensors on a device: the moments, covariances and components of the same samples in NumPy.

Without a GPU they are CPU tensors, which take the same way; what differs on a GPU is told to be one where it is tested.
"""

import numpy as np
import pytest

from eigenmesh import DecentralizedPCA, graphs
from eigenmesh.data import CovarianceKind, Shards, Source, as_source, build_covariance
from eigenmesh.data import pooled_moments as moments_of
from eigenmesh.data.source import HOST, MatrixSource, Place
from eigenmesh.errors import DataError
from eigenmesh.fitting import NodeData, Request
from eigenmesh.networks import Stacked
from eigenmesh.solvers import BlockKrylov
from problems import angles

torch = pytest.importorskip("torch", reason="torch is not installed")
needs_gpu = pytest.mark.skipif(not torch.cuda.is_available(), reason="there is no CUDA device")
DEVICES = ["cpu", pytest.param("cuda", marks=needs_gpu)]
KINDS = [CovarianceKind.FORMED, CovarianceKind.MATRIX_FREE, CovarianceKind.CHUNKED]
N_NODES, D = 6, 5


@pytest.fixture
def X():
    rng = np.random.default_rng(0)
    return rng.standard_normal((200, D)) * [5.0, 3.0, 1.5, 1.0, 0.5] + 2.0


def network():
    return Stacked(graphs.metropolis(graphs.topologies.cycle(N_NODES)))


def shards_of(X, device):
    return Shards.from_array(X if device is None else MatrixSource(torch.asarray(X, device=device)), N_NODES)


@pytest.fixture
def gpu(monkeypatch):
    """CPU tensors that are taken for those of a GPU with this much free memory."""

    def with_memory(n_bytes):
        monkeypatch.setattr(Place, "is_gpu", property(lambda self: self.device is not None))
        monkeypatch.setattr(Place, "free_bytes", lambda self: n_bytes)
        monkeypatch.setattr("eigenmesh.data.source._staged", lambda values, device: torch.asarray(values))
        return Place.named("cpu")

    return with_memory


def test_a_tensor_is_a_source_that_reads_where_it_lies(X):
    source = MatrixSource(torch.asarray(X.astype("float32")), ("a", "b", "c", "d", "e"))
    assert isinstance(source, Source)
    assert (source.shape, source.dtype, source.n_stored) == ((200, D), np.float32, None)
    for rows in (slice(3, 9), np.array([7, 1, 7])):
        assert isinstance(source.read(rows), torch.Tensor)
        assert np.array_equal(source.read(rows), X[rows].astype("float32"))
    with pytest.raises(DataError, match="bfloat16; convert the data"):
        as_source(MatrixSource(torch.zeros(3, 2, dtype=torch.bfloat16)))


def test_arrays_of_other_libraries_on_the_cpu_are_taken_without_a_copy(X):
    import array_api_strict

    for array in (torch.asarray(X), array_api_strict.asarray(X)):
        source = as_source(array)
        assert isinstance(source, MatrixSource)
        assert np.array_equal(source.matrix, X)
    assert np.shares_memory(as_source(torch.asarray(X)).matrix, X)


@needs_gpu
def test_a_cuda_tensor_stays_on_the_card(X):
    tensor = torch.asarray(X, device="cuda")
    source = as_source(tensor)
    assert source.tensor.data_ptr() == tensor.data_ptr()


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("shift", [0.0, 1e7], ids=["small means", "large means"])
@pytest.mark.parametrize("missing", ["error", "mean"])
def test_moments_of_tensors_are_those_of_arrays(X, device, shift, missing):
    X = X + shift
    if missing == "mean":
        X[[3, 50, 50], [0, 1, 4]] = np.nan, np.inf, np.nan
    expected, found = (moments_of(shards_of(X, place), network(), missing=missing) for place in (None, device))
    assert found.n_missing == expected.n_missing == (3 if missing == "mean" else 0)
    assert np.allclose(found.mean, expected.mean, rtol=1e-14)
    assert np.allclose(found.variance, expected.variance, rtol=1e-12)


@pytest.mark.parametrize("device", DEVICES)
def test_what_is_not_finite_is_named_by_node_row_and_column(X, device):
    X[17, 3] = np.nan
    with pytest.raises(DataError, match=r"node \d, row \d+ \(row 17 of the data\), column 3 is NaN"):
        moments_of(shards_of(X, device), network())


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("dtype", ["float64", "float32"])
@pytest.mark.parametrize("lies", ["on the device", "in NumPy"])
@pytest.mark.parametrize("kind", KINDS)
def test_products_on_a_device_are_those_of_numpy(X, device, dtype, lies, kind):
    X = X.astype(dtype)
    here, there = shards_of(X, None), shards_of(X, device if lies == "on the device" else None)
    moments, place = moments_of(here, network()), Place.named(device)
    expected = build_covariance(here, moments, kind=kind)
    covariance = build_covariance(there, moments, kind=kind, xp=place.xp, device=place.device)
    B = np.random.default_rng(1).standard_normal((N_NODES, D, 2))
    product = covariance.apply(covariance.place(B))
    assert isinstance(product, torch.Tensor)
    assert product.device.type == device
    assert np.allclose(product.cpu(), expected.apply(B), rtol=0, atol=1e-12)
    U = np.linalg.qr(np.random.default_rng(2).standard_normal((D, 2)))[0]
    assert np.allclose(covariance.traces_beyond(U), expected.traces_beyond(U), rtol=1e-12)


def test_matrices_of_float32_samples_are_summed_in_float64():
    # 1 + 2^-12 is exact in float32, its square is not; summed in float32 the squares would lose it.
    X = np.tile(np.array([[1 + 2**-12, 0], [-1 - 2**-12, 1]], dtype="float32"), (20_000, 1))
    shards = Shards.from_list([MatrixSource(torch.asarray(X))])
    moments = moments_of(shards, Stacked(graphs.metropolis(graphs.topologies.complete(1))))
    place = Place.named("cpu")
    matrix = build_covariance(shards, moments, kind=CovarianceKind.FORMED, xp=place.xp, device="cpu").matrices[0]
    exact = np.cov(X.astype("float64").T)
    assert np.allclose(matrix.numpy(), exact, rtol=1e-12)


def test_samples_are_moved_to_a_gpu_once_and_gathered_by_node(X, gpu):
    shards = shards_of(X, None)
    moved = shards.moved(gpu(10**9))
    for before, after in zip(shards.blocks, moved.blocks, strict=True):
        assert isinstance(after.source, MatrixSource)
        assert after.source.device is not None
        assert after.rows == slice(0, before.n_rows)
        assert np.array_equal(after.read(slice(None)), before.read(slice(None)))
    assert shards.moved(HOST).blocks[0].source is shards.blocks[0].source
    back = shards_of(X, "cpu").moved(HOST)
    assert np.array_equal(back.blocks[2].read(slice(None)), shards.blocks[2].read(slice(None)))


@pytest.mark.parametrize(("memory", "kind"), [(10**9, "formed"), (10_000, "chunked")], ids=["room", "no room"])
def test_what_a_gpu_has_no_room_for_is_moved_in_chunks(X, gpu, memory, kind):
    gpu(memory)
    data = NodeData(shards_of(X, None), network().weights)
    request = Request(n_components=2, device="cpu")
    choice = data.choose_covariance(request, BlockKrylov(), 2)
    covariance = data.measure(network(), choice, Request(n_components=2, device="cpu")).covariance
    assert covariance.kind == kind
    assert (covariance.place(np.zeros((N_NODES, D, 1))).device.type, data.shards.device) == ("cpu", None)


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("given", ["array", "tensor", "parts"])
@pytest.mark.parametrize("kind", ["auto", *(kind.value for kind in KINDS)])
def test_a_fit_of_tensors_is_that_of_arrays(X, device, given, kind):
    expected = DecentralizedPCA(2, n_nodes=N_NODES, random_state=0).fit(X)
    tensor = torch.asarray(X, device=device)
    parts = [MatrixSource(part) for part in tensor.split(40)]
    data = {"array": X, "tensor": MatrixSource(tensor), "parts": parts}[given]
    n_nodes = None if given == "parts" else N_NODES
    pca = DecentralizedPCA(2, n_nodes=n_nodes, random_state=0, device=device, covariance=kind).fit(data)
    assert pca.result_.converged
    assert isinstance(pca.components_, np.ndarray)
    assert angles(pca.components_, expected.components_.T).max() < 1e-9
    assert np.allclose(pca.mean_, expected.mean_, rtol=1e-13)
    assert np.isclose(pca.noise_variance_, expected.noise_variance_, rtol=1e-10)


def test_without_a_device_a_fit_takes_place_where_the_samples_lie(X):
    for device, library in (("cpu", torch.Tensor), (None, np.ndarray)):
        data = NodeData(shards_of(X, device), network().weights)
        choice = data.choose_covariance(Request(n_components=2), BlockKrylov(), 2)
        covariance = data.measure(network(), choice, Request(n_components=2)).covariance
        assert isinstance(covariance.place(np.zeros((1, D, 1))), library)


@needs_gpu
def test_a_cuda_tensor_is_fitted_planned_and_transformed(X):
    tensor = torch.asarray(X, device="cuda")
    pca, expected = (DecentralizedPCA(2, n_nodes=N_NODES, random_state=0).fit(data) for data in (tensor, X))
    assert angles(pca.components_, expected.components_.T).max() < 1e-9
    assert np.allclose(pca.transform(tensor), expected.transform(X), atol=1e-8)
    assert pca.plan(tensor).best.solver == expected.plan(X).best.solver


@needs_gpu
@pytest.mark.parametrize("order", ["C", "F", "negative strides", "read-only"])
def test_a_large_array_arrives_on_the_card_as_it_is(order):
    values = np.random.default_rng(0).standard_normal((70_000, 150))
    values = {"C": values, "F": np.asfortranarray(values), "negative strides": values[::-1]}.get(order, values)
    values.flags.writeable = order != "read-only"
    there = Place.named("cuda").put(values)
    assert np.array_equal(there.cpu().numpy(), values)
