"""DecentralizedPCA as one node of many: every process calls fit on its own samples."""

import numpy as np
import pandas as pd
import pytest
from sklearn.base import clone
from sklearn.datasets import load_digits

from eigenmesh import DecentralizedPCA, graphs
from eigenmesh.averaging import AllReduce
from eigenmesh.data import Shards
from eigenmesh.errors import InputError, MissingExtraError, UnknownNameError
from eigenmesh.transports import run_threads
from eigenmesh.transports.threads import ThreadHub
from problems import angles

M = 5


@pytest.fixture(scope="module")
def parts():
    return np.array_split(load_digits().data, [100, 130, 700, 1200])


def nodes(parts, settings, **fit):
    return run_threads(
        M,
        lambda transport: DecentralizedPCA(transport=transport, random_state=0, **settings).fit(
            parts[transport.rank], **fit
        ),
    )


@pytest.mark.slow
@pytest.mark.parametrize("k", [3, 0.5, 1])
@pytest.mark.parametrize("settings", [{}, {"scale": True, "missing": "mean"}, {"solver": "tracked-subspace"}], ids=str)
def test_every_node_has_what_the_simulation_has(parts, k, settings):
    if "scale" in settings:
        varied = np.ptp(np.vstack(parts), axis=0) > 0
        parts = [part[:, varied].copy() for part in parts]
        parts[1][2, 3] = np.nan
    settings = {"n_components": k, "topology": "cycle", "averaging": "tree", "solver": "block-krylov", **settings}
    simulated = DecentralizedPCA(random_state=0, **settings).fit(parts)
    for pca in nodes(parts, settings):
        assert angles(pca.components_, simulated.components_.T).max() < 1e-12
        assert (np.sum(pca.components_ * simulated.components_, axis=1) > 0).all()
        assert np.allclose(pca.mean_, simulated.mean_, rtol=1e-14)
        assert np.allclose(pca.explained_variance_ratio_, simulated.explained_variance_ratio_, rtol=1e-12)
        assert (pca.n_samples_, pca.n_nodes_, pca.n_components_) == (1797, M, simulated.n_components_)
        assert pca.traffic_ == simulated.traffic_


def test_as_many_components_as_the_pooled_samples_allow():
    X = np.random.default_rng(0).standard_normal((11, 30))
    # No node could tell min(N - 1, d) from its own two samples.
    for pca in nodes(np.array_split(X, M), {"topology": "star"}):
        assert pca.n_components_ == 10


def test_feature_names_travel_along_and_differing_ones_are_refused(parts):
    frames = [pd.DataFrame(part[:, :8], columns=list("abcdefgh")) for part in parts]
    assert nodes(frames, {"n_components": 2})[3].feature_names_in_.tolist() == list("abcdefgh")
    frames[2] = frames[2][list("bacdefgh")]
    with pytest.raises(InputError, match='feature_names: column 0 is "b" at node 2, "a" at nodes 0, 1, 3, 4'):
        nodes(frames, {"n_components": 2})


def test_a_node_with_one_sample_is_a_node(parts):
    X = np.vstack(parts)
    few = np.split(X, [1, 500, 900, 1300])
    for pca in nodes(few, {"n_components": 2}):
        assert pca.n_samples_ == 1797


def test_shards_of_another_node_and_lists_are_refused(parts):
    hub = ThreadHub(M)
    pca = DecentralizedPCA(2, transport=hub.transport(1))
    with pytest.raises(InputError, match=r"this process is node 1 of 5, but the samples are those of nodes \[0\]"):
        pca.fit(Shards.from_list(parts).take([0]))
    with pytest.raises(InputError, match="not a list of parts"):
        pca.fit(parts)
    with pytest.raises(InputError, match="y= and nodes="):
        pca.fit(parts[1], nodes=np.zeros(len(parts[1])))


def test_what_a_transport_cannot_do_is_said(parts):
    with pytest.raises(UnknownNameError, match="unknown transport 'carrier-pigeon'"):
        DecentralizedPCA(2, transport="carrier-pigeon").fit(parts[0])
    with pytest.raises(InputError, match="carries NumPy arrays"):
        nodes(parts, {"n_components": 2, "device": "cpu"})
    with pytest.raises(InputError, match="no all-reduce"):
        nodes(parts, {"n_components": 2, "averaging": AllReduce()})


def test_a_clone_shares_the_connection():
    transport = ThreadHub(2).transport(0)
    assert clone(DecentralizedPCA(transport=transport)).transport is transport


@pytest.mark.slow
def test_torch_on_the_cpu_gives_the_same_components(parts):
    pytest.importorskip("torch")
    ours, theirs = (
        DecentralizedPCA(3, topology="cycle", device=device, random_state=0).fit(parts) for device in ("cpu", None)
    )
    assert isinstance(ours.components_, np.ndarray)
    assert angles(ours.components_, theirs.components_.T).max() < 1e-12


def test_a_device_that_is_not_there_is_an_error(parts):
    with pytest.raises((InputError, MissingExtraError), match="abacus"):
        DecentralizedPCA(3, device="abacus").fit(parts)


@pytest.mark.parametrize(
    "settings",
    [
        {"n_components": 3},
        {"n_components": 0.5, "scale": True, "topology": "cycle"},
        {"n_components": 2, "solver": "tracked-subspace", "averaging": "polynomial"},
    ],
    ids=str,
)
def test_threads_by_name_are_the_simulation_with_real_messages(settings):
    X = load_digits().data[:, 18:30]
    simulated, threads = (
        DecentralizedPCA(**settings, n_nodes=M, transport=t, random_state=0).fit(X) for t in (None, "threads")
    )
    assert angles(threads.components_, simulated.components_.T).max() < 1e-12
    assert angles(threads.node_components_, simulated.components_.T).max() < 1e-6
    assert threads.node_components_.shape == simulated.node_components_.shape
    assert threads.traffic_ == simulated.traffic_
    assert threads.result_.traffic_by_phase == simulated.result_.traffic_by_phase
    assert [record[:5] for record in threads.history_] == [record[:5] for record in simulated.history_]
    assert threads.history_[-1][1:5] == tuple(vars(threads.traffic_).values())
    assert threads.node_names_ == simulated.node_names_ == ("0", "1", "2", "3", "4")
    assert (threads.weights_.matrix == simulated.weights_.matrix).all()


@pytest.mark.parametrize("transport", [None, "threads"])
def test_nodes_keep_their_names_and_the_network_is_kept(parts, transport):
    X, y = load_digits(return_X_y=True)
    names = np.array(["oslo", "bergen", "narvik"])[y % 3]
    star = graphs.metropolis(graphs.topologies.star(3))
    fitted = DecentralizedPCA(2, topology=star, transport=transport).fit(X, nodes=names)
    assert fitted.node_names_ == ("bergen", "narvik", "oslo")
    assert fitted.weights_ is star
    numbered = DecentralizedPCA(2, topology="path", transport=transport).fit(parts)
    assert numbered.node_names_ == ("0", "1", "2", "3", "4")
    assert (numbered.weights_.n_nodes, numbered.weights_.edges) == (5, 4)


def test_a_process_that_is_one_node_knows_the_whole_network(parts):
    for pca in nodes(parts, {"n_components": 2, "topology": "cycle"}):
        assert pca.node_names_ == ("0", "1", "2", "3", "4")
        assert (pca.weights_.n_nodes, pca.weights_.edges) == (5, 5)
