"""Nodes that are processes of their own find out whether their settings and data fit together, on every engine."""

from functools import cache
from pathlib import Path
from tempfile import TemporaryDirectory

import numpy as np
import pytest

from eigenmesh import graphs
from eigenmesh.averaging import Tree
from eigenmesh.data import Shards
from eigenmesh.errors import InputError
from eigenmesh.fitting import NodeData, Request, prepare
from eigenmesh.fitting.matching import common_settings, described
from eigenmesh.settings import A_STREAM, ONE_FIT
from eigenmesh.solvers import BlockKrylov
from eigenmesh.transports import run_threads
from eigenmesh.words import canonical
from problems import angles, truth
from transports.engines import ENGINES, launch, row
from transports.failures import CULPRIT, FOR_EVER_S
from transports.setting_scenarios import DATA, FIELDS, OWN, REQUEST, SIZE, STREAM, USUAL, rows_of, set_on

M = 4
# The sites of `eigenmesh site run` compare manifests, which have tests of their own.
RANKED = [row(name) for name in ENGINES if name != "tls"]
TOLD = [
    *(("request", name, said) for name, (_, said) in REQUEST.items()),
    *(("stream", name, said) for name, (_, said) in STREAM.items()),
    *(("data", name, said) for name, said in DATA.items()),
]


@cache
def all_settings(name):
    """Every setting in turn, within one launch."""
    if reason := ENGINES[name].missing():
        pytest.skip(reason)
    with TemporaryDirectory() as folder:
        names = ["request", "own", "stream", "data", "nameless"]
        ended = launch(ENGINES[name], SIZE, "transports.setting_scenarios", names, Path(folder))
    assert ended.status == 0, ended.output
    return ended.results


@pytest.mark.parametrize(("kind", "name", "said"), TOLD, ids=[f"{kind}-{name}" for kind, name, _ in TOLD])
@pytest.mark.parametrize("engine", RANKED)
def test_a_setting_that_differs_at_one_node_is_refused_by_name(engine, kind, name, said):
    if name == "changing" and not ENGINES[engine].changes_links:
        pytest.skip(f"{engine} has links that stay")
    if engine == "torch" and kind == "stream" and name not in set_on("TorchTransport"):
        pytest.skip(f"a stream on torch takes no {name}")
    for rank, results in all_settings(engine).items():
        told = str(results[f"{kind}/{name}"])
        assert told.startswith("InputError: nodes have different settings: "), (rank, told)
        assert said in told, rank


@pytest.mark.parametrize("engine", RANKED)
def test_what_a_node_chooses_for_itself_may_differ(engine):
    pooled = truth(np.vstack([rows_of(rank) for rank in range(SIZE)]))[1]
    for results in all_settings(engine).values():
        assert angles(results["own/components"], pooled).max() <= results["own/bound"] < USUAL.tol
        assert results["nameless/bound"] < USUAL.tol


@pytest.mark.parametrize("engine", RANKED)
def test_a_node_that_fails_before_the_comparison_ends_all(engine, tmp_path):
    if reason := ENGINES[engine].missing():
        pytest.skip(reason)
    ended = launch(
        ENGINES[engine], SIZE, "transports.setting_scenarios", ["fails-before"], tmp_path, timeout_s=FOR_EVER_S
    )
    assert ended.by_itself
    assert "no such data here" in ended.errors[CULPRIT]
    assert not ended.results


def test_every_field_of_a_request_is_compared_or_chosen_by_each_node():
    assert {*REQUEST, *OWN} == FIELDS
    assert set(common_settings(USUAL)) == set(REQUEST)


def test_every_parameter_of_an_estimator_that_nodes_must_agree_on_is_compared():
    agreed = {name for name, row in {**ONE_FIT, **A_STREAM}.items() if row.agree}
    # These are compared as the network, and as the kind of the data; these are not parameters.
    compared = {*REQUEST, *STREAM, "topology", "weights", "partition"} - {"at_most", "seed", "min_samples"}
    assert agreed == compared


@pytest.mark.parametrize(
    ("one", "two"),
    [
        (BlockKrylov(), BlockKrylov(max_width=3)),
        (np.arange(3.0), np.arange(3)),
        (np.arange(3.0), np.array([0.0, 1.0, 3.0])),
        (float("inf"), float("nan")),
        (True, 1),
        (None, "none"),
        (np.sort, np.argsort),
    ],
    ids=lambda value: type(value).__name__,
)
def test_settings_have_the_same_text_if_and_only_if_they_are_the_same(one, two):
    assert canonical(described(one)) == canonical(described(one))
    assert canonical(described(one)) != canonical(described(two))


def test_an_object_that_is_no_dataclass_has_a_text_without_its_address():
    class Bare:
        def __init__(self, step):
            self.step = step

    assert described(Bare(0.5)) == described(Bare(np.float64(0.5)))
    assert described(Bare(0.5))["step"] == 0.5


def samples(rows, columns, dtype=np.float64):
    return np.random.default_rng(rows).standard_normal((rows, columns)).astype(dtype)


def count(parts, topology="path"):
    weights = graphs.metropolis(graphs.topology(topology, M))

    def node(transport):
        rank = transport.rank
        shards = Shards.from_list([parts[rank]], ids=[rank], n_nodes=M)
        prepared = prepare(Request(n_components=1, seed=0), NodeData(shards, weights, transport))
        # The comparison is no round and no message of the fit, whose moments are one sum over a tree.
        assert prepared.network.traffic.rounds == Tree().prepare(weights).rounds
        return prepared.moments.n_samples

    return run_threads(M, node)


@pytest.mark.parametrize("topology", ["path", "star", "cycle", "complete"])
def test_all_nodes_learn_the_number_of_samples(topology):
    assert count([samples(rank + 2, 3) for rank in range(M)], topology=topology) == [14] * M


def test_nodes_may_hold_numbers_of_different_dtypes():
    assert count([samples(4, 3, np.float32 if rank == 1 else np.float64) for rank in range(M)]) == [16] * M


def test_several_nodes_that_differ_are_all_named():
    with pytest.raises(InputError) as refused:
        count([samples(4, (3, 5, 3, 6)[rank]) for rank in range(M)])
    assert "n_features: 5 at node 1, 3 at nodes 0, 2" in str(refused.value)
    assert "n_features: 6 at node 3, 3 at nodes 0, 2" in str(refused.value)
