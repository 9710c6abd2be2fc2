"""Batches on every engine: threads, MPI, torch.distributed, Dask, and arrays on a device."""

import numpy as np
import pytest
from sklearn.decomposition import PCA

from eigenmesh import StreamingPCA
from eigenmesh.errors import DataError
from problems import angles
from transports.engines import ENGINES, launch, row
from transports.stream_scenarios import N_BATCHES, D, K, rows_of

SIZE = 3


@pytest.mark.parametrize("name", [row("threads"), row("torch"), row("mpi")])
def test_every_node_has_the_components_of_all_batches(name, tmp_path):
    engine = ENGINES[name]
    if engine.missing() is not None:
        pytest.skip(engine.missing())
    ended = launch(engine, SIZE, "transports.stream_scenarios", ["batches", "clocks"], tmp_path)
    assert ended.status == 0, ended.output
    parts = [[rows_of(rank, batch) for batch in range(N_BATCHES)] for rank in range(SIZE)]
    whole = np.vstack([rows for each in parts for rows in each])
    truth = PCA(K).fit(whole).components_.T
    for rank, results in ended.results.items():
        got = {key.partition("/")[2]: value for key, value in results.items() if key.startswith("batches/")}
        assert angles(got["components"], truth).max() <= got["bound"] < 1e-9
        assert np.allclose(got["mean"], whole.mean(axis=0), rtol=1e-13)
        assert (got["samples"], got["seen"]) == (len(whole), sum(map(len, parts[rank])))
        assert "stream.batch_number: 2 at node 1, 1 at nodes 0, 2" in str(results["clocks/tick"])
        assert 'stream.batch: "b" at node 1, "a" at nodes 0, 2' in str(results["clocks/id"])
        # What was refused was not counted.
        assert results["clocks/id-seen"] == results["clocks/tick-seen"] == len(parts[rank][0])


def test_moments_stay_on_the_device():
    torch = pytest.importorskip("torch", reason="torch is not installed")
    devices = ["cpu", *(["cuda"] if torch.cuda.is_available() else [])]
    for device in devices:
        pca, whole = StreamingPCA(K, n_nodes=SIZE, device=device, tol=1e-9), []
        for batch in range(3):
            rows = rows_of(0, batch)
            # A tensor on a GPU is not copied to the host; on the CPU it is the same memory.
            given = torch.asarray(rows, device=device)
            pca.partial_fit(given, nodes=np.arange(len(rows)) % SIZE)
            whole.append(rows)
            assert pca.result_.converged
        for node in pca._stream.nodes:
            assert isinstance(node.summary.scatter, torch.Tensor)
            assert node.summary.scatter.device.type == device
        truth = PCA(K).fit(np.vstack(whole))
        assert angles(pca.components_, truth.components_.T).max() < 1e-9
        assert np.allclose(pca.explained_variance_, truth.explained_variance_, rtol=1e-10)
        assert np.allclose(pca.noise_variance_, truth.noise_variance_, rtol=1e-10)
        assert pca.batch_.samples == len(rows)


@pytest.fixture
def da():
    dask = pytest.importorskip("dask", reason="dask is not installed: pip install 'eigenmesh[dask]'")
    array = pytest.importorskip("dask.array", reason="dask.array is not installed: pip install 'eigenmesh[dask]'")
    with dask.config.set(scheduler="synchronous"):
        yield array


@pytest.mark.parametrize("settings", [{"forgetting": 0.9}, {"window": 3}], ids=["forgetting", "window"])
def test_dask_batches_are_taken_as_their_rows(da, settings):
    pca, here = (StreamingPCA(K, n_nodes=SIZE, tol=1e-9, random_state=0, **settings) for _ in range(2))
    for batch in range(4):
        rows = rows_of(0, batch)
        pca.partial_fit(da.from_array(rows, chunks=(13 + batch, 5)), nodes=np.arange(len(rows)) % SIZE)
        here.partial_fit(rows, nodes=np.arange(len(rows)) % SIZE)
        assert pca.result_.converged
    assert angles(pca.components_, here.components_.T).max() < 1e-9
    assert np.allclose(pca.explained_variance_, here.explained_variance_, rtol=1e-12)
    assert np.allclose(pca.mean_, here.mean_, rtol=1e-13)
    assert pca.n_samples_seen_ == 160
    assert pca.batch_.samples == here.batch_.samples == 40
    assert np.allclose(pca.batch_residuals_, here.batch_residuals_, rtol=1e-9)
    pca.partial_fit(da.zeros((0, D)))
    assert pca.n_samples_seen_ == 160


def test_an_entry_of_a_dask_batch_that_is_not_finite_is_named(da):
    rows = rows_of(0, 0)
    rows[17, 2] = np.nan
    with pytest.raises(DataError, match="the batch: row 17, column 2 is nan"):
        StreamingPCA(K).partial_fit(da.from_array(rows, chunks=(13, D)))
